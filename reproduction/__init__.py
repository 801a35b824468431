"""The paper's printed values, recomputed from the files that its authors published.

Read `published` (the authors' tables) and `printed` (the printed values as data, and when a
recomputed value agrees with one) first. The functions of `scores`, `statistics` and `experiments`
recompute values from the tables; `printed.csv` names the one of each value. `check` puts both sides
together, and ``python -m reproduction`` shows them.
"""
