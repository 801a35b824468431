"""The paper's method, in its order: distances, scores, calibration, criterion, selection.

Arrays in, arrays out: no files, no printing, no labels in anything that selects.
"""
