"""Machines in embedding space, without a sound: for examples, benchmarks and tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from daco.data.table import EmbeddingTable


@dataclass(frozen=True)
class SyntheticMachine:
    """Embeddings of one machine: normals of two domains, and a labelled test set."""

    name: str
    X: NDArray[np.float32]
    domains: NDArray[np.str_]
    X_test: NDArray[np.float32]
    test_domains: NDArray[np.str_]
    labels: NDArray[np.int_]


def synthetic_machine(
    name: str,
    seed: int | Sequence[int],
    n_source: int = 990,
    n_target: int = 10,
    n_test: int = 200,
    dim: int = 96,
) -> SyntheticMachine:
    """A machine that varies along six modes; the target domain is displaced and noisier.

    Faults are displacements of random direction and severity, the same in both domains. The
    raw target scores are higher for normals, so one threshold on raw scores fails.

    Examples
    --------
    >>> from synthetic_machines import synthetic_machine
    >>> machine = synthetic_machine("fan", seed=0, n_source=50)
    >>> machine.X.shape, machine.X_test.shape
    ((60, 96), (200, 96))
    """
    rng = np.random.default_rng(seed)
    centre = 2 * rng.normal(size=dim)
    modes = 0.25 * rng.normal(size=(6, dim))
    shift = rng.uniform(4, 9) * _direction(rng, dim)
    target_noise = rng.uniform(1.0, 1.2)
    severity = rng.uniform(2.5, 4.5)
    faults = severity * np.stack([_direction(rng, dim) for _ in range(3)])

    def clips(n: int, domain: str) -> NDArray[np.float64]:
        noise = 0.45 * (target_noise if domain == "target" else 1.0) * rng.uniform(0.8, 1.2, (n, 1))
        place = centre + (shift if domain == "target" else 0)
        return place + rng.normal(size=(n, 6)) @ modes + noise * rng.normal(size=(n, dim))

    X = np.concatenate([clips(n_source, "source"), clips(n_target, "target")])
    parts, domains, labels = [], [], []
    quarter = n_test // 4
    for domain in ("source", "target"):
        for label in (0, 1):
            part = clips(quarter, domain)
            fault = faults[rng.integers(0, 3, quarter)] * rng.uniform(0.3, 1.2, (quarter, 1))
            parts.append(part + label * fault)
            domains += [domain] * quarter
            labels += [label] * quarter
    return SyntheticMachine(
        name,
        X.astype(np.float32),
        np.array(["source"] * n_source + ["target"] * n_target),
        np.concatenate(parts).astype(np.float32),
        np.array(domains),
        np.array(labels),
    )


def _direction(rng: np.random.Generator, dim: int) -> NDArray[np.float64]:
    vector = rng.normal(size=dim)
    return np.asarray(vector / np.linalg.norm(vector))


def synthetic_table(machines: Iterable[SyntheticMachine]) -> EmbeddingTable:
    """The machines as one embedding table, all of their test clips labelled.

    Examples
    --------
    >>> from synthetic_machines import synthetic_machine, synthetic_table
    >>> synthetic_table([synthetic_machine("fan", 0), synthetic_machine("pump", 1)])
    EmbeddingTable(2400 clips, machines: fan, pump, readouts: embedding (96))
    """
    from daco.data.table import EmbeddingTable

    made = list(machines)
    return EmbeddingTable.from_arrays(
        np.concatenate([part for m in made for part in (m.X, m.X_test)]),
        machine=[m.name for m in made for _ in range(len(m.X) + len(m.X_test))],
        domain=[str(d) for m in made for d in (*m.domains, *m.test_domains)],
        split=[s for m in made for s in ["train"] * len(m.X) + ["test"] * len(m.X_test)],
        label=[int(v) for m in made for v in (*np.zeros(len(m.X), dtype=int), *m.labels)],
        path=[f"{m.name}/{i:05d}.wav" for m in made for i in range(len(m.X) + len(m.X_test))],
        metadata={"backbone": "synthetic"},
    )


def small_table(*names: str, seed: int = 0, **size: int) -> EmbeddingTable:
    """Machines of these names with 40 source and 8 target normals and 40 test clips each."""
    size = {"n_source": 40, "n_target": 8, "n_test": 40, "dim": 8} | size
    return synthetic_table(
        synthetic_machine(name, [seed, *name.encode()], **size) for name in names
    )
