"""Cost of channel policies: subtracting the far microphone, and embedding with each policy.

The first table is CPU time of one thread for one 10 s clip at 16 kHz, best of 30; the second is
wall time of ``daco embed --backbone logmel`` on 16-bit WAV files in the page cache, best of 3
rounds in which the policies take turns.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile

from daco.audio.decode import read_audio
from daco.audio.subtraction import least_squares, spectral_subtraction
from daco.backbones.logmel import LogMel
from daco.data.clips import Clip, ClipTable
from daco.embedding.embed import embed_clips
from daco.synthetic.factory import ClipPlan, record

SECONDS, RATE = 10.0, 16000
FILES, CLIPS, ROUNDS = 40, 400, 3
POLICIES = ("near", "mix", "lsq", "specsub", "residual-c0.5", "residual-proj")


def write_clips(folder: Path) -> ClipTable:
    """Few files, named often: all the same to whoever embeds them."""
    for number in range(FILES):
        samples = record(ClipPlan("motor", number=number), SECONDS, RATE, 2)
        soundfile.write(folder / f"{number}.wav", samples, RATE)
    return ClipTable(folder, tuple(Clip(f"{row % FILES}.wav", "motor") for row in range(CLIPS)))


def milliseconds(work: Callable[[], object], repeats: int = 30) -> float:
    best = np.inf
    for _ in range(repeats):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return 1000 * best


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = write_clips(folder)
        path = folder / "0.wav"
        near, far = read_audio(path, channel="residual-proj")
        print(f"{'one clip of 10 s':32s}{'CPU ms':>8s}")
        for label, work in {
            "least_squares": lambda: least_squares(near, far),
            "spectral_subtraction": lambda: spectral_subtraction(near, far),
            "read_audio near": lambda: read_audio(path),
            "read_audio lsq": lambda: read_audio(path, channel="lsq"),
            "read_audio specsub": lambda: read_audio(path, channel="specsub"),
            "logmel": lambda: LogMel().embed(near[None]),
        }.items():
            print(f"{label:32s}{milliseconds(work):8.2f}")
        seconds = dict.fromkeys(POLICIES, np.inf)
        for _ in range(ROUNDS):
            for policy in POLICIES:
                out = folder / f"{policy}.parquet"
                out.unlink(missing_ok=True)
                report = embed_clips(table, LogMel(), out, channel=policy)
                seconds[policy] = min(seconds[policy], report.seconds)
        print(f"\n{'daco embed, logmel':32s}{'clips/s':>8s}{'of near':>9s}")
        for policy, took in seconds.items():
            share = seconds["near"] / took
            print(f"{policy:32s}{CLIPS / took:8.0f}{share:8.0%}")


if __name__ == "__main__":
    main()
