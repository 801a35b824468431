"""Detectors: the method with a threshold, as an estimator and as a file.

Read `thresholds` first: the one rule that turns a false-alarm rate into a score. `estimator` has
the scikit-learn classes `DACo` and `LabelFreeSearch`. `model` has `MachineModel`, the detector of
one machine with everything needed to score its recordings; `modelcheck` checks its fields and
`modelfile` stores them. `normals` collects a machine's normal clips from recordings or tables,
`fit` makes the models of many machines, and `verdict` is the answer about one recording.
"""
