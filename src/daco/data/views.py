"""Views: several embeddings of each recording, side by side in one row.

A bank, a model or a study holds one matrix, and a `Views` that says which columns are whose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from daco.errors import InputError
from daco.text import name_list
from daco.validation import Floats, as_embeddings, is_whole

ONE_VIEW = "embedding"
"""The name of the view of a plain array."""


@dataclass(frozen=True)
class Views:
    """The views of a row, one after the other.

    Attributes
    ----------
    names : tuple of str
        The first view has the scores of the paper and the nearest normals.
    sizes : tuple of int
        Number of features of each view.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.data.views import Views
    >>> views = Views(("mod", "cep"), (3, 2))
    >>> [part.shape for part in views.split(np.zeros((4, 5)))]
    [(4, 3), (4, 2)]
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        texts = all(isinstance(name, str) and name and "+" not in name for name in self.names)
        if not texts or not self.names or len(set(self.names)) < len(self.names):
            raise InputError(f"Views need different names without '+'. Got {self.names!r:.80}.")
        if len(self.names) != len(self.sizes):
            raise InputError("Every view needs a name and a size.")
        for name, size in zip(self.names, self.sizes, strict=True):
            if not is_whole(size, least=1):
                raise InputError(f"View {name!r} must have at least one feature. Got {size!r}.")

    @property
    def dim(self) -> int:
        """Number of features of all views."""
        return sum(self.sizes)

    def split(self, rows: Any) -> list[Any]:
        """The columns of each view."""
        return [rows[..., a:b] for a, b in pairwise(accumulate(self.sizes, initial=0))]

    def rows(self, X: Any, name: str = "X") -> Floats:
        """The checked rows of an array, or of a mapping with an array for every view."""
        if not is_by_view(X):
            return as_embeddings(X, name, dim=self.dim)
        if len(self.names) == len(X) == 1:
            return as_embeddings(next(iter(X.values())), name, dim=self.dim)
        if set(X) != set(self.names):
            raise InputError(
                f"{name} must have the views {name_list(self.names)}. Got {name_list(X)}."
            )
        parts = [
            as_embeddings(X[view], f"{name}[{view!r}]", dim=size)
            for view, size in zip(self.names, self.sizes, strict=True)
        ]
        return _side_by_side(dict(zip(self.names, parts, strict=True)), name)


def is_by_view(X: Any) -> bool:
    """Whether X has an array for each view; some sparse matrices are mappings as well."""
    return isinstance(X, Mapping) and not hasattr(X, "toarray")


def first_view(rows: Any, views: Views) -> Any:
    """The columns of the first view."""
    return rows[..., : views.sizes[0]]


def join_views(X: Any, views: Views | None = None) -> tuple[Floats, Views]:
    """Put the rows of all views side by side.

    Parameters
    ----------
    X : (n, D) array, or {name: (n, D) array}
    views : Views, optional
        How the rows are divided, if that is known; otherwise it follows from X.

    Returns
    -------
    rows : (n, D) array
        The features of all views, float32 or float64.
    views : Views
        How they are divided. A plain array is one view, ``"embedding"``.

    Examples
    --------
    >>> rows, views = join_views({"mod": np.ones((4, 3)), "cep": np.ones((4, 2))})
    >>> rows.shape, views.names
    ((4, 5), ('mod', 'cep'))
    """
    if views is not None:
        return views.rows(X), views
    if not is_by_view(X):
        rows = as_embeddings(X)
        return rows, Views((ONE_VIEW,), (rows.shape[1],))
    if not X:
        raise InputError("X must have at least one view: a mapping with an array for each.")
    parts = {name: as_embeddings(values, f"X[{name!r}]") for name, values in X.items()}
    views = Views(tuple(parts), tuple(part.shape[1] for part in parts.values()))
    return _side_by_side(parts, "X"), views


def _side_by_side(parts: Mapping[str, Floats], name: str) -> Floats:
    counts = {view: len(part) for view, part in parts.items()}
    if len(set(counts.values())) > 1:
        raise InputError(f"Every view of {name} needs a row for each clip. Got {counts}.")
    arrays = list(parts.values())
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=1)
