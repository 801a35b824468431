"""The method one configuration at a time, straight from the paper's equations.

Slow and plain on purpose: this is what the engine must agree with. Conventions the paper
leaves open are those of its published code (the errata list them): the temperature is the
median of the configuration's own leave-one-out scores; a local density is the sum over K of
half the cosine distance; in a split m is not rescaled. Where more than two domains or a
one-clip domain go beyond the paper, the rule is in the comment beside it.
"""

from __future__ import annotations

from itertools import combinations
from statistics import NormalDist

import numpy as np

NOISE = 32  # ulps below which two directions are the same


def unit(X):
    X = np.asarray(X)
    peak = np.abs(X).max(axis=1, keepdims=True)
    tame = (peak > 1e-15) & (peak < 1e15)  # elsewhere squares would leave the float range
    X = np.where(tame, X, X / np.where(peak > 0, peak, 1))
    length = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(length > 0, length, 1)


def distances(A, B):
    d = 1 - A @ B.T
    return np.where(d < NOISE * np.finfo(d.dtype).eps, 0, d).astype(d.dtype)


def left_out(d):
    d = d.copy()
    np.fill_diagonal(d, np.inf)
    return d


def mean_of_nearest(d, k):
    return np.cumsum(np.sort(d, axis=1)[:, :k], axis=1)[:, -1] / k


def density(d_left_out, K):
    total = np.cumsum(0.5 * np.sort(d_left_out, axis=1)[:, :K], axis=1)[:, -1]
    return np.maximum(total, 1e-12).astype(d_left_out.dtype)


def base_scores(config, d_bank, d_query):
    """Leave-one-out scores of the bank and scores of the queries."""
    own = left_out(d_bank)
    if config.base.scorer == "knn":
        return mean_of_nearest(own, config.base.neighbours), mean_of_nearest(
            d_query, config.base.neighbours
        )
    dens = density(own, config.base.neighbours)
    if config.base.scorer == "ldn-ratio":
        return (0.5 * own / dens).min(axis=1), (0.5 * d_query / dens).min(axis=1)
    return (0.5 * own - dens).min(axis=1), (0.5 * d_query - dens).min(axis=1)


def quantile_map(calibration, scores, signed=False):
    x = np.sort(calibration)
    n = len(x)
    zero = x[0] if signed else min(0.0, x[0])
    inside = np.interp(scores, np.r_[zero, x], np.r_[0, np.arange(1, n + 1)] / (n + 1))
    top = n / (n + 1)
    scale = max(x[-1] - np.median(x), 1e-9)
    beyond = np.maximum(scores - x[-1], 0)
    mapped = np.where(scores > x[-1], top + (1 - top) * (beyond / (beyond + scale)), inside)
    if signed:
        scale = max(np.median(x) - x[0], 1e-9)
        missing = np.maximum(x[0] - scores, 0)
        mapped = np.where(scores < x[0], scale / (scale + missing) / (n + 1), mapped)
    return mapped


def assignment_weights(config, d_query, codes, temperature, true_codes):
    domains = range(codes.max() + 1)
    nearest = np.array([d_query[:, codes == g].min(axis=1) for g in domains], np.float64)
    if config.assignment == "soft":
        z = -nearest / max(temperature, 1e-12)
        e = np.exp(z - z.max(axis=0))
        return e / e.sum(axis=0)
    chosen = nearest.argmin(axis=0) if config.assignment == "hard" else true_codes
    return np.array([chosen == g for g in domains], np.float64)


def score(config, d_bank, d_query, codes, true_codes=None):
    """Scores of queries by one configuration, from distances and domain numbers."""
    own, scores = base_scores(config, d_bank, d_query)
    if config.calibration is None:
        return scores.astype(np.float64)
    temperature = np.median(own.astype(np.float64))
    weights = assignment_weights(config, d_query, codes, temperature, true_codes)
    return calibrated(config, own, scores, weights, codes)


def calibrated(config, own, scores, weights, codes):
    """Base scores, the bank's and the queries', to calibrated ones."""
    own, scores = own.astype(np.float64), scores.astype(np.float64)
    signed = config.base.signed
    total = np.zeros(len(scores))
    for g, weight in enumerate(weights):
        mine = np.sort(own[codes == g])  # the engine's order of adding: a tie hangs on the last bit
        if config.calibration == "conf":
            n, m = len(mine), config.prior_strength
            pooled = quantile_map(own, scores, signed)
            mapped = (n * quantile_map(mine, scores, signed) + m * pooled) / (n + m)
        elif config.calibration == "ratio":
            mapped = scores / max(np.median(mine), 1e-12)
        else:
            spread = mine.std() if len(mine) > 1 else np.sort(own).std()  # one has no spread
            mapped = (scores - mine.mean()) / (spread + 1e-12)
        total += weight * mapped
    return total


def normal_score(own, score):
    """A score among those of the normals, as a member of a vote counts it."""
    own = sorted(own)
    below = sum(value < score for value in own)
    equal = sum(value == score for value in own)
    rank = NormalDist().inv_cdf((below + equal / 2 + 0.5) / (len(own) + 1))
    excess = max(0.0, score - own[-1]) / (own[-1] - float(np.median(own)))
    return rank + 9 * excess / (9 + excess)


def held_out(codes, n_splits, seed):
    rng = np.random.default_rng(seed)
    for _ in range(n_splits):
        held = np.zeros(len(codes), bool)
        for g in range(codes.max() + 1):
            members = rng.permutation(np.flatnonzero(codes == g))
            held[members[: len(members) // 2]] = True
        yield held


def ks(a, b):
    points = np.concatenate([a, b])
    f = np.searchsorted(np.sort(a), points, "right") / len(a)
    g = np.searchsorted(np.sort(b), points, "right") / len(b)
    return np.abs(f - g).max()


def split_ks(config, d_bank, codes, n_splits, seed):
    """KS of each split, averaged over pairs of domains (the paper has one pair)."""
    return np.array(
        [
            ks_between(
                score(
                    config, d_bank[np.ix_(~held, ~held)], d_bank[np.ix_(held, ~held)], codes[~held]
                ),
                codes[held],
            )
            for held in held_out(codes, n_splits, seed)
        ]
    )


def ks_between(scores, codes):
    pairs = combinations(range(codes.max() + 1), 2)
    return np.mean([ks(scores[codes == a], scores[codes == b]) for a, b in pairs])
