"""Listener: a recording (a file, bytes, a stream) to embeddings, and what is odd about its sound.

It makes vectors in the very way the model's normals were made, decodes within limits, and cuts
long recordings into windows.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from daco.audio.decode import DEFAULT_LIMITS, AudioLimits, Waveforms, read_at_both_rates
from daco.audio.formats import READABLE, suffix_of_content
from daco.audio.microphones import FAR, NEAR, heard, is_residual, needs_both, residual
from daco.audio.pcm import plain_pcm16
from daco.audio.quality import far_reasons, length_reasons, loudness, sound_reasons
from daco.backbones import Backbone, load
from daco.backbones.readout import require_readout
from daco.embedding.loader import MAX_SAMPLES
from daco.embedding.shards import read_recording
from daco.errors import AudioError, InputError, ModelError
from daco.files.remote import Location, is_remote

Source: TypeAlias = "Location | bytes | BinaryIO"
"""A recording: where it lies, its content, or a stream of its content."""

MAX_WINDOWS = 10_000

_BATCH = 16


@dataclass(frozen=True)
class Frontend:
    """How recordings became vectors: a recording to be judged goes the same way.

    ``seconds`` is the usual length of the normals, None where it is not known.
    """

    backbone: str
    readout: str
    sample_rate: int
    channel: int | str
    precision: str
    resampler: str
    weights_sha256: str | None
    seconds: float | None = None


def embed_waves(
    net: Backbone, waves: NDArray[Any], readouts: Sequence[str], policy: int | str
) -> dict[str, NDArray[np.float32]]:
    """The vectors of a batch: every way from recordings to embeddings ends here.

    Parameters
    ----------
    net : Backbone
    waves : array of shape (clips, n) or (clips, 2, n)
        What `heard` gave for each clip.
    readouts : sequence of str
    policy : int or str

    Returns
    -------
    dict of arrays of shape (clips, D)
        By readout.
    """
    if not is_residual(policy):
        return net.embed_many(waves, readouts)
    # One after the other: a forward pass is as large as the user said.
    near = net.embed_many(waves[:, NEAR], readouts)
    far = net.embed_many(waves[:, FAR], readouts)
    return {name: residual(near[name], far[name], policy) for name in readouts}


@dataclass(frozen=True, eq=False)
class Heard:
    """The windows of one recording.

    Attributes
    ----------
    embeddings : (n_windows, D) float32
    starts : (n_windows,) float
        Where each window begins, in seconds.
    seconds : float
        Length of the recording.
    sample_rate : int
        Of the recording itself.
    reasons : tuple of str
        What is odd about its sound: ``silent``, ``clipped``, ``short`` or ``long``, each with a
        colon and the figures after it.
    peak, rms : float
        Largest absolute sample, and root mean square around the mean; full scale is 1. Of the
        near microphone where the model listens to two.
    """

    embeddings: NDArray[np.float32]
    starts: NDArray[np.float64]
    seconds: float
    sample_rate: int
    reasons: tuple[str, ...]
    peak: float
    rms: float


class Listener:
    """Hears recordings as a model's normals were heard; loads the network once.

    Parameters
    ----------
    frontend : Frontend or None
        Of the model. None, a model of a user's own embeddings, cannot hear: a `ModelError`.
    weights : path, optional
        The checkpoint, where it was not downloaded.
    device : str
        Of the network.
    net : Backbone, optional
        The network itself, so that the models of many machines share one; else it is loaded.

    Raises
    ------
    ModelError
        The weights or the network are not those the normals were embedded with.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.embedding.frontend import Listener
    >>> from daco.embedding.frontend import Frontend
    >>> listener = Listener(Frontend("logmel", "mod", 16000, 0, "fp32", "soxr", None))
    >>> heard = listener.hear_waveform(np.zeros(32000, np.float32), 16000)
    >>> heard.embeddings.shape, heard.reasons
    ((1, 112), ('silent: -inf dB of full scale',))
    """

    def __init__(
        self,
        frontend: Frontend | None,
        *,
        weights: str | os.PathLike[str] | None = None,
        device: str = "cpu",
        net: Backbone | None = None,
    ) -> None:
        if frontend is None:
            raise ModelError(
                "This model was fitted on embeddings of your own, so that it cannot hear "
                "recordings. Give it a table of embeddings made in the same way."
            )
        self.frontend = frontend
        self.net = _load(frontend, weights, device) if net is None else net
        _require_network(self.net, frontend)

    def hear(
        self,
        source: Source,
        *,
        window: float | None = None,
        hop: float | None = None,
        limits: AudioLimits | None = None,
    ) -> Heard:
        """Decode and embed one recording.

        Parameters
        ----------
        source : Path, bytes or binary stream
            Of bytes and streams the format is told by the content.
        window, hop : float, optional
            Seconds of each window and from one to the next (by default the window). The last
            window ends with the recording, so that nothing goes unheard; a recording shorter
            than the window is one window. None: the recording as a whole.
        limits : AudioLimits, optional

        Raises
        ------
        AudioError
            The recording cannot be used; of bytes and streams no path is named.
        """
        bounds = limits or DEFAULT_LIMITS
        if isinstance(source, Path) or is_remote(source):
            native, wave, rate = _decoded(source, self.frontend, bounds)
        else:
            native, wave, rate = _decoded_bytes(
                cast(bytes | BinaryIO, source), self.frontend, bounds
            )
        return self._embedded(native, wave, rate, window, hop)

    def hear_waveform(
        self,
        waveform: Waveforms,
        sample_rate: int,
        *,
        window: float | None = None,
        hop: float | None = None,
    ) -> Heard:
        """Embed samples that are already here, at the network's sample rate.

        One channel, shape (n,); near and far microphone, shape (2, n), for a model whose channel
        policy needs both.
        """
        if sample_rate != self.frontend.sample_rate:
            raise InputError(
                f"The network hears {self.frontend.sample_rate} Hz. Got {sample_rate} Hz: resample."
            )
        wave: Any = np.asarray(waveform)
        if needs_both(self.frontend.channel):
            if wave.ndim != 2 or len(wave) != 2 or not wave.size:
                raise InputError(
                    f"A model with the channel {self.frontend.channel!r} needs two rows of "
                    f"samples, near and far microphone. Got shape {wave.shape}."
                )
            wave = wave / np.float32(32768) if wave.dtype == np.int16 else wave
        elif wave.ndim != 1 or not wave.size:
            raise InputError(f"A waveform is one row of samples. Got shape {wave.shape}.")
        return self._embedded(wave, wave, sample_rate, window, hop)

    def _embedded(
        self,
        native: Waveforms,
        wave: Waveforms,
        rate: int,
        window: float | None,
        hop: float | None,
    ) -> Heard:
        policy, readout = self.frontend.channel, self.frontend.readout
        samples = wave.shape[-1]
        seconds = native.shape[-1] / rate
        starts, length = cut(samples, self.frontend.sample_rate, window, hop)
        parts = []
        for batch in _batches(starts, length * wave.size // samples):
            # A window is to the model what a clip was: the far microphone is subtracted in each.
            windows = (wave[..., start : start + length] for start in batch)
            stacked = np.stack([heard(each, policy, self.frontend.sample_rate) for each in windows])
            parts.append(embed_waves(self.net, stacked, [readout], policy)[readout])
        embeddings = np.concatenate(parts)
        if not np.isfinite(embeddings).all():
            raise AudioError("the network's embedding of it has NaN or inf.")
        near = native[NEAR] if native.ndim == 2 else native
        peak, rms = loudness(near)
        whole = window is None
        reasons = [
            *sound_reasons(near, peak, rms),
            *(far_reasons(native[FAR]) if native.ndim == 2 else ()),
            *(length_reasons(seconds, self.frontend.seconds) if whole else ()),
        ]
        return Heard(
            embeddings=embeddings,
            starts=np.asarray(starts) / self.frontend.sample_rate,
            seconds=seconds,
            sample_rate=rate,
            reasons=tuple(reasons),
            peak=peak,
            rms=rms,
        )


def cut(
    samples: int, sample_rate: int, window: float | None, hop: float | None
) -> tuple[list[int], int]:
    """Where the windows of a recording start, and how long they are, in samples.

    Examples
    --------
    >>> from daco.embedding.frontend import cut
    >>> cut(250, 10, window=10, hop=None)
    ([0, 100, 150], 100)
    >>> cut(80, 10, window=10, hop=None)
    ([0], 80)
    """
    for name, value in (("window", window), ("hop", hop)):
        if value is not None and not (0 < value < float("inf")):
            raise InputError(f"The {name} must be a number of seconds above 0. Got {value!r}.")
    if window is None:
        if hop is not None:
            raise InputError("A hop needs a window: say how long the windows are.")
        return [0], samples
    length = max(1, round(window * sample_rate))
    if samples <= length:
        return [0], samples
    step = max(1, length if hop is None else round(hop * sample_rate))
    count = 1 + -(-(samples - length) // step)
    if count > MAX_WINDOWS:
        raise InputError(
            f"{count:,} windows in one recording are too many ({MAX_WINDOWS:,} at most). Choose a "
            "longer hop."
        )
    return [min(index * step, samples - length) for index in range(count)], length


def _batches(starts: list[int], samples: int) -> Iterator[list[int]]:
    """Windows of so many samples each, some at a time."""
    step = max(1, min(_BATCH, MAX_SAMPLES // samples))
    for first in range(0, len(starts), step):
        yield starts[first : first + step]


def _load(frontend: Frontend, weights: str | os.PathLike[str] | None, device: str) -> Backbone:
    if frontend.backbone == "logmel" and weights is None:
        from daco.backbones.logmel import LogMel

        return LogMel(frontend.sample_rate)
    return load(frontend.backbone, weights, device, frontend.precision)


def _require_network(net: Backbone, frontend: Frontend) -> None:
    if net.name != frontend.backbone or net.precision != frontend.precision:
        raise ModelError(
            f"The model was made with {frontend.backbone} in {frontend.precision}. This network is "
            f"{net.name} in {net.precision}."
        )
    if net.weights_sha256 != frontend.weights_sha256:
        raise ModelError(
            f"The model was made with weights of {frontend.backbone} whose SHA-256 begins "
            f"{(frontend.weights_sha256 or 'none')[:12]}; those found here begin "
            f"{(net.weights_sha256 or 'none')[:12]}. Scores would mean nothing: find the weights "
            "it was made with."
        )
    try:
        require_readout(net, frontend.readout)
    except InputError as error:
        raise ModelError(str(error)) from None
    if (net.sample_rate, net.resampler) != (frontend.sample_rate, frontend.resampler):
        raise ModelError(
            f"The model was made at {frontend.sample_rate} Hz with {frontend.resampler}; "
            f"{frontend.backbone} works at {net.sample_rate} Hz with {net.resampler}."
        )


def _decoded(
    path: Location, frontend: Frontend, limits: AudioLimits
) -> tuple[Waveforms, Waveforms, int]:
    """What the policy takes at the file's own rate and at the network's, and the file's rate."""
    _, content = (None, b"") if isinstance(path, Path) else read_recording(path)
    # Clipping shows at the file's own rate only, so that both are needed.
    return read_at_both_rates(
        path,
        sample_rate=frontend.sample_rate,
        channel=frontend.channel,
        limits=limits,
        resampler=frontend.resampler,
        content=content,
    )


def _decoded_bytes(
    source: bytes | BinaryIO, frontend: Frontend, limits: AudioLimits
) -> tuple[Waveforms, Waveforms, int]:
    data = source if isinstance(source, bytes) else source.read(limits.bytes + 1)
    if not data:
        raise AudioError("the recording is empty.")
    if len(data) > limits.bytes:
        raise AudioError(f"the recording is larger than the limit of {limits.bytes} bytes.")
    rate = frontend.sample_rate
    plain = plain_pcm16(data, sample_rate=rate, channel=frontend.channel, limits=limits)
    if plain is not None:
        return plain, plain, rate  # the networks of daco take 16 bits as they are
    suffix = suffix_of_content(data)
    if suffix is None:
        raise AudioError(f"not audio of a known format ({READABLE}).")
    with tempfile.TemporaryDirectory(prefix="daco-") as folder:
        path = Path(folder) / f"recording{suffix}"
        path.write_bytes(data)
        try:
            return _decoded(path, frontend, limits)
        except AudioError as error:
            raise AudioError(error.reason) from None
