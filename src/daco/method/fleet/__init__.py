"""The paper's method for many machines at once, on any torch device.

A fleet is a number of machines of equal shape: normals, domain sizes, features. Distances,
neighbour lists, calibrations and the criterion are the ones of :class:`daco.NormalBank`, batched
over machines. It needs the extra ``torch``; nothing here imports it before a fleet is made.
"""

from __future__ import annotations

from daco.method.fleet.bank import DeviceBank
from daco.method.fleet.inputs import computes
from daco.method.fleet.machines import Evaluated, Fleet
from daco.method.fleet.ragged import evaluate_machines

__all__ = ["DeviceBank", "Evaluated", "Fleet", "computes", "evaluate_machines"]
