"""The paper's method on arrays; nothing here reads files, prints, or selects with labels.

Read `paper` first: the paper literally, one function for each equation, which everything else is
tested against. Then, in the order of the data: `config` (the names of scores), `distances`,
`scores` (base scores), `domains` (stage 1), `calibration` (stage 2), `blend` (the default score),
`siblings`, `engine` and `bank` (all of it for one bank), `criterion` (stage 3),
`viability` (the label-free veto) and `selection` (the choice).

Beside this path, `external` brings the scores of other systems, `coreset` thins a bank, and
`_loops` has the compiled loops of the criterion.
"""
