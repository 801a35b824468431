"""Embedding: recordings to vectors.

Read `frontend` first: the one way from a file, bytes or a waveform to vectors. `embed` does the
same for a whole data set, in `parts`, which an interrupted run continues, and writes a table
(`output`). `provenance` records how vectors were made, and `normals` gathers the normals of each
machine.
"""
