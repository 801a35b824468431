"""Injected faults of a study's machines, from the tables that ``daco inject`` writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from daco.clips import counted, some
from daco.errors import DacoError, DataError, InputError
from daco.experiments.hearing import ROLES
from daco.experiments.inputs import DomainNames, MachineData, Source, read_table, renamed
from daco.experiments.provenance import sha256_of
from daco.pseudo import PseudoAnomalies, injected
from daco.table import EmbeddingTable

SAME = ("backbone", "weights_sha256", "channel")
"""What must agree between the embeddings of a machine and those of its faults."""


def fault_sources(faults: Source | Iterable[Source]) -> list[Source]:
    """One source or several, as a list."""
    return [faults] if isinstance(faults, EmbeddingTable | Path | str) else list(faults)


def with_faults(
    machines: Sequence[MachineData],
    tables: dict[str, EmbeddingTable],
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
    given = [(_title(source, at), _checked(source, at, tables)) for at, source in enumerate(faults)]
    found = [
        _of_machine(given, machine, tables[machine.split], names, readout) for machine in machines
    ]
    if not any(found):
        raise DataError(
            f"{', '.join(title for title, _ in given)}: not one fault was injected into a machine "
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
                f"{counted(without, f'{ROLES[role]} machine')} without injected faults "
                f"({some(without, 4)}): the label-free veto has embedding-space pseudo-anomalies "
                f"for all {ROLES[role]} machines instead. Run 'daco inject' on their recordings."
            )
    return kept, notes


def fault_inputs(faults: Sequence[Source]) -> list[dict[str, Any]]:
    """Where the faults come from, for the run's provenance."""
    return [
        {"path": Path(source).name, "sha256": sha256_of(Path(source))}
        if isinstance(source, Path | str)
        else {"path": None, "sha256": None}
        for source in faults
    ]


def _title(source: Source, at: int) -> str:
    return str(source) if isinstance(source, Path | str) else f"table {at + 1} of faults"


def _checked(source: Source, at: int, tables: dict[str, EmbeddingTable]) -> EmbeddingTable:
    table = read_table(source)
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


def _of_machine(
    given: Sequence[tuple[str, EmbeddingTable]],
    machine: MachineData,
    clips: EmbeddingTable,
    names: DomainNames,
    readout: str | None,
) -> PseudoAnomalies | None:
    """The faults of one machine, in the study's readout; None where no table has any."""
    found, year = None, _year(clips)
    wanted = readout or clips.readouts[0]
    for title, table in given:
        columns = table.columns
        rows = (columns["machine"] == machine.machine) & (columns["section"] == machine.section)
        if year is not None:
            rows &= np.array([each in (year, None) for each in columns["year"]])
        if not rows.any():
            continue
        where = f"{title}, {machine.split} machine {machine.title}"
        if found is not None:
            raise InputError(f"{where}: another table has its faults, too. Give them once.")
        try:
            # Vectors of one's own may have any name; a network's have that of their readout.
            own = not (table.metadata.get("backbone") and clips.metadata.get("backbone"))
            named = table.readouts[0] if own and wanted not in table.readouts else wanted
            found = _pseudo(table, rows, machine, names, named)
        except DacoError as error:
            raise type(error)(f"{where}: {error}") from None
    return found


def _pseudo(
    table: EmbeddingTable, rows: Any, machine: MachineData, names: DomainNames, readout: str
) -> PseudoAnomalies:
    columns = {name: values[rows] for name, values in table.columns.items()}
    columns["domain"] = renamed(columns["domain"], names).astype(object)
    mine = EmbeddingTable(columns, {readout: table.matrix(readout)[rows]})
    if table.bands(readout) != machine.bands or mine.matrix().shape[1] != machine.X.shape[1]:
        raise InputError(
            f"readout {readout!r} has {mine.matrix().shape[1]} values in "
            f"{counted(table.bands(readout), 'band')}, and {machine.X.shape[1]} in "
            f"{machine.bands} in the study. Inject faults with the readout of the study."
        )
    made = injected(mine, machine.normals, machine.domains, readout=readout, X=machine.X)
    strange = ~np.isin(made.domains, machine.domains)
    if strange.any():
        raise InputError(
            f"{counted(int(strange.sum()), 'recording')} of a domain that the normals do not have. "
            "Inject faults into the study's own normals."
        )
    return made


def _year(table: EmbeddingTable) -> int | None:
    known = set(table.columns["year"].tolist()) - {None}
    return known.pop() if known else None
