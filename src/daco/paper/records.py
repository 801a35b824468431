"""The authors' own records of their statistics, against the statistics recomputed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daco.paper.artifacts import ArtifactError, Artifacts, read_entry
from daco.paper.correlations import block_interval, family_means, jackknife, rho
from daco.paper.recipe import Recomputed, contradictions, recipe
from daco.paper.scores import logged_scores, seed_scores

YEARLY = "results/stats_yearly.json"
FORWARD = "results/stats_e8_2026.json"

Entry = tuple[tuple[str, ...], Recomputed, int]
"""Where a record stands, what it should be, and with how many decimals it was written."""


@recipe
def contradicted_records(artifacts: Artifacts, file: str) -> Recomputed:
    """Recorded correlations, intervals, p-values and differences that come out otherwise."""
    entries = {"yearly": _yearly, "forward": _forward}[file](artifacts)
    where = {"yearly": YEARLY, "forward": FORWARD}[file]
    wrong = []
    for keys, found, digits in entries:
        told = read_entry(artifacts, where, *keys)
        try:
            recorded = np.atleast_1d(np.asarray(told, dtype=float))
        except (TypeError, ValueError):
            raise ArtifactError(where, f"has no numbers at {' / '.join(keys)}") from None
        errors = np.array(found.errors or (0.0,) * len(found.values))
        if recorded.shape != errors.shape:
            raise ArtifactError(where, f"has {recorded.size} numbers at {' / '.join(keys)}")
        apart = np.abs(recorded - found.values)
        if not (apart <= 0.5 * 10.0**-digits + errors + 1e-9).all():
            wrong.append(f"{' / '.join(keys)}: {told}")
    return contradictions(wrong)


@recipe
def contradicted_seeds(artifacts: Artifacts) -> Recomputed:
    """Logged scores of criterion seeds that do not follow from the choices logged beside them."""
    seeds, found = seed_scores(artifacts)
    wrong = [
        f"seed {seed}: {told}"
        for seed, told, ours in zip(seeds, logged_scores(artifacts), found, strict=True)
        if not abs(ours.values[0] - told) <= 0.005 + ours.errors[0]
    ]
    return contradictions(wrong)


def _yearly(artifacts: Artifacts) -> Iterator[Entry]:
    for year, setting in (("2023", "2023"), ("2024", "2024"), ("2025", "beats")):
        for key, signal in (("criterion", "criterion"), ("dev_omega", "dev")):
            yield (year, key, "rho_full_grid"), rho(artifacts, setting, signal), 3
            interval = block_interval(artifacts, setting, signal)
            yield (year, key, "family_block_CI95"), interval, 3
            yield from _permutation(artifacts, (year, key, "perm"), setting, signal)
        for key, over in (("vs_fixed", "default"), ("vs_devpick", "dev-pick")):
            yield from _difference(artifacts, (year, f"delta_guarded_{key}"), setting, over)


def _forward(artifacts: Artifacts) -> Iterator[Entry]:
    for policy in ("ch0", "mix"):
        for key, signal in (("rho_criterion", "criterion"), ("rho_dev", "dev")):
            interval = block_interval(artifacts, policy, signal)
            yield (policy, key, "block_ci95"), interval, 3
            yield from _permutation(artifacts, (policy, key), policy, signal)
        for key, over in (("vs_dev", "dev-pick"), ("vs_default", "default")):
            yield from _difference(artifacts, (policy, f"delta_guarded_{key}"), policy, over)


def _permutation(
    artifacts: Artifacts, keys: tuple[str, ...], setting: str, signal: str
) -> Iterator[Entry]:
    yield (*keys, "rho_family_means"), family_means(artifacts, setting, signal, "rho"), 3
    for side in ("one", "two"):
        p = family_means(artifacts, setting, signal, f"{side}-sided")
        yield (*keys, f"p_{side}_sided"), p, 4  # drawn ones count the observed ordering itself


def _difference(
    artifacts: Artifacts, keys: tuple[str, ...], setting: str, over: str
) -> Iterator[Entry]:
    for key, which in (("delta", "delta"), ("ci95", "interval"), ("loo_range", "left-out")):
        yield (*keys, key), jackknife(artifacts, setting, "guarded-pick", over, which), 2
