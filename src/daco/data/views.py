"""Views: several embeddings of each recording, side by side in one row.

A bank, a model or a study of several views holds one matrix, and a `Views` in the place of the
number of bands that says which columns are whose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from daco.errors import InputError
from daco.text import name_list
from daco.validation import Floats, as_embeddings, flat_bands, is_whole, split_bands

ONE_VIEW = "embedding"
"""The name of the view of a bank that has one."""


@dataclass(frozen=True)
class Views:
    """The views of a row, one after the other.

    Attributes
    ----------
    names : tuple of str
        The first has the domain weights and the nearest normals.
    sizes, bands : tuple of int
        Features of each view, and the equal bands that they are divided into.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.data.views import Views
    >>> views = Views(("mod", "cep"), (3, 2), (1, 1))
    >>> [part.shape for part in views.split(np.zeros((4, 5)))]
    [(4, 3), (4, 2)]
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    bands: tuple[int, ...]

    def __post_init__(self) -> None:
        texts = all(isinstance(name, str) and name and "+" not in name for name in self.names)
        if not texts or not self.names or len(set(self.names)) < len(self.names):
            raise InputError(f"Views need different names without '+'. Got {self.names!r:.80}.")
        if not len(self.names) == len(self.sizes) == len(self.bands):
            raise InputError("Every view needs a name, a size and a number of bands.")
        for name, size, bands in zip(self.names, self.sizes, self.bands, strict=True):
            if not (is_whole(size, least=1) and is_whole(bands, least=1)) or size % bands:
                raise InputError(f"View {name!r}: {bands!r} bands must divide {size!r} features.")

    @property
    def dim(self) -> int:
        """Features of all views together."""
        return sum(self.sizes)

    def split(self, rows: Any) -> list[Any]:
        """The columns of each view."""
        return [rows[..., a:b] for a, b in pairwise(accumulate(self.sizes, initial=0))]

    def rows(self, X: Any, name: str = "X") -> Floats:
        """The rows of an array, or of a mapping with an array for every view; checked."""
        if not is_by_view(X):
            return as_embeddings(flat_bands(X)[0], name, dim=self.dim)
        if len(self.names) == len(X) == 1:
            X = dict(zip(self.names, X.values(), strict=True))
        if set(X) != set(self.names):
            raise InputError(
                f"{name} must have the views {name_list(self.names)}. Got {name_list(X)}."
            )
        parts = [
            as_embeddings(flat_bands(X[view])[0], f"{name}[{view!r}]", dim=size)
            for view, size in zip(self.names, self.sizes, strict=True)
        ]
        counts = {view: len(part) for view, part in zip(self.names, parts, strict=True)}
        if len(set(counts.values())) > 1:
            raise InputError(f"Every view of {name} needs a row for each clip. Got {counts}.")
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def is_by_view(X: Any) -> bool:
    """Whether X has an array for each view; some sparse matrices are mappings as well."""
    return isinstance(X, Mapping) and not hasattr(X, "toarray")


Bands = int | Views
"""How a row is divided: into that many equal bands, or into views."""


def first_view(rows: Any, bands: Bands) -> tuple[Any, int]:
    """The columns of the first view, and how many bands it has."""
    return (bands.split(rows)[0], bands.bands[0]) if isinstance(bands, Views) else (rows, bands)


def join_views(X: Any, bands: Bands | Mapping[str, int] | None = None) -> tuple[Floats, Views]:
    """The rows of all views side by side, and how they are divided.

    Parameters
    ----------
    X : (N, D) or (N, F, D) array, or {name: such an array}
    bands : int, Views or {name: int}, optional
        Of the array, or of views that have some.
    """
    if not is_by_view(X):
        if isinstance(bands, Views):
            return bands.rows(X), bands
        if isinstance(bands, Mapping):
            raise InputError("bands by view need X by view: a mapping with an array for each.")
        rows, count = split_bands(X, bands)
        return rows, Views((ONE_VIEW,), (rows.shape[1],), (count,))
    if isinstance(bands, Views):
        return bands.rows(X), bands
    by_view = dict.fromkeys(X, bands) if not isinstance(bands, Mapping) else bands
    if not X or not set(by_view) <= set(X):
        raise InputError(
            "X must have at least one view, and bands are of its views. Got the views "
            f"{name_list(X) or 'none'} and bands of {name_list(by_view) or 'none'}."
        )
    divided = {}
    for name, values in X.items():
        try:
            divided[name] = split_bands(values, by_view.get(name))
        except InputError as error:
            raise InputError(f"View {name!r}: {error}") from None
    views = Views(
        tuple(divided),
        tuple(rows.shape[1] for rows, _ in divided.values()),
        tuple(count for _, count in divided.values()),
    )
    return views.rows({name: rows for name, (rows, _) in divided.items()}), views
