"""Detectors: the method with a decision rule, as an estimator and as a file.

Read `reference` first: the one rule that turns scores into p-values and decisions. `estimator` has
the scikit-learn classes `DACo` and `LabelFreeSearch`. `model` has `MachineModel`, the detector of
one machine with everything needed to score its recordings; `modelcheck` checks its fields and
`modelfile` stores them. `normals` collects a machine's normal clips from recordings or tables,
`gate` finds suspicious ones, `ranges` learns their levels, and `fit` makes the models of many
machines. `verdict` is the decision on one recording, and `revision` adds, removes or recalibrates.
`thresholds` sets one threshold for the clips of a score file.
"""
