"""Sound to vectors: the one way from a file, bytes, a stream or samples to embeddings.

`embed_waves` embeds a batch, `embed_equal` clips of one length. `Listener` embeds one recording,
whole or in windows, as the normals of a model were embedded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from daco.audio.decode import Decoder, Sound
from daco.audio.formats import DEFAULT_LIMITS, AudioLimits
from daco.audio.microphones import FAR, NEAR, apply_channel, is_residual, needs_both, residual
from daco.audio.quality import length_reasons, quality_of
from daco.backbones import Backbone, load
from daco.backbones.levels import LEVELS, level_network, sound_levels
from daco.backbones.protocol import embed_safely
from daco.backbones.several import Networks, view_name
from daco.embedding.provenance import Frontend as Frontend
from daco.embedding.provenance import frontend_of as frontend_of
from daco.errors import AudioError, InputError, ModelError
from daco.files.remote import Location, is_remote
from daco.validation import Float32s, Float64s

Source: TypeAlias = "Location | bytes | BinaryIO"
"""A recording: its path, its content, or a stream of its content."""

MAX_SAMPLES = 1 << 25
"""Samples waiting for the network, and samples in one batch: 128 MiB each at most."""

MAX_WINDOWS = 10_000
BATCH_SIZE = 16


def decoder_of(
    network: Backbone | Frontend, channel: int | str, limits: AudioLimits = DEFAULT_LIMITS
) -> Decoder:
    """Decodes recordings for one network."""
    return Decoder(network.sample_rate, channel, network.resampler, limits)


def embed_waves(
    net: Backbone, waves: Sequence[NDArray[Any]], readouts: Sequence[str], policy: int | str
) -> dict[str, Float32s]:
    """The vectors (clips, D) of a batch by readout; every way from recordings ends here.

    `waves` has an array (clips, n) or (clips, 2, n) for each of ``net.networks``, as
    `daco.audio.microphones.apply_channel` returned them for each clip. The readout ``levels``
    stands for those of the sound, which are none of the network's.
    """
    if LEVELS in readouts:
        heard = level_network(net.networks)
        wave = waves[net.networks.index(heard)]
        levels = sound_levels(wave[:, NEAR] if wave.ndim > 2 else wave, heard.sample_rate)
        others = [name for name in readouts if name != LEVELS]
        return {**embed_waves(net, waves, others, policy), LEVELS: levels}

    def embed(parts: Sequence[NDArray[Any]]) -> dict[str, Float32s]:
        return embed_safely(net, parts if len(parts) > 1 else parts[0], readouts)

    if not is_residual(policy):
        return embed(waves)
    # One after the other: a forward pass has no more clips than the user allowed.
    near = embed([wave[:, NEAR] for wave in waves])
    far = embed([wave[:, FAR] for wave in waves])
    return {name: residual(near[name], far[name], policy) for name in readouts}


def embed_equal(
    net: Backbone,
    clips: Iterable[Sequence[Float32s]],
    readouts: Sequence[str],
    policy: int | str,
    batch_size: int = BATCH_SIZE,
) -> dict[str, Float32s]:
    """The vectors of clips of one length, a batch of them in memory at a time.

    `clips` yields for each clip what `Decoder.decode` takes of it for each of ``net.networks``,
    arrays (n,) or (2, n). A vector with NaN or inf raises an `AudioError`.
    """
    parts: dict[str, list[Float32s]] = {name: [] for name in readouts}
    rates = [each.sample_rate for each in net.networks]
    source = (
        [apply_channel(wave, policy, rate) for wave, rate in zip(clip, rates, strict=True)]
        for clip in clips
    )
    for first in source:
        size = sum(wave.size for wave in first)
        batch = [first, *islice(source, max(1, min(batch_size, MAX_SAMPLES // size)) - 1)]
        waves = [np.stack(each) for each in zip(*batch, strict=True)]
        for name, vectors in embed_waves(net, waves, readouts, policy).items():
            if not np.isfinite(vectors).all():
                raise AudioError(f"its {net.name} embedding contains NaN or infinity.")
            parts[name].append(vectors)
    return {name: np.concatenate(vectors) for name, vectors in parts.items()}


@dataclass(frozen=True, eq=False)
class EmbeddedRecording:
    """The windows of one recording.

    Attributes
    ----------
    embeddings, levels : (n_windows, D) and (n_windows, Q) float32
        The embeddings, of several views side by side, and the sound levels
        (:func:`daco.backbones.levels.sound_levels`) of each window.
    starts : (n_windows,) float
        Start of each window, in seconds.
    seconds, sample_rate : float, int
        Length and sample rate of the recording itself.
    reasons : tuple of str
        Problems of the sound: ``silent``, ``clipped``, ``short`` or ``long``, each followed by a
        colon and the details.
    """

    embeddings: Float32s
    starts: Float64s
    seconds: float
    sample_rate: int
    reasons: tuple[str, ...]
    levels: Float32s | None = None


class Listener:
    """Embeds recordings as the normals of a model were embedded; loads the network once.

    Parameters
    ----------
    frontend : Frontend or None
        The frontend of the model. None, of a model of your own embeddings, raises a `ModelError`.
    weights : path, optional
        The checkpoint, if it was not downloaded.
    device : str
        Where the network computes, such as ``"cpu"`` or ``"cuda"``.

    Raises
    ------
    ModelError
        The weights or the network are not those with which the normals were embedded.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.embedding.frontend import Frontend, Listener
    >>> listener = Listener(Frontend("logmel", "mod", 16000, 0, "fp32", "soxr", None))
    >>> recording = listener.embed_waveform(np.zeros(32000, np.float32), 16000)
    >>> recording.embeddings.shape, recording.reasons
    ((1, 112), ('silent: -inf dB of full scale',))
    """

    def __init__(
        self,
        frontend: Frontend | None,
        *,
        weights: str | os.PathLike[str] | None = None,
        device: str = "cpu",
    ) -> None:
        if frontend is None:
            raise ModelError(
                "This model was fitted on embeddings of your own and cannot embed recordings. "
                "Give it a table of embeddings made in the same way."
            )
        self.frontend = frontend
        networks: dict[str, Backbone] = {}
        for view in frontend.views:
            if view.backbone not in networks:
                needs_weights = view.weights_sha256 or len(frontend.views) == 1
                networks[view.backbone] = _load(view, weights if needs_weights else None, device)
            _require_network(networks[view.backbone], view)
        alone = len(networks) == 1
        self.net = next(iter(networks.values())) if alone else Networks([*networks.values()])
        self.readouts = tuple(
            view.readout if alone else view_name(networks[view.backbone], view.readout)
            for view in frontend.views
        )
        """The views of the model, as the networks here name them."""

    def embed(
        self,
        source: Source,
        *,
        window: float | None = None,
        hop: float | None = None,
        limits: AudioLimits | None = None,
    ) -> EmbeddedRecording:
        """Decode and embed one recording, and return an `EmbeddedRecording`.

        Parameters
        ----------
        source : Path, bytes or binary stream
            The format of bytes and streams is recognised by their content.
        window, hop : float, optional
            Length of the windows, and distance of their starts (by default their length), in
            seconds. The last window ends with the recording; a shorter recording is one window.
            By default the whole recording is one window.
        limits : AudioLimits, optional
            The largest recording to decode.

        Raises
        ------
        AudioError
            The recording cannot be used.
        """
        decoder = decoder_of(self.frontend, self.frontend.channel, limits or DEFAULT_LIMITS)
        if not isinstance(source, Path | bytes) and not is_remote(source):
            source = source.read(decoder.limits.bytes + 1)
        return self._embed(decoder.decode(source), window, hop, decoder.limits)

    def embed_waveform(
        self,
        waveform: Float32s,
        sample_rate: int,
        *,
        window: float | None = None,
        hop: float | None = None,
    ) -> EmbeddedRecording:
        """Embed samples at the sample rate of the network, and return an `EmbeddedRecording`.

        `waveform` has one channel, (n,); or near and far microphone, (2, n), if the channel policy
        of the model needs both.
        """
        if sample_rate != self.frontend.sample_rate:
            raise InputError(
                f"The network needs {self.frontend.sample_rate} Hz. Got {sample_rate} Hz: resample."
            )
        wave: Any = np.asarray(waveform)
        both = needs_both(self.frontend.channel)
        fits = wave.ndim == 2 and len(wave) == 2 if both else wave.ndim == 1
        if not fits or not wave.size:
            shape = "(2, n)" if both else "(n,)"
            raise InputError(
                f"A model with the channel {self.frontend.channel!r} needs samples of the shape "
                f"{shape}. Got {wave.shape}."
            )
        return self._embed(Sound(wave, wave, sample_rate), window, hop, DEFAULT_LIMITS)

    def _embed(
        self, sound: Sound, window: float | None, hop: float | None, limits: AudioLimits
    ) -> EmbeddedRecording:
        frontend, native = self.frontend, sound.native
        seconds = native.shape[-1] / sound.rate
        samples = sound.waves.shape[-1]
        starts, length = cut(samples, frontend.sample_rate, window, hop)
        others = [decoder_of(each, frontend.channel, limits) for each in self.net.networks[1:]]
        waves = [sound.waves, *(each.resampled(native, sound.rate) for each in others)]
        # A window is to the model what a clip was: the far microphone is subtracted in each.
        whole = None if length == samples else length
        windows = [
            _windows(wave, starts, whole, network.sample_rate / frontend.sample_rate)
            for wave, network in zip(waves, self.net.networks, strict=True)
        ]
        clips = zip(*windows, strict=True)
        vectors = embed_equal(self.net, clips, (*self.readouts, LEVELS), frontend.channel)
        parts = [vectors[name] for name in self.readouts]
        return EmbeddedRecording(
            embeddings=parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1),
            starts=np.asarray(starts) / frontend.sample_rate,
            seconds=seconds,
            sample_rate=sound.rate,
            reasons=(
                *quality_of(sound)["reasons"],
                *(length_reasons(seconds, frontend.seconds) if window is None else ()),
            ),
            levels=vectors[LEVELS],
        )


def _windows(
    waves: Float32s, starts: Sequence[int], length: int | None, scale: float
) -> Iterator[Float32s]:
    """Windows whose `starts` are at a rate `scale` times as low; one without a `length`."""
    total = waves.shape[-1]
    size = total if length is None else min(total, round(scale * length))
    for start in starts:
        first = min(round(scale * start), total - size)
        yield waves[..., first : first + size]


def cut(
    samples: int, sample_rate: int, window: float | None, hop: float | None
) -> tuple[list[int], int]:
    """Starts of the windows of a recording, and their length, in samples.

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
            raise InputError("A hop needs a window. Give the length of the windows, too.")
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


def _load(view: Frontend, weights: str | os.PathLike[str] | None, device: str) -> Backbone:
    try:
        return load(view.backbone, weights, device, view.precision, view.sample_rate)
    except InputError as error:
        if view.package is None:
            raise
        needed = f"The model needs {view.backbone!r} of the package {view.package}. "
        raise ModelError(f"{needed}{error}") from None


def _require_network(net: Backbone, frontend: Frontend) -> None:
    needed, here = (
        f"{name} {f'of {each.package} ' if each.package else ''}in {each.precision} at "
        f"{each.sample_rate} Hz with {each.resampler}"
        for name, each in ((frontend.backbone, frontend), (net.name, net))
    )
    if needed != here:
        raise ModelError(f"The model needs {needed}. This is {here}: change it, or fit again.")
    if net.weights_sha256 != frontend.weights_sha256:
        raise ModelError(
            f"The model was made with weights of {frontend.backbone} whose SHA-256 begins "
            f"{(frontend.weights_sha256 or 'none')[:12]}; those found here begin "
            f"{(net.weights_sha256 or 'none')[:12]}. Scores would be meaningless: use the "
            "weights it was made with."
        )
    try:
        net.check_readout(frontend.readout)
    except InputError as error:
        raise ModelError(str(error)) from None
