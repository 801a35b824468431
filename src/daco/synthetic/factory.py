"""A synthetic factory in the layout of DCASE Task 2: machines, domain shifts, faults, WAV files.

The target domain differs from the source in speed, load, microphone and background noise. Every
clip has a random stream of its own: its bytes depend on no other clip and no number of workers.
"""

from __future__ import annotations

import csv
import os
import shutil
import wave
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.errors import DataError, InputError
from daco.synthetic.sounds import KINDS, Run, hiss, slow, strew
from daco.validation import Float32s

MACHINES = tuple(KINDS)
"""The kinds of machine there are, in the order they are built."""

YEARS = (2023, 2024, 2025, 2026)
HIDDEN_ATTRIBUTES = {
    2023: (),
    2024: ("gearbox", "pump"),
    2025: ("bearing", "belt"),
    2026: ("motor", "valve"),
}
"""Machines whose attributes a year's file names do not tell, as with the real data sets."""

_SPLITS = ("train", "test", "supplemental")
_DOMAINS = ("source", "target")
_NOISE_DB = -3.0  # the background relative to the machine
_ENTROPY = {word: code for code, word in enumerate((*_SPLITS, *_DOMAINS))}


@dataclass(frozen=True)
class Hall:
    """The background noise around a machine: its colour, how it swells, what falls down."""

    centre: float
    width: float
    tilt: float
    swell_hertz: float
    swell: float
    bangs: float


HALLS = {
    "A": Hall(300, 900, -0.5, 1.0, 0.10, 0.05),
    "B": Hall(600, 1200, -0.3, 2.0, 0.15, 0.10),
    "C": Hall(900, 1800, -0.4, 4.0, 0.30, 0.30),
}
_SOURCE_HALLS, _TARGET_HALLS = ("A", "B"), ("C",)


@dataclass(frozen=True)
class ClipPlan:
    """Everything that determines one clip, and the file it goes to."""

    folder: str
    machine: str
    seconds: float
    sample_rate: int
    channels: int
    severity: float
    seed: int
    hide: bool
    split: str
    domain: str
    label: int
    number: int
    anonymous: int | None = None

    @property
    def attributes(self) -> dict[str, str]:
        """Speed setting and hall, as the file name and the attribute table have them."""
        speed, hall = _setting(self)
        return {KINDS[self.machine].attribute: f"{speed:g}", "bkg": hall}

    @property
    def clean(self) -> bool:
        """Whether the machine's supplemental clips are of it alone, or of the hall alone."""
        return MACHINES.index(self.machine) % 2 == 0

    @property
    def stem(self) -> str:
        """The labelled name, without folder and extension."""
        suffix = "noAttribute"
        if not self.hide:
            suffix = "_".join(word for pair in self.attributes.items() for word in pair)
        if self.split == "supplemental":
            content = "machine" if self.clean else "noise"
            return f"section_00_{content}_{self.domain}_{self.number:04d}_{suffix}"
        label = "anomaly" if self.label else "normal"
        return f"section_00_{self.domain}_{self.split}_{label}_{self.number:04d}_{suffix}"

    @property
    def path(self) -> Path:
        """Where the clip goes."""
        name = self.stem if self.anonymous is None else f"section_00_{self.anonymous:04d}"
        return Path(self.folder, self.split, f"{name}.wav")


def record(plan: ClipPlan) -> NDArray[np.int16]:
    """The clip's samples, shape (n, channels): a microphone near the machine, and one far away."""
    kind = KINDS[plan.machine]
    n = round(plan.seconds * plan.sample_rate)
    root = _streams(plan)
    rng, fault_rng, hall_rng = root.spawn(3)
    speed, hall = _setting(plan)
    target = plan.domain == "target"
    load = (kind.target_load if target else kind.source_load) + rng.uniform(-0.2, 0.2)
    unit = _individual(plan.seed, plan.machine)
    fault = kind.faults[plan.number % len(kind.faults)] if plan.label else None
    severity = plan.severity * kind.strength * fault_rng.uniform(0.4, 1.6)
    run = Run(
        n, plan.sample_rate, speed, load, unit, rng, fault_rng, fault, severity if fault else 0.0
    )
    machine = kind.sound(run)
    noise = _background(hall_rng, run, HALLS[hall])
    if plan.split == "supplemental":
        (noise if plan.clean else machine).fill(0)
    noise *= np.float32(10 ** ((_NOISE_DB + hall_rng.normal(0, 1.5)) / 20))
    response = _microphone(plan.seed, plan.machine, plan.domain, n, plan.sample_rate)
    near = _filtered(machine, response) + noise
    waves = [near]
    if plan.channels == 2:
        far = 0.3 * _filtered(_late(machine, 96), response) + 1.2 * _late(noise, 24)
        waves.append(far.astype(np.float32))
    gain = 0.05 * 10 ** (rng.normal(0, 1) / 20)
    mixed = np.stack([s + 0.01 * hall_rng.standard_normal(n, dtype=np.float32) for s in waves], 1)
    return np.clip(np.rint(mixed * (32768 * gain)), -32768, 32767).astype(np.int16)


def _streams(plan: ClipPlan) -> np.random.Generator:
    words = [_ENTROPY[plan.split], _ENTROPY[plan.domain], plan.label, plan.number]
    return np.random.default_rng([plan.seed, zlib.crc32(plan.machine.encode()), *words])


def _setting(plan: ClipPlan) -> tuple[float, str]:
    """Speed and hall of a clip."""
    kind, rng = KINDS[plan.machine], _streams(plan)
    source = plan.domain == "source"
    speeds = kind.source_speeds if source else kind.target_speeds
    halls = _SOURCE_HALLS if source else _TARGET_HALLS
    return float(rng.choice(speeds)), str(rng.choice(halls))


@lru_cache(maxsize=64)
def _individual(seed: int, machine: str) -> tuple[float, ...]:
    rng = np.random.default_rng([seed, zlib.crc32(machine.encode())])
    return tuple(rng.uniform(-1, 1, 10).tolist())


@lru_cache(maxsize=16)
def _microphone(seed: int, machine: str, domain: str, n: int, rate: int) -> Float32s:
    """Gain over frequency: a few broad hills of some decibels, other ones in each domain."""
    from scipy import fft

    rng = np.random.default_rng([seed, zlib.crc32(machine.encode()), _ENTROPY[domain]])
    size = fft.next_fast_len(n, real=True)
    octaves = np.log2(np.fft.rfftfreq(size, 1 / rate) / 50 + 1)
    decibels = np.zeros(len(octaves))
    for ripple in (0.08, 0.17, 0.31):
        decibels += rng.normal(0, 2.5) * np.cos(2 * np.pi * (ripple * octaves + rng.uniform()))
    return (10 ** (decibels / 20)).astype(np.float32)


def _filtered(signal: Float32s, response: Float32s) -> Float32s:
    from scipy import fft

    size = fft.next_fast_len(len(signal), real=True)
    spectrum = fft.rfft(signal, size)
    return np.asarray(fft.irfft(spectrum * response, size)[: len(signal)], np.float32)


def _late(signal: Float32s, samples: int) -> Float32s:
    return np.concatenate([np.zeros(samples, np.float32), signal])[: len(signal)]


def _background(rng: np.random.Generator, run: Run, hall: Hall) -> Float32s:
    noise = hiss(rng, run.n, run.rate, hall.centre, hall.width, hall.tilt)
    swell = 1 + hall.swell * slow(rng, run.n, run.rate, hall.swell_hertz)
    bangs = strew(rng, run.n, run.rate, hall.bangs)
    noise = noise * swell.astype(np.float32)
    return noise + run.ring(bangs, rng.exponential(4, len(bangs)), 700, 0.03)


def synth_factory(
    root: str | os.PathLike[str],
    *,
    machines: Sequence[str] | None = None,
    year: int = 2025,
    split: str = "dev",
    n_source: int = 990,
    n_target: int = 10,
    n_test: int = 200,
    n_supplemental: int = 0,
    seconds: float = 10.0,
    sample_rate: int = 16000,
    severity: float = 1.0,
    seed: int = 0,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Write a synthetic data set in DCASE layout; the same options give the same bytes.

    Parameters
    ----------
    root : path
        ``root/dev_data/raw/<machine>/{train,test}/*.wav`` and ``attributes_00.csv`` are written.
        Evaluation machines are in ``eval_data``; their test names are anonymous, and their truth is
        in ``root/ground_truth``, in the three tables of the evaluator.
    machines : sequence of str, optional
        Some of `MACHINES`; by default all.
    year : {2023, 2024, 2025, 2026}
        The year whose conventions to follow. 2026 has two channels: near and far microphone.
    split : {"dev", "eval", "both"}
        ``"both"`` makes the first half of the machines development machines, the others evaluation
        machines.
    n_source, n_target, n_test, n_supplemental : int
        Clips per machine. A quarter of the test clips has each pair of domain and label.
        Supplemental clips, only in 2025, are of the clean machine or of the background alone.
    seconds, sample_rate : float, int
        Length and sample rate of the clips.
    severity : float
        How strong the faults are: 0 makes anomalies normal, 1 is hard, 3 is easy.
    seed : int
        Another seed gives another factory.
    workers : int, optional
        Processes; by default one per core. A script that uses more than one needs an
        ``if __name__ == "__main__"``, because they are spawned.
    progress : callable, optional
        Called with the number of clips written, and of all clips.

    Returns
    -------
    list of str
        The machines written.

    Examples
    --------
    >>> import tempfile
    >>> from daco.synthetic.factory import synth_factory
    >>> with tempfile.TemporaryDirectory() as root:
    ...     names = synth_factory(
    ...         root, machines=["fan"], n_source=2, n_target=1, n_test=4, seconds=1, workers=1
    ...     )
    >>> names
    ['fan']
    """
    from daco.compute.processes import outcomes, usable_cores, worker_pool

    names = list(MACHINES if machines is None else machines)
    for name in names:
        if name not in KINDS:
            raise InputError(f"There is no machine {name!r}. Choose from {', '.join(MACHINES)}.")
    most = 10_000 if year == 2025 else 0
    for holds, parameter, allowed, got in (
        (len(names) == len(set(names)) > 0, "machines", "distinct names", names),
        (year in YEARS, "year", f"one of {YEARS}", year),
        (split in ("dev", "eval", "both"), "split", "'dev', 'eval' or 'both'", split),
        (split != "both" or len(names) >= 2, "machines", "two or more for both sets", names),
        (1 <= n_source <= 10_000, "n_source", "between 1 and 10000", n_source),
        (0 <= n_target <= 10_000, "n_target", "between 0 and 10000", n_target),
        (0 <= n_test <= 10_000 and n_test % 4 == 0, "n_test", "a multiple of 4", n_test),
        (0 <= n_supplemental <= most, "n_supplemental", f"0 to {most} in {year}", n_supplemental),
        (0.5 <= seconds <= 600, "seconds", "between 0.5 and 600", seconds),
        (4000 <= sample_rate <= 96_000, "sample_rate", "between 4000 and 96000", sample_rate),
        (0 <= severity <= 10, "severity", "between 0 and 10", severity),
        (seed >= 0, "seed", "0 or more", seed),
        (workers is None or workers >= 1, "workers", "1 or more", workers),
    ):
        if not holds:
            raise InputError(f"The {parameter!r} parameter must be {allowed}. Got {got!r} instead.")
    root = Path(root)
    clips = [("train", "source", 0, i) for i in range(n_source)]
    clips += [("train", "target", 0, i) for i in range(n_target)]
    clips += [("supplemental", "source", 0, i) for i in range(n_supplemental)]
    quarters = [(domain, label) for domain in _DOMAINS for label in (0, 1)]
    clips += [("test", *quarter, i) for quarter in quarters for i in range(n_test // 4)]
    first_eval = {"dev": len(names), "eval": 0, "both": (len(names) + 1) // 2}[split]
    plans = []
    for position, machine in enumerate(names):
        anonymous = position >= first_eval
        folder = str(root / ("eval_data" if anonymous else "dev_data") / "raw" / machine)
        channels, hide = (2 if year == 2026 else 1), machine in HIDDEN_ATTRIBUTES[year]
        shuffle = np.random.default_rng([seed, zlib.crc32(machine.encode()), n_test])
        numbers = iter(shuffle.permutation(n_test).tolist())
        common = folder, machine, seconds, sample_rate, channels, severity, seed, hide
        for clip in clips:
            number = next(numbers) if anonymous and clip[0] == "test" else None
            plans.append(ClipPlan(*common, *clip, number))
    if workers is None:
        workers = usable_cores() if len(plans) * seconds > 500 else 1  # starting one takes a second
    folders = dict.fromkeys(plan.folder for plan in plans)
    for folder in folders:
        if Path(folder).exists():
            raise DataError(f"{folder} already exists. Give another directory, or remove it first.")
    try:
        for plan in plans:
            Path(plan.folder, plan.split).mkdir(parents=True, exist_ok=True)
        for folder in folders:
            _write_tables(root, [plan for plan in plans if plan.folder == folder])
        with worker_pool(min(workers, max(1, len(plans)))) as pool:
            items = ((plan.path, (plan,)) for plan in plans)
            for done, _ in enumerate(outcomes(pool, _write_clip, items), 1):
                if progress is not None:
                    progress(done, len(plans))
    except BaseException:  # half a machine would be read as a whole one
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return list(dict.fromkeys(plan.machine for plan in plans))


def _write_clip(plan: ClipPlan) -> None:
    samples = record(plan)
    with wave.open(str(plan.path), "wb") as file:
        file.setnchannels(plan.channels)
        file.setsampwidth(2)
        file.setframerate(plan.sample_rate)
        file.writeframes(samples.astype("<i2").tobytes())


def _write_tables(root: Path, plans: list[ClipPlan]) -> None:
    """The attribute table of one machine and, of an evaluation machine, its ground truth."""
    machine, hide = plans[0].machine, plans[0].hide
    rows = [["file_name"] if hide else ["file_name", "d1p", "d1v", "d2p", "d2v"]]
    for plan in plans:
        if plan.anonymous is None and plan.split != "supplemental":
            cells = () if hide else chain.from_iterable(plan.attributes.items())
            rows.append([f"{machine}/{plan.split}/{plan.path.name}", *cells])
    _write_csv(Path(plans[0].folder, "attributes_00.csv"), rows)
    hidden = [plan for plan in plans if plan.anonymous is not None]
    truth = sorted(hidden, key=lambda plan: plan.path.name)
    columns: dict[str, list[Any]] = {
        "data": [plan.label for plan in truth],
        "domain": [int(plan.domain == "target") for plan in truth],
        "attributes": [plan.stem for plan in truth],
    }
    for word, values in columns.items() if truth else ():
        folder = root / "ground_truth" / f"ground_truth_{word}"
        named = zip((plan.path.name for plan in truth), values, strict=True)
        _write_csv(folder / f"ground_truth_{machine}_section_00_test.csv", named)


def _write_csv(path: Path, rows: Iterable[Iterable[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
