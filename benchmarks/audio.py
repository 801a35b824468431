"""Speed of decoding: seconds of sound per second of CPU, by format and what is asked of it.

Best of 5 passes over 20 clips of 10 s that lie in the page cache, one thread.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile

from daco.audio.decode import probe, read_audio
from daco.synthetic.factory import ClipPlan, record

CLIPS, SECONDS, RATE = 20, 10.0, 16000


def write_clips(folder: Path, extension: str) -> list[Path]:
    paths = []
    for number in range(CLIPS):
        samples = record(ClipPlan("motor", number=number), SECONDS, RATE, 2)
        paths.append(folder / f"{number}{extension}")
        soundfile.write(paths[-1], samples, RATE)
    return paths


def real_time_factor(work, paths: list[Path], passes: int = 5) -> float:
    best = np.inf
    for _ in range(passes):
        started = time.process_time()
        for path in paths:
            work(path)
        best = min(best, time.process_time() - started)
    return CLIPS * SECONDS / best


def main() -> None:
    variants = {
        "header only": probe,
        "channel 0": read_audio,
        "mix": lambda path: read_audio(path, channel="mix"),
        "channel 0, to 32 kHz": lambda path: read_audio(path, sample_rate=32000),
    }
    print(f"{'two channels, 16 kHz':22s}" + "".join(f"{name:>22s}" for name in variants))
    for extension in (".wav", ".flac", ".ogg"):
        with tempfile.TemporaryDirectory() as folder:
            paths = write_clips(Path(folder), extension)
            factors = [real_time_factor(work, paths) for work in variants.values()]
        print(f"{extension:22s}" + "".join(f"{factor:21.0f}x" for factor in factors))


if __name__ == "__main__":
    main()
