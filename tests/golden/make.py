"""Regenerates own_method.npz from the textbook: ``python tests/golden/make.py``.

It lets a clone without the shared conformance data still test conformance. The inputs are
small integers and the stored results were computed by tests/textbook.py in float64.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import textbook  # noqa: E402

import daco  # noqa: E402

SHAPES = {"paper_like": (44, 5), "three_domains": (21, 9, 14), "many_targets": (6, 40)}


def main() -> None:
    arrays: dict[str, np.ndarray] = {}
    grid = daco.paper_grid()
    for number, (name, shape) in enumerate(SHAPES.items()):
        rng = np.random.default_rng(number)
        n = sum(shape)
        codes = np.repeat(np.arange(len(shape)), shape)
        X = rng.integers(-40, 40, (n, 10)) + 12 * codes[:, None] + 30
        X_test = rng.integers(-60, 60, (15, 10)) + 30
        unit = textbook.unit(X.astype(np.float64))
        d_bank = textbook.distances(unit, unit)
        d_query = textbook.distances(textbook.unit(X_test.astype(np.float64)), unit)
        arrays |= {
            f"{name}.X": X.astype(np.int16),
            f"{name}.X_test": X_test.astype(np.int16),
            f"{name}.domains": codes.astype(np.int8),
            f"{name}.scores": np.array([textbook.score(c, d_bank, d_query, codes) for c in grid]).T,
            f"{name}.splits": np.array([textbook.split_ks(c, d_bank, codes, 4, 3) for c in grid]),
        }
    arrays["configs"] = np.array([config.name for config in grid])
    np.savez_compressed(HERE / "own_method.npz", **arrays)


if __name__ == "__main__":
    main()
