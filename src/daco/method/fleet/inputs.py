"""What users pass to a fleet: arrays and domains of machines, and configurations."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.errors import ConfigError, InputError, MissingExtraError
from daco.method.config import ScoreConfig, parse_grid
from daco.validation import Floats, as_embeddings, encode_domains

Grid = str | ScoreConfig | Iterable[str | ScoreConfig]
Domains = Sequence[Hashable] | NDArray[Any]

SCORERS = ("knn", "ldn-ratio", "ldn-diff")
"""The published base scores, which a fleet computes."""


def machine_arrays(X: Sequence[ArrayLike] | Floats, name: str) -> list[Floats]:
    """One 2-D float array per machine. Values are looked at on the device."""
    if isinstance(X, np.ndarray) and X.ndim != 3:
        raise InputError(
            f"{name} must hold one 2-D array (clips, features) per machine, or be 3-D. Got shape "
            f"{X.shape} instead. Use {name}[None] for one machine."
        )
    if not isinstance(X, Sequence | np.ndarray) or len(X) == 0:
        raise InputError(f"{name} must hold one array per machine, and at least one. Got {X!r}.")
    ready = (np.float32, np.float64)
    return [
        array
        if isinstance(array, np.ndarray) and array.dtype in ready and array.ndim == 2 and array.size
        else as_embeddings(array, f"Machine {m}: {name}")
        for m, array in enumerate(X)
    ]


def encode_machines(
    domains: Domains | Sequence[Domains | None] | None, n_machines: int, n_clips: int
) -> tuple[list[tuple[Any, ...]], NDArray[np.intp]]:
    """Sorted domain names of every machine, and codes (M, N)."""
    first = domains[0] if domains is not None and len(domains) else ""
    if domains is None or isinstance(first, str) or not isinstance(first, Iterable | None):
        names, codes = encode_domains(domains, n_clips)  # type: ignore[arg-type]
        return [names] * n_machines, np.broadcast_to(codes, (n_machines, n_clips))
    if len(domains) != n_machines:
        raise InputError(f"X has {n_machines} machines, domains {len(domains)}.")
    found = [
        encode_domains(each, n_clips, f"Machine {m}: domains") for m, each in enumerate(domains)
    ]
    return [names for names, _ in found], np.array([codes for _, codes in found])


def domain_sizes(codes: NDArray[np.intp]) -> str:
    """Clips per domain, as ``"990 + 10"``."""
    return " + ".join(map(str, np.bincount(codes).tolist()))


def computes(config: ScoreConfig) -> bool:
    """Whether a fleet has the configuration: published bases on whole vectors, no true domains."""
    return config.scorer in SCORERS and not config.bandwise and config.assignment != "oracle"


def supported(grid: Grid) -> list[ScoreConfig]:
    """The configurations of a grid, or an error that says which of them a fleet lacks."""
    configs = parse_grid(grid)
    for config in configs:
        if not computes(config):
            raise ConfigError(
                f"A fleet does not compute {config.name!r}: it has raw, ldn-ratio and ldn-diff "
                "scores of whole vectors, as they are or calibrated with soft or hard weights. "
                "The CPU engine, daco.NormalBank, has all others."
            )
    return configs


def require_torch() -> None:
    """An error with the pip command where PyTorch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            'A fleet needs PyTorch: pip install "daco-asd[torch]". The CPU engine, '
            "daco.NormalBank, works without it."
        ) from None
