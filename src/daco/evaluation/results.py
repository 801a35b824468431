"""Results of an evaluation: metrics of each machine, and the official score of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from daco.evaluation.intervals import score_interval
from daco.evaluation.metrics import harmonic_mean
from daco.evaluation.scorefiles import machine_title
from daco.text import name_list


@dataclass(frozen=True)
class MachineEvaluation:
    """Metrics of one machine in percent; those of decisions only if there are decision files.

    ``official`` has the names of the metrics that count in the official score
    (:func:`daco.evaluation.metrics.quantities_of`).
    """

    machine: str
    section: str
    clips: int
    metrics: Mapping[str, float]
    official: tuple[str, ...]


@dataclass(frozen=True)
class Evaluation:
    """The metrics of the score files of a system; all numbers in percent.

    Attributes
    ----------
    system, truth : str
        The name of the folder, and where labels and domains come from.
    machines : tuple of MachineEvaluation
        The metrics of each machine and section.
    official_score : float
        Harmonic mean of AUC source, AUC target and pAUC over all machines and sections; in 2021,
        of AUC and pAUC of each domain. In 2020, the arithmetic mean of AUC and pAUC over the ids of
        a machine, then over machines.
    interval : tuple of float or None
        95 % interval of the official score over machines
        (:func:`daco.evaluation.intervals.score_interval`); None for one machine.
    arithmetic_mean, harmonic_mean : mapping
        Means over the machines, of each metric that all of them have.
    missing : tuple of str
        Machines of the truth without a score file. If there are any, the official score cannot be
        compared with others.
    notes : tuple of str
        Remarks in sentences.
    year : int or None
        The year whose metrics these are; None for those from 2022 on.
    """

    system: str
    truth: str
    machines: tuple[MachineEvaluation, ...]
    official_score: float
    interval: tuple[float, float] | None
    arithmetic_mean: Mapping[str, float]
    harmonic_mean: Mapping[str, float]
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    year: int | None = None

    @property
    def partial(self) -> bool:
        """Whether machines of the truth are missing."""
        return bool(self.missing)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        machines = [
            {"machine": each.machine, "section": each.section, "clips": each.clips, **each.metrics}
            for each in self.machines
        ]
        return {**asdict(self), "partial": self.partial, "machines": machines}

    def rows(self) -> list[dict[str, Any]]:
        """Return one dict of columns for each machine and section."""
        return [{"system": self.system, **machine} for machine in self.to_dict()["machines"]]


def machine_values(
    machines: Sequence[MachineEvaluation], year: int | None, names: Sequence[str] | None = None
) -> list[list[float]]:
    """The official metrics of each machine, or others, as means over its sections."""
    sections: dict[str, list[list[float]]] = {}
    for each in machines:
        values = [each.metrics[name] for name in names or each.official]
        sections.setdefault(each.machine, []).append(values)
    mean = np.mean if year == 2020 else harmonic_mean
    return [
        rows[0] if len(rows) == 1 else mean(rows, axis=0).tolist() for rows in sections.values()
    ]


def summarise_machines(
    system: str,
    truth: str,
    machines: Sequence[MachineEvaluation],
    missing: Sequence[str],
    notes: Sequence[str],
    year: int | None,
) -> Evaluation:
    """The official score of `year`, its interval and the means of all metrics."""
    common = [name for name in machines[0].metrics if all(name in m.metrics for m in machines)]
    of_decisions = [name for m in machines for name in m.metrics if name.startswith("precision_")]
    undecided = [
        machine_title(each.machine, each.section)
        for each in machines
        if of_decisions and of_decisions[0] not in each.metrics
    ]
    if undecided:
        notes = [*notes, f"No decision file for {name_list(undecided)}, so no means of F1."]
    values = np.array([[machine.metrics[name] for name in common] for machine in machines])
    official = [[machine.metrics[name] for name in machine.official] for machine in machines]
    by_machine = machine_values(machines, year)
    arithmetic = year == 2020
    means = np.array(machine_values(machines, year, common)) if arithmetic else values
    return Evaluation(
        system=system,
        truth=truth,
        machines=tuple(machines),
        official_score=float(np.mean(by_machine) if arithmetic else harmonic_mean(official)),
        interval=score_interval(by_machine, arithmetic=arithmetic),
        arithmetic_mean=dict(zip(common, means.mean(axis=0).tolist(), strict=True)),
        harmonic_mean=dict(zip(common, harmonic_mean(values, axis=0).tolist(), strict=True)),
        missing=tuple(missing),
        notes=tuple(notes),
        year=year,
    )
