"""EmbeddingTable: one row per clip, its vectors and where they came from.

On disk it is Parquet, readable by pandas, Polars and DuckDB without daco:

- the clip columns ``path, year, machine, section, domain, split, label, attributes``;
  ``attributes`` is a JSON object as text, because text is the one nested form that all
  readers and CSV agree on (a Parquet map becomes a list of pairs in one and a struct in another);
- ``embedding``: the default readout, a fixed-size list of float32;
- ``embedding.<readout>``: every further readout;
- ``audio_sha256``: the hash of each recording, in tables that ``daco embed`` made;
- metadata under ``daco.``: backbone, weights_sha256, readouts (JSON, the first is
  ``embedding``), bands (JSON, the number of frequency bands of each readout that keeps them
  apart: a vector is then so many equal parts, one after the other), precision, channel,
  sample_rate, version, skipped.

Any Parquet file with an ``embedding`` column is a table too, and so is an ``.npz`` file. A column
that the file has counts; what it has not is read from DCASE names in ``path`` or ``file_name``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.data.clips import COLUMNS
from daco.data.columns import as_column, clip_columns
from daco.data.parquet import TableContent, naming_file, read_table, write_parquet
from daco.errors import InputError
from daco.files.remote import Location, parse_location
from daco.text import suggestion
from daco.validation import Float32s, as_embeddings, as_float32, flat_bands, is_utf8


@dataclass(frozen=True, eq=False, repr=False)
class EmbeddingTable:
    """Clips and their embeddings; made by `read` or `from_arrays`.

    Attributes
    ----------
    columns : dict of arrays
        The clip columns, missing values as None, and further columns of the user's own.
    matrices : dict of arrays, float32 of shape (n, D)
        One per readout; the first is the default. Read-only.
    metadata : dict of str
        Where the vectors came from.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.data.table import EmbeddingTable
    >>> table = EmbeddingTable.from_arrays(np.eye(3), machine="fan", domain=["a", "a", "b"])
    >>> table.select(domain="a").matrix().shape
    (2, 3)
    >>> table
    EmbeddingTable(3 clips, machines: fan, readouts: embedding (3))
    """

    columns: Mapping[str, NDArray[Any]]
    matrices: Mapping[str, Float32s]
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for matrix in self.matrices.values():
            matrix.flags.writeable = False
        readouts = {"readouts": json.dumps(list(self.matrices))}
        bands = _checked_bands(_stored_bands(self.metadata), self.matrices)
        kept = {key: value for key, value in self.metadata.items() if key != "bands"}
        stored = {"bands": json.dumps(bands)} if bands else {}
        object.__setattr__(self, "metadata", {**kept, **readouts, **stored})

    @classmethod
    def from_arrays(
        cls,
        embedding: ArrayLike | Mapping[str, ArrayLike],
        *,
        metadata: Mapping[str, str] | None = None,
        **columns: Any,
    ) -> EmbeddingTable:
        """A table of your own vectors.

        Parameters
        ----------
        embedding : array of shape (n, D) or (n, F, D), or a dict of them by readout
            Finite numbers, stored as float32. The first of a dict is the default readout. F
            frequency bands become one vector, band after band, and `bands` remembers F.
        metadata : dict of str
            Where the vectors came from, kept with them.
        **columns : one value, or one per clip
            The clip columns ``path``, ``machine``, ``domain``, ``split``, ``label`` (0 normal, 1
            anomaly, None unknown), ``section``, ``year``, ``attributes`` (a mapping per clip), and
            columns of your own. What is left out is read from DCASE names in ``path`` or
            ``file_name``; else the path is the row number and the split ``train``.
        """
        matrices, bands = _matrices(embedding)
        n_clips = len(next(iter(matrices.values())))
        given = {name: values for name, values in columns.items() if values is not None}
        own = {name: values for name, values in columns.items() if name not in COLUMNS}
        checked = clip_columns(given, n_clips)
        checked |= {name: as_column(name, values, n_clips) for name, values in own.items()}
        stored = dict(metadata or {})
        for key, value in stored.items():
            if not all(isinstance(text, str) and is_utf8(text) for text in (key, value)):
                raise InputError(f"metadata must map text to text. Got {key!r}: {value!r} instead.")
        if bands:
            stored["bands"] = json.dumps(_stored_bands(stored) | bands)
        return cls(checked, matrices, stored)

    @classmethod
    def read(cls, path: Location | str) -> EmbeddingTable:
        """The table in a Parquet or ``.npz`` file, checked; errors name column and row.

        The file may be remote, such as ``s3://plant/emb.parquet``.
        """
        path = parse_location(path)
        with naming_file(path):
            return cls(*read_table(path))

    def write(self, path: Location | str) -> None:
        """Write Parquet, here or to a remote file system, whole or not at all."""
        content = TableContent(self.columns, self.matrices, self.metadata)
        write_parquet(content, parse_location(path))

    def __len__(self) -> int:
        return len(next(iter(self.matrices.values())))

    def __repr__(self) -> str:
        machines = list(map(str, self.machines))
        shown = ", ".join(machines[:5]) + (", ..." if len(machines) > 5 else "")
        sizes = {
            name: f"{bands} x {matrix.shape[1] // bands}" if bands > 1 else f"{matrix.shape[1]}"
            for name, matrix in self.matrices.items()
            for bands in [self.bands(name)]
        }
        readouts = ", ".join(f"{name} ({size})" for name, size in sizes.items())
        return f"EmbeddingTable({len(self)} clips, machines: {shown}, readouts: {readouts})"

    @property
    def readouts(self) -> tuple[str, ...]:
        """Names of the readouts; the first is the default."""
        return tuple(self.matrices)

    @property
    def machines(self) -> tuple[str, ...]:
        """Machine types in order of appearance."""
        return tuple(dict.fromkeys(self.columns["machine"].tolist()))

    def matrix(self, readout: str | None = None) -> Float32s:
        """Vectors of one readout, (n, D) float32, not copied; None is the default readout."""
        if readout is None:
            return next(iter(self.matrices.values()))
        if readout not in self.matrices:
            raise InputError(
                f"The table has no readout {readout!r}. It has {', '.join(self.readouts)}."
            )
        return self.matrices[readout]

    def bands(self, readout: str | None = None) -> int:
        """Equal parts of a readout's vectors, one per frequency band; 1 where there are none.

        Examples
        --------
        >>> table = EmbeddingTable.from_arrays(np.ones((5, 4, 3)))
        >>> table.matrix().shape, table.bands()
        ((5, 12), 4)
        """
        self.matrix(readout)  # names an unknown one
        stored = _stored_bands(self.metadata)
        return int(stored.get(self.readouts[0] if readout is None else readout, 1))

    def column(self, name: str) -> NDArray[Any]:
        """One value per clip: an int array where all are known, else objects with None."""
        if name not in self.columns:
            raise InputError(
                f"The table has no column {name!r}. It has {', '.join(self.columns)}."
                f"{suggestion(name, self.columns)}"
            )
        values = self.columns[name]
        if name in ("year", "label") and len(values) and None not in values.tolist():
            return values.astype(np.int64)
        return values

    def select(self, **equal: Any) -> EmbeddingTable:
        """The clips whose columns equal the given values; None asks for a missing value."""
        keep = np.ones(len(self), dtype=bool)
        for name, wanted in equal.items():
            values = self.column(name).tolist()
            keep &= np.fromiter((value == wanted for value in values), dtype=bool, count=len(self))
        columns = {name: values[keep] for name, values in self.columns.items()}
        matrices = {name: matrix[keep] for name, matrix in self.matrices.items()}
        return EmbeddingTable(columns, matrices, self.metadata)


def _matrices(
    embedding: ArrayLike | Mapping[str, ArrayLike],
) -> tuple[dict[str, Float32s], dict[str, int]]:
    """Checked matrices by readout, and the bands of those that were given with them."""
    given = embedding if isinstance(embedding, Mapping) else {"embedding": embedding}
    if not given:
        raise InputError("embedding holds no readout. Give an array or a dict of arrays.")
    matrices: dict[str, Float32s] = {}
    bands: dict[str, int] = {}
    for name, values in given.items():
        if not isinstance(name, str) or not name or not is_utf8(name):
            raise InputError(f"A readout's name is text such as 'mean'. Got {name!r} instead.")
        label = f"embedding[{name!r}]" if isinstance(embedding, Mapping) else "embedding"
        flat, count = flat_bands(values)
        if count is not None:
            bands[name] = count
        exact = as_embeddings(flat, label)
        # A view, so that making it read-only leaves the caller's array as it was.
        matrices[name] = as_float32(exact, label).view()
        first = next(iter(matrices.values()))
        if len(matrices[name]) != len(first):
            raise InputError(
                f"{label} has {len(matrices[name])} rows, but {next(iter(matrices))!r} has "
                f"{len(first)}. All readouts are of the same clips."
            )
    return matrices, bands


def _stored_bands(metadata: Mapping[str, str]) -> dict[str, Any]:
    text = metadata.get("bands", "{}")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError(
            f"the metadata daco.bands is {text[:60]!r} and must be a JSON object such as "
            '{"band": 8}. Embed the clips again.'
        )
    return found


def _checked_bands(given: Mapping[str, Any], matrices: Mapping[str, Float32s]) -> dict[str, int]:
    """Bands of the readouts that are there and have several."""
    bands: dict[str, int] = {}
    for name, matrix in matrices.items():
        count, dim = given.get(name, 1), matrix.shape[1]
        # A bool is an int to Python, but no number of bands.
        if type(count) is not int or count < 1 or dim % count:
            raise InputError(
                f"the metadata daco.bands gives the readout {name!r} {str(count)[:60]!r} bands, "
                f"which do not divide its {dim} values. Embed the clips again."
            )
        if count > 1:
            bands[name] = count
    return bands
