"""Experiments: a grid of configurations over many machines, and what follows from it.

A study is two tables: clips with their scores, and criteria. Read the modules in the order of the
data:

1. ``inputs`` reads embedding tables, ``machine_data`` the machines in them, ``grids`` the
   configurations, ``systems`` the scores of other systems;
2. ``machine`` makes the rows of one machine, with ``baselines``, in worker processes;
   ``run_folder`` keeps them;
3. ``study`` is the function ``daco.study``, ``provenance`` says what a run rests on, ``result`` is
   what a user gets;
4. ``choice`` chooses a configuration, ``analysis`` shows how far to trust it, ``select`` chooses
   for machines without labels;
5. ``figures``, ``report`` and ``export`` present a result; ``compare``, ``freeze``,
   ``submission`` and ``calibrate`` work on finished runs or on scores of others.
"""
