"""Evaluation: official metrics, statistics over machines, scores of any system.

Read `metrics` first: AUC, partial AUC and the rules of the years. `official` computes metrics,
official scores and their intervals from one table of clips. `intervals` has bootstraps, permutation
tests and rank correlations. `scorefiles` reads and writes the files of the challenge,
`system_scores` the scores of any system; `truth` matches them to labels and `evaluate` measures
them.
"""
