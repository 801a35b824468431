"""Official metrics of one machine, the rules of the years, and F1 of decisions.

``scores``, ``labels`` and ``domains`` have one entry per clip. A higher score is more anomalous;
label 1 is an anomaly, 0 a normal clip. Results are fractions, as of the challenge's evaluator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from daco.errors import InputError
from daco.validation import Bools, Float64s, Indices, encode_domains, finite_array, plain_array

EPSILON = float(np.finfo(np.float64).eps)  # the evaluator's floor of means and denominators
NOMINAL_LEVELS = (0.1, 0.15, 0.2, 0.3, 0.5)  # of the paper's coverage table
_BLOCK = 1 << 18  # scores ranked at once: keeps the temporaries under about 40 MB

QUANTITIES = ("auc_source", "auc_target", "pauc")
"""The columns of a per-machine table whose harmonic mean is the official score."""

Quantities = Sequence[str] | None


class GridMetrics(NamedTuple):
    """Metrics of C configurations: ``values`` (C, Q), and ``columns``, the Q names of metrics."""

    values: Float64s
    columns: tuple[str, ...]


class YearRule(NamedTuple):
    """How the challenge of a year measures a section, and how it averages over machines.

    ``of_domain`` are the metrics of each domain, ``of_all`` those of all clips, ``files`` the names
    of score and decision files. The ``harmonic`` mean is over all values, the ``arithmetic`` one
    over the sections of a machine, then over machines.
    """

    of_domain: tuple[str, ...]
    of_all: tuple[str, ...]
    mean: str
    files: str


RULES: Mapping[int, YearRule] = {
    2020: YearRule((), ("auc", "pauc"), "arithmetic", "{kind}_{machine}_id_{section}.csv"),
    2021: YearRule(
        ("auc", "pauc"), (), "harmonic", "{kind}_{machine}_section_{section}_{domain}_test.csv"
    ),
    **dict.fromkeys(
        range(2022, 2027),
        YearRule(("auc",), ("pauc",), "harmonic", "{kind}_{machine}_section_{section}_test.csv"),
    ),
}
"""The rules of each year of the challenge."""


def rule_of(year: int | None) -> YearRule:
    """The rule of a year; the latest one for years that have none."""
    return RULES.get(year or 0, RULES[max(RULES)])


def quantities_of(year: int | None, domains: Collection[str]) -> tuple[str, ...]:
    """Metrics of the challenge of `year` for a machine with these domains.

    Without a year and from 2022 on, a domain has an AUC against the anomalies of all domains, and
    all clips have one pAUC. In 2021 AUC and pAUC of a domain are of its clips only. In 2020, and
    where a machine has one domain, there are AUC and pAUC.

    >>> quantities_of(2024, ["source", "target"]), quantities_of(2020, ["all"])
    (('auc_source', 'auc_target', 'pauc'), ('auc', 'pauc'))
    >>> quantities_of(2021, ["source", "target"])
    ('auc_source', 'auc_target', 'pauc_source', 'pauc_target')
    """
    names = sorted(set(domains))
    if len(names) < 2:
        return "auc", "pauc"
    rule = rule_of(year)
    return *(f"{metric}_{name}" for metric in rule.of_domain for name in names), *rule.of_all


def machine_metrics(
    scores: ArrayLike, labels: ArrayLike, domains: ArrayLike, quantities: Quantities = None
) -> dict[str, float]:
    """Compute the official AUC of each domain and the partial AUC of one machine.

    The AUC of a domain compares its normal clips with the anomalies of *all* domains; ties count
    half. The partial AUC is of rates up to 0.1 on all clips (McClish; chance is 0.5).

    Parameters
    ----------
    scores, labels, domains : n values
    quantities : sequence of str, optional
        The metrics of another year, see :func:`quantities_of`.

    Returns
    -------
    {str: float}
        The metrics by name, as fractions.

    Examples
    --------
    >>> domains = ["source", "target", "target", "source"]
    >>> machine_metrics([0.1, 0.6, 0.4, 0.9], [0, 0, 1, 1], domains)
    {'auc_source': 1.0, 'auc_target': 0.5, 'pauc': 0.7368421052631579}
    """
    matrix = finite_array(scores, "scores", 1)[:, None]
    values, columns = grid_metrics(matrix, labels, domains, quantities)
    return dict(zip(columns, values[0].tolist(), strict=True))


def grid_metrics(
    score_matrix: ArrayLike, labels: ArrayLike, domains: ArrayLike, quantities: Quantities = None
) -> GridMetrics:
    """Compute `machine_metrics` for each of C configurations, the columns of `score_matrix`.

    `quantities` are as :func:`quantities_of` returns them: ``auc`` and ``pauc`` are of all clips;
    beside ``pauc_<domain>``, an ``auc_<domain>`` is of the clips of that domain only.

    >>> scores = [[0.1, 5], [0.6, 3], [0.4, 3], [0.9, 3]]
    >>> values, columns = grid_metrics(scores, [0, 0, 1, 1], ["a", "b", "b", "a"])
    >>> columns, values[1].round(3).tolist()
    (('auc_a', 'auc_b', 'pauc'), [0.0, 0.5, 0.474])
    >>> grid_metrics(scores, [0, 0, 1, 1], ["a", "b", "b", "a"], ["auc", "pauc"]).values[0].tolist()
    [0.75, 0.7368421052631579]
    """
    scores = finite_array(score_matrix, "score_matrix", 2).T
    truth, names, codes = _truth(scores.shape[1], labels, domains)
    aucs = tuple(f"auc_{name}" for name in names)
    wanted = (*aucs, "pauc") if quantities is None else tuple(quantities)
    known: dict[str, Float64s] = {}
    if any(name.startswith("pauc_") for name in wanted):
        for code, name in enumerate(names):
            inside = codes == code
            if not truth[inside].any():
                raise InputError(f"Domain {name!r} has no anomaly (label 1). Give at least one.")
            areas = _areas(scores[:, inside], truth[inside].astype(np.intp))
            known |= zip((aucs[code], f"pauc_{name}"), areas.T, strict=True)
    elif "auc" in wanted:
        known |= zip(("auc", "pauc"), _areas(scores, truth.astype(np.intp)).T, strict=True)
    else:
        kinds = np.where(truth, len(names), codes)  # a normal clip's domain; anomalies last
        known |= zip((*aucs, "pauc"), _areas(scores, kinds).T, strict=True)
    if unknown := [name for name in wanted if name not in known]:
        raise InputError(
            f"The 'quantities' argument must be of {', '.join(known)} here. Got {unknown[0]!r}."
        )
    return GridMetrics(np.column_stack([known[name] for name in wanted]), wanted)


def harmonic_mean(values: ArrayLike, axis: int | None = None) -> Any:
    """Compute a harmonic mean, over all values or along an axis; values are at least 2.2e-16."""
    clamped = np.maximum(finite_array(values, "values", None), EPSILON)
    if clamped.size == 0:
        raise InputError("There is nothing to average. Give the metrics of at least one machine.")
    return 1.0 / np.mean(1.0 / clamped, axis=axis)


def official_score(
    metrics: Mapping[Any, Mapping[str, float]] | Iterable[Mapping[str, float]],
    year: int | None = None,
) -> float:
    """Compute the official score: the harmonic mean over machines and metrics.

    Parameters
    ----------
    metrics : {machine: dict}, {(machine, section): dict} or iterable of dicts
        The metrics of each machine, as `machine_metrics` returns them, or all in percent.
    year : int, optional
        In 2020 the score is the arithmetic mean over the sections of a machine, then over machines.

    Returns
    -------
    float
        In the unit of the metrics.

    Examples
    --------
    >>> fan = {"auc_source": 0.8, "auc_target": 0.4, "pauc": 0.5}
    >>> round(official_score({"fan": fan}), 4), round(official_score({"fan": fan}, 2020), 4)
    (0.5217, 0.5667)
    """
    named = metrics.items() if isinstance(metrics, Mapping) else enumerate(metrics)
    machines: dict[Any, list[list[float]]] = {}
    for key, quantities in named:
        if not isinstance(quantities, Mapping):
            raise InputError(f"The metrics of {key!r} must be a mapping. Got {quantities!r}.")
        for name, value in quantities.items():
            if name.split("_")[0] not in ("auc", "pauc") or not 0 <= value <= 100:
                raise InputError(
                    f"The official score needs auc and pauc from 0 to 100 only. Got {name} = "
                    f"{value!r} for machine {key!r}."
                )
        machine = key[0] if isinstance(key, tuple) else key
        machines.setdefault(machine, []).append(list(quantities.values()))
    values = np.array([value for rows in machines.values() for row in rows for value in row])
    if np.any(values > 1) and np.any((values > 0) & (values <= 1)):
        raise InputError("The metrics mix units, fractions and percent. Give all in one unit.")
    harmonic = float(harmonic_mean(values))
    if rule_of(year).mean == "harmonic":
        return harmonic
    return float(np.mean([np.mean(rows) for rows in machines.values()]))


def decision_metrics(
    decisions: ArrayLike, labels: ArrayLike, domains: ArrayLike
) -> dict[str, float]:
    """Compute precision, recall and F1 in each domain, on its own clips; 0/0 counts as 0.

    A decision is 1 for an anomalous clip. If half of the clips are anomalies, a system that always
    decides 1 has F1 = 0.667.

    >>> decision_metrics([1, 1, 0], [0, 1, 1], ["line-2"] * 3)
    {'precision_line-2': 0.5, 'recall_line-2': 0.5, 'f1_line-2': 0.5}
    """
    alarms = _binary(decisions, "decisions", "Write 1 for an alarm and 0 for none.")
    truth, names, codes = _truth(len(alarms), labels, domains)
    result: dict[str, float] = {}
    for code, name in enumerate(names):
        inside = codes == code
        hits, n_alarms = int(np.sum(alarms & truth & inside)), int(np.sum(alarms & inside))
        n_anomalies = int(np.sum(truth & inside))
        result[f"precision_{name}"] = hits / max(n_alarms, 1)
        result[f"recall_{name}"] = hits / max(n_anomalies, 1)
        result[f"f1_{name}"] = 2 * hits / max(n_alarms + n_anomalies, 1)
    return result


def _areas(scores: Float64s, kinds: Indices) -> Float64s:
    """One AUC per kind of normal clip against the last kind, the anomalies, and the pAUC of all."""
    values = np.empty((len(scores), int(kinds.max()) + 1))
    rows = max(1, _BLOCK // len(kinds))
    for start in range(0, len(scores), rows):
        values[start : start + rows] = _block_metrics(scores[start : start + rows], kinds)
    return values


def _block_metrics(scores: Float64s, kinds: Indices) -> Float64s:
    """Areas under the ROC curves of all rows, walked down from the highest score.

    Clips that tie make one step, up by its anomalies and right by its normals. Areas are
    counted in pairs of clips, whole or half, so that only the last division rounds.
    """
    n_rows, n_clips = scores.shape
    *domain_sizes, n_anomalies = np.bincount(kinds).tolist()
    n_normals = n_clips - n_anomalies

    falling = np.negative(scores, order="C")
    order = np.argsort(falling, axis=1)
    ordered = np.take_along_axis(falling, order, axis=1)
    step_ends = np.ones(ordered.shape, dtype=bool)
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=step_ends[:, :-1])
    steps = np.flatnonzero(step_ends)  # of all rows in one run: a row's end ends a step
    row = steps // n_clips
    first = np.searchsorted(row, np.arange(n_rows))
    ordered_kinds = kinds[order].ravel()

    def passed(kind: int) -> Indices:
        return np.cumsum(ordered_kinds == kind, dtype=np.intp)[steps]

    hits_so_far = passed(len(domain_sizes))
    hits = np.diff(hits_so_far, prepend=0)
    hits_after = hits_so_far - row * n_anomalies
    hits_before = hits_after - hits
    result = np.empty((n_rows, len(domain_sizes) + 1))
    for code, size in enumerate(domain_sizes):
        pairs = np.diff(passed(code), prepend=0) * (hits_before + hits_after)
        result[:, code] = np.add.reduceat(pairs, first) / (2 * size * n_anomalies)

    alarms_after = steps + 1 - row * n_clips
    normals = np.diff(steps, prepend=-1) - hits
    normals_before = alarms_after - hits_after - normals
    # Standardised over rates up to 1/10, the area is (9 + 100 area) / 19. Tenths of clips are
    # whole numbers; only the step that crosses the limit counts in part, as share**2 / normals.
    share = np.clip(n_normals - 10 * normals_before, 0, 10 * normals)
    whole = share == 10 * normals
    pairs = np.where(whole, 50 * normals * (hits_before + hits_after), 10 * share * hits_before)
    rest = np.add.reduceat(np.where(whole, 0.0, share.astype(np.float64) ** 2 * hits), first)
    cut = np.maximum(np.add.reduceat(np.where(whole | (share == 0), 0, 2 * normals), first), 1)
    of = float(n_normals * n_anomalies)
    result[:, -1] = ((9 * of + np.add.reduceat(pairs, first)) * cut + rest) / (19 * of * cut)
    return result


def _binary(values: ArrayLike, name: str, remedy: str) -> Bools:
    given = plain_array(values, name, 1).tolist()
    for index, value in enumerate(given):
        if value not in (0, 1):
            raise InputError(
                f"The {name!r} argument must be 0 or 1. Got {value!r} at index {index}. {remedy}"
            )
    return np.array(given, dtype=bool)


def _truth(n_clips: int, labels: ArrayLike, domains: ArrayLike) -> tuple[Bools, list[str], Indices]:
    """Labels, domain names and each clip's position among them, checked against each other."""
    truth = _binary(labels, "labels", "Write 1 for an anomaly and 0 for a normal clip.")
    if len(truth) != n_clips:
        raise InputError(
            f"The 'labels' argument must have {n_clips} entries, one per clip. Got {len(truth)}."
        )
    names, codes = encode_domains(plain_array(domains, "domains", 1).tolist(), n_clips)
    if truth.all() or not truth.any():
        missing = "normal clip (label 0)" if truth.all() else "anomaly (label 1)"
        raise InputError(f"The 'labels' argument has no {missing}. Give at least one.")
    normals = np.bincount(codes[~truth], minlength=len(names))
    if not normals.all():
        raise InputError(
            f"Domain {names[normals.argmin()]!r} has no normal clip to compare with. Add normal "
            "clips of it or leave its clips out."
        )
    return truth, [str(name) for name in names], codes
