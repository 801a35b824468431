"""Verdict: the decision on one recording, the same record in commands, database, API and page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.audio.formats import AudioLimits
from daco.data.views import Views
from daco.detector.model import ClipScores, MachineModel
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
from daco.method.config import ScoreConfig
from daco.method.vote import members_of
from daco.text import html_table, name_list
from daco.validation import Float32s

MAX_TOP = 10_000


@dataclass(frozen=True)
class Verdict:
    """The decision on one recording.

    Attributes
    ----------
    name, machine : str
        The recording, and the machine of the model.
    score : float
        Higher is more anomalous. For several windows it is the mean of those that
        `ScoreOptions.aggregate` selects.
    p_value : float
        About the share of normals that score as high.
    alarm : bool
        Whether the state is ``anomalous``: the p-value is at most the false-alarm rate, the score
        is above `threshold`, and nothing else is wrong.
    threshold : float
        The threshold of a clip with these domain weights.
    domain_weights : dict
        How strongly the clip belongs to each domain.
    nearest : str
        The normal that is most similar to the most anomalous window, to compare by ear.
    nearest_distance : float
        Its cosine distance.
    reasons : tuple of str
        What to know before trusting the score. Each reason starts with a code and a colon:
        ``silent``, ``clipped``, ``short``, ``long``, ``rate``; ``off``, ``range`` (outside the
        ranges of the normals), ``score`` (it is anomalous as well); ``far`` (from every normal);
        ``vote`` (how many members of a vote call it anomalous, and which families disagree).
    seconds : float or None
        Length of the recording; None if only its embedding was given.
    windows : int
        Number of windows.
    worst_window : float or None
        Start of the most anomalous window in seconds; None for a single window.
    model_sha256 : str
        Hash of the model that decided.
    basis : str
        The origin of the reference scores in words.
    state : str
        ``normal`` or ``anomalous`` by the score, or the reason why the score does not decide:
        ``off``, ``out of range`` or ``recorder fault``.
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

    def _repr_html_(self) -> str:
        title = f"{self.machine}, {self.name}: {self.state}"
        facts = {
            "score": f"{self.score:.4g}, threshold {self.threshold:.4g}",
            "p-value": f"{self.p_value:.2g}, {self.basis}",
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
        Length of the windows, and distance of their starts, in seconds
        (:meth:`daco.embedding.frontend.Listener.embed`).
    aggregate : {"max", "mean", "top<k>"}
        Which windows count: the most anomalous one, all, or the k most anomalous. The false-alarm
        rate is that of one window; with many windows ``max`` raises more alarms.
    weights : Path, optional
        Checkpoint of the network, if it was not downloaded.
    device : str
        Where the network computes, such as ``"cpu"`` or ``"cuda"``.
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
    """Decode, embed and score a recording.

    Parameters
    ----------
    model : MachineModel
    listener : Listener
        A listener of ``model.frontend``.
    source : Path, bytes or binary stream
        The recording.
    name : str
        The name of the recording in the verdict.
    options : ScoreOptions, optional
        How a long recording is divided into windows.
    limits : AudioLimits, optional
        The largest recording to decode.

    Returns
    -------
    Verdict

    Raises
    ------
    AudioError
        The recording cannot be used.
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
        name,
        parse_aggregate(aggregate),
        reasons=(*recording.reasons, *rate_reasons(recording.sample_rate, usual, model.frontend)),
        seconds=recording.seconds,
        starts=recording.starts,
        levels=recording.levels,
    )


def judge_embeddings(
    model: MachineModel, X: ArrayLike, names: Sequence[str], levels: Float32s | None = None
) -> Iterator[Verdict]:
    """Judge clips by their embeddings.

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

    Yields
    ------
    Verdict
        One for each clip, in order.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.detector.model import MachineModel
    >>> from daco.detector.verdict import judge_embeddings
    >>> X = np.random.default_rng(0).normal(size=(60, 16)) + 1
    >>> model = MachineModel.fit(X, machine="press", config="raw-k1")
    >>> [verdict.state for verdict in judge_embeddings(model, [X[0], -X[0]], ["a", "b"])]
    ['normal', 'anomalous']
    """
    scored = model.score(X)
    for row, name in enumerate(names):
        own = None if levels is None else levels[row : row + 1]
        yield _verdict(
            model, _row(scored, row), name, 1, reasons=(), seconds=None, starts=None, levels=own
        )


def parse_aggregate(text: str) -> int | None:
    """How many of the most anomalous windows count; None for all.

    Examples
    --------
    >>> from daco.detector.verdict import parse_aggregate
    >>> parse_aggregate("max"), parse_aggregate("top3"), parse_aggregate("mean")
    (1, 3, None)
    """
    if text == "max":
        return 1
    if text == "mean":
        return None
    count = text[3:] if isinstance(text, str) and text.startswith("top") else ""
    if count.isascii() and count.isdigit() and len(count) < 6 and 1 <= int(count) <= MAX_TOP:
        return int(count)
    raise InputError(
        f"The aggregate must be 'max', 'mean', or 'top' with a number such as 'top3'. Got {text!r}."
    )


def _verdict(
    model: MachineModel,
    scored: ClipScores,
    name: str,
    count: int | None,
    *,
    reasons: tuple[str, ...],
    seconds: float | None,
    starts: NDArray[np.float64] | None,
    levels: Float32s | None,
) -> Verdict:
    state, why, judged = _guarded(model, reasons, levels, len(scored), count)
    reasons = (*reasons, *why)
    order = np.argsort(-scored.scores, kind="stable")
    order = order[judged[order]] if judged.any() else order
    worst = int(order[0])
    taken = order if count is None else order[:count]
    score = float(scored.scores[taken].mean())
    weights = scored.weights[taken].mean(axis=0)
    distance = float(scored.nearest_distance[worst])
    if scored.far[worst]:
        reasons = (
            *reasons,
            f"far: farther from every normal ({distance:.3g}) than any of them is "
            f"({model.reach:.3g})",
        )
    p_value = float(model.reference.p_values(score, weights))
    above = p_value <= model.false_alarm_rate
    threshold = float(model.reference.thresholds(weights[None], model.false_alarm_rate)[0])
    if scored.normal_scores is not None:
        opinions = scored.normal_scores[taken].mean(axis=0)
        reasons = (*reasons, *_opinion(model, opinions, above, threshold))
    if above and (state == NORMAL or (state == OUT_OF_RANGE and judged.any())):
        state = ANOMALOUS
    elif above and state == OUT_OF_RANGE:
        reasons = (*reasons, f"score: anomalous as well, p {p_value:.2g}")
    return Verdict(
        name=name,
        machine=model.machine,
        score=score,
        p_value=p_value,
        alarm=state == ANOMALOUS,
        threshold=threshold,
        domain_weights=dict(zip(model.domains, map(float, weights), strict=True)),
        nearest=model.clip_names[int(scored.nearest[worst])],
        nearest_distance=distance,
        reasons=reasons,
        seconds=seconds,
        windows=len(scored),
        worst_window=float(starts[worst]) if starts is not None and len(scored) > 1 else None,
        model_sha256=model.sha256,
        basis=model.basis_sentence(),
        state=state,
    )


def _guarded(
    model: MachineModel,
    reasons: Sequence[str],
    levels: Float32s | None,
    windows: int,
    count: int | None,
) -> tuple[str, list[str], NDArray[np.bool_]]:
    """The state before the score is looked at, its reason, and the windows that can be judged.

    A recording is off where most windows are. It is out of range where as many windows are as
    count for the score, or most of them, unless those that can be judged are anomalous.
    """
    guards = check_levels(model.ranges, levels, windows)
    found = [guard for guard in guards if guard is not None]
    states = Counter(guard.state for guard in found)
    most = windows // 2 + 1
    state = NORMAL
    if any(reason.partition(":")[0] in FAULTY_SOUND for reason in reasons):
        state = RECORDER_FAULT
    elif states[OFF] >= most:
        state = OFF
    elif states[OUT_OF_RANGE] >= min(count or most, most) or len(found) == windows:
        state = OUT_OF_RANGE
    share = f" ({len(found)} of {windows} windows, not judged)" if windows > 1 else ""
    why = [guard.reason for guard in found if state in (NORMAL, guard.state)][:1]
    judged = np.array([guard is None for guard in guards])
    return state, [f"{text}{share}" for text in why], judged


def _opinion(
    model: MachineModel, normal_scores: NDArray[np.float64], alarm: bool, limit: float
) -> list[str]:
    """A reason with the votes of the members, for anomalous clips and where a third disagrees.

    A member calls a clip anomalous where its score is above the threshold of the vote; where the
    vote is calibrated once more, for the false-alarm rate of its own normals.
    """
    if ScoreConfig.parse(model.config).calibration is not None:
        limit = NormalDist().inv_cdf(1 - model.false_alarm_rate)
    counting = ~np.isnan(normal_scores)
    anomalous = normal_scores > limit
    count, total = int(anomalous.sum()), int(counting.sum())
    if not alarm and 3 * count < total:
        return []
    base = ScoreConfig.parse(model.config).base
    bands = model.bands.bands if isinstance(model.bands, Views) else (model.bands,)
    members = [member for view in bands for member in members_of(base, view, len(model))[0]]
    families: dict[str, list[bool]] = {}
    for member, says, counts in zip(members, anomalous, counting, strict=True):
        if counts:
            families.setdefault(member.base.family, []).append(bool(says) != alarm)
    dissent = [family for family, differs in families.items() if 2 * sum(differs) > len(differs)]
    who = f"; most of {name_list(dissent)} disagree" if dissent else ""
    return [f"vote: {count} of {total} members call it anomalous{who}"]


def _row(scored: ClipScores, row: int) -> ClipScores:
    part = slice(row, row + 1)
    columns: dict[str, Any] = {
        name: None if values is None else values[part] for name, values in vars(scored).items()
    }
    return ClipScores(**columns)
