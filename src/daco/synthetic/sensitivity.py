"""Sensitivity of a model: the share of faulted recordings that it notices, by fault level.

Faults are injected into normal recordings of the machine (:mod:`daco.synthetic.injection`). A
normal of the model is judged by the model without it, but with the rest of its session. A recording
is noticed if its score is anomalous or its levels are outside the ranges of the normals.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.backbones.levels import LEVELS as SOUND
from daco.backbones.levels import parse_levels
from daco.data.clips import ONE_DOMAIN, Clip, ClipTable, machine_title
from daco.data.table import EmbeddingTable
from daco.detector.decision import is_anomalous
from daco.detector.model import MachineModel
from daco.detector.ranges import check_levels
from daco.embedding.frontend import Listener
from daco.embedding.normals import readout_for
from daco.errors import DataError, InputError, ModelError, NotEnoughClipsError
from daco.evaluation.intervals import share_interval
from daco.files.remote import parse_location
from daco.method.bank import NormalBank
from daco.method.distances import unit_rows
from daco.method.viability import PseudoAnomalies
from daco.synthetic.fault_tables import SAME, injected
from daco.synthetic.faults import ALL_KINDS
from daco.synthetic.injection import Plan, Progress, choose_recordings, inject_recordings
from daco.text import name_list, quantity

LEVELS = tuple(float(level) for level in range(-24, 1, 3))
"""Decibels relative to the recording."""

DETECT = 0.9
"""The share of recordings that counts as caught."""

FEW = 20
_AT_ONCE = 10  # of a domain's normals, one in so many is missing from the bank at a time

Counts = NDArray[np.int64]


class Rate(NamedTuple):
    """A number of clips, with its share of all and the 95 % interval of that share.

    >>> Rate(9, 10).share, [round(end, 2) for end in Rate(10, 10).interval]
    (0.9, [0.69, 1.0])
    """

    caught: int
    clips: int

    @property
    def share(self) -> float:
        """The rate itself."""
        return self.caught / self.clips

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper and Pearson's exact binomial interval."""
        return share_interval(self.caught, self.clips)

    def to_row(self) -> dict[str, Any]:
        """Return counts, share and interval by column."""
        low, high = self.interval
        counts = {"caught": self.caught, "clips": self.clips}
        return {**counts, "rate": self.share, "low": low, "high": high}


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Detection rates of a model by kind of fault, domain and (ascending) level.

    ``caught`` counts recordings that are noticed, (kinds, domains, levels): ``by_score`` those with
    an anomalous score, ``by_ranges`` those outside the ranges. ``false_alarms`` counts the same
    recordings without a fault, and ``clips`` all of them, by domain. ``detect`` is the share from
    which on a fault counts as caught, ``in_model`` the number of recordings among the normals of
    the model, and ``recorded`` the machine of the recordings, if it is not that of the model.
    """

    machine: str
    config: str
    model_sha256: str
    thresholds: dict[str, float]
    false_alarm_rate: float
    kinds: tuple[str, ...]
    domains: tuple[str, ...]
    levels: tuple[float, ...]
    caught: Counts
    by_score: Counts
    by_ranges: Counts
    false_alarms: Counts
    clips: Counts
    detect: float
    in_model: int
    seed: int
    recorded: tuple[str, ...] = ()

    def noticed_by(self, kind: str) -> str:
        """Tell what notices most at the highest level: ``score``, ``ranges`` or ``both``."""
        at = self.kinds.index(kind)
        most = max(1, self.caught[at, :, -1].sum()) / 2
        ways = {"score": self.by_score, "ranges": self.by_ranges}
        names = [name for name, counts in ways.items() if counts[at, :, -1].sum() >= most]
        return "both" if len(names) > 1 else names[0] if names else "-"

    def rate(self, kind: str, domain: str, level: float) -> Rate:
        """Return the detection rate of one fault, domain and level."""
        at = self.kinds.index(kind), self.domains.index(domain), self.levels.index(level)
        return Rate(int(self.caught[at]), int(self.clips[at[1]]))

    def false_alarm(self, domain: str) -> Rate:
        """Return the share of the same recordings that are noticed without a fault."""
        at = self.domains.index(domain)
        return Rate(int(self.false_alarms[at]), int(self.clips[at]))

    def caught_from(self, kind: str, domain: str) -> float | None:
        """Find the lowest level from which on the fault is always caught; None if it never is."""
        lowest = None
        for level in reversed(self.levels):
            if self.rate(kind, domain, level).share < self.detect:
                break
            lowest = level
        return lowest

    def sentences(self) -> Iterator[str]:
        """Describe from which level on each kind of fault is caught, or how often at the top."""
        top = self.levels[-1]
        for kind in self.kinds:
            found: dict[str, list[str]] = {}
            for domain in self.domains:
                level, share = self.caught_from(kind, domain), self.rate(kind, domain, top).share
                how = (
                    f"{share:.0%} caught at {top:g}" if level is None else f"caught from {level:g}"
                )
                found.setdefault(f"{how} dB", []).append(domain)
            where = [
                how if self.domains == (ONE_DOMAIN,) else f"{how} in {' and '.join(names)}"
                for how, names in found.items()
            ]
            by = {"ranges": ", by the levels", "both": ", by score or levels"}
            yield f"{kind}: {'; '.join(where)}{by.get(self.noticed_by(kind), '')}."

    def warnings(self) -> Iterator[str]:
        """Describe the limits of the numbers in sentences."""
        if self.recorded and not self.in_model:
            yield (
                f"The model is of {self.machine}, but the recordings are of "
                f"{name_list(self.recorded)}. If that is another machine, the rates do not hold "
                f"for {self.machine}."
            )
        for domain, clips in zip(self.domains, self.clips.tolist(), strict=True):
            if clips < FEW:
                low = Rate(clips, clips).interval[0]
                yield (
                    f"Each rate in {domain} comes from {quantity(clips, 'recording')}: if {clips} "
                    f"of {clips} are caught, the true rate may still be {low:.2f}."
                )
        for domain in self.domains:
            alarms = self.false_alarm(domain)
            if alarms.interval[0] > self.false_alarm_rate:
                yield (
                    f"{alarms.caught} of {alarms.clips} {domain} recordings are caught without a "
                    f"fault, more than the false-alarm rate of {self.false_alarm_rate:g} allows, "
                    "so catching a fault there proves little."
                )

    def rows(self) -> Iterator[dict[str, Any]]:
        """List one row per fault, domain and level; clean recordings come first."""
        for domain in self.domains:
            row = self.false_alarm(domain).to_row()
            yield {"fault": "", "domain": domain, "level_db": None, **row, "by_ranges": None}
        for kind, domain, level in product(self.kinds, self.domains, self.levels):
            at = self.kinds.index(kind), self.domains.index(domain), self.levels.index(level)
            row = self.rate(kind, domain, level).to_row() | {"by_ranges": int(self.by_ranges[at])}
            yield {"fault": kind, "domain": domain, "level_db": level, **row}

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        names = ("machine", "config", "model_sha256", "thresholds", "false_alarm_rate", "detect")
        return {
            **{name: getattr(self, name) for name in names},
            "clips": dict(zip(self.domains, self.clips.tolist(), strict=True)),
            "in_model": self.in_model,
            "recorded": list(self.recorded),
            "seed": self.seed,
            "caught_from_db": {
                kind: {domain: self.caught_from(kind, domain) for domain in self.domains}
                for kind in self.kinds
            },
            "sentences": list(self.sentences()),
            "warnings": list(self.warnings()),
            "rates": list(self.rows()),
        }


def measure_sensitivity(
    model: MachineModel,
    recordings: ClipTable,
    listener: Listener,
    *,
    kinds: Sequence[str] = ALL_KINDS,
    levels: Sequence[float] = LEVELS,
    per_domain: int = 20,
    detect: float = DETECT,
    seed: int = 0,
    progress: Progress | None = None,
) -> Sensitivity:
    """Inject faults into normal recordings and count those that the model notices.

    Parameters
    ----------
    model, listener : MachineModel, Listener
        The model, and a listener of its frontend.
    recordings : ClipTable
        Training normals of the machine; other clips in it are ignored.
    kinds, levels : sequences
        Faults, by default all, and levels, by default from -24 to 0 dB in steps of 3.
    per_domain, seed : int
        Number of recordings of each domain, drawn by `seed` if there are more.
    detect : float in (0, 1], default=0.9
        The share of recordings from which on a fault counts as caught.
    progress : callable, optional
        Called with the number of recordings done, and of all recordings.

    Returns
    -------
    Sensitivity
    """
    if not 0 < detect <= 1:
        raise InputError(
            f"The share that counts as caught must be above 0 and at most 1. Got {detect!r}."
        )
    plan = Plan(tuple(kinds), tuple(levels), seed)
    chosen = choose_recordings(of_machine(recordings, model.machine), per_domain, seed)
    readouts, channel = listener.readouts, listener.frontend.channel
    faults = inject_recordings(
        chosen, listener.net, plan, readouts=readouts, channel=channel, progress=progress
    )
    return detection_rates(model, faults, detect=detect)


def detection_rates(
    model: MachineModel, faults: EmbeddingTable, *, detect: float = DETECT
) -> Sensitivity:
    """Detection rates of a model for a table of injected faults, embedded as its normals were."""
    readout = readout_for(faults, model.frontend, model.readout, "The table of faults")
    anomalies = injected(faults, model.clip_names, readout=readout)
    clean = np.array([not fault for fault in faults.columns["fault"]])
    same = same_recordings(model, anomalies.clean, faults.columns["path"][clean].tolist())
    flagged, clean_flagged = _alarms(model, anomalies, same)
    guards = check_levels(model.ranges, parse_levels(faults.columns.get(SOUND, ())), len(faults))
    outside = np.array([guard is not None for guard in guards])
    clean_flagged = clean_flagged | outside[clean]
    kinds, kind_of = _codes(anomalies.kinds.tolist())
    domains, domain_of = _codes(anomalies.domains.tolist())
    steps = [float(level) for level in faults.columns["level_db"] if level is not None]
    levels, level_of = np.unique(steps, return_inverse=True)
    at = kind_of, domain_of[anomalies.origin], level_of
    all_counts = np.zeros((4, len(kinds), len(domains), len(levels)), np.int64)
    caught, by_score, by_ranges, versions = all_counts
    outside = outside[~clean]
    for counts, values in zip(all_counts, (flagged | outside, flagged, outside, 1), strict=True):
        np.add.at(counts, at, values)
    clips = np.bincount(domain_of)
    if (versions != clips[None, :, None]).any():
        raise DataError("The table of faults lacks some versions of some recordings.")
    pairs = dict.fromkeys(zip(faults.columns["year"], faults.columns["machine"], strict=True))
    known = any(model.machine in (name, machine_title(year, name)) for year, name in pairs)
    return Sensitivity(
        *(model.machine, model.config, model.sha256, model.thresholds, model.false_alarm_rate),
        kinds=kinds,
        domains=domains,
        levels=tuple(levels.tolist()),
        caught=caught,
        by_score=by_score,
        by_ranges=by_ranges,
        false_alarms=np.bincount(domain_of, weights=clean_flagged).astype(int),
        clips=clips,
        detect=detect,
        in_model=sum(bool(len(rows)) for rows in same),
        seed=int(json.loads(faults.metadata.get("faults", "{}")).get("seed", 0)),
        recorded=() if known else tuple(machine_title(*pair) for pair in pairs),
    )


def quick_sensitivity(
    model: MachineModel, listener: Listener, progress: Progress | None = None
) -> Sensitivity:
    """A quick estimate from few recordings and few faults; it takes 2 s without a network."""
    named = zip(model.clip_names, model.clip_domains, strict=True)
    clips = tuple(Clip(name, model.machine, domain=model.domains[at]) for name, at in named)
    table = ClipTable(parse_location(model.provenance["root"]), clips)
    few: dict[str, Any] = {"kinds": ("impacts", "tones", "off"), "levels": LEVELS[::2][1:]}
    return measure_sensitivity(model, table, listener, **few, per_domain=3, progress=progress)


def _codes(names: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    """Distinct names in the order they come, and each one's index among them."""
    distinct = tuple(dict.fromkeys(names))
    return distinct, np.array([distinct.index(name) for name in names], np.intp)


def of_machine(recordings: ClipTable, machine: str) -> ClipTable:
    """The recordings of a model's machine; of any name, if there is only one machine."""
    groups = recordings.by_machine()
    if len(groups) == 1:
        return recordings
    named = {machine_title(*key): table for key, table in groups.items()}
    plain = {key[1]: table for key, table in groups.items()}
    table = named.get(machine) or plain.get(machine)
    if table is None:
        raise DataError(
            f"The model is of {machine}, the recordings are of {name_list(named)}. Give those of "
            "the model's machine."
        )
    return table


def same_recordings(
    model: MachineModel, clean: ArrayLike, paths: Sequence[str]
) -> list[NDArray[np.intp]]:
    """For each recording the rows of the model that are the same one, by path or by sound."""
    unit = unit_rows(np.asarray(clean, np.float64))
    bank = unit_rows(model.embeddings.astype(np.float64))
    alike = 1 - unit @ bank.T <= SAME
    names, pairs = np.array(model.clip_names), zip(alike, paths, strict=True)
    return [np.flatnonzero(row | (names == str(path))) for row, path in pairs]


def require_frontend(model: MachineModel) -> None:
    """Raise `ModelError` for a model of embeddings that daco did not compute."""
    if model.frontend is None:
        raise ModelError(
            "This model was fitted on embeddings of your own, which daco cannot compute. Fit a "
            "model on recordings to measure which faults it catches."
        )


def _alarms(
    model: MachineModel, anomalies: PseudoAnomalies, same: list[NDArray[np.intp]]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether each pseudo-anomaly and each clean clip is anomalous."""
    flagged = np.zeros(len(anomalies.vectors), bool)
    clean_flagged = np.zeros(len(anomalies.clean), bool)
    domains = np.array(model.domains)[model.clip_domains]
    for fold in _turns(model, same):
        away = np.unique(np.concatenate([same[index] for index in fold]))
        bank = model.bank
        if len(away):
            stays = ~np.isin(np.arange(len(model)), away)
            bank = NormalBank(model.embeddings[stays], domains[stays], views=model.views)
        faulty = np.flatnonzero(np.isin(anomalies.origin, fold))
        queries = np.concatenate([anomalies.clean[fold], anomalies.vectors[faulty]])
        try:
            found = bank.examine(queries, model.config)
        except NotEnoughClipsError as error:
            if not len(away):
                raise
            raise NotEnoughClipsError(
                f"The recordings are in the model, which has {quantity(len(model), 'normal')}. "
                f"They are left out of it in turns, {len(away)} at a time: {error} Or give "
                "recordings that are not in the model."
            ) from None
        weights = np.zeros((len(queries), len(model.domains)))  # 0 where a domain is empty now
        weights[:, [model.domains.index(name) for name in bank.domains]] = found.weights
        p_values = model.reference.p_values(found.scores, weights)
        above = is_anomalous(p_values, model.false_alarm_rate)
        clean_flagged[fold], flagged[faulty] = above[: len(fold)], above[len(fold) :]
    return flagged, clean_flagged


def _turns(model: MachineModel, same: list[NDArray[np.intp]]) -> Iterator[list[int]]:
    """Recordings judged at once: their copies are at most a tenth of each domain's normals."""
    room = {code: max(1, size // _AT_ONCE) for code, size in enumerate(model.domain_sizes.values())}
    new = [index for index, rows in enumerate(same) if not len(rows)]
    if new:
        yield new
    waiting = [index for index, rows in enumerate(same) if len(rows)]
    while waiting:
        turn: list[int] = []
        missing = dict.fromkeys(room, 0)
        for index in waiting:
            codes = model.clip_domains[same[index]].tolist()
            after = {code: missing[code] + codes.count(code) for code in set(codes)}
            # One recording is always judged, if it has more copies than there is room for.
            if not turn or all(count <= room[code] for code, count in after.items()):
                turn.append(index)
                missing |= after
        yield turn
        waiting = [index for index in waiting if index not in turn]
