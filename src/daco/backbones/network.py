"""A frozen torch module behind the Backbone protocol: device, precision, checks, readouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from daco.audio.formats import INT16_SCALE
from daco.backbones.protocol import Backbone
from daco.backbones.readout import READOUTS, Readout, parse_readout, pool
from daco.compute.device import tf32, torch_device
from daco.errors import InputError


class Network(Backbone):
    """A front end and an encoder that together make a Backbone.

    Parameters
    ----------
    name : the name it is loaded by
    features : waveforms (B, samples) to the encoder's input, always computed in float32
    encoder : module from that input to a grid (B, T, F, D) and named readouts of its own; it is
        moved to ``device`` and, with ``"bf16"``, to bfloat16. Where it has a ``depth``, its
        ``at_layers`` gives the same of any layer from 1 to ``depth``, the last being its output
    sample_rate : samples per second
    shortest : fewest samples that the encoder can work with
    own_readouts : names that the encoder's second output has
    default_readout : one of them, or a readout of the grid
    frame_rate : time steps of the grid per second; the readout ``mod`` needs it
    device, precision : see ``Backbone``
    resampler : how recordings of another rate should be resampled
    """

    takes_int16 = True

    def __init__(
        self,
        name: str,
        features: Callable[[Tensor], Tensor],
        encoder: nn.Module,
        *,
        sample_rate: int,
        shortest: int,
        default_readout: str,
        own_readouts: tuple[str, ...] = (),
        frame_rate: float | None = None,
        device: str = "cpu",
        precision: str = "fp32",
        resampler: str = "soxr",
    ) -> None:
        self.name, self.device, self.precision = name, device, precision
        self.sample_rate, self.shortest = sample_rate, shortest
        self.resampler = resampler
        self.frame_rate = frame_rate
        of_grid = tuple(name for name in READOUTS if name != "mod" or frame_rate is not None)
        self.readouts = (*own_readouts, *of_grid)
        self.default_readout = default_readout
        self.depth: int = getattr(encoder, "depth", 0)
        self.features = features
        self._device = torch_device(device)
        self._dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.parameters = sum(parameter.numel() for parameter in encoder.parameters())
        self.encoder = encoder.eval().requires_grad_(False).to(self._device, self._dtype)

    def embed_many(self, waveforms: Any, readouts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Several readouts of one forward pass, of as many layers as they name."""
        wanted = {name: self._parsed(name) for name in readouts}
        with torch.inference_mode():
            outputs = self._outputs(waveforms, {readout.layer for readout in wanted.values()})
            # The precision is that of the network; what it says is pooled exactly.
            with tf32(self._device, False):
                vectors = {
                    name: self._read(*outputs[readout.layer], readout)
                    for name, readout in wanted.items()
                }
            return {name: _numpy(vector) for name, vector in vectors.items()}

    def check_readout(self, name: str) -> None:
        """Raise an InputError unless there is such a readout.

        Besides `readouts` there are those of `daco.backbones.readout.PATTERNS`, and where the
        network has layers, each of them of a layer, as in ``mean@L4``.
        """
        self._parsed(name)

    def grid(self, waveforms: Any) -> NDArray[np.float32]:
        """Features before any pooling, (clips, time, frequency, dim)."""
        with torch.inference_mode():
            return _numpy(self._forward(waveforms)[0])

    def _parsed(self, name: str) -> Readout:
        return parse_readout(name, self.readouts, depth=self.depth, owner=self.name)

    def _read(self, grid: Tensor, own: dict[str, Tensor], readout: Readout) -> Tensor:
        if readout.kind in own:
            return own[readout.kind]
        name = replace(readout, layer=None).name
        pooled: Tensor = pool(grid.float(), name, frame_rate=self.frame_rate)
        return pooled

    def _forward(self, waveforms: Any) -> tuple[Tensor, dict[str, Tensor]]:
        return self._outputs(waveforms, {None})[None]

    def _outputs(
        self, waveforms: Any, layers: set[int | None]
    ) -> dict[int | None, tuple[Tensor, dict[str, Tensor]]]:
        """Grid and own readouts of each layer asked for; None is the output of the network."""
        x = self._on_device(waveforms)
        with tf32(x.device, False):
            features = self.features(x)
        features = features.to(self._dtype)
        with tf32(x.device, self.precision == "tf32"):
            if layers <= {None}:
                return {None: self.encoder(features)}
            layered: Any = self.encoder
            found = layered.at_layers(features, {layer or self.depth for layer in layers})
        return {layer: found[layer or self.depth] for layer in layers}

    def _on_device(self, waveforms: Any) -> Tensor:
        x = waveforms if isinstance(waveforms, Tensor) else _tensor(waveforms)
        allowed = x.is_floating_point() or x.dtype == torch.int16
        self.check_waveforms(x.shape, x.dtype, allowed=allowed)
        if self._device.type == "cuda" and x.device.type == "cpu":
            x = x.pin_memory()  # a copy on all cores, then a transfer at full speed
        x = x.to(self._device, non_blocking=True)
        return x.float() * float(INT16_SCALE) if x.dtype == torch.int16 else x.float()


def _tensor(waveforms: Any) -> Tensor:
    array = np.asarray(waveforms)
    if array.dtype.kind not in "fiu":
        raise InputError(f"waveforms must be float32 or int16. Got dtype {array.dtype} instead.")
    dtype = np.float32 if array.dtype.kind == "f" else array.dtype.newbyteorder("=")
    return torch.from_numpy(np.require(array, dtype, requirements=["C", "W"]))


def _numpy(values: Tensor) -> NDArray[np.float32]:
    return values.float().cpu().numpy()


def batch_norm(weights: Mapping[str, Tensor], name: str, eps: float) -> tuple[Tensor, Tensor]:
    """Scale and shift of a BatchNorm with fixed statistics, in float64."""
    weight, bias, mean, variance = (
        weights[f"{name}.{field}"].double()
        for field in ("weight", "bias", "running_mean", "running_var")
    )
    scale = weight / (variance + eps).sqrt()
    return scale, bias - mean * scale
