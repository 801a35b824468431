"""Silent, clipped, short and long recordings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypedDict

import numpy as np

from daco.audio.decode import Sound
from daco.validation import Float32s

SILENT_RMS = 1e-4  # below -80 dB of full scale a microphone is off, far away or not connected
CLIPPED_SHARE = 1e-3  # of samples in runs at the largest value; a single peak is below it
_RUN = 3  # samples in a row at the same extreme: a converter that clips makes them, sound does not
_LOUD = 0.1  # below it few bits are in use, and equal samples mean nothing
_OTHER_LENGTH = 2.0  # reported are recordings this many times longer or shorter than the normals
_MICROPHONES = ("", "far microphone, ")  # with a bad one, the subtraction is wrong


class Quality(TypedDict):
    """What a recording was before it was embedded; ``reasons`` name its problems."""

    sample_rate: int
    channels: int
    seconds: float
    reasons: list[str]


def _clipped_share(wave: Float32s) -> float:
    """Share of samples in runs of three and more at the same extreme."""
    clipped = 0
    for extreme in (wave.max(), wave.min()):
        at = np.concatenate([[False], wave == extreme, [False]])
        edges = np.flatnonzero(at[1:] != at[:-1])
        runs = edges[1::2] - edges[::2]
        clipped += int(runs[runs >= _RUN].sum())
    return clipped / len(wave)


def _sound_reasons(wave: Float32s, microphone: str) -> Iterator[str]:
    """``silent`` or ``clipped``, with the microphone and the level or share."""
    peak, rms = max(float(wave.max()), -float(wave.min())), float(wave.std(dtype=np.float64))
    if rms < SILENT_RMS:
        level = f"{20 * np.log10(rms):.0f}" if rms > 0 else "-inf"
        yield f"silent: {microphone}{level} dB of full scale"
    elif peak >= _LOUD and (share := _clipped_share(wave)) >= CLIPPED_SHARE:
        yield f"clipped: {microphone}{share:.1%} of the samples at the largest value"


def length_reasons(seconds: float, usual: float | None) -> Iterator[str]:
    """``short`` or ``long``, where the usual length of the normals is known."""
    if usual is not None and seconds * _OTHER_LENGTH <= usual:
        yield f"short: {seconds:.3g} s, the normals have {usual:.3g} s"
    if usual is not None and seconds >= usual * _OTHER_LENGTH:
        yield f"long: {seconds:.3g} s, the normals have {usual:.3g} s; cut it into windows"


def quality_of(sound: Sound) -> Quality:
    """Measure rate, length and problems of a recording, as decoded."""
    reasons: list[str] = []
    for wave, microphone in zip(np.atleast_2d(sound.native), _MICROPHONES, strict=False):
        reasons += _sound_reasons(wave, microphone)
    seconds = round(sound.native.shape[-1] / sound.rate, 3)
    return Quality(
        sample_rate=sound.rate, channels=sound.channels, seconds=seconds, reasons=reasons
    )


def parse_quality(text: Any) -> Quality | None:
    """What a column of a table says; None where it is something else.

    >>> parse_quality('{"sample_rate": 8000, "seconds": 10.0, "reasons": []}')["sample_rate"]
    8000
    """
    try:
        given = json.loads(text)
        rate, seconds = int(given["sample_rate"]), float(given["seconds"])
        channels = int(given.get("channels", 1))
        reasons = list(map(str, given["reasons"]))
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError):
        return None
    if rate < 1 or not 0 < seconds < float("inf"):
        return None
    return Quality(sample_rate=rate, channels=channels, seconds=seconds, reasons=reasons)
