"""One machine of a study: its rows of the two tables, made in worker processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import joblib
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from daco.data.views import first_view
from daco.detector.decision import ReferenceScores
from daco.errors import NotEnoughClipsError
from daco.evaluation.system_scores import RUN_SCHEMA
from daco.experiments.baselines import gaussian_mixture, selective_mahalanobis
from daco.experiments.inputs import SOURCE, TARGET
from daco.experiments.machine_data import MACHINE, MachineData
from daco.method.bank import NormalBank
from daco.method.config import DEFAULT_CONFIG, RAW_CONFIG, ScoreConfig, parse_grid
from daco.method.criterion import CHOICE_SPLITS, PAPER_SPLITS
from daco.method.external import without_tables
from daco.method.selection import RESAMPLES
from daco.method.viability import PseudoScores, bank_pseudo_scores, pseudo_scores
from daco.validation import Float64s
from daco.version import __version__

P_VALUE = "p:"
"""Before the name of a configuration: the column with its p-values."""

SEL_MAHA, GMM2, ORACLE = "sel-maha", "gmm2", "conf-oracle-m30-k1"
BASELINES = (SEL_MAHA, GMM2, ORACLE)
"""Other scorers of the paper's first experiment; the last one reads the true domains."""

_PAPER_SEED = 0
_MAX_COVARIANCE = 2048  # features; a covariance of more takes minutes


@dataclass(frozen=True)
class Settings:
    """What a study was asked to do, as far as it changes the rows of a machine.

    ``candidates`` are the configurations of the grid; ``seed`` and ``n_splits`` are of the
    criterion; ``detectors`` are fitted; ``systems`` are only compared, because their scores of
    normals are not known; with ``baselines`` the other scorers of the paper are compared, too.
    ``n_jobs`` processes fit detectors to parts of a bank, which changes no row.
    """

    candidates: tuple[str, ...]
    seed: int = 0
    n_splits: int = CHOICE_SPLITS
    detectors: Mapping[str, Any] = field(default_factory=dict)
    systems: tuple[str, ...] = ()
    baselines: bool = False
    n_jobs: int = 1

    @property
    def scored(self) -> list[str]:
        """The candidates, and daco's default."""
        return list(dict.fromkeys([*self.candidates, DEFAULT_CONFIG]))

    @property
    def compared(self) -> list[str]:
        """The columns of scores that no rule may choose."""
        default = [DEFAULT_CONFIG] if DEFAULT_CONFIG not in self.candidates else []
        others = BASELINES if self.baselines else ()
        return [*default, *others, *(f"ext-{label}" for label in self.systems)]


@dataclass(frozen=True, eq=False)
class MachineRows:
    """The rows of one machine in the tables of a study, and facts about it for ``run.json``."""

    clips: pd.DataFrame
    criteria: pd.DataFrame
    facts: dict[str, Any]


def key_of(data: MachineData, settings: Settings) -> str:
    """A hash of everything that enters the rows of a machine, whose vectors are in memory."""
    return str(joblib.hash((__version__, RUN_SCHEMA, data, replace(settings, n_jobs=1))))


def study_machine(data: MachineData, settings: Settings) -> MachineRows:
    """Score the clips of a machine with every configuration, and compute their criteria."""
    known = {label: normals for label, (normals, _) in data.systems.items() if normals is not None}
    bank = NormalBank(
        data.X,
        data.domains,
        views=data.views,
        scorers={**settings.detectors, **known},
        n_jobs=settings.n_jobs,
    )
    pseudo = _pseudo_scores(bank, data, settings)
    criteria = [*_criteria(bank, data, settings), *_pseudo_criteria(pseudo)]
    columns = ["configuration", "measure", "split", "value"]
    table = pd.concat(criteria) if criteria else pd.DataFrame(columns=columns)
    facts = {
        **dict(zip(MACHINE, data.key, strict=True)),
        "n_source": int((data.domains == SOURCE).sum()),
        "n_target": int((data.domains == TARGET).sum()),
        "n_test": len(data.clips),
        "labelled": data.labelled,
        "vectors": data.vectors_hash(),
        "separability": bank.separability() if data.balanced else None,
        "pseudo": None if pseudo is None else _pseudo_facts(pseudo),
    }
    clips = pd.DataFrame(_clips(bank, data, settings))
    return MachineRows(_of_machine(clips, data), _of_machine(table, data), facts)


def _of_machine(table: pd.DataFrame, data: MachineData) -> pd.DataFrame:
    """The rows with set, machine and section in front."""
    for at, (name, value) in enumerate(zip(MACHINE, data.key, strict=True)):
        table.insert(at, name, pd.Series(value, table.index, dtype="str"))
    return table


# Clips


def _clips(bank: NormalBank, data: MachineData, settings: Settings) -> dict[str, NDArray[Any]]:
    """Names and truth of the normals and then of the test clips, scores and p-values."""
    n, n_test = len(data.domains), len(data.clips)
    scores = _scores(bank, data, settings)
    columns: dict[str, NDArray[Any]] = {
        "split": np.repeat(["train", "test"], [n, n_test]),
        "clip": np.concatenate([data.normals, data.clips]),
        "domain": np.concatenate([data.domains, data.test_domains]),
        "label": np.concatenate([np.zeros(n, np.int8), data.labels]),
        **scores,
    }
    weights = np.ones((n_test, 1))
    if data.balanced and n_test:
        weights = bank.examine(data.X_test, RAW_CONFIG).weights
    references = bank.score_normals(settings.scored).T
    for config, own in zip(settings.scored, references, strict=True):
        values = p_values(config, own, data.domains, scores[config][n:], weights)
        columns[P_VALUE + config] = np.concatenate([np.full(n, np.nan), values])
    return columns


def p_values(
    config: str, references: Float64s, domains: NDArray[Any], scores: Float64s, weights: Float64s
) -> Float64s:
    """P-values of test clips with these domain weights, by reference scores of the normals."""
    names, codes = np.unique(domains, return_inverse=True)
    is_quantile = ScoreConfig.parse(config).calibration == "conf"
    known = ReferenceScores(references, codes.astype(np.int32), tuple(names.tolist()), is_quantile)
    return known.p_values(scores, weights)


def _scores(bank: NormalBank, data: MachineData, settings: Settings) -> dict[str, Float64s]:
    """Scores of normals and test clips by configuration, then those that are compared."""
    n = len(data.domains)
    unknown = np.full(n, np.nan)
    own = bank.leave_one_out(settings.scored)
    test = np.empty((0, own.shape[1]))
    if len(data.clips):
        given = {label: scores for label, (_, scores) in data.systems.items()}
        test = bank.score(data.X_test, settings.scored, scores=given)
    columns = dict(zip(settings.scored, np.concatenate([own, test]).T, strict=True))
    if settings.baselines and len(data.clips):
        for name, scores in _baselines(bank, data).items():
            columns[name] = np.concatenate([unknown, scores])
    for label in settings.systems:
        columns[f"ext-{label}"] = np.concatenate([unknown, data.systems[label][1]])
    nothing = np.full(n + len(data.clips), np.nan)
    return {name: columns.get(name, nothing) for name in (*settings.candidates, *settings.compared)}


def _baselines(bank: NormalBank, data: MachineData) -> dict[str, Float64s]:
    normals, test = first_view(data.X, data.views), first_view(data.X_test, data.views)
    scores = {GMM2: gaussian_mixture(normals, test)}
    if normals.shape[1] <= _MAX_COVARIANCE:
        scores[SEL_MAHA] = selective_mahalanobis(normals, data.domains, test)
    if data.balanced and "" not in data.test_domains:
        scores[ORACLE] = bank.score(data.X_test, ORACLE, domains=data.test_domains)[:, 0]
    return scores


# Criteria


def _measure(name: str, configs: Sequence[str], values: Float64s, split: int = 0) -> pd.DataFrame:
    """Rows of a measure (configurations, splits); `split` is the number of the first one."""
    n_splits = values.shape[1]
    return pd.DataFrame(
        {
            "configuration": np.repeat(configs, n_splits),
            "measure": name,
            "split": np.tile(np.arange(split, split + n_splits, dtype=np.int32), len(configs)),
            "value": values.ravel(),
        }
    )


def _criteria(bank: NormalBank, data: MachineData, settings: Settings) -> Iterator[pd.DataFrame]:
    if not data.balanced:
        return
    configs, n_splits, seed = settings.candidates, settings.n_splits, settings.seed
    balance = bank.exact_balance(configs, n_splits, seed, n_resamples=RESAMPLES)
    yield _measure("balance", configs, balance.splits)
    yield _measure("resample", configs, balance.resampled)
    if seed != _PAPER_SEED or n_splits < PAPER_SPLITS:
        paper = bank.exact_balance(configs, PAPER_SPLITS, _PAPER_SEED)
        yield _measure("paper", configs, paper.splits)


def _pseudo_scores(bank: NormalBank, data: MachineData, settings: Settings) -> PseudoScores | None:
    """How well the candidates detect pseudo-anomalies; None with too few normals."""
    if data.faults is None:
        return bank_pseudo_scores(bank, settings.candidates, settings.seed)
    judged = without_tables(parse_grid(settings.candidates), data.systems)
    with suppress(NotEnoughClipsError):
        return pseudo_scores(
            data.X,
            data.domains,
            data.faults,
            judged,
            views=data.views,
            scorers=settings.detectors,
        )
    return None


def _pseudo_criteria(pseudo: PseudoScores | None) -> Iterator[pd.DataFrame]:
    if pseudo is None:
        return
    for name, values in (("auc", pseudo.auc), ("pauc", pseudo.pauc)):
        for domain, column in zip(pseudo.domains, values.T, strict=True):
            yield _measure(f"pseudo_{name}_{domain}", pseudo.configs, column[:, None], -1)


def _pseudo_facts(pseudo: PseudoScores) -> dict[str, Any]:
    return {
        "basis": pseudo.basis,
        "domains": list(pseudo.domains),
        "detectable": list(pseudo.detectable),
        "warnings": list(pseudo.warnings),
        "plain": pseudo.plain.tolist(),
    }
