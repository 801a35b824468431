"""The baselines of a clip table: one autoencoder per machine, its scores filed when it is done."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daco.audio.decode import probe, read_audio
from daco.data.clips import ONE_DOMAIN, ClipTable, titled
from daco.embedding.shards import hash_recording
from daco.errors import (
    AudioError,
    DataError,
    DownloadError,
    InputError,
    MissingExtraError,
    NotEnoughClipsError,
)
from daco.experiments.autoencoders import EPOCHS, SEED
from daco.experiments.autoencoders.features import Floats, log_mel
from daco.experiments.autoencoders.scoretable import (
    ScoreTable,
    read_score_table,
    score_rows,
    write_score_table,
)
from daco.experiments.autoencoders.scoring import SYSTEMS, clip_scores
from daco.files.atomic import write_error
from daco.files.lock import hold_lock
from daco.files.remote import Location
from daco.text import name_list, quantity
from daco.version import __version__

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
_WAIT = 60.0  # seconds for another process to file a machine

Machine = tuple[int | None, str]
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


@dataclass(frozen=True, eq=False)
class BaselineRun:
    """What a run did.

    ``table`` is what the file holds now. ``trained`` and ``reused`` are the machines that were
    asked for, ``seconds`` what it took, ``notes`` what is odd, one sentence each.
    """

    out: Path
    table: ScoreTable
    trained: tuple[str, ...]
    reused: tuple[str, ...]
    notes: tuple[str, ...]
    seconds: float


def run_baselines(
    clips: ClipTable,
    out: Path | str,
    *,
    machines: Sequence[str] | None = None,
    epochs: int = EPOCHS,
    seed: int = SEED,
    device: str = "cpu",
    workers: int = 2,
    progress: Progress | None = None,
) -> BaselineRun:
    """Train one autoencoder per machine on its training clips, and score its test clips.

    A machine's scores are filed as soon as it is done. The same call later trains nothing again
    unless a recording changed; other machines in `out` are kept, so that a data set can be worked
    off in parts, and by several processes at once.

    Parameters
    ----------
    clips : ClipTable
    out : path
        The Parquet file, see :mod:`daco.experiments.autoencoders.scoretable`.
    machines : sequence of str, optional
        Which; by default all.
    epochs, seed : int
        The published ones by default.
    device : str
    workers : int
        Threads that read recordings.
    progress : callable, optional

    Raises
    ------
    MissingExtraError
        Torch is not installed.
    NotEnoughClipsError
        A machine has no training clips.
    DataError
        `out` is not a table of baselines, or was made with other settings.
    """
    started = time.perf_counter()
    require_torch()
    out = _parquet_file(Path(out))
    report = progress or (lambda stage, done, total: None)
    settings = {"schema": SCHEMA, "epochs": epochs, "seed": seed}
    groups = _groups(clips, machines)
    _filed(out, settings)
    notes: list[str] = []
    trained: list[str] = []
    reused: list[str] = []
    for number, (machine, group) in enumerate(groups.items()):
        report("machines", number, len(groups))
        title = titled(*machine)
        key = _fingerprint(group)
        before = _filed(out, settings)
        record = before.about.get("machines", {}).get(title)
        if record is not None and record.get("key") == key:
            scores = _stored(before.rows, machine)
            reused.append(title)
        else:
            record, scores = _one_machine(group, title, epochs, seed, device, workers, report)
            record["key"] = key
            trained.append(title)
        notes += record["notes"]
        # Filed again even where nothing was trained: the labels may be new.
        _file(out, settings, machine, record, _rows(group, scores))
    report("machines", len(groups), len(groups))
    return BaselineRun(
        out,
        read_score_table(out),
        tuple(trained),
        tuple(reused),
        tuple(notes),
        time.perf_counter() - started,
    )


def require_torch() -> None:
    """Say how to get torch where it is missing."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            'The autoencoder baselines are trained with PyTorch: pip install "daco-asd[torch]".'
        ) from None


def _parquet_file(out: Path) -> Path:
    if out.suffix != ".parquet":
        raise InputError(f"{out} must be a file with the extension .parquet.")
    if not out.parent.is_dir():
        raise InputError(f"{out.parent} is not a folder. Create it, or choose another --out.")
    return out


def _groups(clips: ClipTable, wanted: Sequence[str] | None) -> dict[Machine, ClipTable]:
    """The machines to work off, each with its training and test clips."""
    unknown = [name for name in wanted or () if name not in clips.machines]
    if unknown:
        raise InputError(
            f"There is no machine {unknown[0]!r}. There are {name_list(clips.machines, 20)}."
        )
    groups = {}
    for machine, group in clips.by_machine().items():
        if wanted and machine[1] not in wanted:
            continue
        title = titled(*machine)
        used = [clip for clip in group if clip.split in ("train", "test")]
        normals, tests = ([c for c in used if c.split == split] for split in ("train", "test"))
        faulty = [clip.path for clip in normals if clip.label == 1]
        if faulty:
            raise DataError(
                f"{title}: {quantity(faulty, 'training clip')} labelled as anomaly "
                f"({name_list(faulty, 3)}). Training clips are normal: remove them or "
                f"correct the label."
            )
        for part, word in ((normals, "training"), (tests, "test")):
            if not part:
                raise NotEnoughClipsError(
                    f"{title} has no {word} clip below {clips.root}. Give the whole machine, or "
                    "name the others with --machine."
                )
        groups[machine] = ClipTable(clips.root, tuple(used))
    return groups


def _one_machine(
    group: ClipTable,
    title: str,
    epochs: int,
    seed: int,
    device: str,
    workers: int,
    report: Progress,
) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
    """What is noted about a machine, and its test clips' scores by path."""
    from daco.experiments.autoencoders.autoencoder import train

    frames = _frames(group, workers, lambda *done: report(f"{title}: clips", *done))
    normals, tests = (
        [at for at, clip in enumerate(group) if clip.split == split] for split in ("train", "test")
    )
    model = train(
        [frames[at] for at in normals],
        [group.clips[at].domain or ONE_DOMAIN for at in normals],
        epochs=epochs,
        seed=seed,
        device=device,
        progress=lambda *done: report(f"{title}: epochs", *done),
    )
    scores = {
        group.clips[at].path: clip_scores(model.residual(frames[at]), model.inverses)
        for at in tests
    }
    notes = [
        f"{title}: the residuals of domain {name!r} have no inverse covariance, there are too few "
        "clips. The distances are those to the other domains."
        for name in model.missing
    ]
    record = {
        "train_clips": len(normals),
        "device": device,
        "version": __version__,
        "loss": [model.losses[0], model.losses[-1]],
        "validation_loss": None if isnan(model.validation_loss) else model.validation_loss,
        "notes": notes,
    }
    return record, scores


def _frames(group: ClipTable, workers: int, progress: Callable[[int, int], None]) -> list[Floats]:
    """Log-mel frames of all clips, in order; all of one sample rate, that of the recordings."""
    paths = group.paths()
    rate = probe(paths[0]).sample_rate

    def read(path: Location) -> Floats:
        own = probe(path).sample_rate
        if own != rate:
            raise AudioError(
                f"recorded at {own} Hz, {paths[0].name} at {rate} Hz. The autoencoder "
                "hears recordings as they are: bring those of a machine to one rate.",
                path=path,
            )
        try:
            return log_mel(read_audio(path), rate)
        except AudioError as error:
            raise AudioError(error.reason, path=path) from None

    frames = []
    with ThreadPoolExecutor(workers, thread_name_prefix="daco-loader") as pool:
        waiting = [pool.submit(read, path) for path in paths]
        try:
            for done, future in enumerate(waiting, 1):
                frames.append(future.result())
                progress(done, len(paths))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return frames


def _fingerprint(group: ClipTable) -> str:
    """SHA-256 of what the scores depend on: the recordings and the training clips' domains."""
    digest = hashlib.sha256()
    for clip, path in zip(group, group.paths(), strict=True):
        domain = clip.domain if clip.split == "train" else None
        words = (clip.path, clip.split, domain, hash_recording(path).sha256)
        digest.update(repr(words).encode())
    return digest.hexdigest()


def _filed(out: Path, settings: Mapping[str, Any]) -> ScoreTable:
    """What is in the file so far."""
    if not out.exists():
        return ScoreTable(_rows(ClipTable(Path(), ()), {}), settings)
    table = read_score_table(out)
    if "machines" not in table.about:
        raise DataError(
            f"{out} is there already and was not made by this command. Move it away, or choose "
            "another --out."
        )
    other = [name for name in settings if table.about.get(name) != settings[name]]
    if other:
        raise DataError(
            f"{out} was made with {other[0]} {table.about.get(other[0])}, not "
            f"{settings[other[0]]}. Choose another --out, or the same {other[0]}."
        )
    return table


def _file(
    out: Path,
    settings: Mapping[str, Any],
    machine: Machine,
    record: Mapping[str, Any],
    rows: pd.DataFrame,
) -> None:
    """Put a machine's rows in the place of older ones; another process may file one meanwhile."""
    import pandas as pd

    with _alone(out):
        table = _filed(out, settings)
        others = table.rows[~_is_of(table.rows, machine)]
        machines = {**table.about.get("machines", {}), titled(*machine): dict(record)}
        merged = pd.concat([others, rows], ignore_index=True) if len(others) else rows
        order = ["machine", "section", "path"]
        merged = merged.sort_values(order, kind="stable", ignore_index=True)
        about = {**settings, "machines": dict(sorted(machines.items()))}
        write_score_table(ScoreTable(merged, about), out)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    try:
        with hold_lock(out, _WAIT):
            yield
    except DownloadError:
        raise DataError(
            f"{out}: another process has been writing it for {_WAIT:.0f} s. Wait for it, end it, "
            "or choose another --out."
        ) from None
    except OSError as error:
        raise write_error(out, error) from None


def _stored(rows: pd.DataFrame, machine: Machine) -> dict[str, dict[str, float]]:
    scores: dict[str, dict[str, float]] = {}
    mine = rows.loc[_is_of(rows, machine), ["path", "system", "score"]]
    for path, system, score in mine.itertuples(index=False):
        scores.setdefault(path, {})[system] = score
    return scores


def _is_of(rows: pd.DataFrame, machine: Machine) -> Any:
    year, name = machine
    same = rows["year"].isna() if year is None else (rows["year"] == year).fillna(False)
    return (rows["machine"] == name) & same


def _rows(group: ClipTable, scores: Mapping[str, Mapping[str, float]]) -> pd.DataFrame:
    """A row per test clip and system, with what is known about the clip now."""
    pairs = [(clip, system) for clip in group if clip.split == "test" for system in SYSTEMS]
    columns: dict[str, list[Any]] = {
        name: [getattr(clip, name) for clip, _ in pairs]
        for name in ("path", "year", "machine", "section", "domain", "split", "label")
    }
    columns["system"] = [system for _, system in pairs]
    columns["score"] = [scores[clip.path][system] for clip, system in pairs]
    return score_rows(columns)
