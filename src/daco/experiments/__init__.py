"""Experiments: a grid of configurations over many machines, and what follows from it.

``daco.study`` runs it; the room is not called ``study`` because that name is the function's.
Inside, data flow one way::

    gridfile, inputs -> machine -> workers -> assembly     from tables to tables, by machine
    faultfiles, hearing                                    what is heard of pseudo-anomalies
    aggregate -> frontier, stability, statistics           what the tables say (E2, E3)
    floor, decision, guards -> choice                      what to use, and how far to trust it
    provenance, result <- run                              all of it, filed in a folder
    comparison; balanced -> labelfree                      several runs; machines without labels
"""
