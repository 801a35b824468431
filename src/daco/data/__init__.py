"""Clips and their embeddings: what a recording is, and tables of vectors.

Start with `clips` (a clip and a table of clips) and `sources` (`read_clips` of a folder or
manifest). `folders` says what plain folders mean, `manifest` reads CSV and Parquet lists, `dcase`
the data sets of the challenge, `dcase_truth` its evaluation labels; `sessions` finds out which
clips were recorded together. `table` has the `EmbeddingTable`, on top of `columns` (checks) and
`parquet` (the file).
"""
