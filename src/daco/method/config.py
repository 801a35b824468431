"""ScoreConfig: one way to score a clip. The name *is* the configuration.

The grammar (``{}`` marks a number, ``|`` a choice, ``<base>`` a code of :mod:`daco.method.bases`)::

    raw-k{k}                                mean cosine distance to the k nearest normals
    ldn-ratio-K{K}                          local density normalisation over K neighbours
    <base>                                  any other base score, as it is
    ext-{label}                             a detector or scores from elsewhere, as they are
    conf-soft|hard|oracle-m{m}-<base>       per-domain quantile maps, prior strength m
    ratio-soft|hard|oracle-<base>           divided by the domain's median
    zscore-soft|hard|oracle-<base>          standardised in the domain

Inside a name the code of k nearest normals is ``k{k}``, that of the LDN ratio ``ldnK{K}``.
``ratio`` needs scores that are never negative. ``oracle`` reads the true domain of a test
clip; it is a diagnostic and is part of no grid.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from daco.errors import ConfigError
from daco.method.bases import SCORERS, Base, parse_base
from daco.text import suggestion
from daco.validation import is_whole

CALIBRATIONS = ("conf", "ratio", "zscore")
ASSIGNMENTS = ("soft", "hard", "oracle")

DEFAULT_CONFIG = "conf-soft-m0-k1"
"""Full per-domain equalisation: the paper's fixed a-priori default."""

VOTE_CONFIG = "vote"
"""All configurations of the frontier grid vote."""

RECOMMENDED_CONFIG = VOTE_CONFIG
"""The default of ``daco fit``: every configuration votes (docs/guides/choosing.md)."""

WHY_RECOMMENDED = (
    "all configurations vote, because on real machines the vote came close to the best single "
    "configuration, which is not known in advance"
)

RAW_CONFIG = "raw-k1"
"""Plain nearest neighbours, the baseline of calibration."""

_STRENGTHS = (0, 10, 30, 100, 300)
_FRONTIER_STRENGTHS = {"soft": (0, 30, 100), "hard": (0, 30)}
_FRONTIER_WHOLE = (
    "ldn-mean-K4",
    "ldn-mean-K16",
    "varmin-K1",
    "varmin-K4",
    "varmin-K16",
    "varmin-log-K1",
    "varmin-log-K4",
    "dldn-mean-K16",
    "dldn-ratio-K16",
    "zmin-k1+ldnK1+varmin-K4",
)
_FRONTIER_BANDWISE = (
    "beam",
    "beam-ldn-ratio-K1",
    "beam-ldn-mean-K1",
    "beam-ldn-mean-K4",
    "beam-ldn-mean-K16",
    "beam-varmin-K1",
    "beam-varmin-K4",
    "beam-varmin-K16",
    "beam-varmin-log-K4",
)

_CALIBRATED = re.compile(
    r"(?:(conf)-(soft|hard|oracle)-m(0|[1-9]\d{0,308}|\d{1,308}\.\d{1,400})"
    r"|(ratio|zscore)-(soft|hard|oracle))"
    r"-(.+)"
)
_REMOVED = re.compile(r"(?:^|-|\+)(pca|memmix|genrep-mix)(?:-|\+|$)")


@dataclass(frozen=True)
class ScoreConfig:
    """A base score, and optionally its calibration in each domain.

    Parameters
    ----------
    base : Base
        The score before any calibration.
    calibration : {"conf", "ratio", "zscore"} or None
        How scores are made comparable between domains; None leaves them as they are.
    assignment : {"soft", "hard", "oracle"} or None
        How a test clip is assigned to domains; None without a calibration.
    prior_strength : float
        ``m``, the weight of the pooled map in clips; 0 for calibrations other than ``conf``.

    Examples
    --------
    >>> from daco import ScoreConfig
    >>> config = ScoreConfig.parse("conf-soft-m30-k1")
    >>> config.calibration, config.prior_strength, config.family
    ('conf', 30, 'conf-soft')
    >>> config.name
    'conf-soft-m30-k1'
    >>> ScoreConfig.parse("zscore-hard-beam-varmin-K4").family
    'zscore-hard-beam-varmin'
    """

    base: Base
    calibration: str | None = None
    assignment: str | None = None
    prior_strength: float = 0

    def __post_init__(self) -> None:
        known = self.base.scorer in SCORERS and parse_base(self.base.code) == self.base
        _require(known, "base", "that of a code such as 'k1' or 'varmin-K4'", self.base)
        _require(
            self.calibration in (None, *CALIBRATIONS), "calibration", CALIBRATIONS, self.calibration
        )
        if self.calibration is None:
            _require(self.assignment is None, "assignment", "None for raw scores", self.assignment)
        else:
            _require(self.assignment in ASSIGNMENTS, "assignment", ASSIGNMENTS, self.assignment)
            dividing = self.calibration == "ratio" and self.base.signed
            _require(not dividing, "base", "one that is never negative", self.base.name)
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
            return self.base.name
        strength = f"-m{_number(self.prior_strength)}" if self.calibration == "conf" else ""
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
        """Parse the name of a configuration; ``recommended`` stands for ``vote``.

        An unknown name raises a `ConfigError` that suggests the closest known one.
        """
        if isinstance(name, ScoreConfig):
            return name
        if not isinstance(name, str):
            raise ConfigError(
                f"A configuration is a name such as {DEFAULT_CONFIG!r}. Got {name!r} "
                f"({type(name).__name__}) instead."
            )
        name = RECOMMENDED_CONFIG if name == "recommended" else name
        config = _parse(name)
        if config is None or config.name != name:
            raise ConfigError(f"Unknown configuration {name!r}.{_hint(name, config)}")
        return config


def parse_grid(configs: str | ScoreConfig | Iterable[str | ScoreConfig]) -> list[ScoreConfig]:
    """Parse the names of configurations, in order.

    Parameters
    ----------
    configs : str, ScoreConfig, or iterable of them
        Each configuration at most once.

    Returns
    -------
    list of ScoreConfig

    Examples
    --------
    >>> from daco.method.config import parse_grid
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
    return [ScoreConfig.parse(name) for name in _paper_names()[:size]]


def blind_pool(size: int = 9) -> list[ScoreConfig]:
    """List the configurations among which the paper chooses without labels: k=1, soft weights.

    Parameters
    ----------
    size : {9, 7}
        7 leaves out local density normalisation.

    Returns
    -------
    list of ScoreConfig

    Examples
    --------
    >>> from daco.method.config import blind_pool
    >>> [str(config) for config in blind_pool()[:2]]
    ['raw-k1', 'conf-soft-m0-k1']
    """
    if size not in (7, 9):
        raise ConfigError(f"The 'size' parameter of blind_pool must be 7 or 9. Got {size!r}.")
    names = ["raw-k1", *(f"conf-soft-m{m}-k1" for m in _STRENGTHS), "ratio-soft-k1"]
    names += ["ldn-ratio-K1", "conf-soft-m0-ldnK1"]
    return [ScoreConfig.parse(n) for n in names[:size]]


def frontier_grid(bands: int = 8) -> list[ScoreConfig]:
    """List the paper's 51 configurations, then newer base scores with their calibrations.

    Parameters
    ----------
    bands : int
        Number of frequency bands in each embedding. With 1 band the list has no ``beam``
        configurations.

    Returns
    -------
    list of ScoreConfig

    Examples
    --------
    >>> import daco
    >>> len(daco.frontier_grid()), len(daco.frontier_grid(bands=1))
    (210, 134)
    >>> daco.frontier_grid()[:51] == daco.paper_grid()
    True
    """
    if not is_whole(bands, least=1):
        raise ConfigError(f"The 'bands' of frontier_grid must be a whole number. Got {bands!r}.")
    grid = paper_grid()
    for code in (*_FRONTIER_WHOLE, *(_FRONTIER_BANDWISE if bands > 1 else ())):
        grid += _calibrations(_base(code))
    return [*grid, ScoreConfig(Base("genrep"))]


def calibrations_of(base: Base) -> list[ScoreConfig]:
    """List the candidates of a base score: as it is, and calibrated with soft weights.

    Parameters
    ----------
    base : Base

    Returns
    -------
    list of ScoreConfig

    Examples
    --------
    >>> from daco.method.bases import Base
    >>> from daco.method.config import calibrations_of
    >>> [str(config) for config in calibrations_of(Base("ext", label="iforest"))][:3]
    ['ext-iforest', 'conf-soft-m0-ext-iforest', 'conf-soft-m10-ext-iforest']
    """
    quantiles = [ScoreConfig(base, "conf", "soft", m) for m in _STRENGTHS]
    return [ScoreConfig(base), *quantiles, ScoreConfig(base, "zscore", "soft")]


def _calibrations(base: Base) -> list[ScoreConfig]:
    """A base as it is, and under every calibration that suits it."""
    configs = [ScoreConfig(base)]
    for assignment, strengths in _FRONTIER_STRENGTHS.items():
        configs += [ScoreConfig(base, "conf", assignment, m) for m in strengths]
        if not base.signed:
            configs.append(ScoreConfig(base, "ratio", assignment))
        configs.append(ScoreConfig(base, "zscore", assignment))
    return configs


def _base(code: str) -> Base:
    base = parse_base(code)
    assert base is not None
    return base


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
    """The configuration of a name in any accepted spelling."""
    if match := _CALIBRATED.fullmatch(name):
        calibration, assignment = match[1] or match[4], match[2] or match[5]
        strength = (float(match[3]) if "." in match[3] else int(match[3])) if match[3] else 0
        base = parse_base(match[6])
        if base is None:
            return None
        if calibration == "ratio" and base.signed:
            raise ConfigError(
                f"{name!r} divides by a median, and {base.name!r} may be negative. Calibrate it "
                "with 'conf' or 'zscore'."
            )
        return ScoreConfig(base, calibration, assignment, strength)
    base = parse_base(name.removeprefix("raw-"))
    return None if base is None else ScoreConfig(base)


def _hint(name: str, config: ScoreConfig | None) -> str:
    if config is not None:  # understood, but not spelled the one way it is written
        return f" Did you mean {config.name!r}?"
    if match := _REMOVED.search(name):
        return (
            f" The scorer {match[1]!r} was removed: it was in no grid and not among the best. "
            "The closest that remain are 'genrep' and 'varmin-K4'."
        )
    near = suggestion(name, [known.name for known in frontier_grid()], cutoff=0.4)
    return near or f" A name is, for example, {DEFAULT_CONFIG!r}, 'raw-k1' or 'vote'."


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
