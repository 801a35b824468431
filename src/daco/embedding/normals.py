"""Normal clips by machine, from recordings (which are embedded) or from embedding tables."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

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
from daco.embedding.output import Skipped as Skipped
from daco.embedding.parts import HASHES, QUALITIES
from daco.embedding.provenance import Frontend, check_readouts, frontend_of
from daco.errors import DataError, InputError
from daco.files.hashing import is_sha256, sha256_of_file
from daco.files.remote import Location, is_file, is_folder, name_of
from daco.text import name_list, quantity
from daco.validation import Float32s, Indices


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
    views: Any = None
    sha256s: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    qualities: tuple[Quality | None, ...] = ()
    levels: Float32s | None = None

    def __post_init__(self) -> None:
        if self.views is None:
            object.__setattr__(self, "views", Views((ONE_VIEW,), self.embeddings.shape[1:]))

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
        The Parquet file.
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
    values = zip(*(table.columns[name].tolist() for name in COLUMNS), strict=True)
    clips = [Clip(**dict(zip(COLUMNS, each, strict=True))) for each in values]
    rows, warnings = _normal_rows(clips, training)
    by_machine = {machine: [clips[row] for row in own] for machine, own in rows.items()}
    by_machine, notes = find_sessions(by_machine, session_by, several=training)
    hashes = [text if is_sha256(text) else "" for text in table.columns.get(HASHES, ())]
    qualities = [parse_quality(text) for text in table.columns.get(QUALITIES, ())]
    everything = Normals(
        machine="",
        embeddings=matrix,
        domains=tuple(clip.domain or ONE_DOMAIN for clip in clips),
        names=tuple(clip.path for clip in clips),
        frontend=frontend_of(table, names),
        origin={"source": source.name, "source_sha256": sha256_of_file(source)},
        views=None if "+" in names[0] else table.layout(readout),
        sha256s=tuple(hashes) if any(hashes) else (),
        qualities=tuple(qualities) if any(qualities) else (),
        levels=parse_levels(table.columns.get(LEVELS, ())),
    )
    machines = []
    for machine, own in by_machine.items():
        sessions = tuple(clip.session for clip in own if clip.session)
        machines.append(replace(everything.take(rows[machine]), machine=machine, sessions=sessions))
    return NormalsByMachine(tuple(machines), (*warnings, *notes))


def clips_to_judge(
    source: Location, frontend: Frontend | None, readout: str | None = None
) -> tuple[Float32s, tuple[str, ...], Float32s | None]:
    """Embeddings, names and levels of all clips of a table with a model's frontend and readout."""
    table = EmbeddingTable.read(source)
    known = readout_for(table, frontend, readout, source)
    levels = parse_levels(table.columns.get(LEVELS, ()))
    return table.matrix(known), tuple(map(str, table.columns["path"])), levels


def readout_for(
    table: EmbeddingTable, frontend: Frontend | None, readout: str | None, source: object
) -> str:
    """The readouts of a table whose vectors were made as those of a model, in its order.

    An `InputError` says how its vectors were made, if that was another way.
    """
    readouts = {frontend_of(table, [name]): name for name in reversed(table.readouts)}
    views = () if frontend is None else [replace(view, seconds=None) for view in frontend.views]
    if views and all(view in readouts for view in views):
        return "+".join(readouts[view] for view in views)
    names = readout.split("+") if readout else []
    missing = [name for name in names if name not in table.readouts]
    if len(names) > 1 and missing:
        raise InputError(
            f"{source} has no {' and no '.join(map(repr, missing))}, which are views of the model. "
            f"It has {name_list(table.readouts)}. Embed the clips as those of the model."
        )
    found = table.readouts[0] if missing or not names else "+".join(names)
    _require_alike(frontend_of(table, _view_names(table, found)), frontend, source)
    return found


def _view_names(table: EmbeddingTable, readout: str) -> list[str]:
    return [readout] if readout in table.readouts else readout.split("+")


def _require_alike(given: Frontend | None, wanted: Frontend | None, source: object) -> None:
    if given is None or wanted is None:
        return
    made, needed = (
        [asdict(replace(view, seconds=None)) for view in each.views] for each in (given, wanted)
    )
    if len(made) != len(needed):
        raise InputError(
            f"{source} has {quantity(made, 'view')}, the model {len(needed)}. Embed the clips as "
            "those of the model."
        )
    for theirs, ours in zip(made, needed, strict=True):
        for name in theirs:
            if theirs[name] != ours[name]:
                raise InputError(
                    f"{source}: its embeddings were made with {name} {theirs[name]!r}, those of "
                    f"the model with {ours[name]!r}. Embed the clips as those of the model."
                )


def normals_of_recordings(
    source: Location,
    net: Backbone,
    *,
    readout: str | None = None,
    channel: int | str = 0,
    training: bool = True,
    machine_level: int | None = None,
    domain_level: int | None = None,
    session_by: str | None = None,
    understood: Callable[[str], None] | None = None,
    **options: Any,
) -> NormalsByMachine:
    """Embed the normals of recordings.

    Parameters
    ----------
    source : path
        Whatever :func:`daco.data.sources.read_clips` reads, with `machine_level` and
        `domain_level`; or one recording.
    net, readout, channel
        The network, its readouts joined with ``+``, and the channel of the recordings.
    training, session_by
        As of `normals_of_table`.
    understood : callable, optional
        Called with what the folders were taken for, before anything is embedded. Without it, this
        is one of the warnings.
    **options
        Of :func:`daco.embedding.embed.embed_clips`, such as ``progress``.
    """
    if is_readable(source.name) and not is_folder(source):
        table = one_recording(source)
    else:
        table = read_clips(source, machine_level=machine_level, domain_level=domain_level)
    if understood is not None and table.understood:
        understood(table.understood)
        table = replace(table, understood="")
    rows, warnings = _normal_rows(table.clips, training)
    groups = {machine: [table.clips[row] for row in own] for machine, own in rows.items()}
    groups, notes = find_sessions(groups, session_by, table.root, several=training)
    normals = ClipTable(table.root, tuple(clip for group in groups.values() for clip in group))
    readouts = check_readouts(net, None if readout is None else [readout])
    with tempfile.TemporaryDirectory(prefix="daco-fit-") as folder:
        out = Path(folder) / "embeddings.parquet"
        report = embed_clips(normals, net, out, readouts=readouts, channel=channel, **options)
        # In the order that was asked for; several networks have their views one after the other.
        asked = [name for name in (readout or "").split("+") if name in readouts]
        order = dict.fromkeys([*asked, *readouts])
        embedded = normals_of_table(out, readout="+".join(order), training=training).machines
    origin = {"source": source.name or str(source), "root": str(table.root)}
    machines = []
    for each in embedded:
        seconds = float(np.median([known["seconds"] for known in each.qualities if known]))
        frontend = None if each.frontend is None else replace(each.frontend, seconds=seconds)
        machines.append(replace(each, origin=origin, frontend=frontend))
    # Without `training` nobody needs to know that no clip is of the training split.
    needless = () if training else without_training(table.clips)
    known_oddities = [each for each in table.remarks if each not in needless]
    return NormalsByMachine(tuple(machines), (*known_oddities, *warnings, *notes), report.skipped)


def one_recording(path: Location) -> ClipTable:
    """A clip table of a single file."""
    if not is_file(path):
        raise DataError(f"{path} does not exist. Give a recording, a folder or a manifest.")
    root = path.absolute().parent
    return ClipTable(root, (Clip(path.name, name_of(root), domain=ONE_DOMAIN),))


def _normal_rows(clips: Sequence[Clip], training: bool) -> tuple[dict[str, list[int]], list[str]]:
    """Rows of the normals of each machine, and warnings about the clips that are left out."""
    given = [row for row, clip in enumerate(clips) if clip.split == "train"]
    if not given and not training:
        given = list(range(len(clips)))
    warnings = []
    if len(given) < len(clips):
        warnings += left_out((clip.split, clip.label) for clip in clips)
    faulty = [clips[row].path for row in given if clips[row].label == 1]
    normals = [row for row in given if clips[row].label != 1]
    warnings += require_normal_names([clips[row].path for row in normals])
    if faulty:
        count = quantity(faulty, "clip")
        warnings.append(f"{count} labelled anomaly left out: {name_list(faulty)}.")
    if not normals:
        kind = "normal training clip" if training else "normal clip"
        sentences = [f"There is no {kind}.", *warnings, "Give recordings of the normal machine."]
        raise DataError(" ".join(sentences))
    keys = {(clips[row].year, clips[row].machine) for row in normals}
    years = Counter(machine for _, machine in keys)
    groups: dict[str, list[int]] = defaultdict(list)
    for row in normals:
        clip = clips[row]
        title = machine_title(clip.year, clip.machine) if years[clip.machine] > 1 else clip.machine
        groups[title].append(row)
    for title, rows in groups.items():
        sections = sorted({clips[row].section for row in rows})
        if len(sections) > 1:
            warnings.append(f"{title}: one model of the sections {name_list(sections)}.")
        unnamed = [clips[row].path for row in rows if clips[row].domain is None]
        if unnamed and len(unnamed) < len(rows):
            raise DataError(
                f"{title}: {quantity(unnamed, 'clip')} without a domain among clips that have one: "
                f"{name_list(unnamed)}. Give their domain, or leave them out."
            )
    return dict(groups), warnings


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
