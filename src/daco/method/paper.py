"""The paper, literally: one function for each equation, in the order of the data.

The rest of the package is tested against it. A bank has N normal clips of domains ``codes`` (N,), 0
to G - 1. Cosine distances to it are ``d_bank`` (N, N) of its clips and ``d`` (n, N) of others; of V
views (V, N, N) and (V, n, N). ``loo`` (N,) are scores of its clips, each left out. Higher scores
are more anomalous. Six source normals, four target normals and two new clips:

>>> from daco.method.config import ScoreConfig
>>> angles = np.deg2rad([0, 2, 5, 9, 14, 20, 50, 55, 65, 80, 30, 60])
>>> clips = unit_rows(np.column_stack([np.cos(angles), np.sin(angles)]))
>>> codes, distances = np.repeat([0, 1], [6, 4]), cosine_distances(clips, clips[:10])
>>> d_bank, d = distances[:10], distances[10:]
>>> loo, scores = base_scores("knn", 1, d_bank, d)
>>> weights = domain_weights("soft", d, codes, T=np.median(loo))
>>> calibrated = calibrated_scores("conf", 0, loo, scores, codes, weights, False)
>>> scores.round(4), weights[0].round(2), calibrated.round(2)
(array([0.0152, 0.0038]), array([1., 0.]), array([0.96, 0.4 ]))
>>> grid = list(map(ScoreConfig.parse, ["raw-k1", "conf-soft-m0-k1", "ldn-diff-K1"]))
>>> criteria = [criterion(each, d_bank, codes, 10, seed=0).mean() for each in grid]
>>> dev_scores = [58.7, 56.3, 50.4]  # official scores of the development machines
>>> np.round(criteria, 2).tolist(), viable(dev_scores).tolist()
([0.77, 0.75, 0.72], [True, True, False])
>>> grid[guarded_selection(dev_scores, criteria)].name
'conf-soft-m0-k1'
"""

from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]
BLEND_MEMBERS = (("ldn-ratio", 1), ("ldn-ratio", 16), ("ldn-mean", 4), ("varmin", 4))


def unit_rows(X: ArrayLike) -> Array:
    """Preliminaries: l2-normalised embeddings in float64; a zero vector stays zero."""
    rows = np.asarray(X, np.float64)
    rows = rows / np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-300)  # no overflow
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)


def cosine_distances(A: Array, B: Array) -> Array:
    """Preliminaries: d_c = 1 - cos of unit rows; below 32 ulp it is rounding noise, and 0."""
    d = 1 - A @ B.T
    return np.where(d < 32 * np.finfo(d.dtype).eps, 0, d)


def without_self(d_bank: Array) -> Array:
    """Preliminaries: leave-one-out; no clip is a neighbour of itself."""
    return np.where(np.eye(len(d_bank), dtype=bool), np.inf, d_bank)


def sum_of_nearest(d: Array, k: int) -> Array:
    """Preliminaries: the sum over NN_k(x), in ascending order."""
    return np.cumsum(np.sort(d, axis=1)[:, :k], axis=1)[:, -1]


def base_scores(scorer: str, k: int, d_bank: Array, d: Array) -> tuple[Array, Array]:
    """Preliminaries: A(x) of the bank, each clip left out, and of other clips: (N,) and (n,).

    ``knn`` is the mean over the k nearest; ``ldn-ratio`` and ``ldn-diff`` the minimum over normals
    of d/2 divided by, or less, their density: the SUM of d/2 over their K nearest in the full bank
    (erratum 9). Not in the paper: ``ldn-mean`` subtracts the mean, ``varmin`` a slope times it.
    """
    d_loo = without_self(d_bank)
    if scorer == "knn":
        return sum_of_nearest(d_loo, k) / k, sum_of_nearest(d, k) / k
    density = np.maximum(sum_of_nearest(d_loo / 2, k), 1e-12)
    if scorer == "ldn-ratio":
        return (d_loo / 2 / density).min(axis=1), (d / 2 / density).min(axis=1)
    if scorer in ("ldn-mean", "varmin"):
        density = density / k
    if scorer == "varmin":
        density = varmin_slope(d_loo, density) * density
    return (d_loo / 2 - density).min(axis=1), (d / 2 - density).min(axis=1)


def varmin_slope(d_loo: Array, density: Array) -> float:
    """Not in the paper: least squares of d/2 to the nearest on the density of that nearest."""
    u, v = d_loo.min(axis=1) / 2, density[d_loo.argmin(axis=1)]
    return np.mean((u - u.mean()) * (v - v.mean())) / v.var() if v.var() > 1e-12 else 0.0


def domain_weights(kind: str, d: Array, codes: Array, T: float, true_codes: Any = None) -> Array:
    """Stage 1: weights (G, n), ``soft`` at temperature T, ``hard`` (tie: the first), ``oracle``."""
    nearest = np.array([d[:, codes == g].min(axis=1) for g in range(codes.max() + 1)])
    if kind == "soft":
        odds = np.exp((nearest.min(axis=0) - nearest) / max(T, 1e-12))
        return odds / odds.sum(axis=0)
    domain = nearest.argmin(axis=0) if kind == "hard" else true_codes
    return np.array([domain == g for g in range(len(nearest))], np.float64)


def quantile_map(loo: Array, scores: Array, signed: bool) -> Array:
    """Stage 2: the interpolated distribution function of ``loo``, i/(n + 1) at the i-th.

    Below the smallest it falls to 0 at score 0; above the largest it has a rational tail. Not in
    the paper: scores that may be negative (``signed``) have a rational tail below the smallest.
    """
    x, n, median = np.sort(loo), len(loo), np.median(loo)
    xi, scale = np.maximum(scores - x[-1], 0), max(x[-1] - median, 1e-9)
    tail = xi / (xi + scale) / (n + 1)
    if not signed:
        return np.interp(scores, [min(0, x[0]), *x], np.arange(n + 1) / (n + 1)) + tail
    xi, scale = np.maximum(x[0] - scores, 0), max(median - x[0], 1e-9)
    return np.interp(scores, x, np.arange(1, n + 1) / (n + 1)) * scale / (scale + xi) + tail


def shrunk_map(loo_g: Array, loo: Array, m: float, scores: Array, signed: bool) -> Array:
    """Stage 2, eq. 2: c_g(a), the domain's map drawn to the pooled map by strength m."""
    domain, pooled = quantile_map(loo_g, scores, signed), quantile_map(loo, scores, signed)
    return (len(loo_g) * domain + m * pooled) / (len(loo_g) + m)


def calibrated_scores(
    kind: str, m: float, loo: Array, scores: Array, codes: Array, weights: Array, signed: bool
) -> Array:
    """Stage 2: the mixture over domains, sum of w_g(x) c_g(A(x)), or with other maps c_g."""
    total = np.zeros(len(scores))
    for g, weight in enumerate(weights):
        loo_g = np.sort(loo[codes == g])
        if kind == "conf":
            total += weight * shrunk_map(loo_g, loo, m, scores, signed)
        elif kind == "ratio":
            total += weight * scores / max(np.median(loo_g), 1e-12)
        else:  # zscore; one clip has no spread, so that of all clips
            spread = np.std(loo_g if len(loo_g) > 1 else loo)
            total += weight * (scores - loo_g.mean()) / (spread + 1e-12)
    return total


def normal_score(loo: Array, scores: Array) -> Array:
    """Not in the paper: normal quantile of the mid-rank among ``loo``, with a tail up to 9."""
    x, scale = np.sort(loo), loo.max() - np.median(loo)
    if scale == 0:
        return np.where(scores > x[-1], 9.0, 0.0)
    ranks = (np.searchsorted(x, scores, "left") + np.searchsorted(x, scores, "right")) / 2
    z = [NormalDist().inv_cdf((rank + 0.5) / (len(x) + 1)) for rank in ranks]
    t = np.maximum(scores - x[-1], 0) / scale
    return z + 9 * t / (9 + t)


def blend(d_bank: Array, d: Array) -> tuple[Array, Array]:
    """Not in the paper: the mean `normal_score` of members, then of views, as `base_scores`.

    A member needs K + 1 clips, and a scale (largest > median) unless no other has one.
    """
    loo, scores = [], []
    for bank, clips in zip(d_bank, d, strict=True):
        members = [base_scores(name, K, bank, clips) for name, K in BLEND_MEMBERS if len(bank) > K]
        members = [pair for pair in members if pair[0].max() > np.median(pair[0])] or members
        loo.append(np.mean([normal_score(a, a) for a, _ in members], axis=0))
        scores.append(np.mean([normal_score(a, b) for a, b in members], axis=0))
    return np.mean(loo, axis=0), np.mean(scores, axis=0)


def score(config: Any, d_bank: Array, d: Array, codes: Array, true_codes: Any = None) -> Array:
    """Algorithm 1, lines 1 to 3: scores (n,) by a configuration, such as a `daco.ScoreConfig`.

    T is the median of its leave-one-out scores (erratum 8), of nearest distances if scores may be
    negative. A blend uses all views, others the first. Leave-one-out: ``d = without_self(d_bank)``.
    """
    banks, clips = (x.reshape(-1, *x.shape[-2:]) for x in (d_bank, d))
    if config.scorer == "blend":
        loo, scores = blend(banks, clips)
    else:
        banks, clips = banks[:1], clips[:1]
        loo, scores = base_scores(config.scorer, config.k, banks[0], clips[0])
    if config.calibration is None:
        return scores
    signed = config.scorer not in ("knn", "ldn-ratio")
    weights = []
    for bank, view in zip(banks, clips, strict=True):
        T = np.median(without_self(bank).min(axis=1) if signed else loo)
        weights.append(domain_weights(config.assignment, view, codes, T, true_codes))
    w = np.mean(weights, axis=0)
    return calibrated_scores(config.calibration, config.m, loo, scores, codes, w, signed)


def held_out_halves(codes: Array, n_splits: int, seed: int) -> Array:
    """Stage 3: masks (S, N) of a random half, rounded down, of each domain."""
    rng = np.random.default_rng(seed)
    masks = np.zeros((n_splits, len(codes)), bool)
    for held in masks:
        for g in range(codes.max() + 1):
            clips = rng.permutation(np.flatnonzero(codes == g))
            held[clips[: len(clips) // 2]] = True
    return masks


def ks_distance(a: Array, b: Array) -> float:
    """Stage 3: the two-sample Kolmogorov-Smirnov distance."""
    points = np.concatenate([a, b])
    shares = [np.searchsorted(np.sort(x), points, "right") / len(x) for x in (a, b)]
    return float(np.abs(shares[0] - shares[1]).max())


def criterion(config: Any, d_bank: Array, codes: Array, n_splits: int, seed: int) -> Array:
    """Stage 3, eq. 3: KS of each split, mean over pairs of domains; C is the mean."""
    result = []
    for held in held_out_halves(codes, n_splits, seed):
        d = d_bank[..., ~held]  # the pipeline is refit to the rest, with the same m (erratum 11)
        scores = score(config, d[..., ~held, :], d[..., held, :], codes[~held], codes[held])
        parts = [scores[codes[held] == g] for g in range(codes.max() + 1)]
        result.append(np.mean([ks_distance(a, b) for a, b in combinations(parts, 2)]))
    return np.array(result)


def auc(normal: Array, anomalous: Array, p: float = 1.0) -> float:
    """Metrics: area under the ROC curve up to the false-positive rate p, chance 0.5 (McClish)."""
    limits = np.unique(np.concatenate([normal, anomalous]))[::-1, None]
    fpr, tpr = (np.append(0, (x >= limits).mean(axis=1)) for x in (normal, anomalous))
    area = np.trapezoid([*tpr[fpr <= p], np.interp(p, fpr, tpr)], [*fpr[fpr <= p], p])
    return float(0.5 * (1 + (area - p * p / 2) / (p - p * p / 2)))


def machine_metrics(scores: Array, labels: Array, codes: Array) -> list[float]:
    """Metrics: AUC of each domain's normals against ALL anomalies, and pAUC of all clips."""
    normal, anomalous = labels == 0, scores[labels == 1]
    aucs = [auc(scores[normal & (codes == g)], anomalous) for g in range(codes.max() + 1)]
    return [*aucs, auc(scores[normal], anomalous, p=0.1)]


def official_score(metrics: ArrayLike) -> float:
    """Metrics, eq. 1: harmonic mean over machines and quantities; 0 counts as 2.2e-16."""
    return float(1 / np.mean(1 / np.maximum(metrics, np.finfo(np.float64).eps)))


def viable(dev_scores: Array | list[float]) -> Array:
    """Viability veto: configurations strictly above the bottom decile (erratum 3)."""
    return np.asarray(dev_scores) > np.quantile(dev_scores, 0.10)


def guarded_selection(dev_scores: Array | list[float], criteria: Array | list[float]) -> int:
    """Algorithm 1, lines 4 to 8: smallest criterion of the viable; a tie (erratum 4): the first."""
    kept = np.flatnonzero(viable(dev_scores))
    return int(kept[np.round(criteria, 9)[kept].argmin()])  # fractions: 9 digits tell a tie
