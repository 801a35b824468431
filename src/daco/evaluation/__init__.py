"""Evaluation: official metrics, statistics over machines, score files.

Read `metrics` first: AUC, partial AUC and the official score of the challenge. `statistics` has
rank correlations and permutation tests, `intervals` the jackknife and the bootstraps. `scorefiles`
reads and writes the challenge's files and assigns their rows to clips, `score_tables` reads tables
of other systems' scores, `evaluate` scores a system from its files, and `results` holds its scores.
"""
