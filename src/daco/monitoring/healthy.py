"""What a machine's healthy recordings sound like, and how far a recording is outside of it.

A feature is compared with the upper (or lower) end of what healthy recordings have. How far healthy
recordings themselves lie outside of the others is known by leaving each out, and sets the limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.errors import InputError, NotEnoughClipsError
from daco.monitoring.sound_features import SoundFeatures, bands, sound_features
from daco.validation import Float32s, Float64s, Indices

LEAST_RECORDINGS = 5
MOST_RECORDINGS = 256
"""Healthy recordings of one condition that a profile should have; more add nothing but time."""

LEAST_OF_CONDITION = 20  # with fewer, a recording is compared with those of all conditions
NEAREST = 8
UPPER_SHARE = 0.98  # of the healthy recordings are below the upper end
FALSE_FINDINGS = 0.05  # share of healthy recordings that may have any finding
OTHER_SESSION = 1.15  # recordings of another day are this much further outside
WIDER = 6.0  # over the number of recordings: limits are wider by this share where it is small
LEAST_LINE = 5.0  # decibels by which a line stands out that can be missing
ROOM_HZ, ROOM_DB = 600.0, 5.0  # noise of the room is below, and comes and goes by as much

LEAST_EXCESS = {
    "louder": 3.5,
    "quieter": 3.5,
    "tone": 6.0,
    "missing tone": 2.8,
    "harmonics": 5.5,
    "missing harmonics": 2.5,
    "repetition": 9.5,
    "event": 10.0,
    "overall": 6.0,
}
"""Comparisons, and by how much each must at least be outside of the healthy range: decibels, and
for what is missing decibels over 1 dB and the spread of the nearest recordings."""

_FEATURES = tuple(
    name for name in SoundFeatures.__annotations__ if name not in ("repetition_hz", "course")
)


@dataclass(frozen=True, eq=False)
class HealthyProfile:
    """Features of a machine's healthy recordings, a row each (`SoundFeatures` says which).

    Examples
    --------
    >>> waves = np.random.default_rng(0).normal(size=(8, 32000))
    >>> profile = HealthyProfile.from_recordings(waves, 16000)
    >>> len(profile.conditions), profile.sample_rate, profile.levels.shape
    (8, 16000, (8, 21))
    """

    sample_rate: int
    conditions: NDArray[np.str_]
    overall: Float32s
    levels: Float32s
    tones: Float32s
    tone_hz: Float32s
    lines: Float32s
    line_hz: Float32s
    harmonics: Float32s
    harmonics_hz: Float32s
    repetition: Float32s
    events: Float32s
    _references: dict[str | None, Reference] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_recordings(
        cls,
        recordings: Iterable[NDArray[Any]],
        sample_rate: int,
        conditions: Sequence[str] | None = None,
    ) -> HealthyProfile:
        """Make a profile of waveforms, read one after another, and their operating conditions."""
        rows = [sound_features(wave, sample_rate) for wave in recordings]
        if len(rows) < LEAST_RECORDINGS:
            raise NotEnoughClipsError(
                f"Findings need at least {LEAST_RECORDINGS} healthy recordings. Got {len(rows)}."
            )
        names = [""] * len(rows) if conditions is None else list(conditions)
        if len(names) != len(rows):
            raise InputError(f"Got {len(rows)} recordings and {len(names)} conditions.")
        arrays = {
            name: np.array([getattr(row, name) for row in rows], np.float32) for name in _FEATURES
        }
        return cls(int(sample_rate), np.array(names, np.str_), **arrays)

    def take(self, rows: Indices) -> HealthyProfile:
        """Return the profile of some recordings."""
        features = {name: getattr(self, name)[rows] for name in _FEATURES}
        return HealthyProfile(self.sample_rate, self.conditions[rows], **features)

    def reference(self, condition: str | None = None) -> Reference:
        """Return what is usual in a condition, or in all if it is unknown or has few rows."""
        rows = np.flatnonzero(self.conditions == condition)
        if len(rows) < LEAST_OF_CONDITION:
            condition, rows = None, np.arange(len(self.conditions))
        if condition not in self._references:
            self._references[condition] = Reference(self.take(rows))
        return self._references[condition]


def evenly_chosen(conditions: Sequence[str], most: int = MOST_RECORDINGS) -> Indices:
    """Rows of at most `most` recordings of each condition, evenly spaced: enough for a profile.

    >>> evenly_chosen(["low"] * 6 + ["high"] * 2, most=3).tolist()
    [0, 2, 5, 6, 7]
    """
    names = np.asarray(conditions)
    chosen = []
    for name in np.unique(names):
        rows = np.flatnonzero(names == name)
        places = np.linspace(0, len(rows) - 1, min(most, len(rows)))
        chosen.append(rows[places.astype(np.intp)])
    return np.sort(np.concatenate(chosen))


@dataclass(frozen=True, eq=False)
class Reference:
    """The recordings of a profile to compare one with."""

    profile: HealthyProfile

    @cached_property
    def usual_levels(self) -> Float32s:
        """Median level of each band."""
        return np.median(self.profile.levels, axis=0)

    def shape(self, levels: Float32s) -> Float32s:
        """Levels of bands after a change of the overall level that most bands share is removed."""
        low, high = np.quantile(levels - self.usual_levels, (0.4, 0.6), axis=-1, keepdims=True)
        return levels - np.maximum(low, 0) - np.minimum(high, 0)

    @cached_property
    def shapes(self) -> Float32s:
        """Shapes of all recordings."""
        return self.shape(self.profile.levels)

    def nearest(self, levels: Float32s, tones: Float32s, without: int | None = None) -> Indices:
        """Recordings with the most similar levels and tones, the most similar first.

        Single large differences count little, and the recording `without` not at all.
        """
        distance = np.minimum(np.abs(self.shapes - self.shape(levels)), 6).mean(axis=1)
        distance += np.minimum(np.abs(self.profile.tones - tones), 6).mean(axis=1)
        if without is not None:
            distance[without] = np.inf
        count = min(NEAREST, len(distance) - (without is not None))
        return np.argsort(distance, kind="stable")[:count]

    @cached_property
    def upper(self) -> dict[str, Float32s]:
        """Upper ends of the features that a recording may exceed."""
        return {name: _upper(values) for name, values in self._features().items()}

    def _features(self) -> dict[str, Float32s]:
        profile = self.profile
        return {
            "tone": _with_neighbours(profile.tones),
            "harmonics": _with_neighbours(profile.harmonics),
            "repetition": _with_neighbours(profile.repetition),
            "event": profile.events,
            "overall": np.stack([profile.overall, -profile.overall], axis=1),
        }

    def excess(self, sound: SoundFeatures, near: Indices) -> dict[str, Float32s]:
        """How far each feature is outside of the healthy range, by comparison."""
        return self._excess(sound, near, self.upper)

    def _excess(
        self, sound: Any, near: Indices, upper: Mapping[str, Float32s]
    ) -> dict[str, Float32s]:
        profile, shape, shapes = self.profile, self.shape(sound.levels), self.shapes[near]
        quieter = shapes.min(axis=0) - shape
        # What is quieter is so in two bands side by side: noise of one is not.
        beside = np.append(quieter[1:], -np.inf)
        quieter = np.maximum(np.minimum(quieter, beside), np.minimum(quieter, np.roll(beside, 1)))
        edges = bands(profile.sample_rate).levels
        return {
            "louder": shape - shapes.max(axis=0),
            "quieter": quieter - ROOM_DB * (edges[:-1] < ROOM_HZ),
            "tone": sound.tones - upper["tone"],
            "missing tone": _missing(sound.lines, profile.lines[near]),
            "harmonics": sound.harmonics - upper["harmonics"],
            "missing harmonics": _missing(sound.harmonics, profile.harmonics[near]),
            "repetition": sound.repetition - upper["repetition"],
            "event": sound.events - upper["event"],
            "overall": np.array([sound.overall, -sound.overall]) - upper["overall"],
        }

    @cached_property
    def limits(self) -> dict[str, float]:
        """The excess from which on each comparison is a finding.

        Healthy recordings are compared with the others. The largest excess of each follows a
        Gumbel distribution, whose tail gives every comparison its share of false findings.
        """
        profile = self.profile
        upper = {name: _upper_of_others(values) for name, values in self._features().items()}
        largest: dict[str, list[float]] = {name: [] for name in LEAST_EXCESS}
        for row in range(len(profile.overall)):
            own = SimpleNamespace(**{name: getattr(profile, name)[row] for name in _FEATURES})
            near = self.nearest(own.levels, own.tones, without=row)
            ends = {name: values[row] for name, values in upper.items()}
            for name, values in self._excess(own, near, ends).items():
                largest[name].append(float(values.max()))
        share = FALSE_FINDINGS / len(largest)
        wider = max(1.0, 0.92 + WIDER / len(profile.overall))  # few do not show all that is healthy
        return {
            name: wider * max(LEAST_EXCESS[name], OTHER_SESSION * _tail(np.array(values), share))
            for name, values in largest.items()
        }


def _missing(own: Float32s, near: Float32s) -> Float32s:
    """By how much a recording lacks what all nearest ones have, the steadier the more."""
    lacking = (near.min(axis=0) - _with_neighbours(own)) / (1 + near.std(axis=0))
    return np.where(np.median(near, axis=0) >= LEAST_LINE, lacking, -LEAST_LINE)


def _with_neighbours(cells: Float32s) -> Float32s:
    """The largest of each cell and its neighbours: the speed of a machine is never the same."""
    from scipy.ndimage import maximum_filter1d

    return maximum_filter1d(cells, 3, axis=-1)


def _rank(count: int) -> int:
    return int(np.ceil(UPPER_SHARE * count)) - 1


def _upper(values: Float32s) -> Float32s:
    """The upper end of each column."""
    rank = _rank(len(values))
    return np.partition(values, rank, axis=0)[rank]


def _upper_of_others(values: Float32s) -> Float32s:
    """The upper end of each column without each row."""
    rank = _rank(len(values) - 1)
    ordered = np.partition(values, (rank, rank + 1), axis=0)
    return np.where(values > ordered[rank], ordered[rank], ordered[rank + 1])


def _tail(largest: Float64s, share: float) -> float:
    """What this share of values exceeds, of the Gumbel distribution with their moments."""
    scale = largest.std(ddof=1) * np.sqrt(6) / np.pi
    return float(largest.mean() - scale * (np.euler_gamma + np.log(-np.log1p(-share))))
