"""PCA residual, MemMixup and GenRep as one would write them on a blackboard.

Every fit is repeated, every mixture is made. Conventions beyond the equations, as in the
package: directions and residuals below the rounding of the rows are none; a domain with one
member borrows what it lacks from all members.
"""

from __future__ import annotations

import numpy as np

MIX = 0.9


def noise(X):
    return 32 * np.finfo(X.dtype).eps


def pca_residual(bank, clip, d):
    """Length of what d principal directions of the bank leave over of a clip."""
    rows, mean = bank.astype(np.float64), bank.mean(axis=0, dtype=np.float64)
    _, lengths, directions = np.linalg.svd(rows - mean, full_matrices=False)
    real = lengths > noise(bank) * np.sqrt(len(bank))
    P = directions[real][:d].T
    left = clip - mean - P @ (P.T @ (clip - mean))
    length = np.linalg.norm(left)
    return length if length >= noise(bank) else 0.0


def others(member, i):
    return member & (np.arange(len(member)) != i)


def pca_within(unit, member, d):
    """Residual of every clip of the bank, each against the members that it is not."""
    clips = range(len(unit))
    return np.array([pca_residual(unit[others(member, i)], unit[i], d) for i in clips])


def gap_at_the_cut(bank, d):
    """How far the last direction taken stands out from the first one not taken, in (0, 1]."""
    lengths = np.linalg.svd(bank - bank.mean(axis=0), compute_uv=False)
    lengths[lengths <= noise(bank) * np.sqrt(len(bank))] = 0
    if d >= len(lengths) or lengths[d] == 0:
        return 1.0
    return (lengths[d - 1] - lengths[d]) / lengths[0]


def smallest_domain(codes):
    sizes = np.bincount(codes)
    return max(g for g in range(len(sizes)) if sizes[g] == sizes.min())


def mixed_bank(unit, codes, member, g):
    """The members of a domain; of the smallest one, also their mixtures with all others."""
    inside = [unit[i] for i in np.flatnonzero(member & (codes == g))]
    if g != smallest_domain(codes):
        return inside
    outside = [unit[i] for i in np.flatnonzero(member & (codes != g))]
    return inside + [MIX * t + (1 - MIX) * s for t in inside for s in outside]


def nearest(bank, clip):
    return min((1 - b @ clip / np.linalg.norm(b) for b in bank), default=np.inf)


def mixed_distance(unit, codes, member, clip):
    """Distance of a clip to the nearest of every domain, (G,)."""
    domains = range(codes.max() + 1)
    return np.array([nearest(mixed_bank(unit, codes, member, g), clip) for g in domains])


def mixed_within(unit, codes, member):
    """(G, N), no clip compared with what it is part of."""
    unit = unit.astype(np.float64)
    clips = range(len(unit))
    return np.array([mixed_distance(unit, codes, others(member, i), unit[i]) for i in clips]).T


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
