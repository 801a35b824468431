"""Models of many machines, fitted in parallel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from daco.compute import run
from daco.detector.decision import FALSE_ALARM_RATE
from daco.detector.gate import (
    doubtful_normals,
    require_detection,
    require_few,
    suspicious_normals,
)
from daco.detector.model import MachineModel, timestamp
from daco.detector.ranges import ranges_of
from daco.embedding.normals import Normals
from daco.errors import DacoError
from daco.method.bank import NormalBank
from daco.method.config import DEFAULT_CONFIG
from daco.method.coreset import choose_normals
from daco.method.distances import equal_views
from daco.method.selection import choose_config
from daco.method.siblings import AUTO

CHOOSE = "choose"
"""In place of a configuration: the label-free choice among `daco.method.config.blind_pool`."""

_RECORDED = 100  # suspicious normals that a model names


def fit_machines(
    machines: Sequence[Normals],
    *,
    config: str = DEFAULT_CONFIG,
    false_alarm_rate: float = FALSE_ALARM_RATE,
    siblings: int | str = AUTO,
    max_normals: int | None = None,
    keep_suspicious: bool = False,
    workers: int | None = 1,
    engine: str = "local",
) -> Iterator[tuple[int, MachineModel | DacoError]]:
    """Fit a model for each machine, and yield its position and the model, or the error.

    Models come as soon as they are finished, and do not depend on the workers.

    Parameters
    ----------
    machines : sequence of Normals
        The normals of each machine.
    config, false_alarm_rate, siblings
        As in :meth:`MachineModel.fit`; ``"choose"`` chooses a configuration for each machine
        (:func:`daco.method.selection.choose_config`).
    max_normals : int, optional
        Reduce each machine to this many normals (:func:`daco.method.coreset.choose_normals`).
        ``thinned_from`` in the provenance of the model records how many there were.
    keep_suspicious : bool
        Whether to use normals that :func:`daco.detector.gate.suspicious_normals` finds. The
        provenance lists their names as ``kept`` or ``left_out``.
    workers, engine : int or None, str
        As ``jobs`` and ``engine`` of :func:`daco.compute.run`; by default this process works.
    """
    fit = partial(
        _fit,
        config=config,
        max_normals=max_normals,
        keep_suspicious=keep_suspicious,
        created=timestamp(),  # one time for all of them, and that of this computer
        false_alarm_rate=false_alarm_rate,
        siblings=siblings,
    )
    items = ((index, (normals,)) for index, normals in enumerate(machines))
    for index, outcome in run(fit, items, jobs=workers, engine=engine):
        if isinstance(outcome, DacoError):
            outcome = type(outcome)(f"{machines[index].machine}: {outcome}")
        yield index, outcome


def _fit(
    normals: Normals,
    *,
    config: str,
    max_normals: int | None,
    keep_suspicious: bool,
    created: str,
    **options: Any,
) -> MachineModel:
    """The model of one machine."""
    origin: dict[str, Any] = {"created": created} | normals.origin
    rows = np.arange(len(normals))
    if suspicious := suspicious_normals(normals):
        listed = {normals.names[row]: reason for row, reason in suspicious.items()}
        origin["kept" if keep_suspicious else "left_out"] = dict(islice(listed.items(), _RECORDED))
        if not keep_suspicious:
            require_few(normals, suspicious)
            rows = np.delete(rows, list(suspicious))
    good = normals.take(rows)
    if doubtful := doubtful_normals(good):
        origin["doubtful"] = {good.names[row]: reason for row, reason in doubtful.items()}
    ranges = ranges_of(good)
    if max_normals is not None and len(good) > max_normals:
        origin["thinned_from"] = len(good)
        vectors = equal_views(good.embeddings, good.views)
        chosen = choose_normals(vectors, list(good.domains), max_normals)
        good = good.take(chosen)
    if config == CHOOSE:
        bank = NormalBank(good.embeddings, list(good.domains), views=good.views)
        choice = choose_config(bank, sessions=good.sessions)
        config, options["reason"] = choice.config, choice.reason
        options["selection"] = choice.to_dict()
    model = MachineModel.fit(
        good.embeddings,
        list(good.domains),
        machine=good.machine,
        config=config,
        groups=good.sessions,
        views=good.views,
        frontend=good.frontend,
        clip_names=good.names,
        clip_sha256=good.sha256s,
        ranges=ranges,
        provenance=origin,
        **options,
    )
    require_detection(model)
    return replace(model)  # without its bank: a worker sends it back
