"""Vectors of many machines, of which a few machines' are in memory at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.data.lazy_table import StoredTable
from daco.data.table import EmbeddingTable
from daco.validation import Float32s, Indices

BUDGET = 256 * 2**20
"""Bytes of vectors that are read from a file together: 70 machines of the paper's size."""

Table = EmbeddingTable | StoredTable


@dataclass(eq=False)
class Shelf:
    """Machines in the order in which they are asked for.

    Whoever asks for one that is not at hand gets it with those that follow, as many as the budget
    allows: files in which a machine's clips lie together are read once, others some times over,
    and a small one at once. A table in memory is only indexed.

    Parameters
    ----------
    table : EmbeddingTable or StoredTable
    readout : str or None
    rows : sequence of arrays
        Of the table, for each machine.
    budget : int, optional
        Bytes; `BUDGET` by default.
    """

    table: Table
    readout: str | None
    rows: Sequence[Indices]
    budget: int | None = None
    _at_hand: range = field(default=range(0), init=False)
    _starts: NDArray[Any] = field(default_factory=lambda: np.zeros(1, np.intp), init=False)
    _matrix: Float32s | None = field(default=None, init=False)

    @property
    def dim(self) -> int:
        """Values of a vector."""
        if isinstance(self.table, StoredTable):
            return self.table.dim(self.readout)
        return int(self.table.matrix(self.readout).shape[1])

    def vectors(self, machine: int) -> Float32s:
        """Vectors of one machine, row by row as they were listed; not to be written to."""
        if isinstance(self.table, EmbeddingTable):
            return self.table.matrix(self.readout)[self.rows[machine]]
        if machine not in self._at_hand:
            self._fetch(machine, self.table)
        assert self._matrix is not None
        at = machine - self._at_hand.start
        return self._matrix[self._starts[at] : self._starts[at + 1]]

    def _fetch(self, machine: int, table: StoredTable) -> None:
        self._matrix = None  # or there would be two of them
        sizes = np.cumsum([len(rows) for rows in self.rows[machine:]])
        fitting = int(np.searchsorted(sizes * 4 * self.dim, self.budget or BUDGET, side="right"))
        self._at_hand = range(machine, machine + max(1, fitting))
        self._starts = np.concatenate([[0], sizes])
        together = np.concatenate([self.rows[each] for each in self._at_hand])
        self._matrix = table.rows(together, self.readout)
        self._matrix.flags.writeable = False


def rows_by_machine(table: Table) -> dict[tuple[str, str], Indices]:
    """Rows of every machine and section, in order of appearance."""
    columns = table.columns
    found: dict[tuple[str, str], list[int]] = {}
    keys = zip(columns["machine"].tolist(), columns["section"].tolist(), strict=True)
    for row, key in enumerate(keys):
        found.setdefault(key, []).append(row)
    return {key: np.array(rows, np.intp) for key, rows in found.items()}
