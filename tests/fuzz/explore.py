"""Tries random inputs that the suite does not, for ``FUZZ_SECONDS`` seconds (600).

Each round takes a new seed, mutates files of every kind, and runs one file of property tests with
new examples. It ends with the first failure and prints the command that repeats it.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parent), str(HERE.parent / "helpers")]

INPUTS = 100
"""Mutated files of each kind in one round."""


def mutated_files(seed: int) -> bool:
    """Whether all of a round's mutated files are accepted or refused with a reason."""
    from fuzz.harness import Child, failures
    from fuzz.mutator import KINDS

    numbers = range(seed * INPUTS, (seed + 1) * INPUTS)
    with Child(*KINDS) as child:
        for kind in KINDS:
            found = failures(child, kind, numbers, Counter())
            if found:
                print(*found, sep="\n")
                return False
    return True


def properties(file: Path, seed: int) -> bool:
    """Whether the property tests of a file hold for new examples."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "hypothesis"]
    command += ["--hypothesis-profile=fuzz", f"--hypothesis-seed={seed}", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode in (0, 5):  # 5: nothing in the file was selected
        return True
    print(done.stdout, done.stderr, "to see it again: " + " ".join(command), sep="\n")
    return False


def main() -> None:
    """Rounds until the time is over or something fails."""
    seconds = float(os.environ.get("FUZZ_SECONDS", "600"))
    ends = time.monotonic() + seconds
    files = [file for file in HERE.parent.rglob("test_*.py") if "hypothesis" in file.read_text()]
    random.shuffle(files)
    rounds = 0
    while time.monotonic() < ends:
        seed = random.SystemRandom().randrange(10**9)
        file = files[rounds % len(files)]
        print(f"seed {seed}: mutated files, {file.relative_to(HERE.parent)}", flush=True)
        if not (mutated_files(seed) and properties(file, seed)):
            sys.exit(1)
        rounds += 1
    print(f"{rounds} rounds without a failure.")


if __name__ == "__main__":
    main()
