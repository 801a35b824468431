"""Parts of the tables that a study reads and writes, and changes of them."""

from __future__ import annotations

import numpy as np

import daco


def changed(table, **values):
    """The table with other values in some rows of its columns."""
    columns = {name: column.copy() for name, column in table.columns.items()}
    for name, (rows, value) in values.items():
        columns[name][rows] = value
    return daco.EmbeddingTable(columns, table.matrices, table.metadata)


def machine_bank(table, name):
    """A machine's bank, its test vectors, and the rows of both."""
    mine = table.columns["machine"] == name
    train, test = (
        np.flatnonzero(mine & (table.columns["split"] == each)) for each in ("train", "test")
    )
    bank = daco.NormalBank(table.matrix()[train], table.columns["domain"][train])
    return bank, table.matrix()[test], train, test


def rows_of(result, machine, split="test"):
    """The rows of a machine's clips in the table of a study."""
    clips = result.clips
    return clips[(clips["machine"] == machine) & (clips["split"] == split)]
