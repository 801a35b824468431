"""Recordings of a normal machine to embeddings of the same machine with faults.

A fault is added at the recording's own sample rate, before anything else happens to it: a
network that listens above that would else hear faults where no microphone has heard anything.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.audio.decode import read_with_near, resample
from daco.audio.microphones import NEAR, heard, needs_both, parse_channel
from daco.backbones.protocol import Backbone
from daco.backbones.readout import require_readout
from daco.data.clips import COLUMNS, Clip, ClipTable
from daco.data.table import EmbeddingTable
from daco.embedding.frontend import embed_waves
from daco.embedding.loader import MAX_SAMPLES
from daco.embedding.provenance import origin_of
from daco.errors import AudioError, DataError, InputError
from daco.files.remote import Location
from daco.synthetic.faults import FAR_DB, KINDS, LEVELS, LOUDEST_DB, add_fault, fault_signal
from daco.validation import Float32s, require_whole

PER_DOMAIN = 20
BATCH_SIZE = 16

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Plan:
    """Which faults are injected: the same fault of a recording at every level.

    Attributes
    ----------
    kinds : tuple of str
    levels : tuple of float
        Decibels relative to each recording, ascending.
    seed : int
        Of the choice of recordings and of what each fault is like.
    """

    kinds: tuple[str, ...] = KINDS
    levels: tuple[float, ...] = LEVELS
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", tuple(self.kinds))
        object.__setattr__(self, "levels", tuple(sorted({float(each) for each in self.levels})))
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown or not self.kinds or len(set(self.kinds)) != len(self.kinds):
            raise InputError(
                f"Faults are some of {', '.join(KINDS)}, each once. Got {list(self.kinds)!r}."
            )
        if not self.levels or not all(-np.inf < each <= LOUDEST_DB for each in self.levels):
            raise InputError(
                f"Levels are numbers of decibels below {LOUDEST_DB:g}. Got {list(self.levels)!r}."
            )
        require_whole(self.seed, "The seed", least=0)

    @property
    def versions(self) -> list[tuple[str, float | None]]:
        """Fault and level of each version of a recording; the first is clean."""
        return [("", None), *((kind, level) for kind in self.kinds for level in self.levels)]


def choose_recordings(table: ClipTable, per_domain: int = PER_DOMAIN, seed: int = 0) -> ClipTable:
    """Up to `per_domain` training normals of each machine and domain, drawn by `seed`.

    They keep the order of the table. Clips of other splits, and any labelled an anomaly, are
    never taken.

    Examples
    --------
    >>> from pathlib import Path
    >>> from daco.data.clips import Clip, ClipTable
    >>> from daco.synthetic.injection import choose_recordings
    >>> clips = [Clip(f"{n}.wav", "fan", domain="old") for n in range(9)]
    >>> clips.append(Clip("9.wav", "fan", domain="old", split="test"))
    >>> [clip.path for clip in choose_recordings(ClipTable(Path(), tuple(clips)), 3)]
    ['1.wav', '6.wav', '8.wav']
    """
    require_whole(per_domain, "per_domain")
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row, clip in enumerate(table.clips):
        if clip.split == "train" and clip.label != 1:
            groups.setdefault((clip.year, clip.machine, clip.domain), []).append(row)
    if not groups:
        raise DataError("There is no normal training clip. Give recordings of the normal machine.")
    kept: list[int] = []
    for key, rows in groups.items():
        rng = np.random.default_rng([seed, zlib.crc32(repr(key).encode())])
        kept += rng.permutation(rows)[:per_domain].tolist()
    return ClipTable(table.root, tuple(table.clips[row] for row in sorted(kept)), table.oddities)


def inject_recordings(
    chosen: ClipTable,
    net: Backbone,
    plan: Plan | None = None,
    *,
    readouts: Sequence[str] | None = None,
    channel: int | str = 0,
    batch_size: int = BATCH_SIZE,
    progress: Progress | None = None,
) -> EmbeddingTable:
    """Embed every recording, clean and with every fault of the plan.

    Parameters
    ----------
    chosen : ClipTable
        As `choose_recordings` gives it. All of it is used, and only one recording at a time is
        in memory.
    net : Backbone
    plan : Plan, optional
    readouts : sequence of str, optional
        By default the network's own.
    channel : int or str
        As in :func:`daco.embedding.embed.embed_clips`. In a recording of several channels the fault
        is at the first, whose level counts, and leaks to the others
        (:data:`daco.synthetic.faults.FAR_DB`), whichever of them the policy hears.
    batch_size : int
    progress : callable, optional
        Called with the recordings done and in all.

    Returns
    -------
    EmbeddingTable
        A row for each clean recording, followed by its faulted versions. The columns ``fault``
        and ``level_db`` (text) say which; they are empty and None for the clean one. The split
        of all rows is ``supplemental`` and the label of the faulted is 1, so that no command
        takes them for normals.
    """
    plan = plan or Plan()
    policy = parse_channel(channel)
    names = tuple(readouts or (net.default_readout,))
    for name in names:
        require_readout(net, name)
    if not len(chosen):
        raise DataError("There is no recording to inject faults into.")
    parts: dict[str, list[NDArray[np.float32]]] = {name: [] for name in names}
    for done, clip in enumerate(chosen):
        path = chosen.root / clip.path
        try:
            for batch in _batches(_versions(path, clip, net, policy, plan), batch_size):
                found = embed_waves(net, batch, names, policy)
                for name in names:
                    if not np.isfinite(found[name]).all():
                        raise AudioError(f"the {net.name} embedding of it has NaN or inf.")
                    parts[name].append(found[name])
        except AudioError as error:
            raise AudioError(error.reason, path=path) from None
        if progress is not None:
            progress(done + 1, len(chosen))
    matrices = {name: _stacked(name, found) for name, found in parts.items()}
    said = {"kinds": plan.kinds, "levels_db": plan.levels, "seed": plan.seed}
    origin = origin_of(net, names, policy) | {"faults": json.dumps(said)}
    return _table(chosen, matrices, plan, origin)


def _versions(
    path: Location, clip: Clip, net: Backbone, policy: int | str, plan: Plan
) -> Iterator[Float32s]:
    """What the network hears of each version of a recording, in the order of the plan."""
    native, near, rate, channels = read_with_near(path, channel=policy)
    origin, gain = _fault_at(policy, native, near, channels)
    clean = _at_rate(native, rate, net)
    yield heard(clean, policy, net.sample_rate)
    for kind in plan.kinds:
        # Of the name, not of the place in the list: more recordings leave its faults alone.
        words = [plan.seed, zlib.crc32(clip.path.encode()), KINDS.index(kind)]
        change = gain * fault_signal(origin, rate, kind, np.random.default_rng(words))
        change = _at_rate(change, rate, net)  # resampling is linear: once for all levels
        for level in plan.levels:
            yield heard(add_fault(clean, change, level), policy, net.sample_rate)


def _fault_at(
    policy: int | str, taken: Float32s, near: Float32s, channels: int
) -> tuple[Float32s, np.float32]:
    """What a fault is made of, and how loud it is in what the policy takes of the recording.

    One channel and the mean of all are linear: what is added to every channel adds to them.
    """
    if channels == 1 or needs_both(policy) or policy == NEAR:
        return taken, np.float32(1)
    far = 10 ** (FAR_DB / 20)
    return near, np.float32((1 + (channels - 1) * far) / channels if policy == "mix" else far)


def _at_rate(waves: Float32s, rate: int, net: Backbone) -> Float32s:
    if rate == net.sample_rate:
        return waves
    return resample(waves, rate, net.sample_rate, net.resampler)


def _batches(waves: Iterator[Float32s], batch_size: int) -> Iterator[Float32s]:
    batch: list[Float32s] = []
    for wave in waves:
        batch.append(wave)
        if len(batch) == batch_size or (len(batch) + 1) * wave.size > MAX_SAMPLES:
            yield np.stack(batch)
            batch = []
    if batch:
        yield np.stack(batch)


def _stacked(name: str, parts: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    sizes = {part.shape[1] for part in parts}
    if len(sizes) > 1:
        raise DataError(
            f"Readout {name!r} has {' and '.join(map(str, sorted(sizes)))} values for recordings "
            "of different lengths. Give recordings of one length."
        )
    return np.concatenate(parts)


def _table(
    chosen: ClipTable,
    matrices: dict[str, NDArray[np.float32]],
    plan: Plan,
    metadata: dict[str, str],
) -> EmbeddingTable:
    versions = plan.versions
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for clip in chosen:
        for name in COLUMNS:
            columns[name] += [getattr(clip, name)] * len(versions)
    columns["split"] = ["supplemental"] * len(columns["split"])
    columns["label"] = [0 if fault == "" else 1 for _ in chosen for fault, _ in versions]
    levels = [None if level is None else f"{level:g}" for _ in chosen for _, level in versions]
    faults = [fault for _ in chosen for fault, _ in versions]
    return EmbeddingTable.from_arrays(
        matrices, metadata=metadata, fault=faults, level_db=levels, **columns
    )
