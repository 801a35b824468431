"""A frozen torch module behind the Backbone protocol: device, precision, checks, readouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from daco.backbones.protocol import Backbone
from daco.backbones.readout import READOUTS, pool
from daco.compute.device import tf32, torch_device
from daco.validation import Float32s

Output = tuple[Tensor, Mapping[str, Tensor]]
"""A grid (B, T, F, D), and the network's own readouts by name."""


class Network(Backbone):
    """A front end and an encoder that together make a Backbone.

    `features` takes waveforms (B, samples) to the encoder's input, always in float32. `encoder`
    takes that to a grid (B, T, F, D) and its `own_readouts` by name. Where it has a ``depth``, its
    ``at_layers`` gives the same of any layer from 1 to ``depth``, the last being its output, and
    ``layer<N>`` is the default readout of layer N. The readout ``mod`` needs `frame_rate`, the time
    steps of the grid per second.
    """

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
        self.sample_rate, self.shortest, self.resampler = sample_rate, shortest, resampler
        self.frame_rate = frame_rate
        self.depth: int = getattr(encoder, "depth", 0)
        of_grid = tuple(name for name in READOUTS if name != "mod" or frame_rate is not None)
        layers = tuple(f"layer{number}" for number in range(1, self.depth + 1))
        self.readouts = (*own_readouts, *of_grid, *layers)
        self.default_readout = default_readout
        self.features = features
        self._device = torch_device(device)
        self._dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.parameters = sum(parameter.numel() for parameter in encoder.parameters())
        self.encoder = encoder.eval().requires_grad_(False).to(self._device, self._dtype)

    def embed_many(self, waveforms: Any, readouts: Sequence[str]) -> dict[str, Float32s]:
        """Compute several readouts in one forward pass, of as many layers as they name."""
        for name in readouts:
            self.check_readout(name)
        layers = {name: self._layer(name) for name in readouts}
        with torch.inference_mode():
            outputs = self._outputs(waveforms, set(layers.values()))
            # The precision is that of the network; its output is pooled exactly.
            with tf32(self._device, False):
                return {name: self._read(outputs[layers[name]], name) for name in readouts}

    def grid(self, waveforms: Any) -> Float32s:
        """Compute the features before pooling, (clips, time, frequency, features)."""
        with torch.inference_mode():
            return _numpy(self._outputs(waveforms, {self.depth})[self.depth][0])

    def _layer(self, readout: str) -> int:
        """The layer that a readout is of; without a number, the last."""
        number = readout.removeprefix("layer")
        return int(number) if number != readout and self.depth else self.depth

    def _read(self, output: Output, readout: str) -> Float32s:
        grid, own = output
        kind = self.default_readout if readout.startswith("layer") else readout
        vectors = own[kind] if kind in own else pool(grid, kind, frame_rate=self.frame_rate)
        return _numpy(vectors)

    def _outputs(self, waveforms: Any, layers: set[int]) -> Mapping[int, Output]:
        """Grid and own readouts of each layer asked for."""
        x = self._on_device(waveforms)
        with tf32(x.device, False):
            features = self.features(x).to(self._dtype)
        with tf32(x.device, self.precision == "tf32"):
            if layers == {self.depth}:
                return {self.depth: self.encoder(features)}
            encoder: Any = self.encoder
            found: Mapping[int, Output] = encoder.at_layers(features, layers)
            return found

    def _on_device(self, waveforms: Any) -> Tensor:
        x = waveforms if isinstance(waveforms, Tensor) else np.asarray(waveforms)
        self.check_waveforms(x.shape, x.dtype)
        if not isinstance(x, Tensor):
            x = torch.from_numpy(np.require(x, np.float32, requirements=["C", "W"]))
        if self._device.type == "cuda" and x.device.type == "cpu":
            x = x.pin_memory()  # a copy on all cores, then a transfer at full speed
        return x.to(self._device, non_blocking=True).float()


def _numpy(values: Tensor) -> Float32s:
    return values.float().cpu().numpy()


def cpu_multiplies_bf16() -> bool | None:
    """Whether this CPU has instructions for bfloat16; None where torch cannot say."""
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    found = [bool(value) for name, value in capabilities.items() if "bf16" in name]
    return any(found) if found else None


def loaded(
    weights: Mapping[str, Tensor], make: Callable[[], nn.Module], *, strict: bool = True
) -> nn.Module:
    """A module with these weights."""
    with torch.device("meta"):  # without the random initialisation
        module = make()
    own = {name: tensor.detach() for name, tensor in weights.items()}
    module.load_state_dict(own, strict=strict, assign=True)
    return module.eval()


def folded(weights: Mapping[str, Tensor], make: Callable[[], nn.Module]) -> nn.Module:
    """The same with BatchNorms folded into the convolutions before them."""
    module = loaded(weights, make, strict=False)
    for parent in list(module.modules()):
        for (name, convolution), (other, norm) in pairwise(list(parent.named_children())):
            if isinstance(convolution, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                exact = nn.utils.fuse_conv_bn_eval(convolution.double(), norm.double())
                setattr(parent, name, exact.float())
                setattr(parent, other, nn.Identity())
    return module
