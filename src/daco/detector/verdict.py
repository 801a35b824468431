"""Verdict: the decision on one recording, the same record in commands, database, API and page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from daco.audio.formats import AudioLimits
from daco.detector.decision import ROUNDING, is_anomalous, oddness
from daco.detector.model import ClipVerdicts, MachineModel
from daco.detector.ranges import (
    ANOMALOUS,
    FAULTY_SOUND,
    NORMAL,
    OFF,
    OUT_OF_RANGE,
    RECORDER_FAULT,
    check_levels,
    rate_reasons,
)
from daco.embedding.frontend import EmbeddedRecording, Listener, Source
from daco.errors import InputError
from daco.text import html_table
from daco.validation import Bools, Float32s

ORDINARY = 1.3
"""Deviations above the normals below which a view is called ordinary: nine of ten normals are."""

STANDS_OUT = 2.5
"""Deviations from which on a view is named although the clip is not anomalous."""

VIEW_NAMES = {
    "mod": "rhythm up to 15 Hz",
    "mod60": "rhythm up to 62 Hz",
    "env": "repetition up to 500 Hz",
    "cep": "harmonics and echoes",
}
"""What the views of the network without weights show."""


@dataclass(frozen=True)
class Verdict:
    """The decision on one recording.

    Attributes
    ----------
    name, machine : str
        The recording, and the machine of the model.
    score, threshold : float
        Higher is more anomalous, above the threshold of its domain weights anomalous. For several
        windows it is the mean of those that `ScoreOptions.aggregate` selects.
    p_value, oddness : float
        About the share of normals that score as high, and ``log(p) / log(rate)``: 1 at the
        threshold, 2 where p is the square of the false-alarm rate.
    anomalous, state : bool, str
        The state is ``normal`` or ``anomalous``, or the reason why the score does not decide:
        ``off``, ``out of range`` or ``recorder fault``.
    domain_weights : dict
        How strongly the clip belongs to each domain.
    nearest, nearest_distance : str, float
        The normal that is most similar to the most anomalous window, and its cosine distance.
    reasons : tuple of str
        What to know before trusting the score. Each starts with a code and a colon: ``silent``,
        ``clipped``, ``short``, ``long``, ``rate``; ``off``, ``range`` (outside the ranges of the
        normals), ``score`` (it is anomalous as well); ``far`` (from every normal); ``views`` (which
        views of the sound are unusual).
    seconds, windows, worst_window : float or None, int, float or None
        Length of the recording, number of windows, and the start of the most anomalous one in
        seconds, where they are known.
    model_sha256, basis : str
        Hash of the model, and the origin of its reference scores in words.
    views : dict
        The score in each view of a blend: standard deviations above the normals.
    extrapolated, supported_rate : bool, float
        Whether the p-value is below the smallest that the reference scores support, and that one.
    """

    name: str
    machine: str
    score: float
    p_value: float
    oddness: float
    anomalous: bool
    threshold: float
    domain_weights: dict[str, float]
    nearest: str
    nearest_distance: float
    reasons: tuple[str, ...]
    seconds: float | None
    windows: int
    worst_window: float | None
    model_sha256: str
    basis: str = ""
    state: str = NORMAL
    views: dict[str, float] = field(default_factory=dict)
    extrapolated: bool = False
    supported_rate: float = 0.0

    def _repr_html_(self) -> str:
        title = f"{self.machine}, {self.name}: {self.state}"
        below = f", below the supported {self.supported_rate:.2g}" if self.extrapolated else ""
        facts = {
            "score": f"{self.score:.4g}, threshold {self.threshold:.4g}",
            "p-value": f"{self.p_value:.2g}{below}, {self.basis}",
            "domains": ", ".join(f"{k} {each:.0%}" for k, each in self.domain_weights.items()),
            "most similar normal": f"{self.nearest}, distance {self.nearest_distance:.3g}",
            "to know": "; ".join(self.reasons) or "nothing",
        }
        return html_table(title, ["", ""], facts.items())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, as commands, webhook and service write them."""
        return {**asdict(self), "reasons": list(self.reasons)}


@dataclass(frozen=True)
class ScoreOptions:
    """How long recordings are divided into windows, and how the network is loaded.

    Parameters
    ----------
    window, hop : float, optional
        As of :meth:`daco.embedding.frontend.Listener.embed`.
    aggregate : {"max", "mean", "top<k>"}
        Which windows count: the most anomalous one, all, or the k most anomalous. The false-alarm
        rate is that of one window; with many windows ``max`` raises more alarms.
    weights, device
        As of :class:`daco.embedding.frontend.Listener`.
    """

    window: float | None = None
    hop: float | None = None
    aggregate: str = "max"
    weights: Path | None = None
    device: str = "cpu"


def judge(
    model: MachineModel,
    listener: Listener,
    source: Source,
    *,
    name: str,
    options: ScoreOptions | None = None,
    limits: AudioLimits | None = None,
) -> Verdict:
    """Decode, embed and score a recording; one that cannot be used raises an `AudioError`.

    The listener is one of ``model.frontend``, the source a path, bytes or a binary stream, and
    `name` that of the verdict. Recordings above the `limits` are not decoded.
    """
    options = options or ScoreOptions()
    parse_aggregate(options.aggregate)
    if listener.frontend != model.frontend:
        raise InputError(
            "The listener does not embed recordings as the normals of this model were embedded."
        )
    recording = listener.embed(source, window=options.window, hop=options.hop, limits=limits)
    return verdict_of(model, recording, name=name, aggregate=options.aggregate)


def verdict_of(
    model: MachineModel, recording: EmbeddedRecording, *, name: str, aggregate: str = "max"
) -> Verdict:
    """The verdict on a recording that was embedded."""
    usual = (model.ranges or {}).get("sample_rates", ())
    reasons = (
        *recording.reasons,
        *rate_reasons(recording.sample_rate, usual, model.frontend),
    )
    scored, count = model.score(recording.embeddings), parse_aggregate(aggregate)
    verdict, worst = _verdict(model, scored, name, count, recording.levels, reasons)
    start = float(recording.starts[worst]) if len(scored) > 1 else None
    return replace(verdict, seconds=recording.seconds, worst_window=start)


def judge_embeddings(
    model: MachineModel, X: ArrayLike, names: Sequence[str], levels: Float32s | None = None
) -> Iterator[Verdict]:
    """Judge clips by their embeddings (n, D), and yield the verdict on each.

    With sound levels (n, Q) of the clips (:func:`daco.backbones.levels.sound_levels`), the verdict
    also tells whether the machine is off or out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.detector.model import MachineModel
    >>> from daco.detector.verdict import judge_embeddings
    >>> X = np.random.default_rng(0).normal(size=(60, 16)) + 1
    >>> model = MachineModel.fit(X, machine="press")
    >>> [verdict.state for verdict in judge_embeddings(model, [X[0], -X[0]], ["a", "b"])]
    ['normal', 'anomalous']
    """
    scored = model.score(X)
    for row, name in enumerate(names):
        rows = slice(row, row + 1)
        level = None if levels is None else levels[rows]
        yield _verdict(model, scored.take(rows), name, 1, level)[0]


def parse_aggregate(text: str) -> int | None:
    """How many of the most anomalous windows count; None for all.

    >>> parse_aggregate("max"), parse_aggregate("top3"), parse_aggregate("mean")
    (1, 3, None)
    """
    if text in ("max", "mean"):
        return 1 if text == "max" else None
    match = re.fullmatch(r"top([1-9][0-9]{0,4})", text)
    if match is None:
        raise InputError(
            "The aggregate must be 'max', 'mean', or 'top' with a number such as 'top3'. "
            f"Got {text!r}."
        )
    return int(match[1])


def views_in_words(views: dict[str, float]) -> str:
    """How unusual each view of a clip is.

    >>> views_in_words({"mod": 0.4, "env": 3.14})
    'rhythm up to 15 Hz: ordinary; repetition up to 500 Hz: 3.1 deviations above the normals'
    """
    parts = []
    for name, value in views.items():
        unusual = f"{value:.1f} deviations above the normals"
        parts.append(f"{VIEW_NAMES.get(name, name)}: {'ordinary' if value < ORDINARY else unusual}")
    return "; ".join(parts)


def _verdict(
    model: MachineModel,
    windows: ClipVerdicts,
    name: str,
    count: int | None,
    levels: Float32s | None,
    reasons: tuple[str, ...] = (),
) -> tuple[Verdict, int]:
    """The verdict on a recording by its windows, and the most anomalous of these."""
    state, why, can_be_judged = _state_by_sound(model, reasons, levels, len(windows), count)
    rows = np.flatnonzero(can_be_judged if can_be_judged.any() else ~can_be_judged)
    order = rows[np.argsort(-windows.scores[rows], kind="stable")]
    worst, taken = int(order[0]), order[:count]
    weights = windows.weights[taken].mean(axis=0)
    score, p_value = float(windows.scores[worst]), float(windows.p_values[worst])
    if len(taken) > 1:
        score = float(windows.scores[taken].mean())
        p_value = float(model.reference.p_values(score, weights))
    smallest, rate = float(model.reference.smallest(weights)), model.false_alarm_rate
    views = {}
    if windows.by_view is not None:
        by_view = windows.by_view[taken].mean(axis=0).tolist()
        views = dict(zip(model.view_names, by_view, strict=True))
    is_above = bool(is_anomalous(p_value, rate))
    distance = float(windows.distance[worst])
    reasons = (*reasons, *why)
    if windows.far[worst]:
        reach = f"than any of them is ({model.reach:.3g})"
        reasons = (*reasons, f"far: farther from every normal ({distance:.3g}) {reach}")
    if views and (is_above or max(views.values()) >= STANDS_OUT):
        reasons = (*reasons, f"views: {views_in_words(views)}")
    if is_above and (state == NORMAL or (state == OUT_OF_RANGE and can_be_judged.any())):
        state = ANOMALOUS
    elif is_above and state == OUT_OF_RANGE:
        reasons = (*reasons, f"score: anomalous as well, p {p_value:.2g}")
    verdict = Verdict(
        name=name,
        machine=model.machine,
        score=score,
        p_value=p_value,
        oddness=oddness(p_value, rate),
        anomalous=state == ANOMALOUS,
        threshold=model.reference.threshold(weights, rate),
        domain_weights=dict(zip(model.domains, weights.tolist(), strict=True)),
        nearest=model.clip_names[windows.nearest[worst]],
        nearest_distance=distance,
        reasons=reasons,
        seconds=None,
        windows=len(windows),
        worst_window=None,
        model_sha256=model.sha256,
        basis=model.basis_sentence,
        state=state,
        views=views,
        extrapolated=p_value < smallest * (1 - ROUNDING),
        supported_rate=smallest,
    )
    return verdict, worst


def _state_by_sound(
    model: MachineModel,
    reasons: Sequence[str],
    levels: Float32s | None,
    windows: int,
    count: int | None,
) -> tuple[str, list[str], Bools]:
    """The state before the score is looked at, its reason, and the windows that can be judged."""
    guards = [None] * windows if levels is None else check_levels(model.ranges, levels, windows)
    outside = [guard for guard in guards if guard is not None]
    states = Counter(guard.state for guard in outside)
    most = windows // 2 + 1
    state = NORMAL
    if any(reason.partition(":")[0] in FAULTY_SOUND for reason in reasons):
        state = RECORDER_FAULT
    elif states[OFF] >= most:
        state = OFF
    elif states[OUT_OF_RANGE] >= min(count or most, most) or len(outside) == windows:
        state = OUT_OF_RANGE
    share = f" ({len(outside)} of {windows} windows, not judged)" if windows > 1 else ""
    why = [f"{each.reason}{share}" for each in outside if state in (NORMAL, each.state)]
    return state, why[:1], np.array([guard is None for guard in guards])
