"""Embeddings of normal recordings with injected faults.

A fault is added at the recording's own sample rate, so that it stays within the recorded band.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daco.audio.decode import Decoder, Sound, naming, resample
from daco.audio.microphones import NEAR, needs_both, parse_channel
from daco.backbones.levels import LEVELS as SOUND
from daco.backbones.levels import levels_text
from daco.backbones.protocol import Backbone
from daco.data.clips import ClipTable
from daco.data.table import EmbeddingTable
from daco.embedding.frontend import decoder_of, embed_equal
from daco.embedding.provenance import check_readouts, origin_of
from daco.errors import DataError
from daco.files.remote import Location
from daco.synthetic.faults import ALL_KINDS, FAR_DB, KINDS, LEVELS, fault_changes, require_faults
from daco.validation import Float32s, require_whole

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Plan:
    """The faults to inject, and their levels in decibels relative to each recording.

    A recording has the same fault at every level; the seed draws its details.
    """

    kinds: Sequence[str] = KINDS
    levels: Sequence[float] = LEVELS
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(sorted({float(each) for each in self.levels})))
        require_faults(self.kinds, self.levels)
        require_whole(self.seed, "The seed", least=0)


def choose_recordings(table: ClipTable, per_domain: int = 20, seed: int = 0) -> ClipTable:
    """Up to `per_domain` training normals of each section and domain, drawn by `seed`.

    They keep the order of the table. Clips of other splits, and any labelled an anomaly, are
    never taken.

    >>> from pathlib import Path
    >>> from daco.data.clips import Clip, ClipTable
    >>> clips = [Clip(f"{n}.wav", "fan", domain="old") for n in range(9)]
    >>> clips.append(Clip("9.wav", "fan", domain="old", split="test"))
    >>> [clip.path for clip in choose_recordings(ClipTable(Path(), tuple(clips)), 3)]
    ['1.wav', '6.wav', '8.wav']
    """
    require_whole(per_domain, "per_domain")
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row, clip in enumerate(table.clips):
        if clip.split == "train" and clip.label != 1:
            section = [clip.section] if clip.section != "00" else []
            groups.setdefault((clip.year, clip.machine, clip.domain, *section), []).append(row)
    if not groups:
        raise DataError("There is no normal training clip. Give recordings of the normal machine.")
    chosen: list[int] = []
    for key, rows in groups.items():
        rng = np.random.default_rng([seed, zlib.crc32(repr(key).encode())])
        chosen += rng.permutation(rows)[:per_domain].tolist()
    return ClipTable(table.root, tuple(table.clips[row] for row in sorted(chosen)), table.oddities)


def inject_recordings(
    chosen: ClipTable,
    net: Backbone,
    plan: Plan | None = None,
    *,
    readouts: Sequence[str] | None = None,
    channel: int | str = 0,
    progress: Progress | None = None,
) -> EmbeddingTable:
    """Embed every recording, clean and with every fault of the plan.

    Parameters
    ----------
    chosen : ClipTable
        The recordings, as `choose_recordings` returns them. One at a time is in memory.
    net, readouts : Backbone, sequence of str
        The network, and its readouts; by default all.
    plan : Plan, optional
        The faults; by default all six faults of machines at -18, -10 and -4 dB.
    channel : int or str
        As in :func:`daco.embedding.embed.embed_clips`. In a recording of several channels the fault
        is at the first, whose level counts, and leaks to the others, whichever is embedded.
    progress : callable, optional
        Called with the number of recordings done, and of all recordings.

    Returns
    -------
    EmbeddingTable
        A row for each clean recording, followed by its faulted versions. The columns ``fault``
        and ``level_db`` (text) describe the fault; for the clean recording they are empty and
        None. The split of all rows is ``supplemental``, and the label of faulted ones is 1, so
        that no command takes them for normals.
    """
    plan = plan or Plan()
    policy = parse_channel(channel)
    names = check_readouts(net, readouts)
    decoders = [decoder_of(each, policy) for each in net.networks]
    parts: dict[str, list[Float32s]] = {name: [] for name in (*names, SOUND)}
    for done, clip in enumerate(chosen, 1):
        path = chosen.root / clip.path
        with naming(path):
            versions = [_versions(path, clip.path, decoder, plan) for decoder in decoders]
            vectors = embed_equal(net, zip(*versions, strict=True), list(parts), policy)
        for name, rows in vectors.items():
            parts[name].append(rows)
        if progress is not None:
            progress(done, len(chosen))
    for name, vectors_of in parts.items():
        if len({part.shape[1] for part in vectors_of}) > 1:
            raise DataError(
                f"Readout {name!r} has vectors of different lengths for recordings of different "
                "lengths. Give recordings of one length."
            )
    matrices = {name: np.concatenate(vectors_of) for name, vectors_of in parts.items()}
    pairs = [("", None), *((kind, f"{x:g}") for kind in plan.kinds for x in plan.levels)]
    kinds, levels = zip(*pairs * len(chosen), strict=True)
    columns: dict[str, Any] = {
        name: [value for value in values for _ in pairs]
        for name, values in chosen.columns().items()
    }
    columns |= {"split": "supplemental", "label": [int(kind != "") for kind in kinds]}
    columns |= {"fault": kinds, "level_db": levels, SOUND: levels_text(matrices.pop(SOUND))}
    facts = {"kinds": list(plan.kinds), "levels_db": plan.levels, "seed": plan.seed}
    origin = origin_of(net, names, policy) | {"faults": json.dumps(facts)}
    return EmbeddingTable.from_arrays(matrices, metadata=origin, **columns)


def _versions(path: Location, name: str, decoder: Decoder, plan: Plan) -> Iterator[Float32s]:
    """The versions of a recording at the network's rate, in the order of the plan."""
    sound = decoder.decode(path)
    gain = _fault_gain(sound, decoder.channel)
    near = sound if gain == 1 else replace(decoder, sample_rate=None, channel=NEAR).decode(path)
    rates = sound.rate, decoder.sample_rate or sound.rate
    yield sound.waves
    for kind in plan.kinds:
        # Seeded by the name, so that a recording's faults do not depend on the other recordings.
        rng = np.random.default_rng([plan.seed, zlib.crc32(name.encode()), ALL_KINDS.index(kind)])
        for change in fault_changes(near.native, sound.rate, kind, plan.levels, rng):
            yield sound.waves + resample(gain * change, *rates, decoder.resampler)


def _fault_gain(sound: Sound, policy: int | str) -> np.float32:
    """The gain of a fault of the near microphone under the policy.

    One channel and the mean of all are linear: a signal added to every channel adds to them.
    """
    channels = sound.channels
    if channels == 1 or needs_both(policy) or policy == NEAR:
        return np.float32(1)
    far = 10 ** (FAR_DB / 20)
    return np.float32((1 + (channels - 1) * far) / channels if policy == "mix" else far)
