"""Injected faults of a study's machines, from the tables that ``daco inject`` writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
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
    rows_by,
    year_of,
)
from daco.experiments.veto import ROLES
from daco.files.hashing import sha256_of_file
from daco.files.remote import is_remote, parse_location
from daco.method.viability import PseudoAnomalies
from daco.synthetic.fault_tables import injected
from daco.text import name_list, quantity
from daco.validation import Indices

SAME = ("backbone", "weights_sha256", "package", "channel")
"""What must agree between the embeddings of a machine and those of its faults."""


def fault_sources(faults: Source | Iterable[Source]) -> list[Source]:
    """One source or several, as a list."""
    one = isinstance(faults, EmbeddingTable | Path | str) or is_remote(faults)
    return [cast(Source, faults)] if one else list(cast(Iterable[Source], faults))


def fault_inputs(faults: Sequence[Source]) -> list[dict[str, Any]]:
    """Files of the faults with their hashes, for the run's provenance."""
    paths = [None if isinstance(each, EmbeddingTable) else parse_location(each) for each in faults]
    return [{"path": path and path.name, "sha256": path and sha256_of_file(path)} for path in paths]


def with_faults(
    machines: Sequence[MachineData],
    tables: dict[str, Table],
    faults: Sequence[Source],
    names: DomainNames,
    readout: str | None,
) -> tuple[list[MachineData], list[str]]:
    """The machines of `tables` (by role) with the faults injected into them, and notes about it.

    Machines of a role are compared with each other, so a role has faults for all of its
    machines or for none.
    """
    if not faults:
        return list(machines), []
    given = [_open_faults(source, at, tables, names) for at, source in enumerate(faults)]
    found = [_faults_of(given, machine, tables[machine.split], readout) for machine in machines]
    for machine in found:
        if machine is not None:
            _ = machine.faults  # its errors are raised before anything is scored
    if not any(found):
        raise DataError(
            f"{', '.join(each.title for each in given)}: not one fault was injected into a machine "
            "of this study. Machines are matched by names, sections and years."
        )
    notes = []
    result: list[MachineData] = []
    for role in tables:
        mine = [pair for pair in zip(machines, found, strict=True) if pair[0].split == role]
        without = [machine.title for machine, with_them in mine if with_them is None]
        result += [machine if without else with_them or machine for machine, with_them in mine]
        if 0 < len(without) < len(mine):
            notes.append(
                f"{quantity(without, f'{ROLES[role]} machine')} without injected faults "
                f"({name_list(without, 4)}): the label-free veto has embedding-space "
                f"pseudo-anomalies for all {ROLES[role]} machines instead. Run 'daco "
                f"inject' on their recordings."
            )
    return result, notes


@dataclass(frozen=True, eq=False)
class _FaultTable:
    """A table of faults; `used` are the rows of each machine of the study that it has."""

    title: str
    table: Table
    names: DomainNames
    rows: dict[Any, Indices]
    used: list[Indices] = field(default_factory=list)
    readers: dict[str, VectorReader] = field(default_factory=dict)

    def read(self, index: int, readout: str, machine: MachineData) -> PseudoAnomalies:
        """The faults of one machine; errors name it."""
        try:
            return self._read(index, readout, machine)
        except DacoError as error:
            where = f"{self.title}, {machine.split} machine {machine.title}"
            raise type(error)(f"{where}: {error}") from None

    def _read(self, index: int, readout: str, machine: MachineData) -> PseudoAnomalies:
        views = self.table.layout(readout)
        reader = self.readers.setdefault(readout, VectorReader(self.table, readout, self.used))
        if views.sizes != machine.views.sizes:
            raise InputError(
                f"readout {readout!r} has {views.dim} values, and {machine.views.dim} in the "
                "study. Inject faults with the readout of the study."
            )
        columns = {name: values[self.used[index]] for name, values in self.table.columns.items()}
        columns["domain"] = self.names.rename(columns["domain"]).astype(object)
        mine = EmbeddingTable(columns, {readout: reader.vectors(index)})
        made = injected(mine, machine.normals, machine.domains, readout=readout, X=machine.X)
        if unknown := int((~np.isin(made.domains, machine.domains)).sum()):
            raise InputError(
                f"{quantity(unknown, 'recording')} of a domain that the normals do not have. "
                "Inject faults into the study's own normals."
            )
        return made


def _open_faults(
    source: Source, at: int, tables: dict[str, Table], names: DomainNames
) -> _FaultTable:
    title = f"table {at + 1} of faults"
    if not isinstance(source, EmbeddingTable):
        title = str(parse_location(source))
    table = read_table(source, ("fault",))
    if "fault" not in table.columns:
        raise DataError(f"{title} has no column 'fault'. Make it with 'daco inject'.")
    for role, other in tables.items():
        for key in SAME:
            first, second = table.metadata.get(key), other.metadata.get(key)
            if first and second and first != second:
                raise InputError(
                    f"{title} was made with {key} {first}, and the {role} table with {second}. "
                    "Inject faults with the network of the study."
                )
    return _FaultTable(title, table, names, rows_by(table, "machine", "section"))


def _faults_of(
    given: Sequence[_FaultTable], machine: MachineData, clips: Table, readout: str | None
) -> MachineData | None:
    """The machine with its faults in the study's readout; None where no table has any."""
    found = None
    wanted = readout or clips.readouts[0]
    year = year_of(clips)
    for each in given:
        table = each.table
        rows = each.rows.get((machine.machine, machine.section), np.empty(0, np.intp))
        if year is not None:
            rows = rows[[of in (year, None) for of in table.columns["year"][rows].tolist()]]
        if not len(rows):
            continue
        if found is not None:
            raise InputError(
                f"{each.title}, {machine.split} machine {machine.title}: another table has its "
                "faults, too. Give them once."
            )
        # Vectors of one's own may have any name; a network's have that of their readout.
        own = not (table.metadata.get("backbone") and clips.metadata.get("backbone"))
        named = table.readouts[0] if own and wanted not in table.readouts else wanted
        each.used.append(rows)
        found = replace(machine, pseudo=partial(each.read, len(each.used) - 1, named))
    return found
