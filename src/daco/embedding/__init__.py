"""Embedding: recordings to vectors.

Read `frontend` first: the one way from a file, bytes or a waveform to vectors. `embed` does the
same for a whole data set, with `loader` (threads that read files), `shards` (finished parts, which
an interrupted run continues) and `output` (the table). `cluster` works on Ray, `provenance` records
how vectors were made, and `cost` how long it took.
"""
