"""Normal clips by machine, from recordings (which are embedded) or from embedding tables."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from daco.data.views import Bands
from daco.detector.ranges import learn_ranges
from daco.embedding.embed import Engine, embed_clips
from daco.embedding.frontend import Frontend, frontend_of
from daco.embedding.output import HASHES, QUALITIES
from daco.embedding.provenance import check_readouts
from daco.errors import AudioError, DataError, InputError
from daco.files.hashing import is_sha256, sha256_of_file
from daco.files.remote import Location, missing_message, open_location
from daco.text import name_list, quantity
from daco.validation import Float32s, Indices

Progress = Callable[[int, int], None]
Skipped = tuple[tuple[str, str], ...]

_TABLES = (".parquet", ".npz")
_PROBED = 64  # recordings whose length is looked up, to know the usual one


@dataclass(frozen=True, eq=False)
class Normals:
    """Normal clips of one machine.

    Attributes
    ----------
    machine : str
        The machine, with the year if the data set has it in several years.
    embeddings : (N, D) float32
    domains, names, sha256s : N texts each
        An unknown hash is ``""``; `sha256s` is empty if none is known.
    sessions : N texts, or empty
        Clips that were recorded together have the same session.
    qualities : N qualities, or empty
        Sample rate, length and problems of each recording; None if they are unknown.
    frontend : Frontend or None
        How recordings became the embeddings; None if that is unknown.
    origin : dict
        Where the clips come from, for the provenance of the model.
    bands : int or Views
        How each embedding is divided.
    levels : (N, Q) float32 or None
        Sound levels of each recording (:func:`daco.backbones.levels.sound_levels`).
    """

    machine: str
    embeddings: NDArray[np.float32]
    domains: tuple[str, ...]
    names: tuple[str, ...]
    frontend: Frontend | None
    origin: dict[str, Any]
    bands: Bands = 1
    sha256s: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    qualities: tuple[Quality | None, ...] = ()
    levels: Float32s | None = None

    def __len__(self) -> int:
        return len(self.embeddings)

    def take(self, rows: Sequence[int] | Indices) -> Normals:
        """Return the clips of these rows."""
        listed: dict[str, Any] = {
            name: tuple(values[row] for row in rows)
            for name in ("domains", "names", "sha256s", "sessions", "qualities")
            if (values := getattr(self, name))
        }
        levels = None if self.levels is None else self.levels[rows]
        return replace(self, embeddings=self.embeddings[rows], levels=levels, **listed)

    def ranges(self) -> dict[str, Any] | None:
        """Return the ranges of the sound levels, or None if the levels are unknown."""
        rates = {quality["sample_rate"] for quality in self.qualities if quality is not None}
        return None if self.levels is None else learn_ranges(self.levels, rates)


@dataclass(frozen=True)
class NormalsByMachine:
    """The normals of every machine of a source, remarks, and recordings that were skipped."""

    machines: tuple[Normals, ...]
    oddities: tuple[str, ...]
    skipped: Skipped = ()


def is_table(source: Location) -> bool:
    """Whether a file holds embeddings; a Parquet file may be a manifest as well."""
    if source.suffix.lower() not in _TABLES or not source.is_file():
        return False
    if source.suffix.lower() == ".npz":
        return True
    import pyarrow
    import pyarrow.parquet as pq

    try:
        with open_location(source) as file:
            return "embedding" in pq.read_schema(file).names
    except (pyarrow.ArrowException, OSError):
        return True  # the reader of tables reports what is wrong


def normals_of_table(
    source: Location,
    *,
    readout: str | None = None,
    training: bool = True,
    all_views: bool = False,
    session_by: str | None = None,
) -> NormalsByMachine:
    """The normals of an embedding table.

    Parameters
    ----------
    source : path
        Parquet or ``.npz``.
    readout : str, optional
        One, or several views joined with ``+``; by default the table's first.
    training : bool
        Only clips of the training split; else, where there are none, all but anomalies.
    all_views : bool
        Without a readout, all readouts of the table are views.
    session_by : str, optional
        As of :func:`daco.data.sessions.find_sessions`, by the columns of the table.
    """
    table = EmbeddingTable.read(source)
    joined = "+".join(table.readouts)
    separate = joined.count("+") == len(table.readouts) - 1  # of no name itself
    readout = readout or (joined if all_views and separate else table.readouts[0])
    matrix, bands = table.matrix(readout), table.bands(readout)
    frontend = frontend_of(table, _view_names(table, readout))
    origin = {"source": source.name, "source_sha256": sha256_of_file(source)}
    columns = zip(*(table.columns[name].tolist() for name in COLUMNS), strict=True)
    clips = [Clip(**dict(zip(COLUMNS, values, strict=True))) for values in columns]
    groups, oddities = _group(clips, training)
    hashes, levels = _hashes_of(table), parse_levels(table.columns.get(LEVELS, ()))
    qualities = [parse_quality(text) for text in table.columns.get(QUALITIES, ())]
    row_of = {id(clip): row for row, clip in enumerate(clips)}
    rows_of = {machine: [row_of[id(clip)] for clip in group] for machine, group in groups.items()}
    groups, notes = find_sessions(groups, session_by, several=training)
    machines = []
    for machine, group in groups.items():
        rows = rows_of[machine]
        # Rows that follow each other are a slice, so that a fleet's vectors are not copied.
        together = rows == list(range(rows[0], rows[-1] + 1))
        machines.append(
            Normals(
                machine,
                matrix[rows[0] : rows[-1] + 1] if together else matrix[rows],
                tuple(clip.domain or ONE_DOMAIN for clip in group),
                tuple(clip.path for clip in group),
                frontend,
                origin,
                bands,
                tuple(hashes[row] for row in rows) if hashes else (),
                tuple(clip.session for clip in group if clip.session),
                tuple(qualities[row] for row in rows) if any(qualities) else (),
                None if levels is None else levels[rows],
            )
        )
    return NormalsByMachine(tuple(machines), (*oddities, *notes))


def clips_to_judge(
    source: Location, frontend: Frontend | None, readout: str | None = None
) -> tuple[Float32s, tuple[str, ...], Float32s | None]:
    """Embeddings, names and levels of all clips of a table with a model's frontend and readout."""
    table = EmbeddingTable.read(source)
    found = readout_for(table, frontend, readout, source)
    require_alike(frontend_of(table, _view_names(table, found)), frontend, source)
    levels = parse_levels(table.columns.get(LEVELS, ()))
    return table.matrix(found), tuple(map(str, table.columns["path"])), levels


def readout_for(
    table: EmbeddingTable, frontend: Frontend | None, readout: str | None, source: object
) -> str:
    """The readouts of a table whose vectors were made as those of a model, in its order."""
    made = {name: frontend_of(table, [name]) for name in table.readouts}
    views = () if frontend is None else [replace(view, seconds=None) for view in frontend.views]
    found = [next((name for name, made_by in made.items() if made_by == v), None) for v in views]
    alike = [name for name in found if name is not None]
    if alike and len(alike) == len(found):
        return "+".join(alike)
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
    engine: Engine | None = None,
    domain_level: int | None = None,
    session_by: str | None = None,
) -> NormalsByMachine:
    """The normals of recordings, embedded.

    Parameters
    ----------
    source : path
        Whatever :func:`daco.data.sources.read_clips` reads, or one recording.
    net : Backbone
    readout, channel : optional
        Of the network, and of the recordings.
    keep : path, optional
        A Parquet file for the embeddings: a run that was interrupted goes on from it.
    training : bool
        Only clips of the training split; else, where there are none, all but anomalies.
    on_error : {"fail", "skip"}
        Whether an unusable recording is an error or is skipped.
    progress : callable, optional
        Called with the clips done and the clips in all.
    engine : Engine, optional
        Where they are embedded, such as `daco.embedding.cluster.RayEmbedding`; by default here.
    domain_level : int, optional
        As of :func:`daco.data.sources.read_clips`.
    session_by : str, optional
        As of :func:`daco.data.sessions.find_sessions`.
    """
    single = is_readable(source.name) and not source.is_dir()
    table = one_recording(source) if single else read_clips(source, domain_level=domain_level)
    groups, oddities = _group(table.clips, training)
    groups, notes = find_sessions(groups, session_by, table.root, several=training)
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
        )
        # In the order that was asked for; several networks have their views one after the other.
        asked = [name for name in (readout or "").split("+") if name in readouts]
        order = dict.fromkeys([*asked, *readouts])
        gathered = normals_of_table(out, readout="+".join(order), training=training)
    seconds = usual_seconds(normals.paths())
    origin = {"source": source.name or str(source), "root": str(table.root)}
    machines = tuple(
        replace(
            each,
            origin=origin,
            frontend=None if each.frontend is None else replace(each.frontend, seconds=seconds),
        )
        for each in gathered.machines
    )
    # Without `training` nobody needs to hear that no clip is of the training split.
    unneeded = () if training else without_training(table.clips)
    remarks = [each for each in table.remarks if each not in unneeded]
    return NormalsByMachine(machines, (*remarks, *oddities, *notes), report.skipped)


def one_recording(path: Location) -> ClipTable:
    """A clip table of a single file."""
    if not path.is_file():
        raise DataError(f"{missing_message(path)} Give a recording, a folder or a manifest.")
    root = path.absolute().parent
    return ClipTable(root, (Clip(path.name, root.name, domain=ONE_DOMAIN),))


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
    """Normals by machine, and remarks about the clips that are left out."""
    clips = list(clips)
    given = [clip for clip in clips if clip.split == "train"]
    if not given and not training:
        given = clips
    oddities = []
    if len(given) < len(clips):
        pairs = ((clip.split, clip.label) for clip in clips)
        oddities += left_out(pairs)
    faulty = [clip.path for clip in given if clip.label == 1]
    normals = [clip for clip in given if clip.label != 1]
    oddities += require_normal_names([clip.path for clip in normals])
    if faulty:
        count = quantity(faulty, "clip")
        oddities.append(f"{count} labelled anomaly left out: {name_list(faulty)}.")
    if not normals:
        kind = "normal training clip" if training else "normal clip"
        sentences = [f"There is no {kind}.", *oddities, "Give recordings of the normal machine."]
        raise DataError(" ".join(sentences))
    by_key: dict[tuple[int | None, str], list[Clip]] = {}
    for clip in normals:
        by_key.setdefault((clip.year, clip.machine), []).append(clip)
    names = Counter(machine for _, machine in by_key)
    groups = {}
    for (year, machine), group in by_key.items():
        title = machine_title(year, machine) if names[machine] > 1 else machine
        sections = sorted({clip.section for clip in group})
        if len(sections) > 1:
            oddities.append(f"{title}: one model of the sections {name_list(sections)}.")
        unnamed = [clip.path for clip in group if clip.domain is None]
        if unnamed and len(unnamed) < len(group):
            raise DataError(
                f"{title}: {quantity(unnamed, 'clip')} without a domain among clips that have one: "
                f"{name_list(unnamed)}. Give their domain, or leave them out."
            )
        groups[title] = group
    return groups, oddities


def left_out(clips: Iterable[tuple[str, int | None]]) -> list[str]:
    """A remark about clips, given by split and label, that are not for training.

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
    return (
        [f"Left out {' and '.join(parts)}: only normal training clips are used."] if parts else []
    )


def _hashes_of(table: EmbeddingTable) -> list[str]:
    """The hash of each row's recording, "" where it is not known; [] where none is."""
    hashes = [each if is_sha256(each) else "" for each in table.columns.get(HASHES, ())]
    return hashes if any(hashes) else []
