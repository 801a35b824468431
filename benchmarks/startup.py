"""Start-up: time and memory of commands and imports, as ratios to libraries that they cannot avoid.

Each command and its yardstick run one after the other, ROUNDS times. The table has the medians of
the ratios of a round, of the time on the clock and of CPU time, which other programs disturb less.
Modules are compiled beforehand, as in an installed package.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROUNDS = 15
SOUND = "import numpy, scipy.fft, soundfile"
DACO = [sys.executable, "-m", "daco.cli"]


def usage(command: list[str], environment: dict[str, str]) -> tuple[float, float, float]:
    """Seconds on the clock and of CPU, and the largest memory in MB."""
    started = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return time.perf_counter() - started, used.ru_utime + used.ru_stime, used.ru_maxrss / 1000


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model, clips = str(folder / "motor.daco"), folder / "clips"
        few = ["--machine", "motor", "--source", "90", "--test", "8"]
        subprocess.run([*DACO, "synth", str(clips), *few], check=True, stdout=subprocess.DEVNULL)
        fit = [*DACO, "fit", str(clips), "--out", model]
        subprocess.run(fit, check=True, stdout=subprocess.DEVNULL)
        clip = str(next(clips.rglob("*_test_normal_*.wav")))
        cases = (
            ("daco score, one clip", [*DACO, "score", model, clip], SOUND, 2.0),
            ("daco --help", [*DACO, "--help"], SOUND, 0.6),
            (
                "import daco; daco.DACo",
                [sys.executable, "-c", "import daco; daco.DACo"],
                "import sklearn.base",
                1.1,
            ),
        )
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        print(f"{'':24s}{'seconds':>8s}{'MB':>5s}{'ratio':>7s}{'of CPU':>8s}{'limit':>7s}  to")
        for name, command, code, limit in cases:
            yardstick = [sys.executable, "-c", code]
            pairs = []
            for _ in range(1 + ROUNDS):
                pairs.append((usage(command, environment), usage(yardstick, environment)))
            own = [pair[0] for pair in pairs[1:]]  # the first round compiles
            ratios = [[a / b for a, b in zip(*pair, strict=True)] for pair in pairs[1:]]
            seconds, _, memory = map(median, zip(*own, strict=True))
            clock, cpu, _ = map(median, zip(*ratios, strict=True))
            print(
                f"{name:24s}{seconds:8.2f}{memory:5.0f}{clock:7.2f}{cpu:8.2f}{limit:7.1f}  {code}"
            )


if __name__ == "__main__":
    main()
