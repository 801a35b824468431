"""How the neighbours of a large bank are searched: every clip, or a part of them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from daco.errors import ConfigError, MissingExtraError

EXACT_BELOW = 10_000
"""Domains with fewer clips are compared one by one: an index would save nothing."""


@dataclass(frozen=True)
class Flat:
    """Every clip of the bank is compared: exact, and no extra is needed."""


@dataclass(frozen=True)
class IVF:
    """FAISS's inverted file: the clips of the nearest of ``lists`` cells are compared.

    Attributes
    ----------
    lists : int
        Cells of each domain; 0 takes about the square root of its clips.
    probes : int
        Cells that are looked into. More find more, in proportionally more time.
    candidates : int
        Nearest clips of each domain that are compared again in the bank's own precision.
    exact_below : int
        Domains with fewer clips are compared one by one.

    Examples
    --------
    >>> from daco.method.bigbank import IVF
    >>> IVF(probes=64)
    IVF(lists=0, probes=64, candidates=64, exact_below=10000)
    """

    lists: int = 0
    probes: int = 32
    candidates: int = 64
    exact_below: int = EXACT_BELOW

    def __post_init__(self) -> None:
        _require_counts(self, may_be_zero=("lists", "exact_below"))


@dataclass(frozen=True)
class HNSW:
    """FAISS's navigable graph: it is walked from clip to nearer clip.

    Attributes
    ----------
    links : int
        Of each clip to others. More find more and take memory, 8 bytes each.
    effort : int
        Clips kept in view while a clip is searched. More find more, in more time.
    building : int
        The same while the graph is built.
    candidates, exact_below : int
        As of `IVF`.
    """

    links: int = 32
    effort: int = 128
    building: int = 80
    candidates: int = 64
    exact_below: int = EXACT_BELOW

    def __post_init__(self) -> None:
        _require_counts(self, may_be_zero=("exact_below",))


Index = Flat | IVF | HNSW

_NAMED: dict[str, type[Index]] = {"flat": Flat, "ivf": IVF, "hnsw": HNSW}


def parse_index(index: object) -> Index:
    """The options of an index that is given by name or as they are.

    >>> from daco.method.bigbank.options import parse_index
    >>> parse_index("ivf").probes
    32
    """
    if isinstance(index, Flat | IVF | HNSW):
        return index
    if isinstance(index, str) and index in _NAMED:
        return _NAMED[index]()
    raise ConfigError(
        f"There is no index {index!r}. Use 'flat', which is exact, 'ivf' or 'hnsw', or options "
        "such as daco.method.bigbank.IVF(probes=64)."
    )


def require_faiss() -> None:
    """An error with the pip command where FAISS is not installed."""
    try:
        import faiss  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            'An approximate index needs FAISS: pip install "daco-asd[index]". index="flat" is '
            "exact and works without it."
        ) from None


def _require_counts(options: IVF | HNSW, may_be_zero: tuple[str, ...]) -> None:
    for field in fields(options):
        value, least = getattr(options, field.name), 0 if field.name in may_be_zero else 1
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(
                f"The '{field.name}' of {type(options).__name__} must be an int >= {least}. Got "
                f"{value!r} instead."
            )
