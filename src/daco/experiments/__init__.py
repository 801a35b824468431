"""Experiments: a grid of configurations over many machines, and what follows from it.

``daco.study`` is the function `study` in ``run``. Read the modules in the order of the data:

1. ``grids`` reads configurations, ``inputs`` tables and machines, ``faultfiles`` injected faults,
   ``baselines`` scorers and systems to compare with, ``systems`` those to choose from;
2. ``machine`` computes scores, criteria and diagnostics of one machine, in worker processes;
   ``veto`` has the pseudo scores and their veto;
3. ``assembly`` makes tables of the results, ``analysis`` and ``statistics`` evaluate them (E2, E3);
4. ``rules`` choose a configuration, ``choose`` compares their choices, ``differences`` has the
   intervals; ``labelfree`` chooses for machines without labels (``daco select``);
5. ``study_tables`` are the files of a run, ``provenance`` says what it rests on, ``figures`` and
   ``report`` present them, ``result`` is what a user gets; ``compare``, ``prereg``,
   ``verification`` and ``submission`` work on finished runs.
"""
