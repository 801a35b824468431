"""The frontier grid: the paper's configurations and the training-free scorers published since."""

from __future__ import annotations

from daco.errors import ConfigError
from daco.method.bases import Base, parse_base
from daco.method.config import ScoreConfig, paper_grid
from daco.validation import is_whole

_WHOLE = (
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
_BANDWISE = (
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
_STRENGTHS = {"soft": (0, 30, 100), "hard": (0, 30)}


def frontier_grid(bands: int = 8) -> list[ScoreConfig]:
    """The paper's 51 configurations, then the scorers published since with their calibrations.

    All of them share the neighbour work of one bank. What differs in a number only (k, K, m)
    is of one family, so that statistics over families stay honest however fine the grid is.
    Scorers that share none of that work, ``pca`` and those with mixtures (``memmix``,
    ``genrep-mix``), are left out: they cost more than all others together, or a fifth of them,
    and were not among the best. They can be named like any other.

    Parameters
    ----------
    bands : int
        Of the readout. With 1 the band-wise configurations, which would repeat the others,
        are left out.

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
    for code in (*_WHOLE, *(_BANDWISE if bands > 1 else ())):
        grid += _calibrations(_base(code))
    return [*grid, ScoreConfig.of(_base("genrep"))]


def _calibrations(base: Base) -> list[ScoreConfig]:
    """A base as it is, and under every calibration that suits it."""
    configs = [ScoreConfig.of(base)]
    for assignment, strengths in _STRENGTHS.items():
        configs += [ScoreConfig.of(base, "conf", assignment, m) for m in strengths]
        if not base.signed:
            configs.append(ScoreConfig.of(base, "ratio", assignment))
        configs.append(ScoreConfig.of(base, "zscore", assignment))
    return configs


def _base(code: str) -> Base:
    base = parse_base(code)
    assert base is not None
    return base
