"""The label-free viability veto: exclude configurations that do not detect pseudo-anomalies.

The criterion compares normal clips and cannot see whether a configuration detects anything. The
paper's veto reads dev labels; this one uses pseudo-anomalies of the machine itself
(:mod:`daco.method.pseudo_anomalies`), and no function here has an argument for a label. It does
not rank: pseudo scores say little about the order of the configurations that it leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.data.views import Bands
from daco.errors import InputError, NotEnoughClipsError
from daco.evaluation.metrics import grid_metrics, harmonic_mean
from daco.method.bank import Domains, Grid, NormalBank
from daco.method.config import RAW_CONFIG, ScoreConfig, parse_grid
from daco.method.limits import refuse_oracle
from daco.method.pseudo_anomalies import EMBEDDED, INJECTED, PseudoAnomalies
from daco.validation import Bools, Float64s, Floats, Indices, as_embeddings, encode_domains

CHANCE = 0.5

ADVANTAGE_SHARES = {INJECTED: 4 / 5, EMBEDDED: 2 / 3}
"""The least share of the reference's advantage over chance that a viable configuration has; smaller
in the embedding space, where scorers differ more."""

DETECTABLE = 0.6
"""AUC of plain nearest neighbours from which on a kind of pseudo-anomaly counts. A fault that the
embedding does not show adds noise to all configurations alike."""

LEAST_ADVANTAGE = 0.05
"""The veto abstains where the reference is less than this above chance."""

MIN_CLIPS = 4
"""Normals that a domain needs: half are held out, and a local density needs two."""


@dataclass(frozen=True, eq=False)
class PseudoScores:
    """How well each of C configurations separates pseudo-anomalies of a machine from its normals.

    Attributes
    ----------
    configs : tuple of str
    basis : str
        The kind of pseudo-anomalies, as in `Viability`.
    domains : tuple of str
        The G domains with enough normals.
    auc : (C, G) float
        AUC of the pseudo-anomalies of a domain against the held-out clips they were made of.
    pauc : (C, G) float
        The partial AUC up to a false-alarm rate of 0.1 (McClish), against all normals of the
        domain: a tenth of the held-out clips is one clip or none.
    kinds : tuple of str
        The K kinds of changes, such as ``shuffled``.
    by_kind : (C, K) float
        The AUC of each kind of pseudo-anomaly, mean over domains.
    detectable : tuple of str
        The kinds that the embedding shows. `auc` and `pauc` are over these, or over all kinds if
        it shows none.
    plain : (2 G,) float
        AUC and partial AUC of plain nearest neighbours (``raw-k1``) in each domain.
    clips : dict
        Number of held-out clips in each domain.
    anomalies : int
        Number of pseudo-anomalies.
    left_out : tuple of str
        Domains with too few normals.
    unmatched : int
        Held-out clips that are not among the normals, so that no row is held out for them.
    """

    configs: tuple[str, ...]
    basis: str
    domains: tuple[str, ...]
    auc: Float64s
    pauc: Float64s
    kinds: tuple[str, ...]
    by_kind: Float64s
    detectable: tuple[str, ...]
    plain: Float64s
    clips: dict[str, int]
    anomalies: int
    left_out: tuple[str, ...] = ()
    unmatched: int = 0

    @property
    def score(self) -> Float64s:
        """The pseudo score: harmonic mean over domains of AUC and partial AUC; chance is 0.5."""
        return np.asarray(harmonic_mean(self._quantities, axis=1))

    @property
    def _quantities(self) -> Float64s:
        return np.hstack([self.auc, self.pauc])


@dataclass(frozen=True, eq=False)
class Viability:
    """Which configurations the veto keeps, and why it excludes the others.

    Attributes
    ----------
    configs : tuple of str
    kept : (C,) bool
        False for excluded configurations.
    score : (C,) float
        The pseudo score, over all machines.
    median, plain : float
        The pseudo scores of the grid's median configuration and of plain nearest neighbours.
    limit : float
        A configuration with a lower score is excluded; nan where the veto abstains.
    basis : str
        ``"injected faults"`` or ``"embedding-space pseudo-anomalies"``.
    reasons : dict
        A sentence for each excluded configuration, in the order of the grid.
    notes : tuple of str
    """

    configs: tuple[str, ...]
    kept: Bools
    score: Float64s
    median: float
    plain: float
    limit: float
    basis: str
    reasons: dict[str, str]
    notes: tuple[str, ...] = ()

    @property
    def excluded(self) -> tuple[str, ...]:
        """The configurations that the veto excludes, in the order of the grid."""
        return tuple(self.reasons)

    @property
    def abstains(self) -> bool:
        """Whether hardly any configuration detects the pseudo-anomalies; none is excluded then."""
        return bool(np.isnan(self.limit))


def pseudo_scores(
    X: ArrayLike,
    domains: Domains | None,
    anomalies: PseudoAnomalies,
    configs: Grid,
    *,
    bands: Bands = 1,
    scorers: Mapping[str, Any] | None = None,
) -> PseudoScores:
    """Score pseudo-anomalies of one machine with every configuration of a grid.

    The clips they were made of are held out of the bank, in turns if that would take more than
    half of a domain. Too few normals raise a `NotEnoughClipsError`.

    Parameters
    ----------
    X, domains : (N, D), N labels or None
        Embeddings and domains of the normals.
    anomalies : PseudoAnomalies
        Pseudo-anomalies of the same machine.
    configs : configurations
    bands : int
        How embeddings are divided, as in :class:`daco.NormalBank`.
    scorers : {label: detector}, optional
        External scorers of the grid; tables of scores are refused.

    Returns
    -------
    PseudoScores

    Examples
    --------
    >>> import daco, numpy as np
    >>> from daco.method.pseudo_anomalies import moved_normals
    >>> from daco.method.viability import pseudo_scores
    >>> X = np.random.default_rng(0).normal(size=(60, 16)) + 1
    >>> domains = ["old"] * 50 + ["new"] * 10
    >>> scores = pseudo_scores(X, domains, moved_normals(X, domains), ["raw-k1", "ldn-ratio-K1"])
    >>> scores.auc.shape, scores.clips
    ((2, 2), {'new': 10, 'old': 20})
    """
    asked = parse_grid(configs)
    refuse_oracle(asked)
    raw = ScoreConfig.parse(RAW_CONFIG)
    grid = asked if raw in asked else [*asked, raw]
    X = as_embeddings(X)
    names, codes = encode_domains(domains, len(X))
    labels = [str(name) for name in names]
    sizes = np.bincount(codes, minlength=len(names))
    unknown = set(map(str, anomalies.domains)) - set(labels)
    if unknown:
        raise InputError(
            f"A held-out clip has the domain {min(unknown)!r}, but the normals have only "
            f"{', '.join(map(repr, labels))}."
        )
    held = np.array([labels.index(str(domain)) for domain in anomalies.domains], np.intp)
    judged = [
        code for code in range(len(names)) if sizes[code] >= MIN_CLIPS and (held == code).any()
    ]
    if not judged:
        raise NotEnoughClipsError(
            f"The veto needs a domain with {MIN_CLIPS} normal clips, some of them held out. "
            f"There are {', '.join(f'{n} {d}' for d, n in zip(labels, sizes, strict=True))}."
        )
    kinds = tuple(dict.fromkeys(anomalies.kinds.tolist()))
    for code in judged:
        if set(anomalies.kinds[held[anomalies.origin] == code].tolist()) != set(kinds):
            raise InputError(f"{labels[code]} lacks some kinds of pseudo-anomalies: {kinds}.")
    bank_of = partial(NormalBank, bands=bands, scorers=scorers)
    parts = _scored_parts(X, codes, anomalies, grid, held, judged, sizes, bank_of)
    plain = grid.index(raw)
    by_kind = np.stack([_separation(parts, judged, (kind,))[0].mean(axis=1) for kind in kinds], 1)
    shown = zip(kinds, by_kind[plain].tolist(), strict=True)
    detectable = tuple(kind for kind, auc in shown if auc >= DETECTABLE) or kinds
    auc, pauc = _separation(parts, judged, detectable)
    return PseudoScores(
        configs=tuple(config.name for config in asked),
        basis=anomalies.basis,
        domains=tuple(labels[code] for code in judged),
        auc=auc[: len(asked)],
        pauc=pauc[: len(asked)],
        kinds=kinds,
        by_kind=by_kind[: len(asked)],
        detectable=detectable,
        plain=np.concatenate([auc[plain], pauc[plain]]),
        clips={labels[code]: int((held == code).sum()) for code in judged},
        anomalies=int(np.isin(held[anomalies.origin], judged).sum()),
        left_out=tuple(labels[code] for code in range(len(names)) if code not in judged),
        unmatched=int((np.isin(held, judged) & (anomalies.rows < 0)).sum()),
    )


def _scored_parts(
    X: Floats,
    codes: Indices,
    anomalies: PseudoAnomalies,
    grid: list[ScoreConfig],
    held: Indices,
    judged: Sequence[int],
    sizes: Indices,
    bank_of: Callable[[Floats, Indices], NormalBank],
) -> list[_Part]:
    """Scores of held-out clips and pseudo-anomalies, turn by turn and domain by domain."""
    moved, clean = as_embeddings(anomalies.vectors), as_embeddings(anomalies.clean)
    parts: list[_Part] = []
    for fold in _folds(held, anomalies.rows, sizes):
        away = anomalies.rows[fold]
        stays = np.ones(len(X), bool)
        stays[away[away >= 0]] = False
        bank = bank_of(X[stays], codes[stays])
        own = bank.leave_one_out(grid)
        made = np.flatnonzero(np.isin(anomalies.origin, fold))
        scores = bank.score(np.concatenate([clean[fold], moved[made]]), grid)
        of_clean, of_made = scores[: len(fold)], scores[len(fold) :]
        for code in judged:
            inside = held[anomalies.origin[made]] == code
            still = of_clean[held[fold] == code]
            if len(still) and inside.any():
                others = own[codes[stays] == code]
                parts.append(
                    _Part(code, still, others, of_made[inside], anomalies.kinds[made][inside])
                )
    return parts


def viability_veto(
    scores: PseudoScores | Sequence[PseudoScores], *, share: float | None = None
) -> Viability:
    """Exclude configurations that detect much fewer pseudo-anomalies than the others.

    A configuration is kept if its pseudo score exceeds chance by at least `share` of what the
    reference does. The reference is the median configuration of the grid, or plain nearest
    neighbours (``raw-k1``) if these score lower. If the reference is hardly above chance, the veto
    abstains.

    Parameters
    ----------
    scores : PseudoScores, or one for each machine
        All of the same grid and kind; machines are combined by the harmonic mean.
    share : float in [0, 1], optional
        By default the value of `ADVANTAGE_SHARES` for this kind of pseudo-anomalies.

    Returns
    -------
    Viability

    Examples
    --------
    >>> import numpy as np
    >>> from daco.method.viability import PseudoScores, viability_veto
    >>> auc = np.array([[0.84], [0.82], [0.61]])
    >>> scores = PseudoScores(("a", "b", "c"), "injected faults", ("all",), auc, auc, (),
    ...     np.empty((3, 0)), (), np.array([0.84, 0.84]), {"all": 20}, 360)
    >>> viability_veto(scores).excluded
    ('c',)
    """
    machines = [scores] if isinstance(scores, PseudoScores) else list(scores)
    if not machines:
        raise InputError("The veto needs the pseudo scores of at least one machine.")
    configs, basis = machines[0].configs, machines[0].basis
    if any((each.configs, each.basis) != (configs, basis) for each in machines):
        raise InputError(
            "The machines' pseudo scores come from different grids, or only some of them use "
            "injected faults. Use one grid and one basis for all."
        )
    share = ADVANTAGE_SHARES[basis] if share is None else share
    if not 0 <= share <= 1:
        raise InputError(f"The 'share' of the veto must be in [0, 1]. Got {share!r}.")
    values = np.asarray(harmonic_mean(np.hstack([each._quantities for each in machines]), axis=1))
    median = float(np.median(values))
    plain = float(harmonic_mean(np.concatenate([each.plain for each in machines])))
    reference, notes = min(median, plain), _notes(machines)
    limit = CHANCE + share * (reference - CHANCE)
    if reference - CHANCE < LEAST_ADVANTAGE:
        limit = float("nan")
        notes.append(
            f"The veto abstains: a pseudo score of {100 * reference:.1f} is close to chance, so "
            "these pseudo-anomalies are hardly detected at all."
        )
    kept = ~np.asarray(values < limit)  # all of them, where there is no limit
    others = f"the median of the grid has {100 * median:.1f}, plain nearest neighbours have "
    others += f"{100 * plain:.1f} ({basis})"
    reasons = {
        name: f"pseudo score {100 * value:.1f}, below the limit of {100 * limit:.1f}: {others}"
        for name, value, keep in zip(configs, values, kept, strict=True)
        if not keep
    }
    return Viability(configs, kept, values, median, plain, limit, basis, reasons, tuple(notes))


def _folds(
    held: NDArray[np.intp], rows: NDArray[np.intp], sizes: NDArray[np.intp]
) -> Iterator[NDArray[np.intp]]:
    """Held-out clips in turns, so that half of every domain's normals stay in the bank."""
    turns = 1
    for code, size in enumerate(sizes):
        gone = int(((held == code) & (rows >= 0)).sum())
        turns = max(turns, -(-gone // max(1, int(size) // 2)))
    turn = np.empty(len(held), np.intp)
    for code in np.unique(held):
        members = np.flatnonzero(held == code)
        turn[members] = np.arange(len(members)) % turns
    for each in range(turns):
        yield np.flatnonzero(turn == each)


class _Part(NamedTuple):
    """Scores of one domain at one turn, each (clips, C)."""

    code: int
    clean: Float64s
    others: Float64s
    made: Float64s
    kinds: NDArray[np.str_]


def _separation(
    parts: Sequence[_Part], judged: Sequence[int], kinds: Sequence[str]
) -> tuple[Float64s, Float64s]:
    """AUC and partial AUC, (C, G), of some kinds: means over the turns of each domain."""
    found: dict[int, list[tuple[Float64s, Float64s]]] = {code: [] for code in judged}
    for part in parts:
        made = part.made[np.isin(part.kinds, kinds)]
        if len(made):
            auc = _metrics(part.clean, made)[:, 0]
            pauc = _metrics(np.concatenate([part.others, part.clean]), made)[:, 1]
            found[part.code].append((auc, pauc))
    means = np.stack([np.mean(found[code], axis=0) for code in judged], axis=-1)
    return means[0], means[1]


def _metrics(normals: Float64s, anomalies: Float64s) -> Float64s:
    """AUC and partial AUC of every configuration, (C, 2), as the challenge computes them."""
    marks = np.repeat([0, 1], [len(normals), len(anomalies)])
    return grid_metrics(np.concatenate([normals, anomalies]), marks, ["all"] * len(marks)).values


def _notes(machines: list[PseudoScores]) -> list[str]:
    notes = []
    few = sorted({domain for each in machines for domain in each.left_out})
    if few:
        notes.append(
            f"Domains with fewer than {MIN_CLIPS} normals or none held out: {', '.join(few)}."
        )
    unmatched = sum(each.unmatched for each in machines)
    if unmatched:
        clips = sum(sum(each.clips.values()) for each in machines)
        notes.append(
            f"{unmatched} of {clips} recordings are not among the normals of the study, so nothing "
            "was held out for them."
        )
    return notes
