"""Alarm rules over clips: evidence (a CUSUM of p-values) against 3 of 5, and early warnings.

::

    python benchmarks/rules.py simulate     # stated and realised intervals between false alarms
    python benchmarks/rules.py drift        # trends: false ones a year, how soon a drift is found
    python benchmarks/rules.py real         # real machines below DACO_SHARED, 25 new clips a domain

Real machines: clips are drawn at random from the held-out test clips of one domain, because their
order is unknown; the limit of the evidence is for one false alarm in 1,000 clips.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.signal import lfilter

import daco
from daco.monitoring.evidence import limit, quantiles, rank_p_values
from daco.monitoring.trends import BLOCK, Trend, advance_block

SHARED = Path(os.environ.get("DACO_SHARED", "../shared"))
VIEWS = {"mn04": "mn04", "mod": "logmel_mod", "mod60": "mod60", "env": "env", "cep": "cep"}
STATED, NEW, RATE = 1000, 25, 0.1


def process(rng: np.random.Generator, count: int, correlation: float, rows: int = 1) -> Any:
    """Normal clips; successive ones are correlated."""
    noise = rng.normal(size=(rows, count + 100))
    return lfilter([np.sqrt(1 - correlation**2)], [1, -correlation], noise)[:, 100:]


def alarms_of_evidence(p_values: Any, threshold: float, first: bool = False) -> Any:
    """Alarms of each row of clips; or the clip of the first one, 0 where there is none."""
    value, count = np.zeros(len(p_values)), np.zeros(len(p_values), int)
    for clip, step in enumerate(quantiles(p_values).T - 0.5, 1):
        value = np.maximum(0, value + step)
        hit = value >= threshold
        count = np.where(hit & (count == 0), clip, count) if first else count + hit
        value[hit] = 0
    return count


def alarms_of_counting(p_values: Any, first: bool = False) -> Any:
    """The same of 3 anomalous clips of the last 5, counted anew after an alarm."""
    recent = np.zeros((len(p_values), 5), bool)
    count = np.zeros(len(p_values), int)
    for clip, anomalous in enumerate((p_values <= RATE).T, 1):
        recent = np.column_stack([recent[:, 1:], anomalous])
        hit = recent.sum(axis=1) >= 3
        count = np.where(hit & (count == 0), clip, count) if first else count + hit
        recent[hit] = False
    return count


def simulate() -> None:
    rng = np.random.default_rng(0)
    print(
        "| references | correlation | realised clips between alarms, stated 1,000 |\n|---|---|---|"
    )
    for references in (50, 200, 1000):
        for correlation in (0, 0.3, 0.6):
            clips = alarms = 0
            for _ in range(30):
                scores = process(rng, references, correlation)[0]
                threshold = limit(rank_p_values(scores), STATED)
                live = process(rng, 2500, correlation, rows=8)
                above = references - np.searchsorted(np.sort(scores), live)
                count = alarms_of_evidence((1 + above) / (references + 1), threshold)
                clips, alarms = clips + live.size, alarms + int(count.sum())
            print(f"| {references} | {correlation} | {clips / max(alarms, 1):,.0f} |", flush=True)


def drift() -> None:
    rng = np.random.default_rng(0)
    print("| correlation | trends a year, 1 clip in 1 / 10 min | drift found | after clips |")
    print("|---|---|---|---|")
    for correlation in (0, 0.5, 0.8):
        false = []
        for clips in (525_600, 52_550):
            years = 10
            alarms = 0
            for _ in range(years):
                trend = Trend()
                for block in _blocks(process(rng, clips // BLOCK * BLOCK, correlation)[0]):
                    trend = advance_block(trend, block)
                    if trend.is_rising:
                        alarms, trend = alarms + 1, Trend()
            false.append(alarms / years)
        found = []
        for _ in range(50):
            rise = np.clip(np.arange(8000) / 2000 - 2.5, 0, 1)  # from clip 5,000 on
            trend = Trend()
            for place, block in enumerate(_blocks(process(rng, 8000, correlation)[0] + rise), 1):
                trend = advance_block(trend, block)
                if trend.is_rising:
                    found.append(place * BLOCK - 5000)
                    break
        print(
            f"| {correlation} | {false[0]:g} / {false[1]:g} | {len(found)} of 50 within 3,000 | "
            f"{np.median(found):,.0f} (median) |",
            flush=True,
        )


def _blocks(values: Any) -> list[float]:
    return np.maximum(values, quantiles(1.0)).reshape(-1, BLOCK).mean(axis=1).tolist()


def dcase(machine: str) -> tuple[Any, ...]:
    """Views, domains, whether a clip is in the bank, and whether it is faulty."""
    files = {
        view: np.load(SHARED / "real/embeddings" / f"{machine}_{name}.npz")
        for view, name in VIEWS.items()
    }
    names = files["mn04"]["file_name"]
    facts = np.array([str(name).split("/")[-1].split("_")[2:5] for name in names])
    vectors = {view: each[each.files[0]].astype(np.float32) for view, each in files.items()}
    return vectors, facts[:, 0], facts[:, 1] == "train", facts[:, 2] == "anomaly"


def mimii(machine: str) -> tuple[Any, ...]:
    """A fan with two microphones as domains; 55 % of the normals of the first are the bank."""
    data = np.load(SHARED / "real/embeddings" / f"{machine}.npz")
    paths, near, faulty = data["path"], data["ch"] == 0, data["label"] == 1
    rng = np.random.default_rng(0)
    normal = rng.permutation(np.unique(paths[~faulty]))
    count = int(0.55 * len(normal))
    in_bank = (np.isin(paths, normal[:count]) & near) | (
        np.isin(paths, normal[count : count + 10]) & ~near
    )
    tested = ~np.isin(paths, normal[: count + 10]) | faulty
    kept = (in_bank | tested) & ~(in_bank & faulty)
    vectors = {name: data[name][kept].astype(np.float32) for name in ("mean", *list(VIEWS)[1:])}
    return vectors, np.where(near, "source", "target")[kept], in_bank[kept], faulty[kept]


def real() -> None:
    print("| machine, domain | 3 of 5: clips between, within 30, never | evidence |\n|---|---|---|")
    for machine in ("fan", "bearing", "mimii_fan_02", "mimii_fan_04"):
        vectors, domains, in_bank, faulty = (mimii if "mimii" in machine else dcase)(machine)
        detector = daco.DACo()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            detector.fit({v: x[in_bank] for v, x in vectors.items()}, domains=domains[in_bank])
            for domain in ("source", "target"):
                rows = list(_rule_figures(detector, vectors, domains, in_bank, faulty, domain))
                counting, evidence = np.array(rows).mean(axis=0)
                texts = [
                    f"{1 / max(each[0], 1e-6):,.0f}, {each[1]:.0%}, {each[2]:.0%}"
                    for each in (counting, evidence)
                ]
                print(f"| {machine}, {domain} | {texts[0]} | {texts[1]} |", flush=True)


def _rule_figures(
    detector: Any, vectors: Any, domains: Any, in_bank: Any, faulty: Any, domain: str
) -> Iterator[Any]:
    """For draws of calibration clips: of both rules, clips between alarms and faults alarmed."""
    tested = np.flatnonzero(~in_bank)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        normals = [
            rng.permutation(tested[~faulty[tested] & (domains[tested] == d)])
            for d in ("source", "target")
        ]
        new = np.concatenate([rows[:NEW] for rows in normals])
        detector.calibrate({v: x[new] for v, x in vectors.items()}, domains=domains[new])
        own = normals[domain == "target"]
        scores = detector.anomaly_score({v: x[own[:NEW]] for v, x in vectors.items()})
        threshold = limit(rank_p_values(scores), STATED, block=1)
        healthy = detector.p_values({v: x[own[NEW:]] for v, x in vectors.items()})
        wrong = tested[faulty[tested] & (domains[tested] == domain)]
        fault = detector.p_values({v: x[wrong] for v, x in vectors.items()})
        live, bad = rng.choice(healthy, (20, 2000)), rng.choice(fault, (100, 300))
        yield [
            [
                false.sum() / live.size,
                np.mean((first > 0) & (first <= 30)),
                np.mean(first == 0),
            ]
            for false, first in (
                (alarms_of_counting(live), alarms_of_counting(bad, first=True)),
                (
                    alarms_of_evidence(live, threshold),
                    alarms_of_evidence(bad, threshold, first=True),
                ),
            )
        ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["simulate", "drift", "real"])
    {"simulate": simulate, "drift": drift, "real": real}[parser.parse_args().what]()


if __name__ == "__main__":
    main()
