"""The paper's method on arrays; nothing here reads files, prints, or selects with labels.

Read it in this order: `bases` and `config` (the names of scores), `distances`, `neighbours` and
`geometry` (computed once for a bank), `densities` and `scorers` (base scores), `domains`
and `calibration` (scores that are comparable between domains), `criterion` (how balanced they
are), `batch` and `bank` (all of it for one bank), `machines` (for many on a GPU), `coreset`,
`given_scores` (scores of other systems). Then the choice: `choice`, `selection`, `floor`,
`viability` with `pseudo_anomalies`, and `grid_table`.
`kernels` has the few functions that exist for NumPy, numba and torch.
"""
