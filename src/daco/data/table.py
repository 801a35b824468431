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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.data.clips import COLUMNS, DEFAULT_MACHINE, SPLITS, Clip
from daco.data.dcase import clips_by_name
from daco.errors import InputError
from daco.files.remote import Location, parse_location
from daco.text import suggestion
from daco.validation import Float32s, as_embeddings, flat_bands, is_missing, is_utf8


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
        machine: str | Sequence[str] | NDArray[Any] | None = None,
        domain: str | Sequence[str | None] | NDArray[Any] | None = None,
        split: str | Sequence[str] | NDArray[Any] | None = None,
        label: int | Sequence[int | None] | NDArray[Any] | None = None,
        path: Sequence[str] | NDArray[Any] | None = None,
        section: str | Sequence[str] | NDArray[Any] | None = None,
        year: int | Sequence[int | None] | NDArray[Any] | None = None,
        attributes: Sequence[Mapping[str, str]] | None = None,
        metadata: Mapping[str, str] | None = None,
        **further: Any,
    ) -> EmbeddingTable:
        """A table of your own vectors.

        Parameters
        ----------
        embedding : array of shape (n, D) or (n, F, D), or a dict of them by readout
            Finite numbers, stored as float32. The first of a dict is the default readout. F
            frequency bands become one vector, band after band, and `bands` remembers F.
        machine, domain, split, label, section, year : one value, or one per clip
            As in a clip table; ``label`` is 0 for normal, 1 for anomaly, None for unknown. What
            is left out is read from DCASE names in `path`; else the split is ``train``.
        path : one per clip
            A name for each clip; ``file_name`` or the row number when left out.
        attributes : one mapping per clip
        metadata : dict of str
            Where the vectors came from, kept with them.
        **further : one value, or one per clip
            Columns of your own.
        """
        matrices, bands = _matrices(embedding)
        n_clips = len(next(iter(matrices.values())))
        given = {
            "path": path,
            "file_name": further.get("file_name"),
            "year": year,
            "machine": machine,
            "section": section,
            "domain": domain,
            "split": split,
            "label": label,
            "attributes": attributes,
        }
        columns = clip_columns({k: v for k, v in given.items() if v is not None}, n_clips)
        columns |= {name: as_column(name, values, n_clips) for name, values in further.items()}
        for key, value in (metadata or {}).items():
            if not all(isinstance(text, str) and is_utf8(text) for text in (key, value)):
                raise InputError(f"metadata must map text to text. Got {key!r}: {value!r} instead.")
        kept = dict(metadata or {})
        if bands:
            kept["bands"] = json.dumps(_stored_bands(kept) | bands)
        return cls(columns, matrices, kept)

    @classmethod
    def read(cls, path: Location | str) -> EmbeddingTable:
        """The table in a Parquet or ``.npz`` file, checked; errors name column and row.

        The file may be remote, such as ``s3://plant/emb.parquet``.
        """
        from daco.data.parquet import read_table

        return read_table(parse_location(path))

    def write(self, path: Location | str) -> None:
        """Write Parquet, here or to a remote file system, whole or not at all."""
        from daco.data.parquet import write_table

        write_table(self, parse_location(path))

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


def as_float32(array: NDArray[Any], name: str, first: int = 0) -> Float32s:
    """float32 of finite values; what overflows is named, counting rows from ``first``."""
    with np.errstate(over="ignore"):
        narrow = np.ascontiguousarray(array, dtype=np.float32)
    if narrow.dtype != array.dtype and not np.isfinite(narrow).all():
        row = first + int(np.argmax(~np.isfinite(narrow).all(axis=1)))
        raise InputError(f"{name} row {row} is too large for float32. Scale the embeddings.")
    return narrow


def clip_columns(
    given: Mapping[str, Any], n_clips: int, names: Iterable[str] = COLUMNS
) -> dict[str, NDArray[Any]]:
    """Checked columns: the clip columns of those names, and what else is given.

    A column that is given counts, also where it has missing values. One that is not given is read
    from the DCASE names of the clips, where they have such names; else it has a default.
    """
    columns = {}
    named = next((name for name in ("path", "file_name") if name in given), None)
    paths = [str(row) for row in range(n_clips)] if named is None else given[named]
    columns["path"] = as_column(named or "path", paths, n_clips, kind="path")
    missing = [name for name in names if name != "path" and name not in given]
    said = _said_by_names(columns["path"].tolist(), given) if named and missing else {}
    for name in names:
        if name != "path":
            values = given.get(name, said.get(name, _DEFAULTS.get(name)))
            columns[name] = as_column(name, values, n_clips)
    for name, values in given.items():
        if name not in COLUMNS and np.ndim(values) <= 1:
            columns[name] = as_column(name, values, n_clips)
    return columns


def _said_by_names(paths: list[str], given: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Clip columns by the DCASE names of all clips; none where no clip has such a name."""
    clips = clips_by_name(paths, split_known="split" in given)
    if clips is None:
        return {}
    filled = [clip or Clip(path, DEFAULT_MACHINE) for path, clip in zip(paths, clips, strict=True)]
    return {name: [getattr(clip, name) for clip in filled] for name in COLUMNS}


_DEFAULTS: dict[str, Any] = {"machine": DEFAULT_MACHINE, "section": "00", "split": "train"}


def as_column(name: str, values: Any, n_clips: int, kind: str | None = None) -> NDArray[Any]:
    """One checked value per clip as an object array (None is missing), or an InputError.

    A single value stands for all clips. NaN and pandas' missing values count as None, and
    whole floats as ints, which is what a trip through pandas makes of a missing label. `kind` is
    the clip column that it is to be, if it has another name.
    """
    if not is_utf8(name):
        raise InputError(f"the name of the column {name!r} cannot be written as UTF-8. Rename it.")
    alone = isinstance(values, str | int | float | Mapping) or values is None
    if alone or (not isinstance(values, Sequence) and np.ndim(values) == 0):
        single = values.item() if isinstance(values, np.ndarray | np.generic) else values
        values = [single] * n_clips
    listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if len(listed) != n_clips:
        raise InputError(f"column {name!r} has {len(listed)} values for {n_clips} clips.")
    check = _CHECKS.get(kind or name)
    column = np.empty(n_clips, dtype=object)
    checked: dict[str, Any] = {}  # most columns repeat a few words; a mapping is never shared
    for row, value in enumerate(listed):
        if isinstance(value, str) and value in checked:
            column[row] = checked[value]
            continue
        plain = value.item() if isinstance(value, np.generic) else value
        try:
            if isinstance(plain, str) and not is_utf8(plain):
                raise _WrongError("must be text that can be written as UTF-8")
            column[row] = plain if check is None else check(plain)
        except _WrongError as wrong:
            raise InputError(f"column {name!r} row {row} {wrong}. Got {plain!r} instead.") from None
        if isinstance(plain, str) and isinstance(column[row], str):
            checked[plain] = column[row]
    return column


class _WrongError(Exception):
    """What a value should have been."""


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _WrongError("must be text")
    return value


def _text_or_none(value: Any) -> str | None:
    return None if is_missing(value) or value == "" else _text(value)


def _split(value: Any) -> str:
    if value not in SPLITS:
        raise _WrongError(f"must be one of {', '.join(SPLITS)}")
    return str(value)


def _whole(value: Any) -> int | None:
    if is_missing(value):
        return None
    small = isinstance(value, int | float) and abs(value) < 2**31
    if not small or value != int(value):
        raise _WrongError("must be a whole number or missing")
    return int(value)


def _label(value: Any) -> int | None:
    label = _whole(value)
    if label not in (0, 1, None):
        raise _WrongError("must be 0 (normal), 1 (anomaly) or missing")
    return label


def _attributes(value: Any) -> dict[str, str]:
    """Attributes from a mapping, JSON text, or the pairs of a Parquet map."""
    if is_missing(value) or value in ("", "{}"):
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise _WrongError("must be a JSON object") from None
    if isinstance(value, list) and all(isinstance(p, tuple) and len(p) == 2 for p in value):
        value = dict(value)
    if not isinstance(value, Mapping):
        raise _WrongError("must be a JSON object or a mapping")
    found = {str(key): str(item) for key, item in value.items()}
    if not all(is_utf8(key) and is_utf8(item) for key, item in found.items()):
        raise _WrongError("must be text that can be written as UTF-8")
    return found


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "path": _text,
    "machine": _text,
    "section": _text,
    "domain": _text_or_none,
    "split": _split,
    "year": _whole,
    "label": _label,
    "attributes": _attributes,
}
