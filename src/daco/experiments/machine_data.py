"""The machines of a study: their clips, and everything that is known of these."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.data.table import EmbeddingTable
from daco.data.views import Views
from daco.errors import DataError, InputError
from daco.experiments.inputs import (
    SOURCE,
    TARGET,
    DomainNames,
    VectorReader,
    require_normals,
    rows_by,
)
from daco.method.viability import PseudoAnomalies
from daco.text import name_list, quantity
from daco.validation import Float32s, Float64s, Indices

MACHINE = ["set", "machine", "section"]
"""Columns that name a machine in all tables of a study."""

SET_NAMES = {"dev": "development", "eval": "evaluation"}

UNKNOWN_LABEL = -1
_NAMED = 20  # machines that are left out


@dataclass(frozen=True, eq=False)
class MachineData:
    """One machine and section: its normals, and its test clips as far as they are known.

    ``title`` is the machine's name in messages, with its section where it has several. ``vectors``
    are those of the normals and then those of the test clips. ``labels`` are -1 and
    ``test_domains`` are "" where they are unknown. ``systems`` has the scores of other systems for
    the normals, if they are known, and for the test clips. Vectors may be a function that reads
    them.
    """

    set: str
    machine: str
    section: str
    title: str
    views: Views
    vectors: Float32s | Callable[[], Float32s]
    normals: NDArray[np.str_]
    domains: NDArray[np.str_]
    clips: NDArray[np.str_]
    labels: NDArray[np.int8]
    test_domains: NDArray[np.str_]
    faults: PseudoAnomalies | None = None
    systems: Mapping[str, tuple[Float64s | None, Float64s]] = field(default_factory=dict)

    def loaded(self) -> MachineData:
        """The machine with its vectors in memory."""
        return replace(self, vectors=self._matrix)

    @property
    def key(self) -> tuple[str, str, str]:
        """Set, machine and section."""
        return self.set, self.machine, self.section

    @property
    def where(self) -> str:
        """The machine as messages name it."""
        return f"{self.set} machine {self.title}"

    @property
    def X(self) -> Float32s:  # noqa: N802, as in scikit-learn
        """Vectors of the normals."""
        return self._matrix[: len(self.domains)]

    @property
    def X_test(self) -> Float32s:  # noqa: N802
        """Vectors of the test clips."""
        return self._matrix[len(self.domains) :]

    @property
    def _matrix(self) -> Float32s:
        return self.vectors() if callable(self.vectors) else self.vectors

    @property
    def labelled(self) -> bool:
        """Whether label and domain of every test clip are known, of normals and anomalies."""
        return set(self.labels.tolist()) == {0, 1} and "" not in self.test_domains

    @property
    def balanced(self) -> bool:
        """Whether there are two domains, so that there is a criterion."""
        return TARGET in self.domains

    def vectors_hash(self) -> str:
        """SHA-256 of all that a label-free choice and the scores rest on: vectors and names."""
        digest = hashlib.sha256("\0".join([str(self.views), *self.key]).encode())
        for array in (self._matrix, self.normals, self.domains, self.clips):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def all_machines(
    tables: Mapping[str, EmbeddingTable], names: DomainNames, readout: str | None, notes: list[str]
) -> list[MachineData]:
    """The machines of all tables; a line about each that has too few normals is added to `notes`.

    An error where none is left, or where the vectors of the tables have different lengths.
    """
    sizes = {which: table.layout(readout).sizes for which, table in tables.items()}
    if len(set(sizes.values())) > 1:
        listed = " and ".join(f"{sum(each)} in the {which} table" for which, each in sizes.items())
        raise InputError(
            f"The vectors of the readout have other lengths in one table than in the other: "
            f"{listed}. Embed both with the same network, and name the readout."
        )
    lacking: dict[str, str] = {}
    machines: list[MachineData] = []
    for which, table in tables.items():
        machines += machines_of(table, which, names, readout, lacking)
    notes += left_out(lacking)
    require_some(machines, notes)
    return machines


def machines_of(
    table: EmbeddingTable,
    which: str,
    names: DomainNames,
    readout: str | None = None,
    lacking: dict[str, str] | None = None,
) -> list[MachineData]:
    """Every machine and section of a set with enough normals, in order of appearance.

    The others are added to `lacking`, with the reasons.
    """
    rows = rows_by(table, "machine", "section")
    if not rows:
        raise InputError(f"The {which} table holds no clips.")
    require_normals(table, np.flatnonzero(table.columns["split"] == "train"))
    sections = Counter(machine for machine, _ in rows)
    rows_read: list[Indices] = []
    reader = VectorReader(table, readout, rows_read)
    result: list[MachineData] = []
    for (machine, section), at in rows.items():
        title = machine if sections[machine] == 1 else f"{machine}_{section}"
        where = f"{which} machine {title}"
        train, test = (at[table.columns["split"][at] == part] for part in ("train", "test"))
        domains = names.rename(table.columns["domain"][train])
        if reason := _lacking_normals(domains, names):
            if lacking is not None:
                lacking[where] = reason
            continue
        labels = [UNKNOWN_LABEL if each is None else each for each in table.columns["label"][test]]
        rows_read.append(np.concatenate([train, test]))
        result.append(
            MachineData(
                which,
                machine,
                section,
                title,
                table.layout(readout),
                vectors=partial(reader.vectors, len(result)),
                normals=table.columns["path"][train].astype(np.str_),
                domains=domains,
                clips=_clip_names(where, table.columns["path"][test].tolist()),
                labels=np.array(labels, np.int8),
                test_domains=names.rename(table.columns["domain"][test]),
            )
        )
    return result


def left_out(reasons: Mapping[str, object]) -> list[str]:
    """Sentences about machines that are not studied, with the reasons of the first."""
    lines = [f"{machine} is left out: {why}" for machine, why in reasons.items()]
    more = len(lines) - _NAMED
    return [*lines[:_NAMED], f"{more} more machines are left out."] if more > 1 else lines


def require_some(machines: Sequence[Any] | Mapping[Any, Any], notes: Sequence[str]) -> None:
    """An error with the `notes` where no machine is left."""
    if not machines:
        raise DataError("\n".join(["No machine is left to work on.", *notes]))


def _lacking_normals(domains: NDArray[np.str_], names: DomainNames) -> str:
    """What a machine lacks to be studied, empty for nothing."""
    for domain, name in ((SOURCE, names.source), (TARGET, names.target)):
        count = int((domains == domain).sum())
        if count < 2 and name is not None:
            of = f" of domain {name!r}; two of each are" if names.target else "; two are"
            return f"it has {quantity(count, 'training clip')}{of} needed."
    return ""


def _clip_names(where: str, paths: list[str]) -> NDArray[np.str_]:
    """File names; the whole paths where folders tell clips apart, as normal/1.wav, abnormal/1.wav.

    Tables of scores and truths name clips without folders.
    """
    names = [path.replace("\\", "/").rsplit("/", 1)[-1] for path in paths]
    names = paths if len(set(names)) < len(names) else names
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"{where}: {quantity(twice, 'test clip')} more than once ({name_list(twice, 3)}). "
            "Scores are filed by clip: give each test clip one row and a path of its own."
        )
    return np.array(names, dtype=np.str_)
