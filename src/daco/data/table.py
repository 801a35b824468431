"""EmbeddingTable: one row per clip, its embeddings and where they come from.

Its file is Parquet; ``reference/files.md`` of the manual lists columns and metadata. Any Parquet
file with a column ``embedding`` is a table. Columns that it lacks are read from DCASE names in
``path`` or ``file_name``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.data.clips import COLUMNS
from daco.data.columns import clip_columns, parse_json
from daco.data.views import Views
from daco.errors import InputError
from daco.files.remote import Location, is_file, open_location, parse_location
from daco.text import closest, html_table, suggestion
from daco.validation import Float32s, Indices, as_embeddings, as_float32, is_utf8

if TYPE_CHECKING:
    from daco.data.parquet import StoredVectors

ORIGIN = ("backbone", "weights_sha256", "precision", "sample_rate", "resampler", "package")


@dataclass(frozen=True, eq=False, repr=False)
class EmbeddingTable:
    """Clips and their embeddings, made by `read` or `from_arrays`.

    Attributes
    ----------
    columns : dict of arrays
        The clip columns, with None for missing values, and columns of your own.
    matrices : dict of arrays, float32 of shape (n, D)
        The embeddings of each readout, read-only; the first readout is the default. They are
        `StoredVectors` where they are still in a file.
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
    matrices: Mapping[str, Any]
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for matrix in self.matrices.values():
            if isinstance(matrix, np.ndarray):
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
        for name in given.keys() - set(COLUMNS):
            near = closest(name, COLUMNS, cutoff=0.88)
            if near is not None and near not in columns:
                raise InputError(f"daco does not use a column {name!r}. Did you mean {near!r}?")
        stored = dict(metadata or {})
        for key, value in stored.items():
            if not all(isinstance(text, str) and is_utf8(text) for text in (key, value)):
                raise InputError(f"metadata must map text to text. Got {key!r}: {value!r} instead.")
        return cls(clip_columns(given, n_clips), matrices, stored)

    @classmethod
    def read(cls, path: Location | str) -> EmbeddingTable:
        """Read and check a Parquet file, local or remote; errors name the column and the row."""
        table = read_without_vectors(path, further=None)
        matrices = {name: vectors[:] for name, vectors in table.matrices.items()}
        return replace(table, matrices=matrices)

    def write(self, path: Location | str) -> None:
        """Write a Parquet file, local or remote, which appears complete or not at all."""
        from daco.data.parquet import vector_array, write_parquet

        vectors = {name: vector_array(matrix) for name, matrix in self.matrices.items()}
        write_parquet(self.columns, vectors, self.metadata, parse_location(path))

    def __len__(self) -> int:
        return len(self.columns["path"])

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
        if "views" in self.metadata:
            return stored_views(self.metadata).get(name, {})
        return {key: self.metadata[key] for key in ORIGIN if key in self.metadata} | {
            "readout": name
        }

    @property
    def machines(self) -> tuple[str, ...]:
        """Names of the machines in order of appearance."""
        return tuple(dict.fromkeys(self.columns["machine"].tolist()))

    def matrix(self, readout: str | None = None) -> Float32s:
        """Return the embeddings of a readout, (n, D) float32; None is the default readout.

        The embeddings of one readout are not copied. Those of several, such as ``"mod+env"``, are
        copied side by side.
        """
        names = self._names(readout)
        return self.matrices[names[0]] if len(names) == 1 else self.vectors(slice(None), readout)

    def vectors(self, rows: Indices | slice, readout: str | None = None) -> Float32s:
        """Return the embeddings of some clips in this order, from the file if they are there."""
        parts = [self.matrices[name][rows] for name in self._names(readout)]
        return parts[0] if len(parts) == 1 else np.hstack(parts)

    def _names(self, readout: str | None) -> tuple[str, ...]:
        """The readouts whose embeddings are side by side, such as those of ``"mod+env"``."""
        if readout is None:
            return self.readouts[:1]
        names = (readout,) if readout in self.matrices else tuple(readout.split("+"))
        for name in names:
            if name not in self.matrices:
                raise InputError(
                    f"The table has no readout {name!r}. It has {', '.join(self.readouts)}."
                )
        return names

    def stored(self) -> list[StoredVectors]:
        """The embeddings that are still in a file."""
        return [each for each in self.matrices.values() if not isinstance(each, np.ndarray)]

    def layout(self, readout: str | None = None) -> Views:
        """Return which columns of `matrix` belong to which readout, for ``"mod+env"`` to two.

        Examples
        --------
        >>> table = EmbeddingTable.from_arrays({"mod": np.ones((5, 3)), "env": np.ones((5, 2))})
        >>> table.layout("mod+env")
        Views(names=('mod', 'env'), sizes=(3, 2))
        """
        names = self._names(readout)
        return Views(names, tuple(self.matrices[name].shape[1] for name in names))

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


def read_without_vectors(
    path: Location | str, further: tuple[str, ...] | None = ()
) -> EmbeddingTable:
    """Read the clips of a Parquet file, whose vectors `EmbeddingTable.vectors` reads when needed.

    A table of 10,000 machines of the paper's size has 37 GB of embeddings, and a few hundred bytes
    of other columns per clip. Attributes, sessions and columns of one's own are read if they are
    among the `further` columns; None reads all.
    """
    from daco.data.parquet import naming_file, read_parquet

    path = parse_location(path)
    with naming_file(path):  # the metadata is checked, too
        return EmbeddingTable(*read_parquet(path, further))


def is_table(source: Location) -> bool:
    """Whether a file holds embeddings; a Parquet file may be a manifest as well."""
    if source.suffix.lower() != ".parquet" or not is_file(source):
        return False
    import pyarrow
    import pyarrow.parquet as pq

    try:
        with open_location(source) as file:
            return "embedding" in pq.read_schema(file).names
    except (pyarrow.ArrowException, OSError):
        return True  # the reader of tables reports what is wrong


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


def views_text(views: Mapping[str, Mapping[str, str]]) -> str:
    """The metadata about views of several networks, by name."""
    return json.dumps(views)


def stored_views(metadata: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """What the metadata of a table says about views of several networks; {} of one network."""
    views = parse_json(metadata.get("views", "{}"))
    if not isinstance(views, dict) or not all(
        isinstance(view, dict) and all(isinstance(value, str) for value in view.values())
        for view in views.values()
    ):
        raise InputError(
            f"the metadata daco.views is {metadata['views'][:60]!r} and does not describe views as "
            "this daco does. Update daco, or embed the clips again."
        )
    return views
