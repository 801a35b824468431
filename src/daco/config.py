"""ScoreConfig: one way to score a clip. The name *is* the configuration.

The grammar (``{}`` marks a number, ``|`` a choice)::

    raw-k{k}                                   mean cosine distance to the k nearest normals
    ldn-ratio|diff-K{K}                        local density normalisation over K neighbours
    conf-soft|hard|oracle-m{m}-k{k}|ldnK{K}    per-domain quantile maps, prior strength m
    ratio-soft|hard|oracle-k{k}|ldnK{K}        divided by the domain's median
    zscore-soft|hard|oracle-k{k}|ldnK{K}       standardised in the domain

``ldnK{K}`` puts a calibration on top of the LDN ratio. ``oracle`` reads the true domain of
a test clip; it is a diagnostic and is part of no grid.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from daco.errors import ConfigError

SCORERS = ("knn", "ldn-ratio", "ldn-diff")
CALIBRATIONS = ("conf", "ratio", "zscore")
ASSIGNMENTS = ("soft", "hard", "oracle")

DEFAULT_CONFIG = "conf-soft-m0-k1"
"""Full per-domain equalisation: the paper's fixed a-priori default."""

RAW_CONFIG = "raw-k1"
"""Plain nearest neighbours: what calibration is compared with."""

# Digits are counted because int() refuses thousands of them in words of its own.
_RAW = re.compile(r"raw-k([1-9]\d{0,8})")
_LDN = re.compile(r"ldn-(ratio|diff)-K([1-9]\d{0,8})")
_CALIBRATED = re.compile(
    r"(?:(conf)-(soft|hard|oracle)-m(0|[1-9]\d{0,308}|\d{1,308}\.\d{1,400})"
    r"|(ratio|zscore)-(soft|hard|oracle))"
    r"-(?:k([1-9]\d{0,8})|ldnK([1-9]\d{0,8}))"
)


@dataclass(frozen=True)
class ScoreConfig:
    """A scorer, and optionally a calibration of its scores per domain.

    Parameters
    ----------
    scorer : {"knn", "ldn-ratio", "ldn-diff"}
        The base anomaly score.
    neighbours : int
        ``k`` of the k-NN distance, ``K`` of the local density.
    calibration : {"conf", "ratio", "zscore"} or None
        How scores are made comparable between domains; None leaves them raw.
    assignment : {"soft", "hard", "oracle"} or None
        How a test clip is assigned to domains. None when there is no calibration.
    prior_strength : float
        ``m``: the pooled map's weight in clips. Only ``conf`` has one.

    Examples
    --------
    >>> from daco import ScoreConfig
    >>> config = ScoreConfig.parse("conf-soft-m30-k1")
    >>> config.calibration, config.prior_strength, config.family
    ('conf', 30, 'conf-soft')
    >>> config.name
    'conf-soft-m30-k1'
    """

    scorer: str
    neighbours: int
    calibration: str | None = None
    assignment: str | None = None
    prior_strength: float = 0

    def __post_init__(self) -> None:
        _require(self.scorer in SCORERS, "scorer", SCORERS, self.scorer)
        whole = isinstance(self.neighbours, int | np.integer) and not isinstance(
            self.neighbours, bool
        )
        _require(whole and self.neighbours >= 1, "neighbours", "an int >= 1", self.neighbours)
        _require(
            self.calibration in (None, *CALIBRATIONS), "calibration", CALIBRATIONS, self.calibration
        )
        if self.calibration is None:
            _require(self.assignment is None, "assignment", "None for raw scores", self.assignment)
        else:
            _require(self.assignment in ASSIGNMENTS, "assignment", ASSIGNMENTS, self.assignment)
            _require(self.scorer != "ldn-diff", "scorer", "knn or ldn-ratio", self.scorer)
        finite = isinstance(
            self.prior_strength, int | float | np.number
        ) and 0 <= self.prior_strength < float("inf")
        _require(finite, "prior_strength", "a finite number >= 0", self.prior_strength)
        if self.calibration != "conf":
            _require(self.prior_strength == 0, "prior_strength", "0", self.prior_strength)

    @property
    def name(self) -> str:
        """The published name; ``ScoreConfig.parse(name).name == name``."""
        if self.calibration is None:
            return f"raw-k{self.neighbours}" if self.scorer == "knn" else self._ldn_name()
        base = f"k{self.neighbours}" if self.scorer == "knn" else f"ldnK{self.neighbours}"
        strength = f"-m{_number(self.prior_strength)}" if self.calibration == "conf" else ""
        return f"{self.calibration}-{self.assignment}{strength}-{base}"

    def _ldn_name(self) -> str:
        return f"{self.scorer}-K{self.neighbours}"

    @property
    def family(self) -> str:
        """The method family that block statistics resample (k, K and m are pooled)."""
        if self.calibration is None:
            return "raw" if self.scorer == "knn" else self.scorer
        stacked = "-ldn" if self.scorer != "knn" else ""
        return f"{self.calibration}-{self.assignment}{stacked}"

    @property
    def base(self) -> tuple[str, int]:
        """The base score under the calibration: configurations share it."""
        return (self.scorer, self.neighbours)

    def __str__(self) -> str:
        return self.name

    @classmethod
    def parse(cls, name: str | ScoreConfig) -> ScoreConfig:
        """The configuration a name stands for."""
        if isinstance(name, ScoreConfig):
            return name
        if not isinstance(name, str):
            raise ConfigError(
                f"A configuration is a name such as {DEFAULT_CONFIG!r}. Got {name!r} "
                f"({type(name).__name__}) instead."
            )
        config = _parse(name)
        if config is None or config.name != name:
            raise ConfigError(f"Unknown configuration {name!r}.{_hint(name, config)}")
        return config


def parse_grid(configs: str | ScoreConfig | Iterable[str | ScoreConfig]) -> list[ScoreConfig]:
    """Configurations from names, in order; a repeated one is an error.

    Examples
    --------
    >>> from daco.config import parse_grid
    >>> [config.family for config in parse_grid(["raw-k1", "ldn-diff-K1"])]
    ['raw', 'ldn-diff']
    """
    if isinstance(configs, str | ScoreConfig):
        configs = [configs]
    if not isinstance(configs, Iterable):
        raise ConfigError(
            f"A grid is a sequence of configurations, for instance paper_grid(). Got {configs!r}."
        )
    grid = [ScoreConfig.parse(config) for config in configs]
    if not grid:
        raise ConfigError("The grid is empty. Give at least one configuration name.")
    seen: set[ScoreConfig] = set()
    for config in grid:
        if config in seen:
            raise ConfigError(f"The grid names {config.name!r} twice. Remove one of them.")
        seen.add(config)
    return grid


def paper_grid(size: int = 51) -> list[ScoreConfig]:
    """The paper's configurations in published order.

    Parameters
    ----------
    size : {51, 45}
        45 is the transfer study's grid; 51 adds local density normalisation.

    Examples
    --------
    >>> import daco
    >>> [str(config) for config in daco.paper_grid()[:3]]
    ['raw-k1', 'conf-soft-m0-k1', 'conf-soft-m10-k1']
    >>> len(daco.paper_grid(45))
    45
    """
    if isinstance(size, float) or size not in (45, 51):
        raise ConfigError(f"The 'size' parameter of paper_grid must be 45 or 51. Got {size!r}.")
    return [ScoreConfig.parse(name) for name in _paper_names()[:size]]


def blind_pool(size: int = 9) -> list[ScoreConfig]:
    """The paper's pools for choosing per machine without labels: k=1, soft assignment.

    Nine configurations; seven without local density normalisation. The degenerate
    ``ldn-diff-K16``, which a balance criterion cannot see through, is in neither.
    """
    if size not in (7, 9):
        raise ConfigError(f"The 'size' parameter of blind_pool must be 7 or 9. Got {size!r}.")
    names = ["raw-k1", *(f"conf-soft-m{m}-k1" for m in _STRENGTHS), "ratio-soft-k1"]
    names += ["ldn-ratio-K1", "conf-soft-m0-ldnK1"]
    return [ScoreConfig.parse(n) for n in names[:size]]


_STRENGTHS = (0, 10, 30, 100, 300)


@cache
def _paper_names() -> tuple[str, ...]:
    names: list[str] = []
    for k in (1, 2, 4):
        names.append(f"raw-k{k}")
        for assignment in ("soft", "hard"):
            names += [f"conf-{assignment}-m{m}-k{k}" for m in _STRENGTHS]
            names += [f"ratio-{assignment}-k{k}", f"zscore-{assignment}-k{k}"]
    names += [f"ldn-{variant}-K{density}" for variant in ("ratio", "diff") for density in (1, 16)]
    return (*names, "conf-soft-m0-ldnK1", "conf-soft-m30-ldnK1")


def _parse(name: str) -> ScoreConfig | None:
    if match := _RAW.fullmatch(name):
        return ScoreConfig("knn", int(match[1]))
    if match := _LDN.fullmatch(name):
        return ScoreConfig(f"ldn-{match[1]}", int(match[2]))
    if match := _CALIBRATED.fullmatch(name):
        calibration, assignment = match[1] or match[4], match[2] or match[5]
        strength = (float(match[3]) if "." in match[3] else int(match[3])) if match[3] else 0
        scorer, neighbours = ("knn", match[6]) if match[6] else ("ldn-ratio", match[7])
        return ScoreConfig(scorer, int(neighbours), calibration, assignment, strength)
    return None


def _hint(name: str, config: ScoreConfig | None) -> str:
    if config is not None:  # understood, but not spelled the one way it is written
        return f" Did you mean {config.name!r}?"
    folded = {known.lower(): known for known in _paper_names()}
    nearest = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.0)
    return f" Did you mean {folded[nearest[0]]!r}?"


def _number(value: float) -> str:
    if value == int(value):
        return str(int(value))
    return np.format_float_positional(float(value), trim="-")


def _require(holds: bool, parameter: str, allowed: str | Sequence[str], got: object) -> None:
    if not holds:
        allowed = allowed if isinstance(allowed, str) else " or ".join(map(repr, allowed))
        raise ConfigError(
            f"The {parameter!r} parameter of ScoreConfig must be {allowed}. Got {got!r} instead."
        )
