"""How far results may lie apart that differ by rounding alone.

Two processors, two thread counts, two batch sizes or two libraries add the same numbers in
another order. What that does to a result depends on the result: tolerances are computed from it.
"""

from __future__ import annotations

import numpy as np

SPREAD = 4
"""How many times the rounding error of one processor another one may be away from it.

Measured on the golden machines between processors with and without AVX-512: 2.4 at most.
"""


def of_distances(dim: int, dtype: type = np.float32) -> float:
    """Rounding of 1 - cos, which is a sum of `dim` products next to 1.

    Each addition rounds by at most half an ulp of 1, and the errors add up like a random walk;
    8 ulps cover the norms and short vectors.
    """
    return SPREAD * float(np.finfo(dtype).eps) * max(8.0, np.sqrt(dim)) / 2


def between_processors(single, double) -> float:
    """From one result in float32 and the same one in float64, anywhere in the array.

    Their difference is the rounding error of one processor. It contains what makes a result ill
    conditioned: the cancellation in 1 - cos, small densities, and near ties.
    """
    return SPREAD * float(np.nanmax(np.abs(np.asarray(single, float) - double)))
