"""Whether an alarm can be believed: realised false-alarm rates and detection on real machines.

``python benchmarks/alarm.py [--draws 200]`` prints tables of docs/evidence.md. It reads embeddings
and recordings of two machines below DACO_SHARED or ../shared. Labels of the test clips enter
figures, never a decision.
"""

from __future__ import annotations

import argparse
import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy reads them

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np
import soundfile

from daco.audio.quality import Quality
from daco.data.views import join_views
from daco.detector.fit import fit_machines
from daco.detector.model import MachineModel
from daco.detector.normals import Normals
from daco.detector.reference import ReferenceScores
from daco.embedding.frontend import Frontend, Listener
from daco.monitoring.adaptation import Adaptation
from daco.monitoring.alarms import AlarmRule, AlarmState, Decision, advance

RATES = (0.05, 0.1, 0.2)
MACHINES = ("fan", "bearing")
DOMAINS = ("source", "target")
FREE = ("mod", "mod60", "env", "cep")
CASES = {f"{config}, {view}": ((view,), config) for view in ("mn04", "mod")
         for config in ("raw-k1", "varmin-K4", "conf-soft-m0-k1")}  # fmt: skip
CASES |= {"vote, no network": (FREE, "vote"), "vote, mn04": (("mn04", *FREE), "vote")}
COMMISSIONED = (10, 25, 50)


@dataclass
class Case:
    """One machine under one way of scoring: its model, and what its test clips get."""

    machine: str
    name: str
    model: MachineModel
    attributes: list[str]
    scores: np.ndarray
    weights: np.ndarray
    labels: np.ndarray
    codes: np.ndarray

    def rows(self, label: int, domain: int) -> np.ndarray:
        return np.flatnonzero((self.labels == label) & (self.codes == domain))

    def reference(self, scores: np.ndarray, codes: np.ndarray) -> ReferenceScores:
        return ReferenceScores(scores, codes, DOMAINS, self.model.reference.bounded)

    @cached_property
    def references(self) -> dict[str, ReferenceScores]:
        """What clips are judged against when nothing new was recorded."""
        bank, model = self.model.bank, self.model
        left_out = bank.leave_one_out(model.config)[:, 0]
        normals = model.embeddings, np.array(DOMAINS)[model.clip_domains]
        settings = {"machine": "m", "config": model.config, "bands": model.bands}
        by_session = MachineModel.fit(*normals, **settings, groups=self.attributes)
        return {
            "leave-one-out": self.reference(left_out, bank.clip_domains),
            "siblings hidden": model.reference,
            "sessions": by_session.reference,
        }

    def p_values(self, reference: ReferenceScores, rows: np.ndarray | slice = slice(None)):
        return reference.p_values(self.scores[rows], self.weights[rows])

    def commissioned(self, clips: int, rng: np.random.Generator) -> tuple[ReferenceScores, list]:
        """New normals of each domain as the reference, and the normals that are left."""
        mixed = [rng.permutation(self.rows(0, domain)) for domain in (0, 1)]
        chosen = np.concatenate([rows[:clips] for rows in mixed])
        reference = self.reference(self.scores[chosen], self.codes[chosen])
        return reference, [rows[clips:] for rows in mixed]


def read_machine(real: Path, machine: str) -> tuple[dict[str, np.ndarray], list[str], np.ndarray]:
    """Views of all clips, their names, and the names' parts."""
    views = {}
    for view in ("mn04", *FREE):
        data = np.load(real / f"embeddings/{machine}_{'logmel_mod' if view == 'mod' else view}.npz")
        views[view] = data[data.files[0]].astype(np.float32)
    stems = [Path(name).stem for name in data["file_name"].tolist()]
    # section_00_source_train_normal_0003_vel_6_loc_A
    return views, stems, np.array([stem.split("_", 6) for stem in stems])


def machines(real: Path) -> list[Case]:
    cases = []
    for machine in MACHINES:
        views, _, parts = read_machine(real, machine)
        train, codes = parts[:, 3] == "train", (parts[:, 2] == "target").astype(int)
        for name, (used, config) in CASES.items():
            model = MachineModel.fit(
                {view: views[view][train] for view in used},
                parts[train, 2],
                machine=machine,
                config=config,
            )
            test = {view: views[view][~train] for view in used}
            examined = model.bank.examine(test, config)
            labels = (parts[~train, 4] == "anomaly").astype(int)
            attributes = parts[train, 6].tolist()
            found = examined.scores[:, 0], examined.weights, labels, codes[~train]
            cases.append(Case(machine, name, model, attributes, *found))
    return cases


def share(p_values: np.ndarray, rate: float) -> float:
    return float(np.mean(p_values <= rate + 1e-12))


def training_rates(case: Case, rate: float) -> dict[str, list[float]]:
    """False alarms in source and target, and faults found in both."""
    found = {}
    for name, reference in case.references.items():
        p = case.p_values(reference)
        normal = [share(p[case.rows(0, domain)], rate) for domain in (0, 1)]
        found[name] = [*normal, share(p[case.labels == 1], rate)]
    return found


def commissioned_rates(case: Case, clips: int, rate: float, draws: int) -> list[float]:
    """Means over draws: false alarms in source and target, faults found in both.

    With all 50 normals of a domain each is judged by the other 49.
    """
    rng, rows = np.random.default_rng(0), []
    if clips == 50:
        normals = [case.rows(0, domain) for domain in (0, 1)]
        everyone = np.concatenate(normals)
        alarms = {}
        for row in everyone:
            others = everyone[everyone != row]
            reference = case.reference(case.scores[others], case.codes[others])
            alarms[row] = share(case.p_values(reference, [row]), rate)
        reference = case.reference(case.scores[everyone], case.codes[everyone])
        faults = share(case.p_values(reference)[case.labels == 1], rate)
        return [*(float(np.mean([alarms[row] for row in part])) for part in normals), faults]
    for _ in range(draws):
        reference, left = case.commissioned(clips, rng)
        p = case.p_values(reference)
        rows.append([*(share(p[part], rate) for part in left), share(p[case.labels == 1], rate)])
    return np.mean(rows, axis=0).tolist()


def at_equal_alarms(case: Case, draws: int, rate: float = 0.1) -> dict[str, float]:
    """Faults found when the level is set so that the two domains together realise the rate.

    Means over draws of 25 new normals a domain, the level set on the 25 others.
    """
    rng, faulty, found = np.random.default_rng(0), case.labels == 1, []
    known = {name: case.p_values(each) for name, each in case.references.items()}
    for _ in range(draws):
        reference, left = case.commissioned(25, rng)
        normal = np.concatenate(left)
        columns = {"score alone": -case.scores} | known | {"25 new": case.p_values(reference)}
        levels = [np.sort(p[normal])[int(rate * len(normal)) - 1] for p in columns.values()]
        found.append(
            [np.mean(columns[n][faulty] <= a) for n, a in zip(columns, levels, strict=True)]
        )
    return dict(zip(columns, np.mean(found, axis=0).tolist(), strict=True))


def stream(
    case: Case, model: ReferenceScores, label: int, state: Adaptation, start: int, rng
) -> tuple[Adaptation, np.ndarray]:
    """500 clips, of both domains in turn, drawn with replacement; which were anomalous.

    Alarms open at 3 of 5 anomalous clips, as by default; nobody answers them.
    """
    alarms, alarm = np.zeros(500, bool), AlarmState()
    for i in range(len(alarms)):
        row = rng.choice(case.rows(label, i % 2))
        reference = state.reference(model)
        alarms[i] = case.p_values(reference, [row])[0] <= state.rate
        weights = dict(zip(DOMAINS, case.weights[row].tolist(), strict=True))
        score = float(case.scores[row])
        state = state.after_clip(
            start + i, score, weights, anomalous=bool(alarms[i]), alarm_is_open=alarm.is_open
        )
        alarm, _ = advance(AlarmRule(), alarm, Decision(start + i, bool(alarms[i])))
    return state, alarms


def adapted_rates(case: Case, repeats: int = 5) -> list[float]:
    """Shares of anomalous clips at 0.1.

    Source and target each: of clips 301 to 500 of slow adaptation; before and after 300 clips
    declared healthy, from plain leave-one-out scores. Then of both domains: of the first and the
    last 100 of 500 clips with a fault.
    """
    rows, day = [], datetime(2026, 1, 1, tzinfo=UTC)
    plain = case.references["leave-one-out"]
    before = [share(case.p_values(plain, case.rows(0, domain)), 0.1) for domain in (0, 1)]
    for seed in range(repeats):
        rng, new = np.random.default_rng(seed), Adaptation("model", 0.1)
        _, alarms = stream(case, case.model.reference, 0, new, 1, rng)
        slow = [alarms[300 + domain :: 2].mean() for domain in (0, 1)]
        state = new.declared_healthy(300, "benchmark", after=0, at=day)
        state, alarms = stream(case, plain, 0, state, 1, rng)
        fast = [alarms[300 + domain :: 2].mean() for domain in (0, 1)]
        _, alarms = stream(case, plain, 1, state, 501, rng)
        rows.append([*slow, *before, *fast, alarms[:100].mean(), alarms[400:].mean()])
    return np.mean(rows, axis=0).tolist()


def bad_recordings(normal: Path, other: Path) -> dict[str, tuple[np.ndarray, int]]:
    """Recordings that may lie among normals by mistake, made from a good one."""
    wave, rate = soundfile.read(normal, dtype="float32")
    loud = np.clip(wave / np.abs(wave).max() * 8, -1, 1)
    return {
        "silent": (np.zeros_like(wave), rate),
        "1 s long": (wave[:rate], rate),
        "8 kHz": (wave.reshape(-1, 2).mean(axis=1), rate // 2),
        "clipped": (loud, rate),
        "another machine": soundfile.read(other, dtype="float32"),
    }


def with_one_bad_normal(real: Path, machine: str, positions: int) -> dict[str, list]:
    """Faults found of 100, and how often the gate found the bad one of ten target normals.

    {kind: [with the gate, without, share that was left out]}; `clean` has none that is bad. NaN
    where a model was refused.
    """
    views, stems, parts = read_machine(real, machine)
    train = np.flatnonzero(parts[:, 3] == "train")
    rows, division = join_views({view: views[view] for view in FREE})
    fault = parts[:, 4] == "anomaly"
    front = [Frontend("logmel", view, 16000, 0, "fp32", "soxr", None) for view in FREE]
    listeners = [Listener(each) for each in front]
    good = Quality(sample_rate=16000, seconds=10.0, reasons=[])

    def found(X: np.ndarray, qualities: list[Quality], keep: bool) -> tuple[float, list[str]]:
        names = tuple(stems[row] for row in train)
        normals = Normals(machine, X, tuple(parts[train, 2]), names, None, {}, division,
                          qualities=tuple(qualities))  # fmt: skip
        ((_, model),) = fit_machines([normals], config="vote", keep_suspicious=keep)
        if isinstance(model, Exception):
            return np.nan, []  # refused: nothing is anomalous to it
        alarms = model.score(rows[fault]).alarms
        return float(alarms.sum()), list(model.provenance.get("left_out", {}))

    targets = [at for at, row in enumerate(train) if parts[row, 2] == "target"]
    clean = [good] * len(train)
    counts = {"clean": [[*(found(rows[train], clean, keep)[0] for keep in (False, True)), 0.0]]}
    folder = real / "audio" / machine / "train"
    other = next(name for name in MACHINES if name != machine)
    strange = sorted((real / "audio" / other / "train").glob("*_target_*"))
    for number, at in enumerate(targets[:: -(-len(targets) // positions)]):
        normal = folder / f"{stems[train[at]]}.flac"
        for kind, (wave, rate) in bad_recordings(normal, strange[number]).items():
            file = Path(os.environ.get("TMPDIR", "/tmp")) / "bad.wav"
            soundfile.write(file, wave, rate, subtype="PCM_16")
            embedded = [listener.embed(file) for listener in listeners]
            quality = Quality(
                sample_rate=rate, seconds=len(wave) / rate, reasons=list(embedded[0].reasons)
            )
            X, qualities = rows[train].copy(), list(clean)
            X[at] = np.concatenate([each.embeddings[0] for each in embedded])
            qualities[at] = quality
            gated, left_out = found(X, qualities, False)
            kept, _ = found(X, qualities, True)
            counts.setdefault(kind, []).append([gated, kept, stems[train[at]] in left_out])
    return {kind: np.mean(each, axis=0).tolist() for kind, each in counts.items()}


def show(title: str, header: list[str], rows: list[list]) -> None:
    print(f"\n{title}\n\n| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for row in rows:
        cells = [f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row]
        print(f"| {' | '.join(cells)} |", flush=True)


def pair(values) -> str:
    return " / ".join(f"{value:.2f}" for value in values[:2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    draws = parser.parse_args().draws
    real = Path(os.environ.get("DACO_SHARED", "../shared")) / "real"
    cases = machines(real)
    for rate in RATES:
        rows, deviations, worst, inside = [], {}, {}, []
        for case in cases:
            found = training_rates(case, rate)
            found |= {n: commissioned_rates(case, n, rate, draws) for n in COMMISSIONED}
            for name, values in found.items():
                deviations.setdefault(name, []).extend(abs(value - rate) for value in values[:2])
                worst[name] = max(worst.get(name, 0.0), *values[:2])
            bracket = case.model.at_rate(rate).expected_rates()
            for value, (low, high) in zip(
                found["siblings hidden"], [bracket[name] for name in DOMAINS], strict=False
            ):
                inside.append([low <= value <= high, value <= high, high - low])
            cells = [pair(values) for values in found.values()]
            low_high = " / ".join("{:.2f}-{:.2f}".format(*bracket[name]) for name in DOMAINS)
            rows.append([case.machine, case.name, *cells[:2], low_high, *cells[2:]])
        means = [f"{np.mean(values):.3f}" for values in deviations.values()]
        most = [f"{value:.2f}" for value in worst.values()]
        rows.append(["", "mean deviation", *means[:2], "", *means[2:]])
        within = "inside {:.0%}, below its end {:.0%}, width {:.2f}".format(
            *np.mean(inside, axis=0)
        )
        rows.append(["", "worst domain", *most[:2], within, *most[2:]])
        header = ["", "", "leave-one-out", "siblings hidden", "expected by fit", "sessions"]
        header += [f"{n} new" for n in COMMISSIONED]
        show(f"Realised at {rate}, source / target", header, rows)
    rows = []
    for case in cases:
        found = training_rates(case, 0.1)
        found |= {n: commissioned_rates(case, n, 0.1, draws) for n in COMMISSIONED}
        rows.append([case.machine, case.name, *(values[2] for values in found.values())])
    header = ["", "", "leave-one-out", "siblings hidden", "sessions"]
    show("Faults found at 0.1", [*header, *(f"{n} new" for n in COMMISSIONED)], rows)
    equal = [at_equal_alarms(case, draws) for case in cases]
    rows = [[c.machine, c.name, *each.values()] for c, each in zip(cases, equal, strict=True)]
    title = "Faults found where the normals of both domains together realise 0.1"
    show(title, ["", "", *equal[0]], rows)
    rows = []
    for case in cases:
        found = adapted_rates(case)
        pairs = [pair(found[start:]) for start in (0, 2, 4)]
        rows.append([case.machine, case.name, *pairs, *found[6:]])
    header = ["", "", "slow", "at the start", "after 300 declared healthy"]
    header += ["then a fault: first 100", "last 100 of 500"]
    show("Adapted at 0.1, clips 301 to 500", header, rows)
    rows = []
    for machine in MACHINES:
        for kind, values in with_one_bad_normal(real, machine, positions=3).items():
            rows.append([machine, kind, *values])
    header = ["", "one of ten target normals", "found of 100", "with --keep-suspicious", "left out"]
    show("Faults found by the vote without a network, one bad normal", header, rows)


if __name__ == "__main__":
    main()
