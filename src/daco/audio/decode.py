"""Recordings to float32 waveforms: bounded decoding, channel policies, resampling.

A file is checked before it is decoded (size, declared length, rate, channels) and decoded in
blocks, so a header that lies costs an error and not the memory of the machine. Whatever is
wrong with a file ends in an `AudioError` that names it.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from io import BytesIO
from math import gcd
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeAlias

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from daco.audio.formats import FORMATS
from daco.audio.microphones import FAR, NEAR, heard, needs_both, parse_channel, require_channels
from daco.errors import AudioError, InputError
from daco.files.remote import Location, parse_location
from daco.validation import Float32s

Waveforms = NDArray[np.float32] | NDArray[np.int16]
if TYPE_CHECKING:
    from daco.files.stores import RemotePath

Source: TypeAlias = "str | os.PathLike[str] | RemotePath"

_BLOCK_VALUES = 1 << 20
_UNKNOWN_FRAMES = 1 << 60  # libsndfile's answer for a header without a length is near 2**63
_PEAK = 1e6  # integers stored as floats stay below; squares of it stay finite in float32
_SOUND_CHUNKS: dict[bytes, tuple[bytes, Literal["little", "big"]]] = {
    b"RIFF": (b"data", "little"),
    b"RF64": (b"data", "little"),
    b"RIFX": (b"data", "big"),
    b"FORM": (b"SSND", "big"),
}
_MAX_CHUNKS = 1000
_OGG_PAGE = 65_307
_MOST_STEPS = 2_000  # of a polyphase filter: 20 taps each, and all rates of recorders are below


@dataclass(frozen=True)
class AudioInfo:
    """What a file's header declares."""

    frames: int
    sample_rate: int
    channels: int
    seconds: float
    format: str


@dataclass(frozen=True)
class AudioLimits:
    """The most a recording may be; anything beyond is an `AudioError` before decoding.

    Parameters
    ----------
    bytes : int
        Size of the file.
    values : int
        Frames times channels, as declared by the header.
    min_rate, max_rate : int
        Sample rate in Hz.
    seconds : float
        Duration.
    samples : int
        Length of one channel after resampling.
    """

    bytes: int = 1 << 30
    values: int = 1 << 27
    min_rate: int = 1_000
    max_rate: int = 384_000
    seconds: float = 3600.0
    samples: int = 1 << 27


DEFAULT_LIMITS = AudioLimits()
"""An hour at 32 kHz mono still fits."""


def probe(path: Source, limits: AudioLimits = DEFAULT_LIMITS) -> AudioInfo:
    """What the header of a recording declares, after the checks that need no decoding."""
    path = parse_location(path)
    with _open(path, limits) as sound:
        return _describe(sound)


def read_audio(
    path: Source,
    *,
    sample_rate: int | None = None,
    channel: int | str = 0,
    limits: AudioLimits = DEFAULT_LIMITS,
    resampler: str = "soxr",
    content: bytes = b"",
) -> Float32s:
    """What a network hears of a recording, at its native length.

    Parameters
    ----------
    path : path
        A file with one of the extensions of `daco.audio.formats.FORMATS`, here or remote.
    sample_rate : int or None
        The rate to resample to (soxr, high quality); None keeps the file's own.
    channel : int or str
        A channel, or a policy of :func:`daco.audio.microphones.parse_channel`. One that subtracts a
        microphone does so after resampling.
    limits : AudioLimits
        Checked before decoding.
    resampler : {"soxr", "polyphase"}
        soxr in high quality, or SciPy's short polyphase filter, for networks whose published
        embeddings were made with it.
    content : bytes
        Of a remote file, where they were fetched already.

    Returns
    -------
    array of float32, shape (n,)
        Of shape (2, n), near and far microphone, for the residual of two embeddings.
    """
    policy = parse_channel(channel)
    waves, rate = read_channels(
        path,
        sample_rate=sample_rate,
        channel=policy,
        limits=limits,
        resampler=resampler,
        content=content,
    )
    try:
        return heard(waves, policy, sample_rate or rate)
    except AudioError as error:
        raise AudioError(error.reason, path=path) from None


def read_channels(
    path: Source,
    *,
    sample_rate: int | None = None,
    channel: int | str = 0,
    limits: AudioLimits = DEFAULT_LIMITS,
    resampler: str = "soxr",
    content: bytes = b"",
) -> tuple[Float32s, int]:
    """What a channel policy takes of a recording, and the file's own rate.

    As `read_audio`, but before one microphone is subtracted from the other: shape (2, n), near
    and far, for all policies that need both.
    """
    _, waves, rate = read_at_both_rates(
        path,
        sample_rate=sample_rate,
        channel=channel,
        limits=limits,
        resampler=resampler,
        content=content,
    )
    return waves, rate


def read_at_both_rates(
    path: Source,
    *,
    sample_rate: int | None = None,
    channel: int | str = 0,
    limits: AudioLimits = DEFAULT_LIMITS,
    resampler: str = "soxr",
    content: bytes = b"",
) -> tuple[Float32s, Float32s, int]:
    """As `read_channels`, with the samples at the file's own rate before them; decoded once."""
    policy = parse_channel(channel)
    path = parse_location(path)
    frames, rate, new_rate = _read_frames(path, policy, sample_rate, limits, content)
    _require_sound(frames, path)
    if new_rate == rate:
        return frames, frames, rate
    waves = resample(frames, rate, new_rate, resampler)
    if not waves.size:
        raise AudioError(
            f"nothing is left of {frames.shape[-1]} samples at {new_rate} Hz.", path=path
        )
    return frames, waves, rate


def read_with_near(path: Source, *, channel: int | str = 0) -> tuple[Float32s, Float32s, int, int]:
    """What a channel policy takes of a recording, its near microphone, the rate and the channels.

    All is decoded at once, at the file's own rate.
    """
    policy = parse_channel(channel)
    path = parse_location(path)
    frames, rate, _ = _read_frames(path, policy, None, DEFAULT_LIMITS, b"", take=False)
    taken, near = _taken(frames, policy), frames[:, NEAR].copy()
    for waves in (taken, near):
        _require_sound(waves, path)
    return taken, near, rate, frames.shape[1]


def _read_frames(
    path: Location,
    policy: int | str,
    sample_rate: int | None,
    limits: AudioLimits,
    content: bytes,
    *,
    take: bool = True,
) -> tuple[Float32s, int, int]:
    """Decoded samples, the file's own rate and the one wanted; all channels unless `take`."""
    if sample_rate is not None and not limits.min_rate <= sample_rate <= limits.max_rate:
        raise InputError(
            f"The 'sample_rate' parameter of read_audio must be between {limits.min_rate} and "
            f"{limits.max_rate} Hz. Got {sample_rate!r} instead."
        )
    with _open(path, limits, content) as sound:
        info = _describe(sound)
        try:
            require_channels(policy, info.channels)
        except AudioError as error:
            raise AudioError(error.reason, path=path) from None
        rate = info.sample_rate if sample_rate is None else sample_rate
        length = -(-info.frames * rate // info.sample_rate)
        if length > limits.samples:
            raise AudioError(
                f"{info.seconds:.1f} s would be {length} samples at {rate} Hz, more than "
                f"the limit of {limits.samples}. Cut the recording into clips.",
                path=path,
            )
        return _decode(sound, path, info, policy if take else None), info.sample_rate, rate


def resample(waves: Float32s, rate: int, new_rate: int, resampler: str = "soxr") -> Float32s:
    """Waveforms, (n,) or (channels, n), at another rate; `resampler` as in `read_audio`."""
    if resampler not in ("soxr", "polyphase"):
        raise InputError(f"resampler must be 'soxr' or 'polyphase'. Got {resampler!r} instead.")
    if waves.ndim == 2:  # row by row, so that a channel is what it is alone
        return np.stack([resample(wave, rate, new_rate, resampler) for wave in waves])
    common = gcd(rate, new_rate)
    if resampler == "soxr" or max(rate, new_rate) // common > _MOST_STEPS:
        return np.asarray(soxr.resample(waves, rate, new_rate, quality="HQ"), np.float32)
    from scipy.signal import resample_poly

    return np.asarray(resample_poly(waves, new_rate // common, rate // common), np.float32)


def _open(path: Location, limits: AudioLimits, content: bytes = b"") -> soundfile.SoundFile:
    """The opened file, every check of its declarations passed."""
    source: Path | BytesIO
    if isinstance(path, Path):
        _check_file(path, limits)
        source = path
    else:
        source = _fetched(path, limits, content)
    try:
        sound = soundfile.SoundFile(source)
    except (soundfile.SoundFileError, RuntimeError, TypeError, ValueError, OSError) as error:
        raise AudioError(f"not readable as audio ({_reason(error)}).", path=path) from None
    try:
        _check_header(sound, path, limits)
    except BaseException:
        sound.close()
        raise
    return sound


def _fetched(path: RemotePath, limits: AudioLimits, content: bytes) -> BytesIO:
    """The whole of a remote file: decoding asks for it piece by piece, at a request each."""
    if path.suffix.lower() in FORMATS or path.exists():  # a folder that is not there has no ending
        _check_suffix(path)
    size = len(content)
    if not content:
        try:
            size, _, content = path.fetch(limits.bytes)
        except FileNotFoundError as error:
            raise AudioError(f"cannot be opened ({error.strerror}).", path=path) from None
        size = len(content) or size
    _check_size(path, size, limits)
    file = BytesIO(content)
    _check_content(path, file, len(content))
    file.seek(0)
    return file


def _check_file(path: Path, limits: AudioLimits) -> None:
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise AudioError(
            f"cannot be opened ({getattr(error, 'strerror', None) or error}).", path=path
        ) from None
    if not stat.S_ISREG(status.st_mode):
        raise AudioError("not a regular file.", path=path)
    _check_suffix(path)
    _check_size(path, status.st_size, limits)
    try:
        with path.open("rb") as file:
            _check_content(path, file, status.st_size)
    except OSError as error:
        raise AudioError(f"cannot be read ({error.strerror}).", path=path) from None


def _check_suffix(path: Location) -> None:
    if path.suffix.lower() not in FORMATS:
        raise AudioError(
            f"the extension {path.suffix!r} is not one of {', '.join(FORMATS)}. Convert "
            "the recording, or give the file the extension of its format.",
            path=path,
        )


def _check_size(path: Location, size: int, limits: AudioLimits) -> None:
    if size == 0:
        raise AudioError("the file is empty.", path=path)
    if size > limits.bytes:
        raise AudioError(
            f"{size} bytes are more than the limit of {limits.bytes}. Cut the recording "
            "into clips.",
            path=path,
        )


def _check_content(path: Location, file: BinaryIO, size: int) -> None:
    claimed, present = _claimed_bytes(file, size)
    if claimed > present:  # libsndfile would quietly take what is there
        raise AudioError(
            f"truncated, the header claims {claimed} bytes of sound and {present} are "
            "there. Copy or record the file again.",
            path=path,
        )
    if _ogg_is_cut(file, size):
        raise AudioError("truncated, its end is missing. Copy or record the file again.", path=path)


def _check_header(sound: soundfile.SoundFile, path: Location, limits: AudioLimits) -> None:
    expected = FORMATS[path.suffix.lower()]
    if sound.format not in expected:
        raise AudioError(
            f"the name says {path.suffix.lower()[1:]} but the file holds {sound.format}. "
            "Rename it.",
            path=path,
        )
    frames, rate, channels = sound.frames, sound.samplerate, sound.channels
    if frames >= _UNKNOWN_FRAMES:
        raise AudioError("the header does not say how long the recording is.", path=path)
    if frames <= 0 or channels <= 0:
        raise AudioError("there is no sound in the file (0 frames).", path=path)
    if not limits.min_rate <= rate <= limits.max_rate:
        raise AudioError(
            f"the sample rate is {rate} Hz, outside {limits.min_rate} to {limits.max_rate} Hz.",
            path=path,
        )
    if frames / rate > limits.seconds:
        raise AudioError(
            f"{frames / rate:.1f} s are more than the limit of {limits.seconds:g} s. Cut "
            "the recording into clips.",
            path=path,
        )
    if frames * channels > limits.values:
        raise AudioError(
            f"{frames} frames of {channels} channels are more than the limit of "
            f"{limits.values} values. Cut the recording or drop channels.",
            path=path,
        )


def _claimed_bytes(file: BinaryIO, size: int) -> tuple[int, int]:
    """Bytes of sound a RIFF or AIFF header claims and bytes there are; (0, 0) without such one."""
    kind = file.read(12)[:4]
    if kind not in _SOUND_CHUNKS:
        return 0, 0
    sound_chunk, order = _SOUND_CHUNKS[kind]
    long_size = None
    for _ in range(_MAX_CHUNKS):
        header = file.read(8)
        if len(header) < 8:
            break
        claimed = int.from_bytes(header[4:], order)
        start = file.tell()
        if header[:4] == sound_chunk:
            if claimed == 0xFFFFFFFF:  # RF64, or written to a pipe: then the length is unknown
                claimed = size - start if long_size is None else long_size
            return claimed, size - start
        if header[:4] == b"ds64":  # RF64 keeps its 64-bit sizes here
            long_size = int.from_bytes(file.read(16)[8:16], "little")
        file.seek(start + claimed + claimed % 2)
    return 0, 0


def _ogg_is_cut(file: BinaryIO, size: int) -> bool:
    """True for an Ogg stream whose last page is not marked as the last."""
    file.seek(0)
    if file.read(4) != b"OggS":
        return False
    file.seek(max(0, size - _OGG_PAGE))
    tail = file.read(_OGG_PAGE)
    last = tail.rfind(b"OggS")
    return last < 0 or len(tail) < last + 6 or not tail[last + 5] & 4


def _describe(sound: soundfile.SoundFile) -> AudioInfo:
    seconds = sound.frames / sound.samplerate
    return AudioInfo(sound.frames, sound.samplerate, sound.channels, seconds, sound.format)


def _decode(
    sound: soundfile.SoundFile, path: Location, info: AudioInfo, policy: int | str | None
) -> Float32s:
    """What the policy takes (None: all), block by block: no more is held than the file has."""
    step = max(1, _BLOCK_VALUES // info.channels)
    blocks: list[Float32s] = []
    left = info.frames
    while left > 0:
        try:
            block = sound.read(min(step, left), dtype="float32", always_2d=True)
        except (soundfile.SoundFileError, RuntimeError) as error:
            raise AudioError(
                f"damaged after {info.frames - left} of {info.frames} frames ({_reason(error)}).",
                path=path,
            ) from None
        if not len(block):
            raise AudioError(
                f"truncated, the header claims {info.frames} frames and "
                f"{info.frames - left} could be decoded. Copy or record the file again.",
                path=path,
            )
        left -= len(block)
        blocks.append(block if policy is None else _taken(block, policy))
    axis = 0 if policy is None else -1
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=axis)


def _taken(block: Float32s, policy: int | str) -> Float32s:
    """What a policy takes of samples of shape (n, channels)."""
    channels = block.shape[1]
    if channels == 1:
        return block[:, 0]
    if policy == "mix":
        return block @ np.full(channels, 1 / channels, np.float32)
    if needs_both(policy):
        return block[:, : FAR + 1].T.copy()
    return block[:, int(policy)].copy()  # a view would keep all channels alive


def _require_sound(waves: Float32s, path: Location) -> None:
    peak = max(float(waves.max()), -float(waves.min()))
    if peak <= _PEAK:  # false for NaN as well
        return
    bad = int(np.count_nonzero(~np.isfinite(waves)))
    if bad:
        first = int(np.argmax(~np.isfinite(waves))) % waves.shape[-1]
        raise AudioError(f"{bad} samples are NaN or inf, the first is sample {first}.", path=path)
    raise AudioError(
        f"the largest sample is {peak:.3g}, full scale is 1. The file is damaged or is not sound.",
        path=path,
    )


def _reason(error: BaseException) -> str:
    text = str(getattr(error, "error_string", "") or error).strip().rstrip(".")
    return text or type(error).__name__
