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

    def rows(self, X: Any) -> Floats:
        """The checked rows of an array, or of a mapping with an array for every view."""
        return join_views(X, self)[0]


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
    if not is_by_view(X) or (views is not None and len(views.names) == len(X) == 1):
        array = next(iter(X.values())) if is_by_view(X) else X
        rows = as_embeddings(array, dim=None if views is None else views.dim)
        return rows, views or Views((ONE_VIEW,), (rows.shape[1],))
    if not X:
        raise InputError("X must have at least one view: a mapping with an array for each.")
    sizes = dict.fromkeys(X) if views is None else dict(zip(views.names, views.sizes, strict=True))
    if set(X) != set(sizes):
        raise InputError(f"X must have the views {name_list(sizes)}. Got {name_list(X)}.")
    parts = {name: as_embeddings(X[name], f"X[{name!r}]", dim=dim) for name, dim in sizes.items()}
    counts = {name: len(part) for name, part in parts.items()}
    if len(set(counts.values())) > 1:
        raise InputError(f"Every view of X needs a row for each clip. Got {counts}.")
    views = views or Views(tuple(parts), tuple(part.shape[1] for part in parts.values()))
    arrays = list(parts.values())
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=1), views
