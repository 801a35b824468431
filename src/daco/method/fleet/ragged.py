"""Machines of any shapes: fleets of those that are alike."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from daco.errors import InputError
from daco.method.criterion import CHOICE_SPLITS
from daco.method.fleet.inputs import Domains, Grid, machine_arrays
from daco.method.fleet.machines import Evaluated, Fleet
from daco.validation import Floats, encode_domains


def evaluate_machines(
    X: Sequence[ArrayLike],
    domains: Sequence[Domains | None],
    X_test: Sequence[ArrayLike] | None,
    grid: Grid,
    n_splits: int | None = CHOICE_SPLITS,
    seed: int = 0,
    *,
    device: str = "cuda",
    chunk: int | None = None,
) -> list[Evaluated]:
    """`Fleet.evaluate` for machines of any shapes, grouped by shape; results in their order.

    Parameters
    ----------
    X, domains : one (N, D) array and N labels per machine
    X_test : one (n, D) array per machine, or None
    grid, n_splits, seed : as of `Fleet.evaluate`
    device, chunk : as of `Fleet`

    Examples
    --------
    >>> import numpy as np
    >>> from daco.method.fleet import evaluate_machines
    >>> rng = np.random.default_rng(0)
    >>> banks = [rng.normal(size=(n, 8)) + 2 for n in (30, 40, 30)]
    >>> domains = [["a"] * (len(bank) - 9) + ["b"] * 9 for bank in banks]
    >>> found = evaluate_machines(banks, domains, None, ["raw-k1"], device="cpu")
    >>> [each.own.shape for each in found]
    [(30, 1), (40, 1), (30, 1)]
    """
    tests = None if X_test is None else machine_arrays(X_test, "X_test")
    found: dict[int, Evaluated] = {}
    for rows, fleet in alike(X, domains, tests, device=device, chunk=chunk):
        given = None if tests is None else [tests[m] for m in rows]
        found |= dict(zip(rows, fleet.evaluate(given, grid, n_splits, seed), strict=True))
    return [found[m] for m in range(len(X))]


def alike(
    X: Sequence[ArrayLike],
    domains: Sequence[Domains | None],
    X_test: Sequence[Floats] | None = None,
    *,
    device: str = "cuda",
    chunk: int | None = None,
) -> Iterator[tuple[list[int], Fleet]]:
    """Fleets of machines of one shape: which they are, and the fleet."""
    banks = machine_arrays(X, "X")
    for name, given in (("domains", domains), ("X_test", X_test)):
        if given is not None and len(given) != len(banks):
            raise InputError(f"X has {len(banks)} machines, {name} {len(given)}.")
    groups: dict[Hashable, list[int]] = {}
    for m, bank in enumerate(banks):
        _, codes = encode_domains(domains[m], len(bank), f"Machine {m}: domains")
        shapes = (
            bank.shape,
            bank.dtype,
            *(() if X_test is None else (len(X_test[m]), X_test[m].dtype)),
        )
        groups.setdefault((*shapes, tuple(np.bincount(codes).tolist())), []).append(m)
    for rows in groups.values():
        yield (
            rows,
            Fleet([banks[m] for m in rows], [domains[m] for m in rows], device=device, chunk=chunk),
        )
