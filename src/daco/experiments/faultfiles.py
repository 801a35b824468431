"""Injected faults of a study's machines, from the tables that ``daco inject`` writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from daco.data.table import EmbeddingTable
from daco.errors import DacoError, DataError, InputError
from daco.experiments.inputs import (
    DomainNames,
    MachineData,
    Source,
    Table,
    VectorReader,
    read_table,
    renamed,
    rows_by_machine,
)
from daco.experiments.veto import ROLES
from daco.files.hashing import sha256_of_file
from daco.files.remote import is_remote, parse_location
from daco.method.pseudo_anomalies import PseudoAnomalies, injected
from daco.text import name_list, quantity
from daco.validation import Indices

SAME = ("backbone", "weights_sha256", "channel")
"""What must agree between the embeddings of a machine and those of its faults."""


def fault_sources(faults: Source | Iterable[Source]) -> list[Source]:
    """One source or several, as a list."""
    one = isinstance(faults, EmbeddingTable | Path | str) or is_remote(faults)
    return [cast(Source, faults)] if one else list(cast(Iterable[Source], faults))


def with_faults(
    machines: Sequence[MachineData],
    tables: dict[str, Table],
    faults: Sequence[Source],
    names: DomainNames,
    readout: str | None,
) -> tuple[list[MachineData], list[str]]:
    """The machines with the faults injected into them, and what to know about it.

    Machines of a role are compared with each other, so a role has faults for all of its
    machines or for none.

    Parameters
    ----------
    machines : sequence of MachineData
    tables : dict
        By role: the embeddings that the machines are of.
    faults : sequence of tables or paths
    names : DomainNames
    readout : str, optional
    """
    if not faults:
        return list(machines), []
    given = [
        _Given(_title(source, at), _checked(source, at, tables), names)
        for at, source in enumerate(faults)
    ]
    years = {role: _year(table) for role, table in tables.items()}
    found = [
        _of_machine(given, machine, tables[machine.split], years[machine.split], readout)
        for machine in machines
    ]
    for machine, each in zip(machines, found, strict=True):
        if each is not None:
            each(machine)  # what is wrong with them is told before anything is scored
    if not any(found):
        raise DataError(
            f"{', '.join(each.title for each in given)}: not one fault was injected into a machine "
            "of this study. Machines are found by their names, sections and years."
        )
    notes = []
    kept = list(machines)
    for role in tables:
        mine = [at for at, machine in enumerate(machines) if machine.split == role]
        without = [machines[at].title for at in mine if found[at] is None]
        if not without:
            for at in mine:
                kept[at] = replace(machines[at], pseudo=found[at])
        elif len(without) < len(mine):
            notes.append(
                f"{quantity(without, f'{ROLES[role]} machine')} without injected faults "
                f"({name_list(without, 4)}): the label-free veto has embedding-space "
                f"pseudo-anomalies for all {ROLES[role]} machines instead. Run 'daco "
                f"inject' on their recordings."
            )
    return kept, notes


def fault_inputs(faults: Sequence[Source]) -> list[dict[str, Any]]:
    """Where the faults come from, for the run's provenance."""
    return [
        {"path": None, "sha256": None}
        if isinstance(source, EmbeddingTable)
        else {"path": parse_location(source).name, "sha256": sha256_of_file(parse_location(source))}
        for source in faults
    ]


def _title(source: Source, at: int) -> str:
    return (
        f"table {at + 1} of faults"
        if isinstance(source, EmbeddingTable)
        else str(parse_location(source))
    )


def _checked(source: Source, at: int, tables: dict[str, Table]) -> Table:
    table = read_table(source, ("fault",))
    if "fault" not in table.columns:
        raise DataError(f"{_title(source, at)} has no column 'fault'. Make it with 'daco inject'.")
    for role, other in tables.items():
        for key in SAME:
            pair = table.metadata.get(key), other.metadata.get(key)
            if all(pair) and pair[0] != pair[1]:
                raise InputError(
                    f"{_title(source, at)} was made with {key} {pair[0]}, and the {role} table "
                    f"with {pair[1]}. Inject faults with the network of the study."
                )
    return table


class _Given:
    """A table of faults: its rows by machine, and the machines that are in the study."""

    def __init__(self, title: str, table: Table, names: DomainNames) -> None:
        self.title, self.table, self.names = title, table, names
        self.rows = rows_by_machine(table)
        self.found: list[Indices] = []
        self._readers: dict[str, VectorReader] = {}

    def reader(self, readout: str) -> VectorReader:
        """Of the machines found in the order of the study."""
        return self._readers.setdefault(readout, VectorReader(self.table, readout, self.found))


@dataclass(frozen=True, eq=False)
class _Faults:
    """The faults of one machine, which are read whenever the machine is worked on."""

    given: _Given
    index: int
    readout: str
    where: str

    def __call__(self, machine: MachineData) -> PseudoAnomalies:
        try:
            return self._made(machine)
        except DacoError as error:
            raise type(error)(f"{self.where}: {error}") from None

    def _made(self, machine: MachineData) -> PseudoAnomalies:
        table, rows = self.given.table, self.given.found[self.index]
        columns = {name: values[rows] for name, values in table.columns.items()}
        columns["domain"] = renamed(columns["domain"], self.given.names).astype(object)
        bands, reader = table.bands(self.readout), self.given.reader(self.readout)
        if bands != machine.bands or reader.dim != machine.dim:
            raise InputError(
                f"readout {self.readout!r} has {reader.dim} values in {quantity(bands, 'band')}, "
                f"and {machine.dim} in {machine.bands} in the study. Inject faults with the "
                "readout of the study."
            )
        vectors = reader.vectors(self.index)
        mine = EmbeddingTable(columns, {self.readout: vectors})
        made = injected(mine, machine.normals, machine.domains, readout=self.readout, X=machine.X)
        strange = ~np.isin(made.domains, machine.domains)
        if strange.any():
            raise InputError(
                f"{quantity(int(strange.sum()), 'recording')} of a domain that the normals do not "
                "have. Inject faults into the study's own normals."
            )
        return made


def _of_machine(
    given: Sequence[_Given],
    machine: MachineData,
    clips: Table,
    year: int | None,
    readout: str | None,
) -> _Faults | None:
    """The faults of one machine, in the study's readout; None where no table has any."""
    found = None
    wanted = readout or clips.readouts[0]
    for each in given:
        table = each.table
        rows = each.rows.get((machine.machine, machine.section), np.empty(0, np.intp))
        if year is not None:
            rows = rows[[of in (year, None) for of in table.columns["year"][rows].tolist()]]
        if not len(rows):
            continue
        where = f"{each.title}, {machine.split} machine {machine.title}"
        if found is not None:
            raise InputError(f"{where}: another table has its faults, too. Give them once.")
        # Vectors of one's own may have any name; a network's have that of their readout.
        own = not (table.metadata.get("backbone") and clips.metadata.get("backbone"))
        named = table.readouts[0] if own and wanted not in table.readouts else wanted
        each.found.append(rows)
        found = _Faults(each, len(each.found) - 1, named, where)
    return found


def _year(table: Table) -> int | None:
    known = set(table.columns["year"].tolist()) - {None}
    return known.pop() if known else None
