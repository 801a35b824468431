"""Writes weighted.npz: weighted conformal p-values of nonconform 2.0.0 on random cases.

Run in an environment with ``nonconform==2.0.0`` (Python 3.12 or later). Nothing of daco is
imported. A reference clip of domain g has the weight w_g / n_g, the test clip sum(w_g**2 / n_g).
"""

from pathlib import Path

import numpy as np
from nonconform.scoring import calculate_weighted_p_val

if __name__ == "__main__":
    rng = np.random.default_rng(11)
    arrays = {}
    for case in range(40):
        sizes = rng.integers(3, 60, size=rng.integers(1, 4))
        codes = np.repeat(np.arange(len(sizes)), sizes)
        scores = rng.normal(size=len(codes)) + codes
        if case % 2:
            scores = scores.round(1)  # ties
        weights = rng.dirichlet(np.ones(len(sizes)), size=20)
        clips = rng.normal(size=20) + 0.5
        clips = clips.round(1) if case % 2 else clips
        p_values = [
            calculate_weighted_p_val(
                np.array([clip]),
                scores,
                np.array([(share**2 / sizes).sum()]),
                (share / sizes)[codes],
            )[0]
            for clip, share in zip(clips, weights, strict=True)
        ]
        values = {"scores": scores, "codes": codes, "clips": clips, "weights": weights}
        arrays |= {f"{name}_{case}": each for name, each in values.items()}
        arrays[f"p_values_{case}"] = np.array(p_values)
    np.savez_compressed(Path(__file__).with_name("weighted.npz"), **arrays)
