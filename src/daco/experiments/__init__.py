"""Experiments: a grid of configurations over many machines, and what follows from it.

``daco.study`` runs it; the room is not called ``study`` because that name is the function's.
Inside, data flow one way::

    gridfile, inputs -> machine -> workers -> assembly     from tables to tables, by machine
    faultfiles, veto                                       detection of pseudo-anomalies
    aggregate -> frontier, statistics                      correlations, gains (E2, E3)
    decision -> choose, stability                          what to use, and how far to trust it
    study_tables -> report -> result <- run                all of it, written to a folder
    comparison; labelfree                                  several runs; machines without labels
"""
