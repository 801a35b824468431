"""StudyTables: the tables of a study, in memory or in a run's folder.

Only ``grid.csv`` and ``per_machine.csv`` are required, so a folder with published files of
those names is a run too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, overload
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from daco.detector.decision import ReferenceScores
from daco.errors import DataError, InputError
from daco.experiments.analysis import frontier_table, gain_table, labelled_rows
from daco.files.atomic import atomic_write
from daco.files.hashing import sha256_of_file
from daco.method.config import ScoreConfig
from daco.text import quantity
from daco.validation import Float64s

if TYPE_CHECKING:
    import pandas as pd

REQUIRED_TABLES = {"grid": "grid.csv", "per_machine": "per_machine.csv"}
OPTIONAL_TABLES = {
    "resamples": "resamples.csv",
    "baselines": "baselines.csv",
    "frontier": "frontier.csv",
    "diagnostics": "diagnostics.csv",
    "coverage": "fpr_coverage.csv",
    "cost": "cost.csv",
    "viability": "viability.csv",
}
TABLES = REQUIRED_TABLES | OPTIONAL_TABLES
DOCUMENTS = {"selection": "selection.json", "stats": "stats.json", "provenance": "run.json"}
MACHINES = "machines"
EXAMINED = "examined"
MACHINE_KEY = ("split", "machine", "section", "title")
REFERENCES = "references"
CLIP_ARRAYS = ("names", "labels", "domains", "scores", "weights", "own_domains", "own")
"""The arrays in a machine's file with a value for every clip."""
_DECISIONS = ("decided", "references")

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class MachineScores:
    """Scores of the clips of one machine by all configurations, as in its ``.npz`` file.

    Attributes
    ----------
    split : str
        ``"dev"`` or ``"eval"``.
    machine, section : str
    title : str
        The name of the machine in tables, with its section if it has several.
    configs : tuple of str
        The columns of ``scores`` and ``own``: those of the grid, and daco's default.
    names : (n_test,) str
        File names of the test clips.
    labels : (n_test,) int
        1 anomaly, 0 normal, -1 unknown.
    domains : (n_test,) str
        The true domains, ``""`` if unknown.
    scores : (n_test, C) float64
        Scores of the test clips.
    weights : (n_test, G) float64
        How strongly each test clip belongs to each domain, in alphabetical order.
    own_domains : (N,) str
        Domains of the training normals.
    own : (N, C) float64
        Leave-one-out scores of the training normals.
    decided : tuple of str
        The configurations whose p-values are known.
    references : (N, len(decided)) float64
        Scores of the training normals, each without its likely siblings.
    """

    split: str
    machine: str
    section: str
    title: str
    configs: tuple[str, ...]
    names: NDArray[np.str_]
    labels: NDArray[np.int_]
    domains: NDArray[np.str_]
    scores: Float64s
    weights: Float64s
    own_domains: NDArray[np.str_]
    own: Float64s
    decided: tuple[str, ...] = ()
    references: Float64s = field(default_factory=lambda: np.empty((0, 0)))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Make the scores of a machine from its arrays."""
        values: dict[str, Any] = {name: str(arrays[name]) for name in MACHINE_KEY}
        values |= {name: arrays[name] for name in CLIP_ARRAYS}
        if "decided" in arrays:
            values["decided"] = tuple(arrays["decided"].tolist())
            values["references"] = arrays["references"]
        return cls(**values, configs=tuple(arrays["scored"].tolist()))

    @property
    def labelled(self) -> bool:
        """Whether every test clip has its label and domain."""
        return len(self.labels) > 0 and bool(
            (self.labels >= 0).all() and (self.domains != "").all()
        )

    def of(self, config: str) -> Float64s:
        """Return the scores of the test clips by one configuration, (n_test,)."""
        return self.scores[:, self._column(config)]

    def own_of(self, config: str) -> Float64s:
        """Return the leave-one-out scores of the training normals by one configuration, (N,)."""
        return self.own[:, self._column(config)]

    def reference_of(self, config: str) -> ReferenceScores:
        """Return the reference scores of one configuration."""
        if config not in self.decided:
            raise InputError(
                f"The study has no decisions of {config!r} for machine {self.machine!r}. Run it "
                f"again with --scores {config}."
            )
        names, codes = np.unique(self.own_domains, return_inverse=True)
        return ReferenceScores(
            self.references[:, self.decided.index(config)],
            codes.astype(np.int32),
            tuple(names.tolist()),
            ScoreConfig.parse(config).calibration == "conf",
        )

    def p_values(self, config: str) -> Float64s:
        """Return the p-values of the test clips under one configuration, (n_test,)."""
        return self.reference_of(config).p_values(self.of(config), self.weights)

    def _column(self, config: str) -> int:
        if config not in self.configs:
            raise InputError(f"Machine {self.machine!r} was not scored with {config!r}.")
        return self.configs.index(config)


class FiledScores(Sequence[MachineScores]):
    """Scores of machines in files, each read on access: thousands would not fit into memory."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    @overload
    def __getitem__(self, at: int) -> MachineScores: ...
    @overload
    def __getitem__(self, at: slice) -> FiledScores: ...
    def __getitem__(self, at: int | slice) -> MachineScores | FiledScores:
        if isinstance(at, slice):
            return FiledScores(self._files[at])
        names = (*MACHINE_KEY, "scored", *CLIP_ARRAYS)
        arrays = read_arrays(self._files[at], names)
        decisions = self._files[at].parent.with_name(REFERENCES) / self._files[at].name
        if decisions.is_file():
            arrays |= read_arrays(decisions, _DECISIONS)
        return MachineScores.from_arrays(arrays)


def _no_table() -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame()


@dataclass(frozen=True, eq=False, repr=False)
class StudyTables:
    """The tables and documents of a study, which its report and figures use.

    Attributes
    ----------
    grid : DataFrame
        ``config``, and as far as they are known ``dev_omega``, ``eval_omega`` (percent),
        ``crit_dev``, ``crit_eval``, ``crit_paper`` (10 splits) and ``viable`` (by the label-free
        veto).
    per_machine : DataFrame
        ``split, machine, config``, the metrics of the year (``auc_source, auc_target, pauc``;
        ``auc, pauc`` for one domain), ``balance_ks, uniform_ks, separability``; metrics are nan
        for machines without labels.
    baselines, frontier, diagnostics, coverage, cost : DataFrame
        The analyses of the paper, as in the files of a run; empty if they were not computed.
    selection, stats, provenance : dict
        The content of ``selection.json``, ``stats.json`` and ``run.json``.
    folder : Path or None
        The folder of the run.
    machines : sequence of MachineScores or None
        Scores of all clips; None if they are to be read from the folder.
    resamples : DataFrame
        The criterion of each configuration in resamples of splits and clips.
    viability : DataFrame
        ``split, machine, config, basis, pseudo_score`` and the metrics of which that is the mean,
        in percent: the evidence of the label-free veto. Empty if it was not computed.
    """

    grid: pd.DataFrame
    per_machine: pd.DataFrame
    baselines: pd.DataFrame = field(default_factory=_no_table)
    frontier: pd.DataFrame = field(default_factory=_no_table)
    diagnostics: pd.DataFrame = field(default_factory=_no_table)
    coverage: pd.DataFrame = field(default_factory=_no_table)
    cost: pd.DataFrame = field(default_factory=_no_table)
    selection: Mapping[str, Any] = field(default_factory=dict)
    stats: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    machines: Sequence[MachineScores] | None = None
    viability: pd.DataFrame = field(default_factory=_no_table)
    resamples: pd.DataFrame = field(default_factory=_no_table)

    @classmethod
    def read(cls, folder: Path | str) -> Self:
        """Read the study in the folder of a run.

        Without ``selection.json`` the result has no choice.
        """
        folder = Path(folder)
        for file in REQUIRED_TABLES.values():
            if not (folder / file).is_file():
                raise DataError(
                    f"{folder} is not a finished run: it has no {file}. Run 'daco study' with "
                    f"--out {folder}; an interrupted study goes on where it stopped."
                )
        found: dict[str, Any] = {
            name: read_csv_table(folder / file)
            for name, file in TABLES.items()
            if (folder / file).is_file()
        }
        for name, table_of in (("frontier", frontier_table), ("diagnostics", gain_table)):
            if name not in found:
                found[name] = table_of(found["per_machine"])
        found |= {name: read_json(folder / file) for name, file in DOCUMENTS.items()}
        return cls(**found, folder=folder)

    def __repr__(self) -> str:
        sizes = self.per_machine.groupby("split", sort=False)["machine"].nunique()
        machines = " and ".join(quantity(int(n), f"{split} machine") for split, n in sizes.items())
        chosen = self.selection.get("chosen", {}).get("config")
        picked = f", chosen {chosen}" if chosen else ""
        configs = quantity(len(self.grid), "configuration")
        return f"{type(self).__name__}({configs} on {machines}{picked})"

    @property
    def labelled(self) -> pd.DataFrame:
        """The rows of `per_machine` whose metrics are known."""
        return labelled_rows(self.per_machine)

    @property
    def resampled(self) -> Float64s | None:
        """The criterion in each resample, (C, R); None if it was not resampled."""
        if self.resamples.shape[1] < 2:
            return None
        return self.resamples.drop(columns="config").to_numpy(float)

    @property
    def missing(self) -> list[str]:
        """Sentences about what could not be computed, and why."""
        return list(self.provenance.get("missing", []))

    def machine_scores(
        self, keys: Collection[tuple[str, str]] | None = None
    ) -> Sequence[MachineScores]:
        """Return the scores of all machines, in the order of the tables; may be empty.

        Scores in a folder are read on each access. ``keys``, pairs of split and title, select
        some of the machines.
        """
        if self.machines is not None:
            if keys is None:
                return self.machines
            return [m for m in self.machines if (m.split, m.title) in keys]
        if self.folder is None:
            return ()
        files = {}
        for path in sorted((self.folder / MACHINES).glob("*.npz")):
            split, title = read_arrays(path, ("split", "title")).values()
            files[str(split), str(title)] = path
        listed = zip(self.per_machine["split"], self.per_machine["machine"], strict=True)
        wanted = [key for key in dict.fromkeys(listed) if keys is None or key in keys]
        return FiledScores([files[key] for key in wanted if key in files])


def read_csv_table(path: Path) -> pd.DataFrame:
    """A CSV file of the run; text columns stay text, whatever they look like."""
    import pandas as pd

    text = {"machine": str, "config": str, "split": str, "section": str}
    try:
        return pd.read_csv(path, dtype=text)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}).") from None
    except ValueError as error:
        raise DataError(f"{path} cannot be read as a table: {error}.") from None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or nothing where there is no file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise DataError(f"{path} must hold a JSON object.")
    return value


def write_csv_table(table: pd.DataFrame, path: Path) -> None:
    """Ten significant digits: equal values stay equal, and the file is readable."""
    with atomic_write(path) as temporary:
        table.to_csv(temporary, index=False, float_format="%.10g", lineterminator="\n")


def write_json(value: Mapping[str, Any], path: Path) -> None:
    """Write a JSON object; the order of keys is kept."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    with atomic_write(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def prepare_folder(folder: Path) -> Path:
    """The folder of a run; one that holds other files is an error."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. Choose a folder for the results.")
    ours = any((folder / name).exists() for name in (MACHINES, DOCUMENTS["provenance"]))
    if folder.is_dir() and not ours and any(folder.iterdir()):
        raise InputError(f"{folder} holds other files. Choose a new folder for the results.")
    for part in (MACHINES, EXAMINED, REFERENCES):
        (folder / part).mkdir(parents=True, exist_ok=True)
    return folder


def write_results(folder: Path, tables: Mapping[str, Any], documents: Mapping[str, Any]) -> None:
    """Write tables and documents; their hashes become ``artifacts`` of the provenance."""
    for name, file in TABLES.items():
        write_csv_table(tables[name], folder / file)
    for name in ("selection", "stats"):
        write_json(documents[name], folder / DOCUMENTS[name])
    files = [*TABLES.values(), DOCUMENTS["selection"], DOCUMENTS["stats"]]
    hashes = {name: sha256_of_file(folder / name) for name in files}
    documents["provenance"]["artifacts"] = hashes
    # Last, because its presence says that the run is finished.
    write_json(documents["provenance"], folder / DOCUMENTS["provenance"])


def read_arrays(path: Path, names: Sequence[str] | None = None) -> Arrays:
    """Some or all arrays of a machine's file."""
    try:
        # NumPy leaves a file that it opened itself open when it is damaged.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return {name: file[name] for name in names or file.files}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise DataError(
            f"{path} is not a machine of a run: {error}. Delete it and run the study again."
        ) from None
