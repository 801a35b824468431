"""The paper's printed values, recomputed from the files that its authors published.

`published` and `printed` hold both sides; `scores`, `statistics`, `experiments` recompute values.
"""
