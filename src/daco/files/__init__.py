"""Files: where they are, how they are written, fetched and recognised.

Read in this order: `remote` (a location is a `pathlib.Path` or, for a URL, a `UPath`), `atomic`
(files that appear complete or not at all, and locks), `hashing`, and for
``daco download`` `download` (by pooch) and `zenodo` (the DCASE data sets).
"""
