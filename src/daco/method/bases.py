"""Base scores: the scores of clips before any calibration, and their names.

A base is a scorer with its number, taken on whole vectors or band by band::

    k{k}                         mean cosine distance to the k nearest normals
    ldnK{K}                      smallest distance over the density there, a SUM over K
                                 neighbours (``ldn-ratio``)
    ldn-diff-K{K}                smallest distance less the density, a SUM over K neighbours
    ldn-mean-K{K}                the same with the MEAN over K neighbours
    ldn-log-K{K}                 the logarithm of K times the ratio with the mean
    varmin-K{K}                  less alpha times the mean density; alpha from the normals
    varmin-log-K{K}              the same in logarithms
    dldn-ratio|mean-K{K}         densities among normals of the same domain only
    beam, beam-k{k}              k nearest normals in every band, averaged over bands
    beam-<one of ldn-, varmin-, dldn->    that score in every band, averaged over bands
    genrep                       nearest normal per domain, standardised
    zmin-<base>+<base>+...       smallest of two to eight scores, each standardised
    vote, vote-paper             mean over the frontier grid, or the paper's 51, each on
                                 the scale of its normals (``daco.method.vote``)
    ext-<label>                  a detector or scores from elsewhere
                                 (``daco.method.external``)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_FUSED = 8


@dataclass(frozen=True)
class Scorer:
    """Properties of a scorer.

    ``letter`` stands before its number, empty where it has none; ``signed`` scores may be
    negative; ``local`` ones look at neighbours, in one band as well as in whole vectors.
    """

    letter: str
    signed: bool
    local: bool
    words: str


_DENSITY = "how far normals lie from their own {K} there"
SCORERS = {
    "knn": Scorer("k", False, True, "its cosine distance to the {k}"),
    "ldn-ratio": Scorer("K", False, True, "its distance to a normal, relative to " + _DENSITY),
    "ldn-diff": Scorer("K", True, True, "its distance to a normal, less " + _DENSITY + ", summed"),
    "ldn-mean": Scorer("K", True, True, "its distance to a normal, less " + _DENSITY),
    "ldn-log": Scorer(
        "K", True, True, "the logarithm of its distance to a normal, relative to " + _DENSITY
    ),
    "varmin": Scorer(
        "K", True, True, "its distance to a normal, less what density explains (K = {n})"
    ),
    "varmin-log": Scorer(
        "K", True, True, "its log distance to a normal, less what density explains (K = {n})"
    ),
    "dldn-ratio": Scorer(
        "K",
        False,
        True,
        "its distance to a normal, relative to the density in its domain (K = {n})",
    ),
    "dldn-mean": Scorer(
        "K", True, True, "its distance to a normal, less the density in its domain (K = {n})"
    ),
    "genrep": Scorer(
        "", True, False, "its distance to the nearest normal, standardised in each domain"
    ),
    "zmin": Scorer("", True, False, "the smallest of {n} standardised scores"),
    "vote": Scorer(
        "", True, False, "the mean of all configurations, each on the scale of its normals"
    ),
    "vote-paper": Scorer(
        "",
        True,
        False,
        "the mean of the paper's 51 configurations, each on the scale of its normals",
    ),
    "ext": Scorer("", True, False, "{label}"),
}
"""All scorers, in the order of the grammar."""

BANDWISE = "beam"

VOTES = ("vote", "vote-paper")
"""Scorers that are votes of configurations."""

_LOCAL = re.compile(
    r"(beam-)?(ldn-ratio|ldn-diff|ldn-mean|ldn-log|varmin-log|varmin|dldn-ratio|dldn-mean)"
    r"-K([1-9]\d{0,8})"
)
# Digits are counted because int() refuses thousands of them in words of its own.
_KNN = re.compile(r"(beam-)?k([1-9]\d{0,8})")
_STACKED = re.compile(r"ldnK([1-9]\d{0,8})")
_EXTERNAL = re.compile(r"ext-([A-Za-z][A-Za-z0-9_.]*)")


@dataclass(frozen=True)
class Base:
    """One base score; configurations that differ in calibration only share it.

    Attributes
    ----------
    scorer : str
        The kind of score, such as ``"knn"`` or ``"varmin"``.
    neighbours : int
        ``k`` or ``K``; 0 for scorers without one.
    bandwise : bool
        Whether the score is computed in each band and averaged over bands.
    members : tuple of Base
        The base scores that ``zmin`` combines.
    label : str
        The label of an external scorer, ``ext-<label>``.

    Examples
    --------
    >>> from daco.method.bases import Base, parse_base
    >>> Base("varmin", 4, bandwise=True).code
    'beam-varmin-K4'
    >>> parse_base("zmin-k1+ldnK1").members[1].scorer
    'ldn-ratio'
    """

    scorer: str
    neighbours: int = 0
    bandwise: bool = False
    members: tuple[Base, ...] = ()
    label: str = ""

    @property
    def code(self) -> str:
        """The name inside a calibrated or combined configuration."""
        if self.scorer == "knn":
            if self.bandwise:
                return BANDWISE if self.neighbours == 1 else f"{BANDWISE}-k{self.neighbours}"
            return f"k{self.neighbours}"
        if self.scorer == "ldn-ratio" and not self.bandwise:
            return f"ldnK{self.neighbours}"
        return self.name

    @property
    def name(self) -> str:
        """The name of the uncalibrated configuration."""
        if self.scorer == "knn":
            return self.code if self.bandwise else f"raw-k{self.neighbours}"
        if self.scorer == "zmin":
            return "zmin-" + "+".join(member.code for member in self.members)
        if self.is_external:
            return f"ext-{self.label}"
        letter = SCORERS[self.scorer].letter
        number = f"-{letter}{self.neighbours}" if letter else ""
        return f"{BANDWISE}-{self.scorer}{number}" if self.bandwise else f"{self.scorer}{number}"

    @property
    def family(self) -> str:
        """The name without its numbers; statistics resample whole families."""
        if self.scorer == "knn":
            return BANDWISE if self.bandwise else "raw"
        if self.is_external:
            return self.name
        return f"{BANDWISE}-{self.scorer}" if self.bandwise else self.scorer

    @property
    def is_vote(self) -> bool:
        """Whether it is a vote of configurations."""
        return self.scorer in VOTES

    @property
    def is_external(self) -> bool:
        """Whether it is an external scorer, ``ext-<label>``."""
        return self.scorer == "ext"

    @property
    def signed(self) -> bool:
        """Whether scores may be negative; these have no ``ratio`` calibration."""
        return SCORERS[self.scorer].signed

    @property
    def words(self) -> str:
        """The score in words, as the end of the sentence "a clip is scored by ..."."""
        n = self.neighbours
        text = SCORERS[self.scorer].words.format(
            n=len(self.members) or n,
            label=self.label,
            k="most similar normal" if n == 1 else f"{n} most similar normals (mean)",
            K="neighbour" if n == 1 else f"{n} neighbours",
        )
        return f"{text}, in each band by itself" if self.bandwise else text

    def parts(self) -> Iterator[Base]:
        """List the base scores to compute: itself, or those that it combines."""
        yield from self.members or (self,)

    def __str__(self) -> str:
        return self.name


def parse_base(code: str) -> Base | None:
    """Parse the code of a base score in any accepted spelling; return None for others."""
    if code == BANDWISE:
        return Base("knn", 1, bandwise=True)
    if match := _KNN.fullmatch(code):
        return Base("knn", int(match[2]), bandwise=bool(match[1]))
    if match := _STACKED.fullmatch(code):
        return Base("ldn-ratio", int(match[1]))
    if match := _LOCAL.fullmatch(code):
        return Base(match[2], int(match[3]), bandwise=bool(match[1]))
    if code in ("genrep", *VOTES):
        return Base(code)
    if match := _EXTERNAL.fullmatch(code):
        return Base("ext", label=match[1])
    if code.startswith("zmin-"):
        codes = code.removeprefix("zmin-").split("+")
        members = [parse_base(part) for part in codes] if len(codes) <= MAX_FUSED else []
        known = tuple(member for member in members if member is not None)
        simple = all(member.scorer not in ("zmin", "ext", *VOTES) for member in known)
        if len(members) == len(known) == len(set(known)) >= 2 and simple:
            return Base("zmin", members=known)
    return None
