"""Lets tensors start from the distances of `NormalBank`."""

from __future__ import annotations

from contextlib import contextmanager
from unittest import mock

import numpy as np

from daco.method.distances import unit_rows


@contextmanager
def same_products():
    """NumPy's unit rows and products for both engines.

    Ties and near ties are decided by the last bit of a product, and the products of two libraries
    differ in it. What follows from the same products can be compared exactly.
    """
    import torch

    def rows(X, order=None):
        return torch.from_numpy(np.stack([unit_rows(each) for each in X.numpy()]))

    def products(A, B):
        if A is B:
            return torch.from_numpy(np.stack([a @ a.T for a in A.numpy()]))
        pairs = zip(A.numpy(), B.numpy(), strict=True)
        return torch.from_numpy(np.stack([a @ b.T for a, b in pairs]))

    with (
        mock.patch("daco.method._kernels_torch.unit_rows", rows),
        mock.patch("daco.method._kernels_torch.products", products),
    ):
        yield
