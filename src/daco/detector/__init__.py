"""A detector for one machine: estimators, thresholds, the model file, the verdict."""
