"""Recordings to float32 waveforms: bounded decoding, channel policies, resampling.

A file is checked before it is decoded (size, declared length, rate, channels) and decoded in
blocks, so that a header with wrong sizes causes an error and no allocation. Every problem of a
file is an `AudioError` that names it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from math import gcd
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from daco.audio.formats import (
    DEFAULT_LIMITS,
    FORMATS,
    READABLE,
    AudioLimits,
    suffix_of_content,
    truncation,
)
from daco.audio.microphones import (
    apply_channel,
    parse_channel,
    require_channels,
    take_channels,
)
from daco.errors import AudioError, DacoError, InputError
from daco.files.remote import Location, explain_errors, parse_location
from daco.validation import Float32s

Source: TypeAlias = "str | os.PathLike[str] | Location"

_BLOCK_VALUES = 1 << 20
_UNKNOWN_FRAMES = 1 << 60  # libsndfile's answer for a header without a length is near 2**63
_PEAK = 1e6  # integers stored as floats stay below; squares of it stay finite in float32
_MAX_STEPS = 2_000  # of a polyphase filter: 20 taps each, and all rates of recorders are below


@dataclass(frozen=True)
class AudioInfo:
    """What the header of a recording declares."""

    sample_rate: int
    channels: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Sound:
    """What a channel policy takes of a recording: shape (n,), or (2, n), near and far.

    ``native`` is at the recording's own rate, where clipping shows, ``waves`` the same at the rate
    that was asked for.
    """

    native: NDArray[Any]
    waves: NDArray[Any]
    rate: int
    channels: int = 1


@dataclass(frozen=True)
class Decoder:
    """How recordings become waveforms; the fields are the parameters of `read_audio`."""

    sample_rate: int | None = None
    channel: int | str = 0
    resampler: str = "soxr"
    limits: AudioLimits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        object.__setattr__(self, "channel", parse_channel(self.channel))
        low, high = self.limits.min_rate, self.limits.max_rate
        if self.sample_rate is not None and not low <= self.sample_rate <= high:
            raise InputError(
                f"The 'sample_rate' parameter must be between {low} and {high} Hz. "
                f"Got {self.sample_rate!r} instead."
            )

    def decode(self, source: Source | bytes, content: bytes = b"") -> Sound:
        """Decode a file, here or remote, or the bytes of one.

        `content` is that of the file, where it was read already. Of bytes, no path is named in
        errors.
        """
        path = None if isinstance(source, bytes) else parse_location(source)
        data = source if isinstance(source, bytes) else content
        with _opened(path, data, self.limits) as file:
            require_channels(self.channel, file.channels)
            native = _read(file, self.channel)
            waves = self.resampled(native, file.samplerate)
            return Sound(native, waves, file.samplerate, file.channels)

    def resampled(self, native: NDArray[Any], rate: int) -> NDArray[Any]:
        """Samples of a recording's own rate, as `Sound.native`, at the rate asked for."""
        if self.sample_rate is None or self.sample_rate == rate:
            return native
        frames = native.shape[-1]
        length = -(-frames * self.sample_rate // rate)
        if length > self.limits.values:
            raise AudioError(
                f"{frames / rate:.1f} s would be {length} samples at {self.sample_rate} Hz, more "
                f"than the limit of {self.limits.values}. Cut the recording into clips."
            )
        waves = resample(native, rate, self.sample_rate, self.resampler)
        if not waves.size:
            raise AudioError(f"nothing is left of {frames} samples at {self.sample_rate} Hz.")
        return waves


def read_each(
    decoders: Sequence[Decoder], source: Source | bytes, content: bytes = b""
) -> tuple[Sound, tuple[NDArray[Any], ...]]:
    """A recording as decoded, once, and the waveforms that several networks are given of it.

    The decoders have one channel policy and one set of limits.
    """
    sound = decoders[0].decode(source, content)
    with naming(None if isinstance(source, bytes) else source):
        waves = [sound.waves, *(each.resampled(sound.native, sound.rate) for each in decoders[1:])]
        return sound, tuple(
            apply_channel(wave, each.channel, each.sample_rate or sound.rate)
            for each, wave in zip(decoders, waves, strict=True)
        )


def read_audio(
    path: Source,
    *,
    sample_rate: int | None = None,
    channel: int | str = 0,
    limits: AudioLimits = DEFAULT_LIMITS,
    resampler: str = "soxr",
) -> Float32s:
    """Read a recording as the waveform that a network gets; errors are an `AudioError`.

    Parameters
    ----------
    path : path or URL
        A file with one of the extensions of `daco.audio.formats.FORMATS`.
    sample_rate : int, optional
        The rate to resample to; None keeps that of the recording.
    channel : int or str
        A channel or policy (:func:`daco.audio.microphones.parse_channel`).
    limits : AudioLimits
        The largest recording to decode.
    resampler : {"soxr", "polyphase"}
        soxr in high quality, or SciPy's short polyphase filter, which some networks need.

    Returns
    -------
    array of float32, shape (n,)
        Shape (2, n), near and far microphone, for the policies ``residual-...``.
    """
    decoder = Decoder(sample_rate, channel, resampler, limits)
    return read_each([decoder], path)[1][0]


def probe(path: Source, limits: AudioLimits = DEFAULT_LIMITS, *, to_end: bool = False) -> AudioInfo:
    """Read the header of a recording and return what it declares, an `AudioInfo`.

    A file that is not a recording or exceeds `limits` raises an `AudioError`; `to_end` decodes the
    last sample as well, which a truncated file does not have.
    """
    with _opened(parse_location(path), b"", limits) as file:
        if to_end:
            _require_end(file)
        return AudioInfo(file.samplerate, file.channels, file.frames / file.samplerate)


def resample(waves: Float32s, rate: int, new_rate: int, resampler: str = "soxr") -> Float32s:
    """Resample float32 waveforms of shape (n,) or (channels, n) from `rate` to `new_rate` in Hz.

    `resampler` is ``"soxr"`` or ``"polyphase"``, as in `read_audio`.
    """
    if resampler not in ("soxr", "polyphase"):
        raise InputError(f"resampler must be 'soxr' or 'polyphase'. Got {resampler!r} instead.")
    if rate == new_rate:
        return waves
    if waves.ndim == 2:  # row by row, so that a channel is what it is alone
        return np.stack([resample(wave, rate, new_rate, resampler) for wave in waves])
    common = gcd(rate, new_rate)
    if resampler == "soxr" or max(rate, new_rate) // common > _MAX_STEPS:
        return np.asarray(soxr.resample(waves, rate, new_rate, quality="HQ"), np.float32)
    from scipy.signal import resample_poly

    return np.asarray(resample_poly(waves, new_rate // common, rate // common), np.float32)


@contextmanager
def naming(path: Source | None) -> Iterator[None]:
    """Add the file's name to `AudioError` raised inside."""
    try:
        yield
    except AudioError as error:
        raise AudioError(error.reason, path=path) from None


@contextmanager
def _opened(
    path: Location | None, content: bytes, limits: AudioLimits
) -> Iterator[soundfile.SoundFile]:
    """The opened recording, after every check of its declarations; errors inside name it."""
    with naming(path), _stream(path, content, limits) as stream:
        suffix = path.suffix.lower() if path else suffix_of_content(stream.read(16))
        if suffix is None:
            raise AudioError(f"not audio of a known format ({READABLE}).")
        cut = truncation(stream)
        if cut is not None:
            raise AudioError(f"truncated: {cut}. Copy or record the file again.")
        stream.seek(0)
        try:
            file = soundfile.SoundFile(stream)
        except (soundfile.SoundFileError, RuntimeError, TypeError, ValueError, OSError) as error:
            raise AudioError(f"not readable as audio ({_reason(error)}).") from None
        with file:
            _check_header(file, suffix, limits)
            yield file


def _stream(path: Location | None, content: bytes, limits: AudioLimits) -> BinaryIO:
    """The bytes of a recording: those given, a file, or a remote file fetched at once."""
    if path is not None and path.suffix.lower() not in FORMATS:
        raise AudioError(
            f"the extension {path.suffix!r} is not one of {', '.join(FORMATS)}. Convert the "
            "recording, or give the file the extension of its format."
        )
    if content or path is None:
        _require_size(len(content), limits)
        return BytesIO(content)
    try:
        with explain_errors(path):
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise AudioError("not a regular file.")
            _require_size(status.st_size, limits)
            return path.open("rb") if isinstance(path, Path) else BytesIO(path.read_bytes())
    except DacoError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise AudioError(f"cannot be opened ({reason}).") from None


def _require_size(size: int, limits: AudioLimits) -> None:
    if size == 0:
        raise AudioError("the file is empty.")
    if size > limits.bytes:
        raise AudioError(
            f"it has {size} bytes, more than the limit of {limits.bytes}. Cut it into clips."
        )


def _check_header(file: soundfile.SoundFile, suffix: str, limits: AudioLimits) -> None:
    frames, rate, channels = file.frames, file.samplerate, file.channels
    if file.format not in FORMATS[suffix]:
        problem = f"its extension is {suffix}, but its content is {file.format}. Rename it."
    elif frames >= _UNKNOWN_FRAMES:
        problem = "the header does not state the length of the recording."
    elif frames <= 0 or channels <= 0:
        problem = "there is no sound in the file (0 frames)."
    elif not limits.min_rate <= rate <= limits.max_rate:
        low, high = limits.min_rate, limits.max_rate
        problem = f"the sample rate is {rate} Hz, outside {low} to {high} Hz."
    elif frames / rate > limits.seconds:
        longest = f"{limits.seconds:g} s. Cut the recording into clips."
        problem = f"it lasts {frames / rate:.1f} s, more than the limit of {longest}"
    elif frames * channels > limits.values:
        most = f"{limits.values} values. Cut the recording or drop channels."
        problem = f"{frames} frames of {channels} channels are more than the limit of {most}"
    else:
        return
    raise AudioError(problem)


def _read(file: soundfile.SoundFile, policy: int | str) -> Float32s:
    """What a policy takes, block by block, so that unused channels are not kept."""
    step = max(1, _BLOCK_VALUES // file.channels)
    blocks: list[Float32s] = []
    done = 0
    while done < file.frames:
        try:
            block = file.read(min(step, file.frames - done), dtype="float32", always_2d=True)
        except (soundfile.SoundFileError, RuntimeError) as error:
            raise AudioError(
                f"damaged after {done} of {file.frames} frames ({_reason(error)})."
            ) from None
        if not len(block):
            raise AudioError(
                f"truncated: only {done} of {file.frames} frames could be decoded. Copy or record "
                "the file again."
            )
        done += len(block)
        blocks.append(take_channels(block, policy))
    waves = np.concatenate(blocks, axis=-1)
    _require_sound(waves)
    return waves


def _require_end(file: soundfile.SoundFile) -> None:
    decoded = 0
    with suppress(soundfile.SoundFileError, RuntimeError):
        file.seek(file.frames - 1)
        decoded = len(file.read(1))
    if not decoded:
        raise AudioError("truncated: the end is missing or damaged. Copy or record the file again.")


def _require_sound(waves: Float32s) -> None:
    peak = max(float(waves.max()), -float(waves.min()))
    bad = np.flatnonzero(~np.isfinite(waves))
    if len(bad):
        first = bad[0] % waves.shape[-1]
        raise AudioError(f"{len(bad)} samples are NaN or inf, the first is sample {first}.")
    if peak > _PEAK:
        raise AudioError(
            f"the largest sample is {peak:.3g}, full scale is 1. The file is damaged or is not "
            "sound."
        )


def _reason(error: BaseException) -> str:
    text = str(getattr(error, "error_string", "") or error).strip().rstrip(".")
    return text or type(error).__name__
