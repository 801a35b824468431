"""Does the decision keep its word? False-alarm rates, faults found and printed ranges.

::

    python benchmarks/alarm.py simulate            # independent Gaussian clips, 200 banks a case
    python benchmarks/alarm.py simulate --quick    # 40 banks a case, fewer sizes
    python benchmarks/alarm.py ranges              # how often the printed range holds
    python benchmarks/alarm.py siblings            # recordings of several clips
    python benchmarks/alarm.py real                # a fan and a bearing (needs shared data)

Nominal rate 0.10. Rates are means over banks; each bank judges 200 new normals and 200 anomalies of
each domain. ``calibrated``: 25 new normals of each domain. ``fitted``: the bank's own clips,
declared independent (``siblings=0``) or with the default rule (``auto``). An anomaly is a normal
clip moved by six deviations in a random direction. At centre 0 all directions are equally likely in
the source domain, so that cosine distance detects nothing there; at centre 4 it does.
"""

from __future__ import annotations

import os

if __name__ == "__main__":
    for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[_name] = "1"

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from daco.detector.decision import ReferenceScores, expected_rates, is_anomalous
from daco.detector.reference import reference_for
from daco.method.bank import NormalBank
from daco.method.engine import ClipScores

RATE = 0.1
NEW = 25
TESTED = 200
MOVED = 6.0
CONFIG = "blend"
ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("DACO_SHARED", ROOT.parent / "shared"))


class Case(NamedTuple):
    """Two domains of independent Gaussian clips.

    The source domain lies at `centre` times a random normal vector, the target domain `shift`
    deviations away in every dimension, to a random side.
    """

    source: int
    target: int
    shift: float
    spread: float
    dim: int = 32
    centre: float = 0.0

    def machine(self, rng: np.random.Generator) -> Machine:
        """A machine of this case."""
        centre = self.centre * rng.standard_normal(self.dim)
        away = self.shift * rng.choice([-1.0, 1.0], self.dim)
        return Machine((centre, centre + away), (1.0, self.spread))


class Machine(NamedTuple):
    """Centre and spread of the clips of each domain."""

    centres: tuple[np.ndarray, np.ndarray]
    spreads: tuple[float, float]

    def draw(self, rng: np.random.Generator, domain: int, n: int) -> np.ndarray:
        """Clips of a domain."""
        noise = rng.standard_normal((n, len(self.centres[0])))
        return self.centres[domain] + self.spreads[domain] * noise


class Outcome(NamedTuple):
    """Of one bank: the share of normals and of anomalies that are called anomalous, by domain.

    ``known`` is the share of anomalies where the domain of a clip is known, ``low`` and ``high``
    the printed range of the rate; nan where none is printed.
    """

    rates: np.ndarray
    power: np.ndarray
    known: np.ndarray
    low: np.ndarray
    high: np.ndarray


def cases(quick: bool = False) -> Iterator[Case]:
    """Domains that are equal, apart, or overlapping with different spreads."""
    sizes = [(30, 10), (300, 10), (990, 10), (300, 100), (990, 100), (100, 30)]
    for source, target in sizes[:2] if quick else sizes:
        for centre in (0, 4):
            for shift, spread in APART + OVERLAPPING:
                yield Case(source, target, shift, spread, centre=centre)


APART = [(0, 1), (3, 0.5), (3, 1), (3, 2)]
OVERLAPPING = [(0, 0.5), (0, 2), (1, 0.5), (1, 1), (1, 2)]


def simulate(
    case: Case, seed: int, config: str = CONFIG, tested: int = TESTED
) -> dict[str, Outcome]:
    """One bank of a case, judged with three kinds of references."""
    rng = np.random.default_rng([seed, case.source, case.target])
    draw = partial(case.machine(rng).draw, rng)
    X = np.concatenate([draw(0, case.source), draw(1, case.target)])
    bank = NormalBank(X, np.repeat(["source", "target"], [case.source, case.target]))
    new = np.concatenate([draw(g, NEW) for g in (0, 1)])
    new_codes = np.repeat([0, 1], NEW).astype(np.int32)
    normals = np.array([draw(g, tested) for g in (0, 1)])
    moves = rng.standard_normal((2, tested, case.dim))
    moves *= MOVED / np.linalg.norm(moves, axis=2, keepdims=True)
    clips = bank.examine(np.concatenate([*normals, *(normals + moves)]), config)
    references = {
        "calibrated": reference_for(bank, config, new=(new, new_codes)),
        "fitted": reference_for(bank, config, siblings=0),
        "auto": reference_for(bank, config),
    }
    return {name: _outcome(reference, clips) for name, reference in references.items()}


def _outcome(reference: ReferenceScores, clips: ClipScores) -> Outcome:
    tested = len(clips) // 4
    called = is_anomalous(reference.p_values(clips.scores, clips.weights), RATE)
    certain = np.tile(np.repeat(np.eye(2), tested, axis=0), (2, 1))
    with_domain = is_anomalous(reference.p_values(clips.scores, certain), RATE)
    shares, known = (each.reshape(4, tested).mean(axis=1) for each in (called, with_domain))
    printed = [each or (np.nan, np.nan) for each in expected_rates(reference, RATE).values()]
    low, high = np.array(printed).T
    return Outcome(shares[:2], shares[2:], known[2:], low, high)


def summary(outcomes: list[Outcome]) -> dict[str, np.ndarray]:
    """Means over banks, and how often the printed range holds."""
    rates, power, known, low, high = (np.array(each) for each in zip(*outcomes, strict=True))
    holds = np.where(np.isnan(low), np.nan, (rates >= low) & (rates <= high)).mean(axis=0)
    return {
        "rates": rates.mean(axis=0),
        "power": power.mean(axis=0),
        "known": known.mean(axis=0),
        "holds": holds,
    }


def study(
    case: Case, banks: int, workers: int = 2, tested: int = TESTED
) -> dict[str, dict[str, np.ndarray]]:
    """The summary of a case, by kind of reference."""
    one = partial(simulate, case, tested=tested)
    if workers == 1:
        found = [one(seed) for seed in range(banks)]
    else:
        with ProcessPoolExecutor(workers) as pool:
            found = list(pool.map(one, range(banks), chunksize=10))
    return {name: summary([each[name] for each in found]) for name in found[0]}


def print_simulation(quick: bool) -> None:
    """One row for each case."""
    print(
        "source target shift spread | calibrated: rates, power (known), holds | fitted: the same "
        "| auto: rates"
    )
    for case in cases(quick):
        rows = study(case, 40 if quick else 200)
        parts = [_in_words(case)]
        for name in ("calibrated", "fitted"):
            row = rows[name]
            parts.append(
                "{:.3f} {:.3f}  {:.2f} {:.2f} ({:.2f} {:.2f})".format(
                    *row["rates"], *row["power"], *row["known"]
                )
            )
        parts.append("{:.3f} {:.3f}".format(*rows["auto"]["rates"]))
        print(" | ".join(parts), flush=True)


def _in_words(case: Case) -> str:
    sizes = f"{case.source:4} {case.target:4}"
    return f"{sizes} {case.shift:3g} {case.spread:4g} {case.centre:3g}"


def print_ranges() -> None:
    """How often the printed range holds the rate, which 2,000 clips of each domain show."""
    print("source target shift spread centre | holds: calibrated, fitted")
    for source, target in [(30, 10), (100, 30), (300, 10), (300, 100)]:
        for spread in (0.5, 1, 2):
            case = Case(source, target, 3, spread, centre=4)
            rows = study(case, 200, tested=2000)
            holds = [*rows["calibrated"]["holds"], *rows["fitted"]["holds"]]
            print(f"{_in_words(case)} | {'  '.join(f'{each:.2f}' for each in holds)}", flush=True)


def recordings(
    rng: np.random.Generator, count: int, clips: int, spread: float, dim: int = 32
) -> np.ndarray:
    """Clips of recordings, whose centres differ by 1 and their own clips by `spread`."""
    centres = np.repeat(rng.normal(size=(count, dim)) + 2, clips, axis=0)
    return centres + spread * rng.normal(size=centres.shape)


def print_siblings() -> None:
    """Banks of recordings of several clips, and clips of new recordings."""
    print("recordings clips spread | siblings=0  auto  sessions   (mean rate over 20 banks)")
    for count, clips in ((40, 10), (40, 5), (100, 10), (20, 8)):
        for spread in (0.3, 0.5, 0.7):
            rates = np.array([sibling_rates(count, clips, spread, seed) for seed in range(20)])
            text = "  ".join(f"{rate:.2f}" for rate in rates.mean(axis=0))
            print(f"{count:4} {clips:3} {spread:4g} | {text}", flush=True)


def sibling_rates(count: int, clips: int, spread: float, seed: int) -> list[float]:
    rng = np.random.default_rng([seed, count, clips])
    X, new = recordings(rng, count, clips, spread), recordings(rng, 200, 1, spread)
    sessions = [str(row // clips) for row in range(len(X))]
    bank = NormalBank(X)
    examined = bank.examine(new, CONFIG)
    references = [
        reference_for(bank, CONFIG, siblings=0),
        reference_for(bank, CONFIG),
        reference_for(bank, CONFIG, sessions),
    ]
    return [
        float(is_anomalous(each.p_values(examined.scores, examined.weights), RATE).mean())
        for each in references
    ]


VIEWS = {"mod": "logmel_mod", "mod60": "mod60", "env": "env", "cep": "cep", "mn04": "mn04"}


def real_machine(machine: str, views: list[str]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Vectors of each view, and domain, split and label of each clip."""
    files = {
        view: np.load(SHARED / "real/embeddings" / f"{machine}_{VIEWS[view]}.npz") for view in views
    }
    names = next(iter(files.values()))["file_name"].tolist()
    facts = np.array([str(name).split("/")[-1].split("_")[2:5] for name in names])
    vectors = {view: each[each.files[0]].astype(np.float32) for view, each in files.items()}
    return vectors, facts


class RealOutcome(NamedTuple):
    """False-alarm rates of each domain and the share of faults found, fitted and calibrated."""

    fitted: np.ndarray
    calibrated: np.ndarray


def judge_real(machine: str, views: list[str], draws: int = 100) -> RealOutcome:
    """A machine, fitted, and calibrated with 25 test normals of each domain, mean over draws."""
    vectors, facts = real_machine(machine, views)
    domain, split, label = facts.T
    train, faulty = split == "train", label == "anomaly"
    bank = NormalBank({v: x[train] for v, x in vectors.items()}, domain[train])
    clips = bank.examine({v: x[~train] for v, x in vectors.items()}, CONFIG)
    codes, faults = (domain[~train] == "target").astype(int), faulty[~train]
    normals = [np.flatnonzero(~faults & (codes == g)) for g in (0, 1)]

    def shares(reference: ReferenceScores, rows: list[np.ndarray]) -> list[float]:
        called = is_anomalous(reference.p_values(clips.scores, clips.weights), RATE)
        return [float(called[each].mean()) for each in (*rows, faults)]

    after = []
    for draw in range(draws):
        rng = np.random.default_rng(draw)
        mixed = [rng.permutation(rows) for rows in normals]
        new = np.concatenate([rows[:NEW] for rows in mixed])
        reference = ReferenceScores(clips.scores[new], codes[new], bank.domains)
        after.append(shares(reference, [rows[NEW:] for rows in mixed]))
    fitted = shares(reference_for(bank, CONFIG), normals)
    return RealOutcome(np.array(fitted), np.mean(after, axis=0))


def print_real() -> None:
    """Two machines with four views that need no network, and with one beside them."""
    print("machine views | fitted: rates, faults found | calibrated: rates, faults found")
    for views in (list(VIEWS)[:4], list(VIEWS)):
        for machine in ("fan", "bearing"):
            outcome = judge_real(machine, views)
            parts = ["{:.2f} {:.2f}  {:.0%}".format(*each) for each in outcome]
            print(f"{machine:8} {len(views)} views | {' | '.join(parts)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["simulate", "ranges", "siblings", "real"])
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.what == "simulate":
        print_simulation(given.quick)
    elif given.what == "ranges":
        print_ranges()
    elif given.what == "siblings":
        print_siblings()
    elif not (SHARED / "real").exists():
        sys.exit("Set DACO_SHARED to the folder with the recordings' embeddings.")
    else:
        print_real()


if __name__ == "__main__":
    main()
