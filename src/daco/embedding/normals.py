"""Normal clips by machine, from recordings (which are embedded) or from embedding tables."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from daco.audio.decode import probe
from daco.audio.formats import is_readable
from daco.audio.quality import Quality, parse_quality
from daco.backbones import Backbone
from daco.backbones.levels import LEVELS, parse_levels
from daco.data.clips import COLUMNS, ONE_DOMAIN, Clip, ClipTable, machine_title, without_training
from daco.data.dcase import require_normal_names
from daco.data.sessions import find_sessions
from daco.data.sources import read_clips
from daco.data.table import EmbeddingTable
from daco.data.views import ONE_VIEW, Views
from daco.embedding.embed import embed_clips
from daco.embedding.output import HASHES, QUALITIES
from daco.embedding.provenance import Frontend, check_readouts, frontend_of
from daco.errors import AudioError, DataError, InputError
from daco.files.hashing import is_sha256, sha256_of_file
from daco.files.remote import Location, is_file, is_folder, missing_message, name_of
from daco.text import name_list, quantity
from daco.validation import Float32s, Indices

Progress = Callable[[int, int], None]
Skipped = tuple[tuple[str, str], ...]

_PROBED = 64  # recordings whose length is looked up, to know the usual one


@dataclass(frozen=True, eq=False)
class Normals:
    """Normal clips of one machine.

    Attributes
    ----------
    machine : str
        The machine, with the year if the data set has it in several years.
    embeddings, views : (N, D) float32, Views
        The vectors, and which columns belong to which view; one view by default.
    domains, names, sha256s, sessions : N texts each
        Of the recordings. The latter two are empty if none is known; an unknown hash is ``""``.
    qualities, levels : N qualities, (N, Q) float32
        Sample rate, length, problems and sound levels of the recordings, as far as they are known.
    frontend, origin : Frontend or None, dict
        How recordings became vectors, and where they come from, for the provenance of the model.
    """

    machine: str
    embeddings: Float32s
    domains: tuple[str, ...]
    names: tuple[str, ...]
    frontend: Frontend | None
    origin: dict[str, Any]
    views: Views = None  # type: ignore[assignment]  # it follows from the number of columns
    sha256s: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    qualities: tuple[Quality | None, ...] = ()
    levels: Float32s | None = None

    def __post_init__(self) -> None:
        one = Views((ONE_VIEW,), self.embeddings.shape[1:])
        object.__setattr__(self, "views", self.views or one)

    def __len__(self) -> int:
        return len(self.embeddings)

    def take(self, rows: Sequence[int] | Indices) -> Normals:
        """Return the clips of these rows; vectors that follow each other are not copied."""
        taken: Any = list(rows)
        columns: dict[str, Any] = {
            name: tuple(getattr(self, name)[row] for row in taken)
            for name in ("domains", "names", "sha256s", "sessions", "qualities")
            if getattr(self, name)
        }
        if taken and taken == list(range(taken[0], taken[-1] + 1)):
            taken = slice(taken[0], taken[-1] + 1)
        levels = None if self.levels is None else self.levels[taken]
        return replace(self, embeddings=self.embeddings[taken], levels=levels, **columns)


@dataclass(frozen=True)
class NormalsByMachine:
    """The normals of every machine of a source, warnings, and recordings that were skipped."""

    machines: tuple[Normals, ...]
    warnings: tuple[str, ...]
    skipped: Skipped = ()


def normals_of_table(
    source: Location,
    *,
    readout: str | None = None,
    training: bool = True,
    all_views: bool = False,
    session_by: str | None = None,
) -> NormalsByMachine:
    """Read the normals of an embedding table.

    Parameters
    ----------
    source : path
        A Parquet file.
    readout, all_views : str, optional, bool
        One readout, or several views joined with ``+``; by default the table's first, or all.
    training : bool
        Only clips of the training split; else, where there are none, all but anomalies.
    session_by : str, optional
        As of :func:`daco.data.sessions.find_sessions`, by the columns of the table.
    """
    table = EmbeddingTable.read(source)
    if readout is None:
        several = all_views and not any("+" in name for name in table.readouts)
        readout = "+".join(table.readouts) if several else table.readouts[0]
    matrix, names = table.matrix(readout), _view_names(table, readout)
    views = Views((ONE_VIEW,), matrix.shape[1:]) if "+" in names[0] else table.layout(readout)
    rows = zip(*(table.columns[name].tolist() for name in COLUMNS), strict=True)
    clips = [Clip(**dict(zip(COLUMNS, values, strict=True))) for values in rows]
    numbers = {id(clip): number for number, clip in enumerate(clips)}
    grouped, warnings = _group(clips, training)
    rows_of = {machine: [numbers[id(clip)] for clip in group] for machine, group in grouped.items()}
    grouped, more = find_sessions(grouped, session_by, several=training)
    hashes = [text if is_sha256(text) else "" for text in table.columns.get(HASHES, ())]
    qualities = [parse_quality(text) for text in table.columns.get(QUALITIES, ())]
    everything = Normals(
        "",
        matrix,
        tuple(clip.domain or ONE_DOMAIN for clip in clips),
        tuple(clip.path for clip in clips),
        frontend_of(table, names),
        {"source": source.name, "source_sha256": sha256_of_file(source)},
        views,
        tuple(hashes) if any(hashes) else (),
        qualities=tuple(qualities) if any(qualities) else (),
        levels=parse_levels(table.columns.get(LEVELS, ())),
    )
    machines = []
    for machine, group in grouped.items():
        sessions = tuple(clip.session for clip in group if clip.session)
        normals = everything.take(rows_of[machine])
        machines.append(replace(normals, machine=machine, sessions=sessions))
    return NormalsByMachine(tuple(machines), (*warnings, *more))


def clips_to_judge(
    source: Location, frontend: Frontend | None, readout: str | None = None
) -> tuple[Float32s, tuple[str, ...], Float32s | None]:
    """Embeddings, names and levels of all clips of a table with a model's frontend and readout."""
    table = EmbeddingTable.read(source)
    known = readout_for(table, frontend, readout, source)
    require_alike(frontend_of(table, _view_names(table, known)), frontend, source)
    levels = parse_levels(table.columns.get(LEVELS, ()))
    return table.matrix(known), tuple(map(str, table.columns["path"])), levels


def readout_for(
    table: EmbeddingTable, frontend: Frontend | None, readout: str | None, source: object
) -> str:
    """The readouts of a table whose vectors were made as those of a model, in its order."""
    readouts = {frontend_of(table, [name]): name for name in reversed(table.readouts)}
    views = () if frontend is None else [replace(view, seconds=None) for view in frontend.views]
    if views and all(view in readouts for view in views):
        return "+".join(readouts[view] for view in views)
    names = readout.split("+") if readout else []
    missing = [name for name in names if name not in table.readouts]
    if names and not missing:
        return "+".join(names)
    if len(names) > 1:
        raise InputError(
            f"{source} has no {' and no '.join(map(repr, missing))}, which are views of the model. "
            f"It has {name_list(table.readouts)}. Embed the clips as those of the model."
        )
    return table.readouts[0]


def _view_names(table: EmbeddingTable, readout: str) -> list[str]:
    return [readout] if readout in table.readouts else readout.split("+")


def require_alike(given: Frontend | None, wanted: Frontend | None, source: Location) -> None:
    """Raise `InputError` where the frontends of a table and of a model differ."""
    if given is None or wanted is None:
        return
    if len(given.views) != len(wanted.views):
        raise InputError(
            f"{source}: its embeddings have {quantity(given.views, 'view')}, those of the model "
            f"{len(wanted.views)}. Embed the clips as those of the model."
        )
    for theirs, ours in zip(given.views, wanted.views, strict=True):
        for field in fields(Frontend):
            made, needed = getattr(theirs, field.name), getattr(ours, field.name)
            if made != needed and field.name != "seconds":
                raise InputError(
                    f"{source}: its embeddings were made with {field.name} {made!r}, those of the "
                    f"model with {needed!r}. Embed the clips as those of the model."
                )


def normals_of_recordings(
    source: Location,
    net: Backbone,
    *,
    readout: str | None = None,
    channel: int | str = 0,
    keep: Location | None = None,
    training: bool = True,
    on_error: str = "fail",
    progress: Progress | None = None,
    engine: str = "local",
    weights: Path | None = None,
    device: str | None = None,
    machine_level: int | None = None,
    domain_level: int | None = None,
    session_by: str | None = None,
    understood: Callable[[str], None] | None = None,
) -> NormalsByMachine:
    """Embed the normals of recordings.

    Parameters
    ----------
    source : path
        Whatever :func:`daco.data.sources.read_clips` reads, or one recording.
    net, readout, channel
        The network, its readouts joined with ``+``, and the channel of the recordings.
    keep : path, optional
        A Parquet file for the embeddings: a run that was interrupted goes on from it.
    training, session_by
        As of `normals_of_table`.
    on_error, progress, engine, weights, device
        As of :func:`daco.embedding.embed.embed_clips`.
    machine_level, domain_level : int, optional
        As of :func:`daco.data.sources.read_clips`.
    understood : callable, optional
        Called with what the folders were taken for, before anything is embedded. Without it, this
        is one of the warnings.
    """
    is_single = is_readable(source.name) and not is_folder(source)
    if is_single:
        table = one_recording(source)
    else:
        table = read_clips(source, machine_level=machine_level, domain_level=domain_level)
    if understood is not None and table.understood:
        understood(table.understood)
        table = replace(table, understood="")
    groups, warnings = _group(table.clips, training)
    groups, more = find_sessions(groups, session_by, table.root, several=training)
    normals = ClipTable(table.root, tuple(clip for group in groups.values() for clip in group))
    readouts = check_readouts(net, None if readout is None else [readout])
    with tempfile.TemporaryDirectory(prefix="daco-fit-") as folder:
        out = keep or Path(folder) / "embeddings.parquet"
        report = embed_clips(
            normals,
            net,
            out,
            readouts=readouts,
            channel=channel,
            on_error=on_error,
            progress=progress,
            engine=engine,
            weights=weights,
            device=device,
        )
        # In the order that was asked for; several networks have their views one after the other.
        asked = [name for name in (readout or "").split("+") if name in readouts]
        order = dict.fromkeys([*asked, *readouts])
        embedded = normals_of_table(out, readout="+".join(order), training=training).machines
    seconds = usual_seconds(normals.paths())
    origin = {"source": source.name or str(source), "root": str(table.root)}
    machines = []
    for each in embedded:
        frontend = None if each.frontend is None else replace(each.frontend, seconds=seconds)
        machines.append(replace(each, origin=origin, frontend=frontend))
    # Without `training` nobody needs to know that no clip is of the training split.
    needless = () if training else without_training(table.clips)
    known = [each for each in table.remarks if each not in needless]
    return NormalsByMachine(tuple(machines), (*known, *warnings, *more), report.skipped)


def one_recording(path: Location) -> ClipTable:
    """A clip table of a single file."""
    if not is_file(path):
        raise DataError(f"{missing_message(path)} Give a recording, a folder or a manifest.")
    root = path.absolute().parent
    return ClipTable(root, (Clip(path.name, name_of(root), domain=ONE_DOMAIN),))


def usual_seconds(paths: Sequence[Location]) -> float | None:
    """The median length of some of the recordings, by their headers."""
    step = max(1, len(paths) // _PROBED)
    lengths = []
    for path in paths[::step]:
        try:
            lengths.append(probe(path).seconds)
        except AudioError:
            continue
    return float(np.median(lengths)) if lengths else None


def _group(clips: Iterable[Clip], training: bool) -> tuple[dict[str, list[Clip]], list[str]]:
    """Normals by machine, and warnings about the clips that are left out."""
    clips = list(clips)
    given = [clip for clip in clips if clip.split == "train"]
    if not given and not training:
        given = clips
    warnings = []
    if len(given) < len(clips):
        warnings += left_out((clip.split, clip.label) for clip in clips)
    faulty = [clip.path for clip in given if clip.label == 1]
    normals = [clip for clip in given if clip.label != 1]
    warnings += require_normal_names([clip.path for clip in normals])
    if faulty:
        count = quantity(faulty, "clip")
        warnings.append(f"{count} labelled anomaly left out: {name_list(faulty)}.")
    if not normals:
        kind = "normal training clip" if training else "normal clip"
        sentences = [f"There is no {kind}.", *warnings, "Give recordings of the normal machine."]
        raise DataError(" ".join(sentences))
    by_key: dict[tuple[int | None, str], list[Clip]] = {}
    for clip in normals:
        by_key.setdefault((clip.year, clip.machine), []).append(clip)
    years = Counter(machine for _, machine in by_key)
    groups = {}
    for (year, machine), group in by_key.items():
        title = machine_title(year, machine) if years[machine] > 1 else machine
        sections = sorted({clip.section for clip in group})
        if len(sections) > 1:
            warnings.append(f"{title}: one model of the sections {name_list(sections)}.")
        unnamed = [clip.path for clip in group if clip.domain is None]
        if unnamed and len(unnamed) < len(group):
            raise DataError(
                f"{title}: {quantity(unnamed, 'clip')} without a domain among clips that have one: "
                f"{name_list(unnamed)}. Give their domain, or leave them out."
            )
        groups[title] = group
    return groups, warnings


def left_out(clips: Iterable[tuple[str, int | None]]) -> list[str]:
    """A warning about clips, given by split and label, that are not for training.

    >>> left_out([("train", 0), ("test", 0), ("test", 1)])
    ['Left out 2 test clips (1 of them an anomaly): only normal training clips are used.']
    """
    counts = Counter((split, label == 1) for split, label in clips)
    parts = []
    for split in ("test", "supplemental"):
        faulty = counts[split, True]
        if total := faulty + counts[split, False]:
            kind = "an anomaly" if faulty == 1 else "anomalies"
            which = f" ({faulty:,} of them {kind})" if faulty else ""
            parts.append(quantity(total, f"{split} clip") + which)
    text = f"Left out {' and '.join(parts)}: only normal training clips are used."
    return [text] if parts else []
