"""Other scorers on the same embeddings and scores of other systems: what E1 of a study shows.

A system is a folder of score files in the challenge's format; the folder's name is the system's
name. Clips are matched by name, labels are the study's own, and no choice reads these scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.errors import DataError, InputError
from daco.evaluation.score_tables import match_names
from daco.evaluation.scorefiles import SCORES, ScoreFile, read_score_files
from daco.experiments.inputs import SOURCE, MachineData
from daco.files.hashing import sha256_of_bytes, sha256_of_file
from daco.method.config import DEFAULT_CONFIG
from daco.text import name_list, quantity
from daco.validation import Float64s

ORACLE = "conf-oracle-m30-k1"
OWN = ("knn1", "sel-maha", "gmm2", ORACLE, DEFAULT_CONFIG)
"""Names of the study's own rows in E1."""


def baseline_rows(
    folders: Sequence[Path], machines: Sequence[MachineData], years: Mapping[str, int | None]
) -> list[dict[str, Any]]:
    """Rows of E1 for the systems in `folders`; unlabelled machines have no row.

    A system may cover the development machines only or the evaluation machines only, but then
    all of them with all test clips. Folders of one name are one system; `years` are those of the
    splits' data sets.
    """
    rows, matched = [], False
    splits = dict.fromkeys(machine.split for machine in machines)
    for (system, files), split in product(_systems(folders).items(), splits):
        mine = [m for m in machines if m.split == split and len(m.names)]
        scores = [_scores_of(files, m, years.get(split), system) for m in mine]
        absent = [m.title for m, found in zip(mine, scores, strict=True) if found is None]
        if len(absent) == len(mine):
            continue
        if absent:
            which = f"{quantity(absent, f'{split} machine')} out of {len(mine)}"
            raise DataError(
                f"{system}: no score file of {which} ({name_list(absent)}). Score all "
                f"{split} machines with this system, or none."
            )
        matched = True
        for machine, values in zip(mine, scores, strict=True):
            if machine.labelled and values is not None:
                [metrics] = machine.metrics(values[:, None])
                percent = dict(zip(machine.quantities, metrics.tolist(), strict=True))
                rows.append(
                    {"split": split, "machine": machine.title, "backend": system, **percent}
                )
    if not matched:
        raise DataError(
            f"{name_list(map(str, folders))}: no score file of a machine of this study. Files are "
            "matched by machine, section and, where their name has one, year."
        )
    return rows


def baseline_inputs(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Systems and hashes of score files, for the provenance of a run."""
    hashes = {
        system: [sha256_of_file(file.path) for file in files]
        for system, files in _systems(folders).items()
    }
    return [
        {"system": system, "files": len(each), "sha256": sha256_of_bytes("".join(each).encode())}
        for system, each in hashes.items()
    ]


def _systems(folders: Sequence[Path]) -> dict[str, list[ScoreFile]]:
    """Score files by system."""
    found: dict[str, list[ScoreFile]] = {}
    for folder in folders:
        if not folder.is_dir():
            raise DataError(
                f"{folder} is not a folder. Give a folder of score files ({SCORES}_<machine>_"
                "section_00_test.csv); its name is the name of the system."
            )
        inside = sorted(path for path in folder.iterdir() if path.is_dir() and _has_scores(path))
        for path in [folder] if _has_scores(folder) or not inside else inside:
            system = path.resolve().name
            if system in OWN:
                raise InputError(f"{path}: {system!r} is a scorer of the study. Rename the folder.")
            files = [file for file in read_score_files(path) if file.kind == SCORES]
            found.setdefault(system, []).extend(files)
    return found


def _has_scores(folder: Path) -> bool:
    return next(folder.glob(f"{SCORES}_*.csv"), None) is not None


def _scores_of(
    files: Sequence[ScoreFile], machine: MachineData, year: int | None, system: str
) -> NDArray[np.float64] | None:
    """A machine's scores in the order of its test clips; None without a file of this machine."""
    fitting = [
        file
        for file in files
        if (file.machine, file.section) == (machine.machine, machine.section)
        and (year is None or file.year in (None, year))
    ]
    if not fitting:
        return None
    if len(fitting) > 1:
        listed = name_list(str(file.path) for file in fitting)
        raise InputError(
            f"{system} has several score files of {machine.title}: {listed}. Keep one."
        )
    [file] = fitting
    where = f"{file.path}, {machine.split} machine {machine.title}:"
    return file.values[match_names(machine.names.tolist(), file.names, f"{where} the file")]


def selective_mahalanobis(X: NDArray[Any], domains: NDArray[Any], X_test: NDArray[Any]) -> Float64s:
    """Smallest squared Mahalanobis distance to a domain's mean, all with the source's covariance.

    The covariance is Ledoit and Wolf's; ten target clips support none of their own.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve, pinvh
    from sklearn.covariance import LedoitWolf

    X, X_test = X.astype(np.float64), X_test.astype(np.float64)
    covariance = LedoitWolf(store_precision=False).fit(X[domains == SOURCE]).covariance_
    names = np.unique(domains)
    centred = [X_test - X[domains == domain].mean(axis=0) for domain in names]
    vectors = np.concatenate(centred)
    try:  # five times as fast as an inverse
        solved = cho_solve(cho_factor(covariance), vectors.T).T
    except LinAlgError:  # shrunk by nothing: clips that are all equal, or span too little
        solved = vectors @ pinvh(covariance)
    squared = np.einsum("nd,nd->n", solved, vectors).reshape(len(names), -1)
    return np.asarray(squared.min(axis=0))


def gaussian_mixture(X: NDArray[Any], X_test: NDArray[Any]) -> Float64s:
    """Negative log-likelihood under a diagonal mixture of two Gaussians of all normals."""
    from sklearn.mixture import GaussianMixture

    mixture = GaussianMixture(2, covariance_type="diag", reg_covar=1e-4, random_state=0)
    return np.asarray(-mixture.fit(X.astype(np.float64)).score_samples(X_test.astype(np.float64)))
