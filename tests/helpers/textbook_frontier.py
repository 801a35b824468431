"""The scorers published since, one base at a time, straight from their equations.

Distances are 1 - cos between unit vectors; the difference scorers use half of it, as published.
Slow and plain on purpose: this is what the engine must agree with.
"""

from __future__ import annotations

import numpy as np
import textbook

FLOOR = 2e-12  # of a density: duplicates


class Clips:
    """What a textbook needs of some clips: unit rows, whole and by band, and domain numbers."""

    def __init__(self, whole, bands, codes=None):
        self.whole, self.bands, self.codes = whole, bands, codes

    def __getitem__(self, rows):
        return Clips(self.whole[rows], [band[rows] for band in self.bands], self.codes[rows])


def densities(base, own, codes):
    """What a scorer divides by or subtracts, for every normal; ``own`` has inf on its diagonal."""
    n, K = len(own), base.neighbours
    nearest = np.sort(own, axis=1)
    summed = np.maximum(np.cumsum(nearest[:, :K], axis=1)[:, -1], FLOOR).astype(own.dtype)
    if base.scorer in ("ldn-ratio", "ldn-diff"):
        return summed
    if base.scorer.startswith("dldn"):
        found = np.empty(n, own.dtype)
        for i in range(n):
            mates = np.sort(own[i, codes == codes[i]])[:-1]  # the last is itself, at inf
            mates = mates[:K] if len(mates) else nearest[i, :1]
            found[i] = max(np.cumsum(mates)[-1] / len(mates), FLOOR)
        return found
    mean = summed / K
    if not base.scorer.startswith("varmin"):
        return mean
    u, v = nearest[:, 0], mean[own.argmin(axis=1)]
    if base.scorer == "varmin":
        return own.dtype.type(slope(u, v)) * mean
    real = (u > 0) & (v > FLOOR)  # the logarithm of a copy's distance would drown all others
    alpha = slope(np.log(u[real]), np.log(v[real])) if real.any() else 0.0
    return alpha, np.log(mean)


def slope(u, v):
    u, v = u.astype(np.float64), v.astype(np.float64)
    return np.mean((v - v.mean()) * (u - u.mean())) / v.var() if v.var() > 4e-12 else 0.0


def local(base, own, query, codes):
    """Leave-one-out scores of the bank and scores of queries in one geometry."""
    if base.scorer == "knn":
        k = base.neighbours
        return textbook.mean_of_nearest(own, k), textbook.mean_of_nearest(query, k)
    density = densities(base, own, codes)
    if base.scorer == "varmin-log":
        alpha, logs = density
        typical = np.median(logs)  # distances are floored relative to the typical density
        relative = np.exp(np.clip(alpha * (logs - typical), -80, 80))
        ratios = [np.maximum((d / relative).min(axis=1), 1e-12) for d in (own, query)]
        return tuple(np.log(ratio) - alpha * typical for ratio in ratios)
    results = []
    for d in (own, query):
        if base.scorer in ("ldn-diff", "ldn-mean", "varmin", "dldn-mean"):
            results.append((d - density).min(axis=1) / 2)
            continue
        ratio = (d / density).min(axis=1)
        if base.scorer == "ldn-log":
            ratio = np.log(np.maximum(ratio * base.neighbours, 1e-12))
        results.append(ratio)
    return tuple(results)


def base_scores(base, bank, query):
    """Leave-one-out scores of a bank and scores of queries, by any base."""
    if base.members:
        pairs = [base_scores(member, bank, query) for member in base.members]
        own, scores = [], []
        for mine, theirs in pairs:
            mine, theirs = mine.astype(np.float64), theirs.astype(np.float64)
            spread = max(mine.std(), 1e-12)
            own.append((mine - mine.mean()) / spread)
            scores.append((theirs - mine.mean()) / spread)
        return np.min(own, axis=0), np.min(scores, axis=0)
    everyone = np.ones(len(bank.whole), bool)
    if base.scorer == "genrep":
        own, scores = nearest_of_each_domain(bank, query)
        return tuple(genrep(own, bank.codes, everyone, d) for d in (own, scores))
    views = (
        zip(bank.bands, query.bands, strict=True) if base.bandwise else [(bank.whole, query.whole)]
    )
    seen = []
    for mine, theirs in views:
        own = textbook.left_out(textbook.distances(mine, mine))
        seen.append(local(base, own, textbook.distances(theirs, mine), bank.codes))
    if len(seen) == 1:
        return seen[0]
    return tuple(np.mean([np.asarray(one[i], np.float64) for one in seen], axis=0) for i in (0, 1))


def smallest_domain(codes):
    sizes = np.bincount(codes)
    return max(g for g in range(len(sizes)) if sizes[g] == sizes.min())


def genrep(own, codes, member, distance):
    """S(q) = min over domains of (d_g - mu_g) / sd of the target; (n,) from (G, N), (G, n)."""
    inside = {
        g: [float(own[g, i]) for i in np.flatnonzero(member & (codes == g))]
        for g in range(codes.max() + 1)
    }
    inside = {g: [d for d in distances if d < np.inf] for g, distances in inside.items()}
    everyone = [d for distances in inside.values() for d in distances]
    if not everyone:
        return distance.min(axis=0)
    mean = {g: np.mean(inside[g] or everyone) for g in inside}
    target = inside[smallest_domain(codes)]
    spread = np.std(target) if target else 0.0
    if spread < 1e-12:
        spread = np.std([d - mean[g] for g in inside for d in inside[g]])
    scores = [(distance[g] - mean[g]) / max(spread, 1e-12) for g in inside]
    return np.min(scores, axis=0)


def nearest_of_each_domain(bank, query):
    """(G, N) of the bank's clips, each left out, and (G, n) of the queries."""
    own = textbook.left_out(textbook.distances(bank.whole, bank.whole))
    d = textbook.distances(query.whole, bank.whole)
    domains = [bank.codes == g for g in range(bank.codes.max() + 1)]
    return tuple(np.array([m[:, g].min(axis=1) for g in domains], np.float64) for m in (own, d))


def domain_distances(bank, query, bandwise):
    views = zip(bank.bands, query.bands, strict=True) if bandwise else [(bank.whole, query.whole)]
    found = []
    for mine, theirs in views:
        d = textbook.distances(theirs, mine)
        found.append([d[:, bank.codes == g].min(axis=1) for g in range(bank.codes.max() + 1)])
    return np.mean(np.array(found, np.float64), axis=0)


def score(config, bank, query):
    """Scores of queries by one configuration."""
    own, scores = base_scores(config.base, bank, query)
    if config.calibration is None:
        return np.asarray(scores, np.float64)
    nearest = domain_distances(bank, query, config.base.bandwise)
    if config.assignment == "soft":
        scale = config.base
        if config.base.scorer != "knn" and (
            config.base.bandwise or config.base.scorer != "ldn-ratio"
        ):
            scale = type(config.base)("knn", 1, config.base.bandwise)
        temperature = np.median(np.asarray(base_scores(scale, bank, query)[0], np.float64))
        z = -nearest / max(temperature, 1e-12)
        e = np.exp(z - z.max(axis=0))
        weights = e / e.sum(axis=0)
    else:
        weights = np.array([nearest.argmin(axis=0) == g for g in range(len(nearest))], np.float64)
    return textbook.calibrated(config, np.asarray(own), np.asarray(scores), weights, bank.codes)
