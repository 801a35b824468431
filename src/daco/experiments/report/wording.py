"""Sentences of the report: what a configuration does, and what the numbers do and do not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daco.errors import ConfigError
from daco.evaluation.intervals import larger_than_chance, too_few_machines
from daco.experiments.tables import written
from daco.method.config import ScoreConfig

RULES = {
    "random": "a configuration drawn at random",
    "fixed": "the fixed default, named in advance",
    "dev score": "best score on development machines (usual practice)",
    "criterion": "smallest criterion on development machines",
    "criterion on evaluation normals": "smallest criterion on evaluation machines’ normals",
    "guarded criterion": "smallest criterion after the development-score veto",
    "criterion, both vetoes": "smallest criterion after both vetoes",
    "criterion, label-free veto": "smallest criterion of what hears pseudo-anomalies",
    "per-machine blind": "each machine its own, by the criterion on its normals",
    "oracle": "best in hindsight: an upper bound, not a rule",
}
"""What each selection rule does."""


def explain(config: str) -> str:
    """What a configuration does, in plain words.

    Examples
    --------
    >>> from daco.experiments.report.wording import explain
    >>> explain("raw-k1")
    'Scores a clip by its distance to the nearest normal clip.'
    """
    try:
        parsed = ScoreConfig.parse(config)
    except ConfigError:
        return "A configuration of the study’s own."
    sentences = [f"Scores a clip by {_scorer(parsed)}."]
    if parsed.calibration is not None:
        sentences.append(f"The score is then {_calibration(parsed)}.")
        sentences.append(_ASSIGNED[parsed.assignment])
    return " ".join(sentences)


_ASSIGNED = {
    "soft": "A clip between the domains is weighed softly between them.",
    "hard": "A clip counts to the domain whose normals are nearer.",
    "oracle": "The true domain is given, so this is a diagnostic and no detector.",
    None: "",
}


def _scorer(config: ScoreConfig) -> str:
    if config.bandwise or config.scorer not in ("knn", "ldn-ratio", "ldn-diff"):
        return config.base.words
    count = config.neighbours
    if config.scorer == "knn" and count > 1:
        return f"its mean distance to the {count} nearest normal clips"
    nearest = "its distance to the nearest normal clip"
    if config.scorer == "knn":
        return nearest
    relation = "relative to" if config.scorer == "ldn-ratio" else "less"
    neighbours = "neighbour" if count == 1 else f"{count} neighbours"
    return f"{nearest}, {relation} how far normals lie from their own {neighbours} there"


def _calibration(config: ScoreConfig) -> str:
    if config.calibration == "ratio":
        return "divided by the median normal score of its domain"
    if config.calibration == "zscore":
        return "standardised with the mean and spread of its domain’s normal scores"
    m = f"{config.prior_strength:g}"
    pooling = "nothing is borrowed from the other domain"
    if config.prior_strength:
        pooling = f"the ranking of all clips together weighs as much as {m} clips"
    return f"ranked among the normal scores of its domain (m = {m}: {pooling})"


def reading(selection: Mapping[str, Any], n_machines: int) -> list[str]:
    """What may be concluded from the comparison of the chosen one with the others.

    Where several intervals of a difference are known, the one over machines counts: others than
    these machines are what a choice is made for. Below five machines no difference is called
    larger than chance, see :func:`daco.evaluation.intervals.larger_than_chance`.

    Examples
    --------
    >>> from daco.experiments.report.wording import reading
    >>> delta = {"against": "fixed default", "first": "a", "second": "b", "delta": 1.7,
    ...          "low": -1.2, "high": 4.6, "method": "machine jackknife"}
    >>> reading({"deltas": [delta]}, 8)[0].split(":")[1]
    ' 8 machines do not establish it (95 % interval −1.2 to 4.6).'
    """
    strongest: dict[str, Mapping[str, Any]] = {}
    for delta in selection.get("deltas") or []:
        against = delta.get("against") or delta["second"]
        if against not in strongest or "machine" in str(delta["method"]):
            strongest[against] = delta
    sentences = [
        _same(against)
        if delta["first"] == delta["second"]
        else _difference(delta, against, n_machines)
        for against, delta in strongest.items()
    ]
    for row in selection.get("rows") or []:
        score = (selection.get("chosen") or {}).get("eval_omega")
        if row["rule"] == "random" and score is not None and score < row["eval_omega"]:
            mean = written(row["eval_omega"], ".1f")
            sentences.append(f"A configuration drawn at random scores more on average ({mean}).")
    differ = any(delta["first"] != delta["second"] for delta in strongest.values())
    if n_machines == 1:
        sentences.append("One machine says little about others.")
    elif differ and (note := too_few_machines(n_machines)):
        sentences.append(note)
    return sentences


def _same(against: str) -> str:
    return {
        "dev pick": "The development scores alone would have picked the same.",
        "fixed default": "It is the fixed default: nothing was gained or lost by choosing.",
        "oracle": "No configuration of the grid would have scored higher.",
    }.get(against, f"It is the same as {against}.")


def _difference(delta: Mapping[str, Any], against: str, n_machines: int) -> str:
    size = written(abs(delta["delta"]), ".1f")
    if against == "oracle":
        return f"The best configuration in hindsight scores {size} points more."
    what = "lead" if delta["delta"] > 0 else "deficit"
    to = "over" if delta["delta"] > 0 else "to"
    interval = f"95 % interval {written(delta['low'], '.1f')} to {written(delta['high'], '.1f')}"
    over_machines = "machine" in str(delta["method"])
    subject = f"Its {what} of {size} points {to} the {against}"
    if too_few_machines(n_machines):
        return f"{subject} may be chance ({interval})."
    if not larger_than_chance(delta["low"], delta["high"], n_machines):
        few = f"{n_machines} machines do" if over_machines else "these clips do"
        return f"{subject} may be chance: {few} not establish it ({interval})."
    noise = "from machine to machine" if over_machines else "from clip to clip"
    return f"{subject} is larger than what changes {noise} ({interval})."


def below_default(n_seeds: int, mean: float | None, default: float | None) -> list[str]:
    """A sentence where the choice scores less than the fixed default, averaged over seeds.

    Examples
    --------
    >>> from daco.experiments.report.wording import below_default
    >>> below_default(10, 70.5, 72.6)[0][:48]
    'Over 10 seeds the choice scores 70.5 on average,'
    """
    if mean is None or default is None or mean >= default:
        return []
    return [
        f"Over {n_seeds} seeds the choice scores {written(mean, '.1f')} on average, "
        f"less than the fixed default ({written(default, '.1f')}): choosing gained nothing here."
    ]


def noise_note(within_noise: Sequence[str]) -> str | None:
    """How many others the criterion cannot tell from the pick."""
    count = len(within_noise)
    if not count:
        return None
    which = "1 other configuration has" if count == 1 else f"{count} other configurations have"
    return f"{which} a criterion that cannot be told from its own: the choice among them is chance."
