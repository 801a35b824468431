"""Verdict: the decision on one recording, the same record in commands, database, API and page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from daco.audio.formats import AudioLimits
from daco.detector.decision import ROUNDING, is_anomalous
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
from daco.validation import Bools, Float32s, Float64s

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
    p_value : float
        About the share of normals that score as high.
    alarm, state : bool, str
        The state is ``normal`` or ``anomalous``, which is an alarm, or the reason why the score
        does not decide: ``off``, ``out of range`` or ``recorder fault``.
    domain_weights : dict
        How strongly the clip belongs to each domain.
    nearest, nearest_distance : str, float
        The normal that is most similar to the most anomalous window, and its cosine distance.
    reasons : tuple of str
        What to know before trusting the score. Each reason starts with a code and a colon:
        ``silent``, ``clipped``, ``short``, ``long``, ``rate``; ``off``, ``range`` (outside the
        ranges of the normals), ``score`` (it is anomalous as well); ``far`` (from every normal);
        ``views`` (which views of the sound are unusual).
    seconds : float or None
        Length of the recording, if it is known.
    windows, worst_window : int, float or None
        Number of windows, and the start of the most anomalous one in seconds, if there are several.
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
    alarm: bool
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

    Parameters
    ----------
    model, listener : MachineModel, Listener
        A model, and a listener of ``model.frontend``.
    source : Path, bytes or binary stream
        The recording.
    name : str
        The name of the recording in the verdict.
    options, limits : ScoreOptions, AudioLimits, optional
        How a long recording is divided into windows, and the largest one to decode.
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
    return _verdict(
        model,
        model.score(recording.embeddings),
        np.arange(len(recording.embeddings)),
        name,
        parse_aggregate(aggregate),
        recording.levels,
        reasons=(*recording.reasons, *rate_reasons(recording.sample_rate, usual, model.frontend)),
        seconds=recording.seconds,
        starts=recording.starts,
    )


def judge_embeddings(
    model: MachineModel, X: ArrayLike, names: Sequence[str], levels: Float32s | None = None
) -> Iterator[Verdict]:
    """Judge clips by their embeddings, and yield the verdict on each.

    Parameters
    ----------
    model : MachineModel
    X : (n, D)
        One embedding per clip.
    names : n texts
        Names of the clips in the verdicts.
    levels : (n, Q) float32, optional
        Sound levels of the clips (:func:`daco.backbones.levels.sound_levels`). With them, the
        verdict also tells whether the machine is off or out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.detector.model import MachineModel
    >>> from daco.detector.verdict import judge_embeddings
    >>> X = np.random.default_rng(0).normal(size=(60, 16)) + 1
    >>> model = MachineModel.fit(X, machine="press")
    >>> for verdict in judge_embeddings(model, [X[0], -X[0]], ["a", "b"]):
    ...     print(verdict.state, verdict.reasons[-1:])
    normal ()
    anomalous ('views: embedding: 4.9 deviations above the normals',)
    """
    scored = model.score(X)
    for row, name in enumerate(names):
        rows = np.array([row])
        level = None if levels is None else levels[rows]
        yield _verdict(model, scored, rows, name, 1, level)


def parse_aggregate(text: str) -> int | None:
    """How many of the most anomalous windows count; None for all.

    Examples
    --------
    >>> from daco.detector.verdict import parse_aggregate
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
    scored: ClipVerdicts,
    rows: Any,
    name: str,
    count: int | None,
    levels: Float32s | None,
    reasons: tuple[str, ...] = (),
    seconds: float | None = None,
    starts: Float64s | None = None,
) -> Verdict:
    """The verdict on a recording whose windows are some rows of `scored`."""
    state, why, can_be_judged = _state_by_sound(model, reasons, levels, len(rows), count)
    candidates = rows[can_be_judged] if can_be_judged.any() else rows
    order = candidates[np.argsort(-scored.scores[candidates], kind="stable")]
    worst, taken = order[0], order if count is None else order[:count]
    weights = scored.weights[taken].mean(axis=0)
    if len(taken) == 1:
        score, p_value = float(scored.scores[worst]), float(scored.p_values[worst])
    else:
        score = float(scored.scores[taken].mean())
        p_value = float(model.reference.p_values(score, weights))
    smallest = float(model.reference.smallest(weights))
    by_view = [] if scored.by_view is None else scored.by_view[taken].mean(axis=0).tolist()
    views = dict(zip(model.view_names, by_view, strict=False))
    is_above = bool(is_anomalous(p_value, model.false_alarm_rate))
    distance = float(scored.distance[worst])
    reasons = (*reasons, *why)
    if scored.far[worst]:
        reach = f"than any of them is ({model.reach:.3g})"
        reasons = (*reasons, f"far: farther from every normal ({distance:.3g}) {reach}")
    if views and (is_above or max(views.values()) >= STANDS_OUT):
        reasons = (*reasons, f"views: {views_in_words(views)}")
    if is_above and (state == NORMAL or (state == OUT_OF_RANGE and can_be_judged.any())):
        state = ANOMALOUS
    elif is_above and state == OUT_OF_RANGE:
        reasons = (*reasons, f"score: anomalous as well, p {p_value:.2g}")
    return Verdict(
        name=name,
        machine=model.machine,
        score=score,
        p_value=p_value,
        alarm=state == ANOMALOUS,
        threshold=model.reference.threshold(weights, model.false_alarm_rate),
        domain_weights=dict(zip(model.domains, weights.tolist(), strict=True)),
        nearest=model.clip_names[scored.nearest[worst]],
        nearest_distance=distance,
        reasons=reasons,
        seconds=seconds,
        windows=len(rows),
        worst_window=float(starts[worst]) if starts is not None and len(rows) > 1 else None,
        model_sha256=model.sha256,
        basis=model.basis_sentence,
        state=state,
        views=views,
        extrapolated=p_value < smallest * (1 - ROUNDING),
        supported_rate=smallest,
    )


def _state_by_sound(
    model: MachineModel,
    reasons: Sequence[str],
    levels: Float32s | None,
    windows: int,
    count: int | None,
) -> tuple[str, list[str], Bools]:
    """The state before the score is looked at, its reason, and the windows that can be judged.

    A recording is off where most windows are. It is out of range where as many windows are as
    count for the score, or most of them, unless those that can be judged are anomalous.
    """
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
