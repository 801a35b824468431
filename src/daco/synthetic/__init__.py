"""Synthetic sounds: machines for demonstrations, and faults for tests of a detector.

`sounds` has four kinds of machines, and `factory` writes a data set of them in the layout of the
challenge. `faults` adds a synthetic fault to any sound, `injection` embeds recordings with faults,
`fault_tables` matches them with a machine's normals, and `sensitivity` measures from which level on
a model detects them.
"""
