"""Models of many machines, fitted in parallel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import fields
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from daco.compute.processes import outcomes
from daco.detector.gate import require_few, require_hearing, suspicious_normals
from daco.detector.model import AUTO, MachineModel, timestamp
from daco.detector.normals import Normals
from daco.detector.thresholds import FALSE_ALARM_RATE
from daco.errors import DacoError
from daco.method.coreset import choose_normals
from daco.method.distances import equal_views
from daco.validation import Indices, as_float32

_RECORDED = 100  # suspicious normals that a model names
_KNOWN = ("embeddings", "clip_names", "clip_sha256")  # a worker does not send these back


def fit_machines(
    machines: Sequence[Normals],
    *,
    config: str = AUTO,
    false_alarm_rate: float = FALSE_ALARM_RATE,
    max_normals: int | None = None,
    keep_suspicious: bool = False,
    pool: Executor | None = None,
) -> Iterator[tuple[int, MachineModel | DacoError]]:
    """Fit a model for each machine, and yield each as soon as it is finished.

    Parameters
    ----------
    machines : sequence of Normals
        The normals of each machine. They are sent to workers as these become free.
    config, false_alarm_rate
        As in :meth:`MachineModel.fit`.
    max_normals : int, optional
        Reduce each machine to this many normals (:func:`daco.method.coreset.choose_normals`).
        ``thinned_from`` in the provenance of the model records how many there were.
    keep_suspicious : bool
        Whether to use normals that :func:`daco.detector.gate.suspicious_normals` finds; by default
        they are left out. The provenance lists their names as ``kept`` or ``left_out``.
    pool : Executor, optional
        A :func:`daco.compute.processes.worker_pool`; None works in this process.

    Yields
    ------
    index : int
        The position of the machine in `machines`.
    model : MachineModel or DacoError
        The model, or the error of its normals. The model does not depend on the workers.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.detector.fit import fit_machines
    >>> from daco.detector.normals import Normals
    >>> X = np.random.default_rng(0).normal(size=(2, 60, 8)).astype(np.float32) + 1
    >>> domains, names = ("old",) * 50 + ("new",) * 10, tuple(map(str, range(60)))
    >>> fleet = [Normals(m, x, domains, names, None, {}) for m, x in zip(("fan", "pump"), X)]
    >>> dict(fit_machines(fleet, config="raw-k1"))[1]
    MachineModel('pump', raw-k1: 10 new and 50 old clips, 8-d, rate 0.1)
    """
    # One time for all of them, and that of this computer.
    fit = partial(
        _fit,
        config=config,
        rate=false_alarm_rate,
        created=timestamp(),
        max_normals=max_normals,
        keep_suspicious=keep_suspicious,
    )
    items = ((index, (normals,)) for index, normals in enumerate(machines))
    for index, outcome in outcomes(pool, fit, items):
        if isinstance(outcome, DacoError):
            yield index, type(outcome)(f"{machines[index].machine}: {outcome}")
            continue
        model_fields, rows = outcome
        normals = machines[index] if rows is None else machines[index].take(rows)
        vectors = as_float32(normals.embeddings, "embeddings")
        yield (
            index,
            MachineModel(
                **model_fields,
                embeddings=vectors,
                clip_names=normals.names,
                clip_sha256=normals.sha256s,
            ),
        )


def _fit(
    normals: Normals,
    *,
    config: str,
    rate: float,
    created: str,
    max_normals: int | None,
    keep_suspicious: bool,
) -> tuple[dict[str, Any], Indices | None]:
    """The fields of a model except vectors and names, and the rows that it has, if not all."""
    origin: dict[str, Any] = {"created": created} | normals.origin
    rows: Indices | None = None
    if found := suspicious_normals(normals):
        listed = {normals.names[row]: reason for row, reason in found.items()}
        origin["kept" if keep_suspicious else "left_out"] = dict(islice(listed.items(), _RECORDED))
    if found and not keep_suspicious:
        require_few(normals, found)
        rows = np.delete(np.arange(len(normals)), list(found))
        normals = normals.take(rows)
    ranges = normals.ranges()
    if max_normals is not None and len(normals) > max_normals:
        vectors = equal_views(normals.embeddings, normals.bands)
        chosen = choose_normals(vectors, list(normals.domains), max_normals)
        origin["thinned_from"] = len(normals)
        normals, rows = normals.take(chosen), chosen if rows is None else rows[chosen]
    model = MachineModel.fit(
        normals.embeddings,
        list(normals.domains),
        machine=normals.machine,
        frontend=normals.frontend,
        clip_names=normals.names,
        config=config,
        false_alarm_rate=rate,
        provenance=origin,
        bands=normals.bands,
        ranges=ranges,
        groups=normals.sessions,
    )
    require_hearing(model)
    return {
        each.name: getattr(model, each.name) for each in fields(model) if each.name not in _KNOWN
    }, rows
