"""Detectors: the method with a decision rule, as an estimator and as a file.

Read `decision` first: the one rule that turns scores into p-values and decisions; `reference` has
the reference scores of a bank. `estimator` and `search` have the scikit-learn classes `DACo` and
`LabelFreeSearch`, `displays` their pictures, and `calibrator` the calibration of anybody's scores.
`model` has `MachineModel`, the detector of one machine with everything needed to score its
recordings; `modelfields` lists its fields and `modelfile` stores them. `gate` finds suspicious
normals, `ranges` learns their levels, and `fit` makes the models of many machines. `verdict` is the
decision on one recording, and `revision` adds, removes or recalibrates.
"""
