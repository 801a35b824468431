"""A synthetic factory in the layout of DCASE Task 2: machines, domain shifts, faults, WAV files.

The target domain differs from the source in speed, load, microphone and background noise. Machine,
fault and background of a clip have generators of their own: its bytes depend on no other clip, and
a fault leaves the rest of its clip as it was.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daco.errors import DataError, InputError
from daco.synthetic.faults import inject
from daco.synthetic.sounds import KINDS, hiss, machine_sound, ring, slow, strew
from daco.validation import Float32s

MACHINES = tuple(KINDS)
"""The kinds of machine there are, in the order they are built."""

_DOMAINS = ("source", "target")
_LOADS = {"source": 0.4, "target": 0.8}
_NOISE_DB = -3.0  # the background relative to the machine
# Background noise: centre, width (Hz) and tilt; rate and size of its swell; bangs a second.
_HALLS = {
    "A": (300, 900, -0.5, 1.0, 0.10, 0.05),
    "B": (600, 1200, -0.3, 2.0, 0.15, 0.10),
    "C": (900, 1800, -0.4, 4.0, 0.30, 0.30),
}


class ClipPlan(NamedTuple):
    """Which clip of which factory: everything that determines its sound but length and format."""

    machine: str
    split: str = "train"
    domain: str = "source"
    label: int = 0
    number: int = 0
    seed: int = 0

    def generator(self) -> np.random.Generator:
        """A generator of this clip."""
        words = " ".join(map(str, self))
        return np.random.default_rng([self.seed, zlib.crc32(words.encode())])

    @property
    def attributes(self) -> dict[str, str]:
        """Speed and hall, as the file name and the attribute table have them."""
        kind, rng, is_source = KINDS[self.machine], self.generator(), self.domain == "source"
        speed = rng.choice(kind.source_speeds if is_source else kind.target_speeds)
        hall = rng.choice(["A", "B"] if is_source else ["C"])
        return {kind.attribute: f"{speed:g}", "bkg": str(hall)}

    @property
    def stem(self) -> str:
        """The labelled name, without folder and extension."""
        told = "_".join(chain.from_iterable(self.attributes.items()))
        label = ("normal", "anomaly")[self.label]
        return f"section_00_{self.domain}_{self.split}_{label}_{self.number:04d}_{told}"


def record(
    clip: ClipPlan,
    seconds: float = 10.0,
    sample_rate: int = 16000,
    channels: int = 1,
    severity: float = 1.0,
) -> NDArray[np.int16]:
    """The clip's samples, shape (n, channels): a microphone near the machine, and one far away."""
    kind, n = KINDS[clip.machine], round(seconds * sample_rate)
    rng, fault_rng, hall_rng = clip.generator().spawn(3)
    speed, hall = clip.attributes.values()
    own = np.random.default_rng([clip.seed, zlib.crc32(clip.machine.encode())])
    load = _LOADS[clip.domain] + rng.uniform(-0.2, 0.2)
    machine = machine_sound(kind, n, sample_rate, float(speed), load, own, rng)
    if clip.label and severity:
        level = kind.level_db + 20 * np.log10(severity * fault_rng.uniform(0.4, 1.6))
        fault = kind.faults[clip.number % len(kind.faults)]
        machine = inject(machine, sample_rate, fault, float(level), fault_rng)
    response = _microphone(clip.seed, clip.machine, clip.domain, n, sample_rate)
    machine, noise = _filtered(machine, response), _background(hall, n, sample_rate, hall_rng)
    waves = [machine + noise, 0.3 * _late(machine, 96) + 1.2 * _late(noise, 24)][:channels]
    gain = 0.05 * 10 ** (rng.normal(0, 1) / 20)
    mixed = np.stack([w + 0.01 * hall_rng.standard_normal(n, dtype=np.float32) for w in waves], 1)
    return np.clip(np.rint(mixed * (32768 * gain)), -32768, 32767).astype(np.int16)


def _background(hall: str, n: int, rate: int, rng: np.random.Generator) -> Float32s:
    centre, width, tilt, swell_hertz, swell_size, bang_rate = _HALLS[hall]
    swell = 1 + swell_size * slow(rng, n, rate, swell_hertz)
    noise = hiss(rng, n, rate, centre, width, tilt) * swell.astype(np.float32)
    bangs = strew(rng, n, rate, bang_rate)
    noise += ring(n, rate, bangs, rng.exponential(4, len(bangs)), 700, 0.03)
    return noise * np.float32(10 ** ((_NOISE_DB + rng.normal(0, 1.5)) / 20))


@lru_cache(maxsize=16)
def _microphone(seed: int, machine: str, domain: str, n: int, rate: int) -> Float32s:
    """Gain over frequency: a few broad hills of some decibels, other ones in each domain."""
    from scipy import fft

    rng = np.random.default_rng([seed, zlib.crc32(f"{machine} {domain}".encode())])
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
    return np.pad(signal, (samples, 0))[: len(signal)]


def synth_factory(
    root: str | os.PathLike[str],
    *,
    machines: Sequence[str] = MACHINES,
    year: int = 2025,
    split: str = "dev",
    n_source: int = 990,
    n_target: int = 10,
    n_test: int = 200,
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
    machines : sequence of str
        Some of ``bearing``, ``fan``, ``motor`` and ``valve``; by default all.
    year : {2023, 2024, 2025, 2026}
        2026 has two channels, near and far microphone; the other years are alike.
    split : {"dev", "eval", "both"}
        ``"both"`` makes the first half of the machines development machines, the others evaluation
        machines.
    n_source, n_target, n_test : int
        Clips per machine. A quarter of the test clips has each pair of domain and label.
    seconds, sample_rate : float, int
        Length and sample rate of the clips.
    severity : float
        How strong the faults are: 0 makes anomalies normal, 1 is hard, 3 is easy.
    seed : int
        Another seed gives another factory.
    workers : int, optional
        Processes; by default one per core.
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
    >>> size = {"n_source": 2, "n_target": 1, "n_test": 4, "seconds": 1, "workers": 1}
    >>> with tempfile.TemporaryDirectory() as root:
    ...     synth_factory(root, machines=["fan"], **size)
    ['fan']
    """
    from daco.compute import run

    names = list(machines)
    for holds, parameter, allowed, got in (
        (set(names) <= set(MACHINES), "machines", f"some of {', '.join(MACHINES)}", names),
        (len(names) == len(set(names)) > 0, "machines", "distinct names", names),
        (year in range(2023, 2027), "year", "2023 to 2026", year),
        (split in ("dev", "eval", "both"), "split", "'dev', 'eval' or 'both'", split),
        (split != "both" or len(names) >= 2, "machines", "two or more for both sets", names),
        (1 <= n_source <= 10_000, "n_source", "between 1 and 10000", n_source),
        (0 <= n_target <= 10_000, "n_target", "between 0 and 10000", n_target),
        (0 <= n_test <= 10_000 and n_test % 4 == 0, "n_test", "a multiple of 4", n_test),
        (0.5 <= seconds <= 600, "seconds", "between 0.5 and 600", seconds),
        (4000 <= sample_rate <= 96_000, "sample_rate", "between 4000 and 96000", sample_rate),
        (0 <= severity <= 10, "severity", "between 0 and 10", severity),
        (seed >= 0, "seed", "0 or more", seed),
    ):
        if not holds:
            raise InputError(f"The {parameter!r} parameter must be {allowed}. Got {got!r} instead.")
    n_dev = {"dev": len(names), "eval": 0, "both": (len(names) + 1) // 2}[split]
    sets = {name: "dev_data" if at < n_dev else "eval_data" for at, name in enumerate(names)}
    top = Path(root).absolute()  # workers may be in another folder
    folders = {name: top / part / "raw" / name for name, part in sets.items()}
    for folder in folders.values():
        if folder.exists():
            raise DataError(f"{folder} already exists. Give another directory, or remove it first.")
    counts = {("train", "source", 0): n_source, ("train", "target", 0): n_target}
    counts |= {("test", *cell): n_test // 4 for cell in product(_DOMAINS, (0, 1))}
    total = len(names) * sum(counts.values())
    if workers is None:
        workers = None if total * seconds > 500 else 1  # starting one takes a second
    sound = seconds, sample_rate, 2 if year == 2026 else 1, severity
    try:
        files: dict[Path, ClipPlan] = {}
        for name, folder in folders.items():
            clips = [ClipPlan(name, *k, at, seed) for k, n in counts.items() for at in range(n)]
            truth = Path(root, "ground_truth") if sets[name] == "eval_data" else None
            files |= _name_clips(clips, folder, truth)
        items = ((path, (path, clip, *sound)) for path, clip in files.items())
        for done, _ in enumerate(run(_write_clip, items, jobs=workers), 1):
            if progress is not None:
                progress(done, total)
    except BaseException:  # half a machine would be read as a whole one
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return names


def _write_clip(path: Path, clip: ClipPlan, seconds: float, sample_rate: int, *sound: Any) -> None:
    import soundfile

    samples = record(clip, seconds, sample_rate, *sound)
    soundfile.write(path, samples, sample_rate, subtype="PCM_16")


def _name_clips(clips: list[ClipPlan], folder: Path, truth: Path | None) -> dict[Path, ClipPlan]:
    """The file of each clip of a machine; writes its attribute table and, if hidden, its truth."""
    import pandas as pd

    machine = clips[0].machine
    table = pd.DataFrame({"split": [clip.split for clip in clips]})
    table["file"] = [f"{clip.stem}.wav" for clip in clips]
    pairs = [list(chain.from_iterable(clip.attributes.items())) for clip in clips]
    table[["d1p", "d1v", "d2p", "d2v"]] = pairs
    is_known = table["split"] != ("" if truth is None else "test")
    if truth is not None:
        table["data"] = [clip.label for clip in clips]
        table["domain"] = [_DOMAINS.index(clip.domain) for clip in clips]
        table["attributes"] = [clip.stem for clip in clips]
        rng = np.random.default_rng([clips[0].seed, zlib.crc32(machine.encode())])
        numbers = rng.permutation(int((~is_known).sum()))
        table.loc[~is_known, "file"] = [f"section_00_{number:04d}.wav" for number in numbers]
        for word in ("data", "domain", "attributes"):
            path = truth / f"ground_truth_{word}" / f"ground_truth_{machine}_section_00_test.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = table.loc[~is_known, ["file", word]].sort_values("file")
            rows.to_csv(path, header=False, index=False, lineterminator="\n")
    for split in ("train", "test"):
        (folder / split).mkdir(parents=True)
    table["file_name"] = f"{machine}/" + table["split"] + "/" + table["file"]
    attributes = table.loc[is_known, ["file_name", "d1p", "d1v", "d2p", "d2v"]]
    attributes.to_csv(folder / "attributes_00.csv", index=False, lineterminator="\n")
    paths = [folder.parent / name for name in table["file_name"]]
    return dict(zip(paths, clips, strict=True))
