"""EfficientAT mn04: a MobileNetV3 of a million weights on 32 kHz log-mel bands, for CPUs.

Schmid et al., "Efficient Large-Scale Audio Tagging via Transformer-to-CNN Knowledge
Distillation" (ICASSP 2023); widths are 0.4 of MobileNetV3-Large. The classifier is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from daco.backbones.network import Network, batch_norm
from daco.backbones.transformer import mel_bank, named_linear
from daco.backbones.weights import model_of

SAMPLE_RATE = 32_000
N_FFT, WINDOW, HOP = 1024, 800, 320
N_MELS = 128
HIGHEST_HZ = 15_000.0
PREEMPHASIS = 0.97
BATCH_NORM_EPS = 1e-3


class Layer(NamedTuple):
    """One convolution with its batch norm: its name in the checkpoint and its shape."""

    name: str
    inputs: int
    outputs: int
    kernel: int = 1
    stride: int = 1
    groups: int = 1

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the kernel."""
        return self.outputs, self.inputs // self.groups, self.kernel, self.kernel


class Squeeze(NamedTuple):
    """Squeeze-excitation: its name in the checkpoint and its two widths."""

    name: str
    wide: int
    narrow: int


class Block(NamedTuple):
    """An inverted residual: expand, depthwise, squeeze-excitation, project."""

    parts: list[Layer | Squeeze]
    activation: type[nn.Module]
    residual: bool


def _channels(wanted: int) -> int:
    return _multiple_of_8(wanted * 0.4)


def _multiple_of_8(wanted: float) -> int:
    """The nearest multiple of 8, at least 8 and never below 90 %."""
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * wanted else rounded


# Input, kernel, expanded, output, squeeze-excitation, hard swish, stride: MobileNetV3-Large's.
_LARGE = (
    (16, 3, 16, 16, False, False, 1),
    (16, 3, 64, 24, False, False, 2),
    (24, 3, 72, 24, False, False, 1),
    (24, 5, 72, 40, True, False, 2),
    (40, 5, 120, 40, True, False, 1),
    (40, 5, 120, 40, True, False, 1),
    (40, 3, 240, 80, False, True, 2),
    (80, 3, 200, 80, False, True, 1),
    (80, 3, 184, 80, False, True, 1),
    (80, 3, 184, 80, False, True, 1),
    (80, 3, 480, 112, True, True, 1),
    (112, 3, 672, 112, True, True, 1),
    (112, 5, 672, 160, True, True, 2),
    (160, 5, 960, 160, True, True, 1),
    (160, 5, 960, 160, True, True, 1),
)

_STEM = Layer("features.0", 1, _channels(16), kernel=3, stride=2)
_HEAD = Layer("features.16", _channels(160), 6 * _channels(160))


def _block(index: int, row: tuple[int, int, int, int, bool, bool, int]) -> Block:
    inputs, expanded, outputs = (_channels(row[column]) for column in (0, 2, 3))
    _, kernel, _, _, squeezes, swish, stride = row
    prefix = f"features.{index}.block"
    parts: list[Layer | Squeeze] = []
    if expanded != inputs:
        parts.append(Layer(f"{prefix}.0", inputs, expanded))
    name = f"{prefix}.{len(parts)}"
    parts.append(Layer(name, expanded, expanded, kernel, stride, groups=expanded))
    if squeezes:
        name = f"{prefix}.{len(parts)}.conc_se_layers.0"
        parts.append(Squeeze(name, expanded, _multiple_of_8(expanded / 4)))
    parts.append(Layer(f"{prefix}.{len(parts)}", expanded, outputs))
    activation = nn.Hardswish if swish else nn.ReLU
    return Block(parts, activation, residual=stride == 1 and inputs == outputs)


_BLOCKS = tuple(_block(index, row) for index, row in enumerate(_LARGE, start=1))

STRIDE = _STEM.stride * math.prod(row[-1] for row in _LARGE)
"""Frames, and mel bands, per step of the grid."""


def expected_shapes() -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor the network takes from a checkpoint.

    >>> expected_shapes()["features.16.0.weight"]
    (384, 64, 1, 1)
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for part in (_STEM, *(part for block in _BLOCKS for part in block.parts), _HEAD):
        if isinstance(part, Squeeze):
            name, wide, narrow = part
            shapes[f"{name}.fc1.weight"], shapes[f"{name}.fc1.bias"] = (narrow, wide), (narrow,)
            shapes[f"{name}.fc2.weight"], shapes[f"{name}.fc2.bias"] = (wide, narrow), (wide,)
        else:
            shapes[f"{part.name}.0.weight"] = part.shape
            for entry in ("weight", "bias", "running_mean", "running_var"):
                shapes[f"{part.name}.1.{entry}"] = (part.outputs,)
    return shapes


def clean(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of a checkpoint without its classifier and its training's batch counters."""
    return {
        name: value
        for name, value in model_of(state_dict).items()
        if not name.startswith("classifier.") and not name.endswith("num_batches_tracked")
    }


def build(state_dict: Mapping[str, Tensor], device: str, precision: str) -> Network:
    """The network of a cleaned state dict. ``embed`` gives the mean of the grid, 384 values.

    The grid is (B, T, 4, 384) with 3.125 steps per second.
    """
    return Network(
        "mn04",
        log_mel,
        MobileNet(state_dict),
        sample_rate=SAMPLE_RATE,
        shortest=N_FFT,
        default_readout="mean",
        frame_rate=SAMPLE_RATE / (HOP * STRIDE),
        device=device,
        precision=precision,
        # Its published embeddings of 16 kHz recordings were made with a short polyphase filter,
        # whose faint images above 8 kHz matter: with soxr vectors differ by up to 0.012 (1-cos).
        resampler="polyphase",
    )


class MobileNet(nn.Module):
    """Log-mel bands (B, 1, 128, frames) to the grid (B, T, F, 384) before global pooling."""

    def __init__(self, state_dict: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            _folded(_STEM, state_dict),
            nn.Hardswish(),
            *(InvertedResidual(block, state_dict) for block in _BLOCKS),
            _folded(_HEAD, state_dict),
            nn.Hardswish(),
        )
        # Most of the work is 1x1 and depthwise: both run along channels.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, bands: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The grid, and no readouts of its own."""
        grid = self.layers(bands.contiguous(memory_format=torch.channels_last))
        return grid.permute(0, 3, 2, 1), {}


class InvertedResidual(nn.Module):
    """Expand to many channels, filter each, weigh them, project back."""

    def __init__(self, block: Block, state_dict: Mapping[str, Tensor]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for part in block.parts:
            if isinstance(part, Squeeze):
                layers.append(SqueezeExcitation(part.name, state_dict))
            else:
                layers += [_folded(part, state_dict), block.activation()]
        self.layers = nn.Sequential(*layers[:-1])  # the projection has no activation
        self.residual = block.residual

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, added to its input where the shapes allow it."""
        y: Tensor = self.layers(x)
        return x + y if self.residual else y


class SqueezeExcitation(nn.Module):
    """Each channel weighed by what all channels say about the whole clip."""

    def __init__(self, name: str, state_dict: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.fc1 = named_linear(state_dict, f"{name}.fc1")
        self.fc2 = named_linear(state_dict, f"{name}.fc2")

    def forward(self, x: Tensor) -> Tensor:
        """The input with its channels weighed."""
        weights = self.fc2(self.fc1(x.mean(dim=(2, 3))).relu()).sigmoid()
        return x * weights[:, :, None, None]


def _folded(layer: Layer, state_dict: Mapping[str, Tensor]) -> nn.Conv2d:
    """The convolution with its batch norm folded into kernel and bias."""
    kernel = state_dict[f"{layer.name}.0.weight"].double()
    scale, shift = batch_norm(state_dict, f"{layer.name}.1", BATCH_NORM_EPS)
    convolution = nn.Conv2d(
        layer.inputs,
        layer.outputs,
        layer.kernel,
        layer.stride,
        padding=(layer.kernel - 1) // 2,
        groups=layer.groups,
    )
    convolution.weight = nn.Parameter((kernel * scale[:, None, None, None]).float())
    convolution.bias = nn.Parameter(shift.float())
    return convolution


def log_mel(waveforms: Tensor) -> Tensor:
    """Normalised log-mel bands (B, 1, 128, frames) of waveforms (B, samples) at 32 kHz."""
    if waveforms.device.type == "cpu" and len(waveforms) > 1:
        # Clip by clip, the spectra stay in the cache: 5 ms instead of 14 for ten seconds.
        return torch.cat([log_mel(waveform) for waveform in waveforms[:, None]])
    window, bank = _constants(waveforms.device)
    emphasised = waveforms[:, 1:] - PREEMPHASIS * waveforms[:, :-1]
    spectrum = torch.stft(
        emphasised, N_FFT, HOP, WINDOW, window, center=True, pad_mode="reflect", return_complex=True
    )
    power = spectrum.real.square() + spectrum.imag.square()
    return (((bank @ power + 1e-5).log() + 4.5) / 5.0)[:, None]


@lru_cache(maxsize=8)
def _constants(device: torch.device) -> tuple[Tensor, Tensor]:
    # Computed on the CPU for every device: another rounding of a logarithm could move a triangle.
    window = torch.hann_window(WINDOW, periodic=False)
    bank = mel_bank(SAMPLE_RATE, N_FFT, N_MELS, 0.0, HIGHEST_HZ)
    return window.to(device), bank.T.contiguous().to(device)
