"""The paper's method on arrays; nothing here reads files, prints, or selects with labels.

Read it in this order: `bases` and `config` (the names of scores), `distances`, `neighbours` and
`geometry` (computed once for a bank), `densities` and `scorers` (base scores), `domains`
and `calibration` (scores that are comparable between domains), `vote` (all configurations
together), `criterion` (how balanced scores are), `batch` and `bank` (all of it for one bank),
`siblings` (scores of normals as if they were new). Then the choice: `choice`, `selection`, `floor`,
`viability` with `pseudo_anomalies`, and `grid_table`.

Beside this path, `machines` computes many banks on a GPU, `coreset` thins a bank, `external` and
`given_scores` bring scores of other systems, `limits` checks configurations, and `kernels` has the
few functions that exist for NumPy, numba and torch.
"""
