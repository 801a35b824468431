"""EmbeddingTable: one row per clip, its embeddings and where they come from.

On disk it is Parquet, which pandas, Polars and DuckDB read without daco; ``reference/files.md`` of
the manual lists columns and metadata. ``attributes`` is JSON as text, the only nested form that
CSV and all readers of Parquet treat alike.

Any Parquet or ``.npz`` file with a column ``embedding`` is a table, too. Columns that it lacks are
read from DCASE names in ``path`` or ``file_name``.
"""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.data.clips import COLUMNS
from daco.data.columns import as_column, clip_columns, is_embedding, parse_json, require_embedding
from daco.data.views import Views
from daco.errors import DataError, InputError
from daco.files.remote import Location, is_file, open_location, parse_location
from daco.text import closest, html_table, suggestion
from daco.validation import Float32s, as_embeddings, as_float32, is_utf8

VIEWS_VERSION = 1
"""Of the metadata that describes the views of several networks; newer ones are not read."""

ORIGIN = ("backbone", "weights_sha256", "precision", "sample_rate", "resampler", "package")


@dataclass(frozen=True, eq=False, repr=False)
class EmbeddingTable:
    """Clips and their embeddings, made by `read` or `from_arrays`.

    Attributes
    ----------
    columns : dict of arrays
        The clip columns, with None for missing values, and columns of your own.
    matrices : dict of arrays, float32 of shape (n, D)
        The embeddings of each readout, read-only; the first readout is the default.
    metadata : dict of str
        Where the embeddings come from.

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
        metadata = {**self.metadata, "readouts": json.dumps(list(self.matrices))}
        if views := stored_views(self.metadata):
            mine = {name: view for name, view in views.items() if name in self.matrices}
            metadata["views"] = views_text(mine)
        object.__setattr__(self, "metadata", metadata)

    @classmethod
    def from_arrays(
        cls,
        embedding: ArrayLike | Mapping[str, ArrayLike],
        *,
        metadata: Mapping[str, str] | None = None,
        **columns: Any,
    ) -> EmbeddingTable:
        """Make a table from your own embeddings.

        Parameters
        ----------
        embedding : array of shape (n, D), or a dict of them by readout
            Finite numbers, stored as float32. The first of a dict is the default readout.
        metadata : dict of str
            Where the embeddings come from, stored with them.
        **columns : one value, or one per clip
            The clip columns ``path``, ``machine``, ``domain``, ``split``, ``label`` (0 normal, 1
            anomaly, None unknown), ``section``, ``year``, ``attributes`` (a mapping per clip),
            ``session``, and columns of your own. Missing ones are read from DCASE names in ``path``
            or ``file_name``; otherwise the path is the row number and the split ``train``.
        """
        several = isinstance(embedding, Mapping)
        readouts = dict(embedding) if isinstance(embedding, Mapping) else {"embedding": embedding}
        matrices = _matrices(readouts, "embedding[{!r}]" if several else "{}")
        n_clips = len(next(iter(matrices.values())))
        given = {name: values for name, values in columns.items() if values is not None}
        own = {name: values for name, values in columns.items() if name not in COLUMNS}
        for name in own:
            near = closest(name, COLUMNS, cutoff=0.88)
            if near is not None and near not in columns:
                raise InputError(f"daco does not use a column {name!r}. Did you mean {near!r}?")
        checked = clip_columns(given, n_clips)
        checked |= {name: as_column(name, values, n_clips) for name, values in own.items()}
        stored = dict(metadata or {})
        for key, value in stored.items():
            if not all(isinstance(text, str) and is_utf8(text) for text in (key, value)):
                raise InputError(f"metadata must map text to text. Got {key!r}: {value!r} instead.")
        return cls(checked, matrices, stored)

    @classmethod
    def read(cls, path: Location | str) -> EmbeddingTable:
        """Read and check a Parquet or ``.npz`` file; errors name the column and the row.

        The file may be remote, such as ``s3://plant/emb.parquet``.
        """
        from daco.data.parquet import naming_file, read_parquet

        path = parse_location(path)
        with naming_file(path):
            return cls(*(_read_npz if path.suffix.lower() == ".npz" else read_parquet)(path))

    def write(self, path: Location | str) -> None:
        """Write a Parquet file, local or remote, which appears complete or not at all."""
        from daco.data.parquet import vector_array, write_parquet

        vectors = {name: vector_array(matrix) for name, matrix in self.matrices.items()}
        write_parquet(self.columns, vectors, self.metadata, parse_location(path))

    def __len__(self) -> int:
        return len(next(iter(self.matrices.values())))

    def __repr__(self) -> str:
        machines = list(map(str, self.machines))
        shown = ", ".join(machines[:5]) + (", ..." if len(machines) > 5 else "")
        readouts = ", ".join(f"{name} ({each.shape[1]})" for name, each in self.matrices.items())
        return f"EmbeddingTable({len(self)} clips, machines: {shown}, readouts: {readouts})"

    def _repr_html_(self) -> str:
        names = ("machine", "section", "split", "domain", "label")
        counts = Counter(zip(*(self.columns[name].tolist() for name in names), strict=True))
        words = {None: "unknown", 0: "normal", 1: "anomaly"}
        rows = [(*key[:4], words[key[4]], count) for key, count in counts.items()]
        return html_table(repr(self), [*names, "clips"], rows)

    @property
    def readouts(self) -> tuple[str, ...]:
        """Names of the readouts; the first is the default."""
        return tuple(self.matrices)

    @property
    def views(self) -> dict[str, Float32s]:
        """The embeddings of every readout, {readout: (n, D)}, as `daco.NormalBank` takes them."""
        return dict(self.matrices)

    def origin(self, readout: str | None = None) -> dict[str, str]:
        """Return network, weights and readout of the embeddings, as far as they are known.

        Examples
        --------
        >>> made = {"backbone": "logmel", "sample_rate": "16000"}
        >>> EmbeddingTable.from_arrays({"mod": np.eye(3)}, metadata=made).origin("mod")
        {'backbone': 'logmel', 'sample_rate': '16000', 'readout': 'mod'}
        """
        self.matrix(readout)
        name = self.readouts[0] if readout is None else readout
        return origin_of_view(self.metadata, name)

    @property
    def machines(self) -> tuple[str, ...]:
        """Names of the machines in order of appearance."""
        return tuple(dict.fromkeys(self.columns["machine"].tolist()))

    def matrix(self, readout: str | None = None) -> Float32s:
        """Return the embeddings of a readout, (n, D) float32; None is the default readout.

        The embeddings of one readout are not copied. Those of several, such as ``"mod+env"``, are
        copied side by side.
        """
        if readout is not None and "+" in readout and readout not in self.matrices:
            return np.hstack([self.matrix(name) for name in readout.split("+")])
        if readout is None:
            return next(iter(self.matrices.values()))
        if readout not in self.matrices:
            raise InputError(
                f"The table has no readout {readout!r}. It has {', '.join(self.readouts)}."
            )
        return self.matrices[readout]

    def layout(self, readout: str | None = None) -> Views:
        """Return which columns of `matrix` belong to which readout, for ``"mod+env"`` to two.

        Examples
        --------
        >>> table = EmbeddingTable.from_arrays({"mod": np.ones((5, 3)), "env": np.ones((5, 2))})
        >>> table.layout("mod+env")
        Views(names=('mod', 'env'), sizes=(3, 2))
        """
        name = self.readouts[0] if readout is None else readout
        names = (name,) if name in self.matrices else tuple(name.split("+"))
        return Views(names, tuple(self.matrix(each).shape[1] for each in names))

    def column(self, name: str) -> NDArray[Any]:
        """Return a column, (n,). Years and labels are integers if all are known, else objects."""
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
        """Return the clips whose columns equal the given values, or one of a list of values.

        None selects missing values.
        """
        keep = np.ones(len(self), dtype=bool)
        for name, value in equal.items():
            wanted = value if isinstance(value, list | tuple | set) else [value]
            keep &= [each in wanted for each in self.column(name).tolist()]
        columns = {name: values[keep] for name, values in self.columns.items()}
        matrices = {name: matrix[keep] for name, matrix in self.matrices.items()}
        return EmbeddingTable(columns, matrices, self.metadata)


def _matrices(given: Mapping[str, ArrayLike], label: str) -> dict[str, Float32s]:
    """Checked matrices by readout."""
    if not given:
        raise InputError("embedding holds no readout. Give an array or a dict of arrays.")
    matrices: dict[str, Float32s] = {}
    for name, values in given.items():
        if not isinstance(name, str) or not name or not is_utf8(name):
            raise InputError(f"A readout's name is text such as 'mean'. Got {name!r} instead.")
        exact = as_embeddings(values, label.format(name))
        # A view, so that making it read-only leaves the caller's array as it was.
        matrices[name] = as_float32(exact, label.format(name)).view()
        first, matrix = next(iter(matrices.items()))
        if len(matrices[name]) != len(matrix):
            raise InputError(
                f"{label.format(name)} has {len(matrices[name])} rows, but {first!r} has "
                f"{len(matrix)}. All readouts must be of the same clips."
            )
    return matrices


def _read_npz(path: Location) -> tuple[dict[str, Any], dict[str, Float32s], dict[str, str]]:
    """Columns, matrices by readout and metadata of an archive of arrays, checked."""
    from daco.data.parquet import require_size

    try:
        with open_location(path) as source, zipfile.ZipFile(source) as archive:
            members = archive.infolist()
            require_size(sum(each.file_size for each in members), path.stat().st_size)
            arrays = {
                each.filename.removesuffix(".npy"): _read_array(archive, each) for each in members
            }
    except (OSError, InputError):
        raise
    except Exception as error:  # zipfile, zlib and NumPy have a dozen kinds for damaged archives
        hint = " Save text as text, not as objects." if "allow_pickle" in str(error) else ""
        raise DataError(f"{path}: not a readable .npz file ({error}).{hint}") from None
    require_embedding(arrays)
    names = sorted(filter(is_embedding, arrays))
    vectors = {name.removeprefix("embedding."): arrays.pop(name) for name in names}
    matrices = _matrices(vectors, "column {!r}")
    return clip_columns(arrays, len(matrices["embedding"])), matrices, {}


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    """One array, read after its header was held against the bytes that are there."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        header = f"read_array_header_{version[0]}_0"
        shape, _, dtype = getattr(np.lib.format, header)(file)
        if prod(shape) * dtype.itemsize > member.file_size and not dtype.hasobject:
            raise ValueError(f"{member.filename} is shorter than its header says")
        file.seek(0)
        return np.lib.format.read_array(file, allow_pickle=False)


def views_text(views: Mapping[str, Mapping[str, str]]) -> str:
    """The metadata about views of several networks, by name."""
    return json.dumps({"version": VIEWS_VERSION, "views": views})


def stored_views(metadata: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """What the metadata of a table says about views of several networks; {} of one network."""
    if "views" not in metadata:
        return {}
    stored = parse_json(metadata["views"])
    version = stored.get("version") if isinstance(stored, dict) else None
    if type(version) is int and version > VIEWS_VERSION:
        raise InputError(
            f"the views were written by a newer daco (layout {version}, this one reads up to "
            f"{VIEWS_VERSION}). Update daco, or embed the clips again."
        )
    views = stored.get("views") if version == VIEWS_VERSION else None
    if not isinstance(views, dict) or not all(
        isinstance(view, dict) and all(isinstance(value, str) for value in view.values())
        for view in views.values()
    ):
        raise InputError(
            f"the metadata daco.views is {metadata['views'][:60]!r} and does not describe views. "
            "Embed the clips again."
        )
    return views


def origin_of_view(metadata: Mapping[str, str], name: str) -> dict[str, str]:
    """What the metadata of a table says about how one readout was made."""
    if "views" in metadata:
        return stored_views(metadata).get(name, {})
    return {key: metadata[key] for key in ORIGIN if key in metadata} | {"readout": name}


def is_table(source: Location) -> bool:
    """Whether a file holds embeddings; a Parquet file may be a manifest as well."""
    if source.suffix.lower() not in (".parquet", ".npz") or not is_file(source):
        return False
    if source.suffix.lower() == ".npz":
        return True
    import pyarrow
    import pyarrow.parquet as pq

    try:
        with open_location(source) as file:
            return "embedding" in pq.read_schema(file).names
    except (pyarrow.ArrowException, OSError):
        return True  # the reader of tables reports what is wrong
