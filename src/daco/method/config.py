"""Configurations: one way to score a clip each. The name *is* the configuration.

The grammar (``{}`` marks what varies)::

    raw-k{k}                 mean cosine distance to the k nearest normals
    ldn-ratio-K{K}           smallest distance over the density there
    ldn-diff-K{K}            smallest distance less it, a sum over K neighbours
    ldn-mean-K{K}            the same with the mean over K neighbours
    varmin-K{K}              the same with a factor fitted to the normals
    blend                    the mean of four of these over all views
    blend+{label}            a blend with external detectors as views
    ext-{label}              an external detector, or scores from elsewhere
    conf-{a}-m{m}-<code>     per-domain quantile maps, prior strength m
    ratio-{a}-<code>         divided by the domain's median
    zscore-{a}-<code>        standardised in the domain

The assignment ``{a}`` is ``soft``, ``hard`` or ``oracle``, which reads the true domain of a test
clip, as a diagnostic; it is part of no grid. The ``<code>`` of a base score is its name, except for
``k{k}`` (``raw-k{k}``) and ``ldnK{K}`` (``ldn-ratio-K{K}``). ``ratio`` needs scores that are never
negative.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from daco.errors import ConfigError
from daco.text import suggestion
from daco.validation import is_whole

DEFAULT_CONFIG = "blend"  # of estimators, models, commands and the monitor
PAPER_CONFIG = "conf-soft-m0-k1"
"""Full per-domain equalisation: the paper's fixed a-priori default."""
RAW_CONFIG = "raw-k1"  # plain nearest neighbours, the baseline of calibration

NEIGHBOUR_SCORERS = ("knn", "ldn-ratio", "ldn-diff", "ldn-mean", "varmin")
SCORERS = (*NEIGHBOUR_SCORERS, "blend", "ext")
CALIBRATIONS = ("conf", "ratio", "zscore")
ASSIGNMENTS = ("soft", "hard", "oracle")
_NEVER_NEGATIVE = ("knn", "ldn-ratio")
_STRENGTHS = (0, 10, 30, 100, 300)
_LABEL = r"[A-Za-z][A-Za-z0-9_.]*"
# Digits are counted because int() refuses thousands of them in words of its own.
_BASE = re.compile(
    r"(?P<short>k|ldnK|(?P<scorer>ldn-ratio|ldn-diff|ldn-mean|varmin)-K)(?P<k>[1-9]\d{0,8})"
    rf"|ext-(?P<external>{_LABEL})|blend(?P<blended>(?:\+{_LABEL})*)"
)
_CALIBRATED = re.compile(
    r"(?:(conf)-(soft|hard|oracle)-m(0|[1-9]\d{0,308}|\d{1,308}\.\d{1,400})"
    r"|(ratio|zscore)-(soft|hard|oracle))"
    r"-(.+)"
)


@dataclass(frozen=True)
class Base:
    """A score before any calibration; configurations that differ in calibration only share it.

    The scorer is one of `SCORERS`, and k 0 for those without neighbours. The label is that of the
    external scorer of ``ext``, or those of a blend, joined by ``+``.
    """

    scorer: str
    k: int = 0
    label: str = ""

    @property
    def name(self) -> str:
        """The name of the uncalibrated configuration."""
        if self.scorer == "knn":
            return f"raw-k{self.k}"
        if self.scorer == "ext":
            return f"ext-{self.label}"
        if self.scorer == "blend":
            return f"blend+{self.label}" if self.label else "blend"
        return f"{self.scorer}-K{self.k}"

    @property
    def code(self) -> str:
        """The name inside a calibrated configuration."""
        if self.scorer == "knn":
            return f"k{self.k}"
        return f"ldnK{self.k}" if self.scorer == "ldn-ratio" else self.name

    @property
    def family(self) -> str:
        """The name without its number; statistics resample whole families."""
        if self.scorer == "knn":
            return "raw"
        return self.scorer if self.k else self.name

    @cached_property
    def signed(self) -> bool:
        """Whether scores may be negative; these have no ``ratio`` calibration."""
        return self.scorer not in _NEVER_NEGATIVE

    @cached_property
    def is_blend(self) -> bool:
        """Whether it is a blend."""
        return self.scorer == "blend"

    @property
    def labels(self) -> tuple[str, ...]:
        """The external scorers that it needs."""
        return tuple(self.label.split("+")) if self.label else ()

    @property
    def words(self) -> str:
        """The score in words, as the end of the sentence "a clip is scored by ..."."""
        normals = "most similar normal" if self.k == 1 else f"{self.k} most similar normals (mean)"
        density = f"how far normals lie from their own {self.k} nearest there"
        others = f", with {' and '.join(self.labels)} as further views" if self.label else ""
        return {
            "knn": f"its cosine distance to the {normals}",
            "ldn-ratio": f"its distance to a normal, relative to {density}",
            "ldn-diff": f"its distance to a normal, less {density}, summed",
            "ldn-mean": f"its distance to a normal, less {density}",
            "varmin": f"its distance to a normal, less what density explains (K = {self.k})",
            "blend": f"the mean of four distances over all views{others}",
            "ext": self.label,
        }[self.scorer]

    def __str__(self) -> str:
        return self.name


BLEND_MEMBERS = (
    Base("ldn-ratio", 1),
    Base("ldn-ratio", 16),
    Base("ldn-mean", 4),
    Base("varmin", 4),
)
"""The scores that a blend averages in each view."""


def parse_base(code: str) -> Base | None:
    """Parse the code of a base score; return None for others."""
    match = _BASE.fullmatch(code)
    if match is None:
        return None
    if match["k"]:
        short = {"k": "knn", "ldnK": "ldn-ratio"}
        return Base(match["scorer"] or short[match["short"]], int(match["k"]))
    if match["external"]:
        return Base("ext", label=match["external"])
    labels = match["blended"].removeprefix("+").split("+")
    return Base("blend", label="+".join(labels)) if len(set(labels)) == len(labels) else None


@dataclass(frozen=True)
class ScoreConfig:
    """A base score, and optionally its calibration in each domain.

    Parameters
    ----------
    scorer : {"knn", "ldn-ratio", "ldn-diff", "ldn-mean", "varmin", "blend", "ext"}
        The score before any calibration.
    k : int
        Number of neighbours; scorers without one ignore it.
    calibration : {"conf", "ratio", "zscore"}, optional
        How scores are made comparable between domains. With an assignment it is ``"conf"`` by
        default; without one scores stay as they are.
    assignment : {"soft", "hard", "oracle"}, optional
        How a test clip is assigned to domains.
    m : float
        The prior strength of ``conf``: the weight of the pooled map, in clips.
    label : str
        The external scorer of ``ext``, or those of a blend, joined by ``+``.

    Examples
    --------
    >>> from daco import ScoreConfig
    >>> ScoreConfig(k=1, m=0, assignment="soft").name
    'conf-soft-m0-k1'
    >>> config = ScoreConfig.parse("conf-soft-m30-k1")
    >>> config.calibration, config.m, config.family
    ('conf', 30, 'conf-soft')
    """

    scorer: str = "knn"
    k: int = 1
    calibration: str | None = None
    assignment: str | None = None
    m: float = 0
    label: str = ""

    def __post_init__(self) -> None:
        _require(self.scorer in SCORERS, "scorer", _one_of(SCORERS), self.scorer)
        if self.scorer in NEIGHBOUR_SCORERS:
            _require(is_whole(self.k, least=1) and self.k < 10**9, "k", "an int >= 1", self.k)
        else:
            object.__setattr__(self, "k", 0)
        if self.assignment is not None and self.calibration is None:
            object.__setattr__(self, "calibration", "conf")
        calibration, assignment = self.calibration, self.assignment
        allowed = f"None or {_one_of(CALIBRATIONS)}"
        _require(calibration in (None, *CALIBRATIONS), "calibration", allowed, calibration)
        if calibration is not None:
            _require(assignment in ASSIGNMENTS, "assignment", _one_of(ASSIGNMENTS), assignment)
        number = isinstance(self.m, int | float | np.number) and not isinstance(self.m, bool)
        _require(number and 0 <= self.m < float("inf"), "m", "a finite number >= 0", self.m)
        if calibration != "conf":
            _require(self.m == 0, "m", f"0 for {calibration or 'raw'} scores", self.m)
        known = parse_base(self.base.code) == self.base
        _require(known, "label", "that of an external scorer: a letter, then letters", self.label)
        if calibration == "ratio" and self.base.signed:
            raise ConfigError(
                f"{self.name!r} divides by a median, and {self.base.name!r} may be negative. "
                "Calibrate it with 'conf' or 'zscore'."
            )

    @cached_property
    def base(self) -> Base:
        """The score before any calibration."""
        return Base(self.scorer, self.k, self.label)

    @property
    def name(self) -> str:
        """The published name; ``ScoreConfig.parse(name).name == name``."""
        if self.calibration is None:
            return self.base.name
        strength = f"-m{_number(self.m)}" if self.calibration == "conf" else ""
        return f"{self.calibration}-{self.assignment}{strength}-{self.base.code}"

    @property
    def family(self) -> str:
        """The name without k, K and m; statistics resample whole families."""
        if self.calibration is None:
            return self.base.family
        published = {"raw": "", "ldn-ratio": "-ldn"}
        stacked = published.get(self.base.family, f"-{self.base.family}")
        return f"{self.calibration}-{self.assignment}{stacked}"

    def __str__(self) -> str:
        return self.name

    @classmethod
    def parse(cls, name: str | ScoreConfig) -> ScoreConfig:
        """Parse the name of a configuration.

        An unknown name raises a `ConfigError` that suggests the closest known one.
        """
        if isinstance(name, ScoreConfig):
            return name
        if not isinstance(name, str):
            raise ConfigError(f"A configuration is a name such as 'blend'. Got {name!r} instead.")
        config = _parse(name)
        if config is None or config.name != name:
            raise ConfigError(f"Unknown configuration {name!r}.{_hint(name, config)}")
        return config


def parse_grid(configs: str | ScoreConfig | Iterable[str | ScoreConfig]) -> list[ScoreConfig]:
    """Parse the names of one or several configurations, in order; each may occur once."""
    if isinstance(configs, str | ScoreConfig):
        return [ScoreConfig.parse(configs)]
    if not isinstance(configs, Iterable):
        raise ConfigError(f"A grid is a sequence of configurations. Got {configs!r}.")
    grid = [ScoreConfig.parse(config) for config in configs]
    if not grid:
        raise ConfigError("The grid is empty. Give at least one configuration name.")
    twice = [config.name for config, count in Counter(grid).items() if count > 1]
    if twice:
        raise ConfigError(f"The grid names {twice[0]!r} twice. Remove one of them.")
    return grid


def paper_grid(size: int = 51) -> list[ScoreConfig]:
    """List the configurations of the paper in published order.

    Parameters
    ----------
    size : {51, 45}
        45 is the grid of the paper's transfer study; 51 adds local density normalisation.

    Returns
    -------
    list of ScoreConfig

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
    return list(_paper_grid()[:size])


def blind_pool() -> list[ScoreConfig]:
    """List the 9 configurations among which the paper chooses without labels: k=1, soft weights."""
    names = ["raw-k1", *(f"conf-soft-m{m}-k1" for m in _STRENGTHS), "ratio-soft-k1"]
    names += ["ldn-ratio-K1", "conf-soft-m0-ldnK1"]
    return [ScoreConfig.parse(name) for name in names]


def calibrations_of(base: Base) -> list[ScoreConfig]:
    """List the candidates of a base score: as it is, and calibrated with soft weights."""
    plain = ScoreConfig(base.scorer, base.k, label=base.label)
    quantiles = [replace(plain, assignment="soft", m=m) for m in _STRENGTHS]
    return [plain, *quantiles, replace(plain, calibration="zscore", assignment="soft")]


@cache
def _paper_grid() -> tuple[ScoreConfig, ...]:
    names: list[str] = []
    for k in (1, 2, 4):
        names.append(f"raw-k{k}")
        for assignment in ("soft", "hard"):
            names += [f"conf-{assignment}-m{m}-k{k}" for m in _STRENGTHS]
            names += [f"ratio-{assignment}-k{k}", f"zscore-{assignment}-k{k}"]
    names += [f"ldn-{variant}-K{K}" for variant in ("ratio", "diff") for K in (1, 16)]
    names += ["conf-soft-m0-ldnK1", "conf-soft-m30-ldnK1"]
    return tuple(ScoreConfig.parse(name) for name in names)


def _parse(name: str) -> ScoreConfig | None:
    """The configuration of a name in any spelling that can be understood."""
    parts: dict[str, Any] = {}
    code = name.removeprefix("raw-")
    if match := _CALIBRATED.fullmatch(name):
        code = match[6]
        parts = {"calibration": match[1] or match[4], "assignment": match[2] or match[5]}
        if match[3]:
            parts["m"] = float(match[3]) if "." in match[3] else int(match[3])
    base = parse_base(code)
    return None if base is None else ScoreConfig(base.scorer, base.k, label=base.label, **parts)


def _hint(name: str, config: ScoreConfig | None) -> str:
    if config is not None:  # understood, but not spelled the one way it is written
        return f" Did you mean {config.name!r}?"
    known = [each.name for each in _paper_grid()] + [each.name for each in BLEND_MEMBERS]
    near = suggestion(name, [*known, "blend", "conf-soft-m0-blend"], cutoff=0.4)
    return near or f" A name is, for example, {DEFAULT_CONFIG!r}, {PAPER_CONFIG!r} or 'raw-k1'."


def _number(value: float) -> str:
    if value == int(value):
        return str(int(value))
    return np.format_float_positional(float(value), trim="-")


def _one_of(allowed: Iterable[str]) -> str:
    return " or ".join(map(repr, allowed))


def _require(holds: bool, parameter: str, allowed: str, got: object) -> None:
    if not holds:
        raise ConfigError(
            f"The {parameter!r} parameter of ScoreConfig must be {allowed}. Got {got!r} instead."
        )
