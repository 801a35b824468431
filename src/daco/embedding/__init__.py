"""Embedding: recordings to vectors.

Read `frontend` first: the one way from a file, bytes or a waveform to vectors. `embed` does the
same for a whole data set, with `parts` (finished work, which an interrupted run continues),
`batches` (one part, from recordings to columns) and `output` (the table). `provenance` records how
vectors were made, and `normals` gathers the normals of each machine.
"""
