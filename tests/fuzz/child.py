"""The process that swallows hostile inputs, within limits of the kernel.

Whoever started it sends a line with the kind and the bytes of each input, and gets a line with what
became of it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

for _folder in ("", "helpers"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / _folder))

from fuzz import mutator  # noqa: E402

from daco.errors import DacoError, ModelError  # noqa: E402

Target = Callable[[bytes], object]


@dataclass(frozen=True)
class Limits:
    """What one input may take: seconds of processor, and bytes."""

    cpu: float
    memory: int


def target_of(kind: str, folder: Path) -> Target:
    """What takes the inputs of a kind; files go to `folder`."""
    path = folder / f"input{mutator.SUFFIXES.get(kind, '')}"
    if kind == "misbehaviour":
        return misbehave
    if kind == "model":
        return lambda data: _load_model(path, data)
    if kind in ("manifest", "list"):
        return _manifest_reader(path)
    if kind == "parquet":
        return lambda data: _read_table(path, data)
    return _recording_judge(path)


def _recording_judge(path: Path) -> Target:
    from field_models import LOGMEL, normals

    from daco.audio.decode import read_audio
    from daco.detector.model import MachineModel
    from daco.detector.verdict import judge
    from daco.embedding.frontend import Listener

    listener = Listener(LOGMEL)
    embedded = listener.embed(mutator.seeds("wav")[0]).embeddings
    X, domains = normals(dim=embedded.shape[1])
    model = MachineModel.fit(X, domains, machine="press", frontend=LOGMEL)

    def decode_and_judge(data: bytes) -> None:
        path.write_bytes(data)
        refused = None
        try:
            read_audio(path, sample_rate=16_000, channel="mix", resampler="polyphase")
        except DacoError as error:
            refused = error
        # Always both: what one refuses, the other may stumble over.
        judge(model, listener, data, name="upload")
        if refused:
            raise refused

    return decode_and_judge


def _load_model(path: Path, data: bytes) -> None:
    from daco.detector.model import MachineModel
    from daco.detector.modelfile import content_hash

    path.write_bytes(data)
    try:
        loaded = MachineModel.load(path)
    except DacoError as error:
        _check_reason(error)
        raise
    assert content_hash(vars(loaded)) == loaded.sha256
    # What is accepted must also work.
    loaded.score(loaded.embeddings[:3])
    loaded.expected_rates(), loaded.warnings(), loaded.thresholds, loaded.basis_sentence


def _check_reason(error: DacoError) -> None:
    """Whatever the file holds, the reason is of the right kind and steers no terminal."""
    assert isinstance(error, ModelError), f"not a ModelError: {error!r}"
    assert str(error).isprintable()
    assert len(str(error)) < 500


def _manifest_reader(path: Path) -> Target:
    from fuzz.mutate_tables import RECORDINGS

    from daco.data.manifest import write_manifest
    from daco.data.sources import read_clips

    for name in RECORDINGS:
        (path.parent / name).parent.mkdir(exist_ok=True)
        (path.parent / name).write_bytes(b"RIFF")

    def read(data: bytes) -> None:
        path.write_bytes(data)
        table = read_clips(path)
        table.to_pandas()
        write_manifest(table, path.with_name("written.csv"))

    return read


def _read_table(path: Path, data: bytes) -> None:
    from daco.data.table import EmbeddingTable, read_without_vectors

    path.write_bytes(data)
    whole = EmbeddingTable.read(path)
    whole.write(path.with_name("written.parquet"))
    rows = np.arange(len(whole))[::-1]
    assert np.array_equal(read_without_vectors(path).vectors(rows), whole.matrix()[rows])


def misbehave(data: bytes) -> None:
    """All that must be noticed, on request: this tests the tests."""
    word = data.decode()
    if word == "crash":
        faulthandler._sigsegv()  # type: ignore[attr-defined]
    if word == "loop":
        while True:
            pass
    if word == "sleep":
        time.sleep(60)
    if word == "raise":
        raise KeyError("a mistake of ours")
    if word == "refuse":
        raise DacoError("a mistake of theirs")
    if word == "allocate":
        bytearray(1 << 33)
    if word == "hide":
        try:
            bytearray(1 << 33)
        except MemoryError:
            raise DacoError("quietly") from None


def run(target: Target, data: bytes, limits: Limits) -> str:
    """The outcome of one input in a word; a leading ``!`` marks what must not happen.

    Signals end what takes long.
    """
    signal.setitimer(signal.ITIMER_PROF, limits.cpu)
    signal.setitimer(signal.ITIMER_REAL, 10 * limits.cpu)  # asleep, not busy
    try:
        target(data)
        return "accepted"
    except DacoError as error:
        if _ran_out_of_memory(error):
            return f"!ran out of memory, said as: {error}"
        return type(error).__name__
    except BaseException as error:
        # Neither a crash nor a refusal: a mistake of daco that the user gets to see.
        return f"!{type(error).__name__}: {error}"[:500]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)


def _ran_out_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or "malloc" in str(error).lower():
            return True
        error = error.__cause__ or error.__context__
    return False


def confine(limits: Limits) -> None:
    """Let the kernel end what goes too far."""
    for number in (signal.SIGPROF, signal.SIGALRM):
        faulthandler.register(number, chain=True)  # the stack, and then the default: the end
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pages = Path("/proc/self/statm").read_text("ascii").split()
    size = int(pages[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + limits.memory, resource.RLIM_INFINITY))


def _warm_up(known: Mapping[str, Target]) -> None:
    """What is imported, compiled or opened once is not what an input takes."""
    for kind, target in known.items():
        for seed in mutator.seeds(kind) if kind in mutator.KINDS else ():
            target(seed)


def main() -> None:
    """Answer requests until the input ends."""
    faulthandler.enable()
    warnings.simplefilter("ignore")  # a warning is an answer as good as any
    limits = Limits(*json.loads(sys.argv[1]))
    memory = Path("/dev/shm")  # thousands of small files need no disk
    root = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="daco-fuzz-", dir=root) as scratch:
        tempfile.tempdir = scratch
        known = {kind: target_of(kind, Path(scratch)) for kind in sys.argv[2:]}
        _warm_up(known)
        confine(limits)
        print("ready", flush=True)
        for line in sys.stdin:
            kind, data = json.loads(line)
            print(json.dumps(run(known[kind], bytes.fromhex(data), limits)), flush=True)


if __name__ == "__main__":
    main()
