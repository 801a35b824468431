"""One machine of a study: scores of its clips, and criteria of the configurations.

`study_machine` uses one machine's own clips only and runs in worker processes, which load neither
pandas nor Arrow's conversions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.data.views import first_view
from daco.detector.decision import ReferenceScores
from daco.errors import NotEnoughClipsError
from daco.experiments.baselines import gaussian_mixture, selective_mahalanobis
from daco.experiments.inputs import SOURCE, TARGET
from daco.experiments.machine_data import MachineData
from daco.experiments.run_files import P_VALUE
from daco.method.bank import NormalBank
from daco.method.config import DEFAULT_CONFIG, PAPER_CONFIG, RAW_CONFIG, ScoreConfig, parse_grid
from daco.method.criterion import CHOICE_SPLITS, PAPER_SPLITS
from daco.method.external import without_tables
from daco.method.selection import RESAMPLES
from daco.method.viability import (
    PseudoAnomalies,
    PseudoScores,
    bank_pseudo_scores,
    pseudo_scores,
)
from daco.validation import Float64s

SEL_MAHA, GMM2, ORACLE = "sel-maha", "gmm2", "conf-oracle-m30-k1"
BASELINES = (SEL_MAHA, GMM2, ORACLE)
"""Other scorers of the paper's first experiment; the last one reads the true domains."""

_PAPER_SEED = 0
_MAX_COVARIANCE = 2048  # features; a covariance of more takes minutes

Measure = tuple[str, Sequence[int], Sequence[str], Float64s]
"""Name of a measure, splits (S,), configurations (C,) and values (C, S)."""


@dataclass(frozen=True)
class Settings:
    """What a study was asked to do, as far as it changes the rows of a machine.

    Attributes
    ----------
    candidates : tuple of str
        The configurations of the grid.
    seed, n_splits : int
        Of the criterion.
    detectors : {label: detector}
        External scorers that are fitted.
    systems : tuple of str
        Other systems that are only compared, because their scores of normals are not known.
    baselines : bool
        Whether the other scorers of the paper are compared.
    n_jobs : int
        Processes that fit detectors to parts of a bank. It changes no row.
    """

    candidates: tuple[str, ...]
    seed: int = 0
    n_splits: int = CHOICE_SPLITS
    detectors: Mapping[str, Any] = field(default_factory=dict)
    systems: tuple[str, ...] = ()
    baselines: bool = False
    n_jobs: int = 1

    @property
    def scored(self) -> tuple[str, ...]:
        """The candidates, and daco's default."""
        return tuple(dict.fromkeys([*self.candidates, DEFAULT_CONFIG]))

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns of scores that no rule may choose."""
        default = [DEFAULT_CONFIG] if DEFAULT_CONFIG not in self.candidates else []
        others = BASELINES if self.baselines else ()
        return (*default, *others, *(f"ext-{label}" for label in self.systems))

    @property
    def decided(self) -> tuple[str, ...]:
        """The configurations that are decided by whatever is chosen: those chosen most often."""
        return tuple(name for name in (PAPER_CONFIG, DEFAULT_CONFIG) if name in self.scored)

    def text(self) -> str:
        """Text that changes whenever the rows of a machine would."""
        from joblib import hash as joblib_hash

        detectors = joblib_hash(dict(self.detectors)) if self.detectors else ""
        names = " ".join([*self.candidates, *self.compared])
        return f"{self.seed}/{self.n_splits}/{names}/{detectors}"


@dataclass(frozen=True, eq=False)
class MachineScores:
    """What is computed of a machine.

    Attributes
    ----------
    columns : {name: (N + n,)}
        Decision weight, scores and p-values of the normals, and then of the test clips.
    criteria : list of Measure
    facts : dict
        For ``run.json``.
    """

    columns: dict[str, Float64s]
    criteria: list[Measure]
    facts: dict[str, Any]


def study_machine(data: MachineData, settings: Settings) -> MachineScores:
    """Score the clips of a machine with every configuration, and compute their criteria."""
    started = time.perf_counter()
    bank = machine_bank(data, settings)
    pseudo = _pseudo_scores(bank, data, settings)
    criteria = [*_criteria(bank, data, settings), *_pseudo_criteria(pseudo)]
    columns = _columns(bank, data, settings)
    facts = {
        **dict(zip(("set", "machine", "section"), data.key, strict=True)),
        "n_source": int((data.domains == SOURCE).sum()),
        "n_target": int((data.domains == TARGET).sum()),
        "n_test": len(data.clips),
        "labelled": data.labelled,
        "separability": bank.separability() if data.balanced else None,
        "pseudo": None if pseudo is None else _pseudo_facts(pseudo),
    }
    return MachineScores(
        columns, criteria, {**facts, "seconds": round(time.perf_counter() - started, 3)}
    )


def machine_bank(data: MachineData, settings: Settings) -> NormalBank:
    """The bank of a machine's normals, with detectors and the scores of other systems."""
    known = {label: normals for label, (normals, _) in data.systems.items() if normals is not None}
    return NormalBank(
        data.X,
        data.domains,
        views=data.views,
        scorers={**settings.detectors, **known},
        n_jobs=settings.n_jobs,
    )


def reference_scores(
    data: MachineData, settings: Settings, configs: Sequence[str]
) -> dict[str, Float64s]:
    """Scores of the normals, each without its likely siblings, by configuration."""
    bank = machine_bank(data, settings)
    return dict(zip(configs, bank.score_normals(configs).T, strict=True))


def p_values(
    config: str,
    references: Float64s,
    domains: NDArray[Any],
    scores: Float64s,
    weight_target: Float64s,
) -> Float64s:
    """P-values of test clips, by the reference scores of the normals with their domains."""
    names, codes = np.unique(domains, return_inverse=True)
    is_quantile = ScoreConfig.parse(config).calibration == "conf"
    reference = ReferenceScores(
        references, codes.astype(np.int32), tuple(names.tolist()), is_quantile
    )
    weights = np.ones((len(scores), 1))
    if len(names) == 2:
        weights = np.column_stack([1 - weight_target, weight_target])
    return reference.p_values(scores, weights)


# Clips


def _columns(bank: NormalBank, data: MachineData, settings: Settings) -> dict[str, Float64s]:
    """Decision weight, scores and p-values of the normals, and then of the test clips."""
    n, n_test = len(data.domains), len(data.clips)
    unknown, weights = np.full(n, np.nan), np.full(n_test, np.nan)
    if data.balanced and n_test:
        weights = bank.examine(data.X_test, RAW_CONFIG).weights[:, 1]  # source, target
    scores = _scores(bank, data, settings)
    columns = {"weight_target": np.concatenate([unknown, weights]), **scores}
    all_references = bank.score_normals(settings.decided).T
    for config, references in zip(settings.decided, all_references, strict=True):
        values = p_values(config, references, data.domains, scores[config][n:], weights)
        columns[P_VALUE + config] = np.concatenate([unknown, values])
    return columns


def _scores(bank: NormalBank, data: MachineData, settings: Settings) -> dict[str, Float64s]:
    """Scores of normals and test clips by configuration, then those that are compared."""
    n = len(data.domains)
    own = bank.leave_one_out(settings.scored)
    test = np.empty((0, own.shape[1]))
    if len(data.clips):
        given = {label: scores for label, (_, scores) in data.systems.items()}
        test = bank.score(data.X_test, settings.scored, scores=given)
    columns = dict(zip(settings.scored, np.concatenate([own, test]).T, strict=True))
    if settings.baselines and len(data.clips):
        columns |= {
            name: np.concatenate([np.full(n, np.nan), scores])
            for name, scores in _baselines(bank, data).items()
        }
    for label in settings.systems:
        normals, scores = data.systems[label]
        columns[f"ext-{label}"] = np.concatenate(
            [np.full(n, np.nan) if normals is None else normals, scores]
        )
    unknown = np.full(n + len(data.clips), np.nan)
    return {name: columns.get(name, unknown) for name in (*settings.candidates, *settings.compared)}


def _baselines(bank: NormalBank, data: MachineData) -> dict[str, Float64s]:
    normals, test = first_view(data.X, data.views), first_view(data.X_test, data.views)
    scores = {GMM2: gaussian_mixture(normals, test)}
    if normals.shape[1] <= _MAX_COVARIANCE:
        scores[SEL_MAHA] = selective_mahalanobis(normals, data.domains, test)
    if data.balanced and "" not in data.test_domains:
        scores[ORACLE] = bank.score(data.X_test, ORACLE, domains=data.test_domains)[:, 0]
    return scores


# Criteria


def _criteria(bank: NormalBank, data: MachineData, settings: Settings) -> Iterator[Measure]:
    if not data.balanced:
        return
    configs, n_splits, seed = settings.candidates, settings.n_splits, settings.seed
    balance, uniformity = bank.balance_and_uniformity(configs, n_splits, seed, RESAMPLES)
    yield "balance", range(n_splits), configs, balance.splits
    yield "resample", range(RESAMPLES), configs, balance.resampled
    if seed != _PAPER_SEED or n_splits < PAPER_SPLITS:
        paper = bank.exact_balance(configs, PAPER_SPLITS, _PAPER_SEED)
        yield "paper", range(PAPER_SPLITS), configs, paper.splits
    yield "uniformity", [-1], configs, uniformity[:, None]


def _pseudo_scores(bank: NormalBank, data: MachineData, settings: Settings) -> PseudoScores | None:
    """How well the candidates detect pseudo-anomalies; None with too few normals."""
    if not isinstance(data.faults, PseudoAnomalies):
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


def _pseudo_criteria(pseudo: PseudoScores | None) -> Iterator[Measure]:
    if pseudo is None:
        return
    for name, values in (("auc", pseudo.auc), ("pauc", pseudo.pauc)):
        for domain, column in zip(pseudo.domains, values.T, strict=True):
            yield f"pseudo_{name}_{domain}", [-1], pseudo.configs, column[:, None]


def _pseudo_facts(pseudo: PseudoScores) -> dict[str, Any]:
    facts = {name: getattr(pseudo, name) for name in ("basis", "domains", "detectable", "warnings")}
    return {
        name: list(each) if isinstance(each, tuple) else each for name, each in facts.items()
    } | {"plain": pseudo.plain.tolist()}
