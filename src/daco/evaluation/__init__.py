"""Official metrics, statistics over machines, score files and their evaluation."""
