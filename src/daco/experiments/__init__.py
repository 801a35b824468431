"""Experiments: a grid of configurations over many machines, and what follows from it.

``daco.study`` runs it; the room is not called ``study`` because that name is the function's.
Inside, data flow one way: `inputs` -> `machine` -> `run` -> `statistics`, `choice` -> `result`,
and `comparison` sets finished results side by side.
"""
