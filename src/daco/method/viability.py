"""The label-free viability veto: exclude configurations that do not detect pseudo-anomalies.

The criterion cannot see whether a configuration detects anything. The paper's veto reads dev
labels; this one uses pseudo-anomalies of the machine itself, and nothing here takes a label. They
are normals that were moved in the embedding space (`moved_normals`) or recordings with injected
faults (:mod:`daco.synthetic.fault_tables`). The veto does not rank what it leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.data.views import Views, join_views
from daco.errors import InputError, NotEnoughClipsError
from daco.evaluation.metrics import grid_metrics, harmonic_mean
from daco.method.bank import Clips, Domains, Grid, NormalBank
from daco.method.config import RAW_CONFIG, ScoreConfig, parse_grid
from daco.method.distances import BankDistances, unit_rows
from daco.method.engine import refuse_oracle
from daco.method.external import without_tables
from daco.validation import Float64s, Floats, Indices, encode_domains

INJECTED = "injected faults"
EMBEDDED = "embedding-space pseudo-anomalies"

STRENGTHS = (0.5, 1.0, 2.0)
"""Distances of pseudo-anomalies from their clip, in typical distances between neighbours: among
the normals, at their edge, outside. Every detector finds those that are farther."""

SHARES = {"shuffled": (0.02, 0.2), "swapped": (0.1, 0.5)}
"""The kinds of moves, with the smallest and largest share of features that they change."""

ADVANTAGE_SHARES = {INJECTED: 4 / 5, EMBEDDED: 2 / 3}
"""The least share of the reference's advantage over chance that a viable configuration has; smaller
in the embedding space, where scorers differ more."""

DETECTABLE = 0.6
"""AUC of plain nearest neighbours from which on a kind of pseudo-anomaly counts. A fault that the
embedding does not show adds noise to all configurations alike."""

CHANCE = 0.5
LEAST_ADVANTAGE = 0.05  # of the reference above chance; otherwise the veto abstains
_PER_DOMAIN = 20
MIN_CLIPS = 4  # normals of a domain: half are held out, and a local density needs two


@dataclass(frozen=True, eq=False)
class PseudoAnomalies:
    """Normal clips that are held out, and the pseudo-anomalies made of them.

    Attributes
    ----------
    basis : {"injected faults", "embedding-space pseudo-anomalies"}
    clean, rows, domains : (h, D), (h,), (h,)
        Embedding, row among the machine's normals (-1 if none) and domain of each held-out clip.
    vectors, origin, kinds : (m, D), (m,), (m,)
        Embedding of each pseudo-anomaly, the index of its clip, and the kind of change.
    """

    basis: str
    clean: Floats
    rows: Indices
    domains: NDArray[Any]
    vectors: Floats
    origin: Indices
    kinds: NDArray[np.str_]


def moved_normals(
    X: Clips,
    domains: Domains | None = None,
    *,
    views: Views | None = None,
    strengths: Sequence[float] = STRENGTHS,
    repeats: int = 3,
    seed: int = 0,
) -> PseudoAnomalies:
    """Move up to 20 normals of each domain away from the others in the embedding space.

    A clip is turned towards a mixture with other normal clips of its domain until its cosine
    distance from itself is a strength times the median distance between nearest neighbours, and
    that `repeats` times in each way: ``shuffled`` takes 2 to 20 % of the features, each from
    another clip; ``swapped`` takes 10 to 50 % of them from one clip. All views count alike. The
    generator is independent of that of the criterion with the same seed.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.method.viability import moved_normals
    >>> X = np.random.default_rng(0).normal(size=(40, 16)) + 1
    >>> made = moved_normals(X, ["old"] * 30 + ["new"] * 10, repeats=1)
    >>> len(made.clean), len(made.vectors), sorted(set(made.kinds.tolist()))
    (30, 180, ['shuffled', 'swapped'])
    """
    rows, views = join_views(X, views)
    if len(rows) < 2:
        raise NotEnoughClipsError("Pseudo-anomalies need at least 2 normal clips. Got 1.")
    names, codes = encode_domains(domains, len(rows))
    unit = np.hstack([unit_rows(part) for part in views.split(rows)])
    blocks = BankDistances(unit_rows(unit)).blocks()
    nearest = np.concatenate([block.min(axis=1) for _, block in blocks])
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
    held: list[int] = []
    vectors: list[Float64s] = []
    for code in range(len(names)):
        members = np.flatnonzero(codes == code)
        distances = np.median(nearest[members]) * np.array(strengths)
        for row in np.sort(rng.permutation(members)[:_PER_DOMAIN]).tolist():
            held.append(row)
            donors = members[members != row] if len(members) > 1 else np.arange(len(rows))
            for kind in np.repeat(list(SHARES), repeats):
                mixture = _mixture(unit, row, donors, kind, rng)
                vectors.append(_turned(unit[row], mixture, distances))
    origin = np.repeat(np.arange(len(held)), len(SHARES) * repeats * len(strengths))
    clean = rows[held].astype(np.float64)
    lengths = np.stack([np.linalg.norm(part, axis=1) for part in views.split(clean)], axis=1)
    lengths = np.repeat(np.where(lengths > 0, lengths, 1), views.sizes, axis=1)
    return PseudoAnomalies(
        basis=EMBEDDED,
        clean=rows[held],
        rows=np.array(held, np.intp),
        domains=np.array([str(names[codes[row]]) for row in held]),
        vectors=(np.concatenate(vectors) * lengths[origin]).astype(rows.dtype),
        origin=origin,
        kinds=np.tile(np.repeat(list(SHARES), repeats * len(strengths)), len(held)),
    )


def _mixture(
    unit: Floats, row: int, donors: Indices, kind: str, rng: np.random.Generator
) -> Floats:
    """A clip with some features of other clips."""
    n_features = unit.shape[1]
    taken = np.asarray(rng.random(n_features) < rng.uniform(*SHARES[kind]))
    taken[rng.integers(n_features)] = True
    others = rng.choice(donors, n_features if kind == "shuffled" else 1)
    return np.where(taken, unit[others, np.arange(n_features)], unit[row])


def _turned(clip: Floats, mixture: Floats, distances: Float64s) -> Float64s:
    """A clip turned towards another vector until it has these cosine distances from itself."""
    x, towards = clip.astype(np.float64), mixture.astype(np.float64)
    length = np.linalg.norm(x)
    along = x / (length or 1)
    across = towards - (towards @ along) * along
    size = np.linalg.norm(across)
    if length == 0 or size <= 1e-12 * length:  # a zero vector, or the features were the same
        return np.tile(x if length else towards, (len(distances), 1))
    cosine = np.maximum(-1, 1 - distances)[:, None]
    return np.asarray(length * (cosine * along + np.sqrt(1 - cosine**2) * (across / size)))


@dataclass(frozen=True, eq=False)
class PseudoScores:
    """How well each of C configurations separates pseudo-anomalies of a machine from its normals.

    Attributes
    ----------
    configs, basis, domains
        The configurations, the kind of pseudo-anomalies, and the G domains with enough normals.
    auc, pauc : (C, G)
        AUC of the pseudo-anomalies of a domain against the held-out clips they were made of, and
        the partial AUC up to a false-alarm rate of 0.1 (McClish), against all normals of the
        domain: a tenth of the held-out clips is one clip or none.
    detectable, warnings : tuple of str
        The kinds of changes that the embedding shows, or all if it shows none; others do not count.
    plain : (2 G,)
        AUC and partial AUC of plain nearest neighbours (``raw-k1``) in each domain.
    """

    configs: tuple[str, ...]
    basis: str
    domains: tuple[str, ...]
    auc: Float64s
    pauc: Float64s
    detectable: tuple[str, ...]
    plain: Float64s
    warnings: tuple[str, ...] = ()

    @property
    def score(self) -> Float64s:
        """The pseudo score: harmonic mean over domains of AUC and partial AUC; chance is 0.5."""
        return np.asarray(harmonic_mean(np.hstack([self.auc, self.pauc]), axis=1))


def pseudo_scores(
    X: Clips,
    domains: Domains | None,
    anomalies: PseudoAnomalies,
    configs: Grid,
    *,
    views: Views | None = None,
    **options: Any,
) -> PseudoScores:
    """Score pseudo-anomalies of one machine with every configuration of a grid.

    The clips they were made of are held out of the bank in two turns, so that about half of every
    domain stays. The other arguments are those of :class:`daco.NormalBank`; its scorers must be
    detectors. Too few normals raise a `NotEnoughClipsError`.
    """
    asked, raw = parse_grid(configs), ScoreConfig.parse(RAW_CONFIG)
    refuse_oracle(asked)
    grid = asked if raw in asked else [*asked, raw]
    rows, views = join_views(X, views)
    names, codes = encode_domains(domains, len(rows))
    clip_domains = np.array([str(name) for name in names])[codes]
    sizes = {str(name): int((codes == code).sum()) for code, name in enumerate(names)}
    held = {name: int((anomalies.domains == name).sum()) for name in sizes}
    judged = [name for name in sizes if sizes[name] >= MIN_CLIPS and held[name] >= 2]
    if not judged:
        raise NotEnoughClipsError(
            f"The veto needs a domain with {MIN_CLIPS} normal clips, two held out. Got {sizes}."
        )
    kinds = list(dict.fromkeys(anomalies.kinds.tolist()))
    # Metrics (domains, kinds, configurations, 2), each turn by its number of pseudo-anomalies.
    sums, counts = (
        np.zeros((len(judged), len(kinds), len(grid), 2)),
        np.zeros((len(judged), len(kinds))),
    )
    for fold in _two_turns(anomalies.domains):
        stays = ~np.isin(np.arange(len(rows)), anomalies.rows[fold])
        bank = NormalBank(rows[stays], clip_domains[stays], views=views, **options)
        made = np.flatnonzero(np.isin(anomalies.origin, fold))
        loo_scores, clean_scores = bank.leave_one_out(grid), bank.score(anomalies.clean[fold], grid)
        made_scores = bank.score(anomalies.vectors[made], grid)
        for g, name in enumerate(judged):
            clean = clean_scores[anomalies.domains[fold] == name]
            normals = np.concatenate([clean, loo_scores[clip_domains[stays] == name]])
            inside = anomalies.domains[anomalies.origin[made]] == name
            for k, kind in enumerate(kinds):
                moved = made_scores[inside & (anomalies.kinds[made] == kind)]
                if len(moved):
                    metrics = [_metrics(clean, moved)[:, 0], _metrics(normals, moved)[:, 1]]
                    sums[g, k] += len(moved) * np.stack(metrics, axis=1)
                    counts[g, k] += len(moved)
    if not counts.all():
        raise InputError(f"Every domain needs pseudo-anomalies of every kind: {', '.join(kinds)}.")
    few = [name for name in sizes if name not in judged]
    warnings = [f"The label-free veto needs more normals of {', '.join(few)}."] if few else []
    if unmatched := int((anomalies.rows < 0).sum()):
        warnings.append(f"{unmatched} recordings with faults are not among the normals.")
    plain = grid.index(raw)
    shown = (sums[:, :, plain, 0] / counts).mean(axis=0) >= DETECTABLE
    shown |= ~shown.any()
    quality = sums[:, shown].sum(axis=1) / counts[:, shown].sum(axis=1)[:, None, None]
    auc, pauc = quality.T
    return PseudoScores(
        configs=tuple(config.name for config in asked),
        basis=anomalies.basis,
        domains=tuple(judged),
        auc=auc[: len(asked)],
        pauc=pauc[: len(asked)],
        detectable=tuple(np.array(kinds)[shown].tolist()),
        plain=np.concatenate([auc[plain], pauc[plain]]),
        warnings=tuple(warnings),
    )


def bank_pseudo_scores(bank: NormalBank, configs: Grid, seed: int = 0) -> PseudoScores | None:
    """Pseudo scores of a bank's normals, moved; tables of scores cannot be judged by them."""
    external = bank._external
    judged = without_tables(parse_grid(configs), set(external.labels) - set(external.detectors))
    if not judged:
        return None
    parts = [view.unit for view in bank._banks]  # grouped by domain
    if external.detectors:  # which may depend on the lengths of the vectors
        parts[0] = external.rows
    rows, domains = np.hstack(parts), np.array(bank.domains, object)[np.sort(bank.clip_domains)]
    options: dict[str, Any] = {
        "scorers": external.detectors,
        "scorer_higher_is_anomalous": external.higher_is_anomalous,
    }
    try:
        made = moved_normals(rows, domains, views=bank.views, seed=seed)
        return pseudo_scores(rows, domains, made, judged, views=bank.views, **options)
    except NotEnoughClipsError:
        return None


def _two_turns(domains: NDArray[Any]) -> list[Indices]:
    """Held-out clips of each turn: every second one of each domain."""
    before = np.array([(domains[:row] == domains[row]).sum() for row in range(len(domains))])
    return [np.flatnonzero(before % 2 == turn) for turn in (0, 1)]


def _metrics(normals: Float64s, anomalies: Float64s) -> Float64s:
    """AUC and partial AUC of every configuration, (C, 2), as the challenge computes them."""
    marks = np.repeat([0, 1], [len(normals), len(anomalies)])
    return grid_metrics(np.concatenate([normals, anomalies]), marks, ["all"] * len(marks)).values


@dataclass(frozen=True, eq=False)
class Viability:
    """Which configurations the veto excludes, with the reason of each.

    ``score`` (C,) are the pseudo scores of ``configs`` over all machines. Configurations below
    ``limit`` are excluded; it is nan where the veto abstains.
    """

    configs: tuple[str, ...]
    score: Float64s
    limit: float
    reasons: dict[str, str]
    warnings: tuple[str, ...] = ()


def viability_veto(scores: PseudoScores | Sequence[PseudoScores]) -> Viability:
    """Exclude configurations that detect much fewer pseudo-anomalies than the others.

    A configuration is kept if its pseudo score exceeds chance by at least a share
    (`ADVANTAGE_SHARES`) of what the reference does. The reference is the median configuration of
    the grid, or plain nearest neighbours (``raw-k1``) if these score lower. If the reference is
    hardly above chance, the veto abstains. Several machines have one grid and one kind of
    pseudo-anomalies; their harmonic mean counts.

    >>> auc = np.array([[0.84], [0.82], [0.61]])
    >>> plain = np.array([0.84, 0.84])
    >>> scores = PseudoScores(("a", "b", "c"), "injected faults", ("all",), auc, auc, (), plain)
    >>> list(viability_veto(scores).reasons)
    ['c']
    """
    machines = [scores] if isinstance(scores, PseudoScores) else list(scores)
    if len({(each.configs, each.basis) for each in machines}) != 1:
        raise InputError(
            "The veto needs pseudo scores of at least one machine, all of one grid, and all of "
            "injected faults or none."
        )
    configs, basis = machines[0].configs, machines[0].basis
    quantities = np.hstack([part for each in machines for part in (each.auc, each.pauc)])
    values = np.asarray(harmonic_mean(quantities, axis=1))
    median = float(np.median(values))
    plain = float(harmonic_mean(np.concatenate([each.plain for each in machines])))
    advantage = min(median, plain) - CHANCE
    limit = CHANCE + ADVANTAGE_SHARES[basis] * advantage
    warnings = list(dict.fromkeys(warning for each in machines for warning in each.warnings))
    if advantage < LEAST_ADVANTAGE:
        limit = float("nan")
        warnings.append(
            f"The label-free veto abstains: a pseudo score of {100 * (CHANCE + advantage):.1f} is "
            "close to chance, so these pseudo-anomalies are hardly detected at all."
        )
    others = f"the median of the grid has {100 * median:.1f}, "
    others += f"plain nearest neighbours have {100 * plain:.1f} ({basis})"
    reasons = {
        name: f"pseudo score {100 * value:.1f}, below the limit of {100 * limit:.1f}: {others}"
        for name, value in zip(configs, values.tolist(), strict=True)
        if value < limit
    }
    return Viability(configs, values, limit, reasons, tuple(warnings))
