"""EfficientAT mn04: a MobileNetV3 of a million weights on 32 kHz log-mel bands, for CPUs.

Schmid et al., "Efficient Large-Scale Audio Tagging via Transformer-to-CNN Knowledge
Distillation" (ICASSP 2023); widths are 0.4 of MobileNetV3-Large. The classifier is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from daco.backbones.network import Network, Output, folded
from daco.backbones.transformer import mel_bank
from daco.backbones.weights import model_without, shapes_of

SAMPLE_RATE = 32_000
N_FFT, WINDOW, HOP = 1024, 800, 320
N_MELS = 128
HIGHEST_HZ = 15_000.0
PREEMPHASIS = 0.97
BATCH_NORM_EPS = 1e-3

# Input, kernel, expanded, output, squeeze-excitation, activation, stride: MobileNetV3-Large's.
_LARGE = (
    (16, 3, 16, 16, False, nn.ReLU, 1),
    (16, 3, 64, 24, False, nn.ReLU, 2),
    (24, 3, 72, 24, False, nn.ReLU, 1),
    (24, 5, 72, 40, True, nn.ReLU, 2),
    (40, 5, 120, 40, True, nn.ReLU, 1),
    (40, 5, 120, 40, True, nn.ReLU, 1),
    (40, 3, 240, 80, False, nn.Hardswish, 2),
    (80, 3, 200, 80, False, nn.Hardswish, 1),
    (80, 3, 184, 80, False, nn.Hardswish, 1),
    (80, 3, 184, 80, False, nn.Hardswish, 1),
    (80, 3, 480, 112, True, nn.Hardswish, 1),
    (112, 3, 672, 112, True, nn.Hardswish, 1),
    (112, 5, 672, 160, True, nn.Hardswish, 2),
    (160, 5, 960, 160, True, nn.Hardswish, 1),
    (160, 5, 960, 160, True, nn.Hardswish, 1),
)

STRIDE = 2 * math.prod(row[-1] for row in _LARGE)
"""Frames, and mel bands, per step of the grid."""


def expected_shapes() -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor the network takes from a checkpoint."""
    return shapes_of(MobileNet)


def clean(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of a checkpoint without its classifier."""
    return model_without(state_dict, "classifier.")


def build(state_dict: Mapping[str, Tensor], device: str, precision: str) -> Network:
    """The network of a cleaned state dict. ``embed`` gives the mean of the grid (B, T, 4, 384)."""
    # Most of the work is 1x1 and depthwise: both run along channels.
    encoder: nn.Module = folded(state_dict, MobileNet)
    encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Network(
        "mn04",
        log_mel,
        encoder,
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

    def __init__(self) -> None:
        super().__init__()
        first, last = _channels(16), _channels(160)
        self.features = nn.Sequential(
            _convolution(1, first, kernel=3, stride=2, activation=nn.Hardswish),
            *(InvertedResidual(row) for row in _LARGE),
            _convolution(last, 6 * last, activation=nn.Hardswish),
        )

    def forward(self, bands: Tensor) -> Output:
        """The grid, and no readouts of its own."""
        grid = self.features(bands.contiguous(memory_format=torch.channels_last))
        return grid.permute(0, 3, 2, 1), {}


class InvertedResidual(nn.Module):
    """Expand to many channels, filter each, weigh them, project back."""

    def __init__(self, row: tuple[int, int, int, int, bool, type[nn.Module], int]) -> None:
        super().__init__()
        inputs, kernel, expanded, outputs, squeezes, activation, stride = row
        inputs, expanded, outputs = (_channels(each) for each in (inputs, expanded, outputs))
        self.residual = stride == 1 and inputs == outputs
        layers: list[nn.Module] = []
        if expanded != inputs:
            layers.append(_convolution(inputs, expanded, activation=activation))
        layers.append(_convolution(expanded, expanded, kernel, stride, expanded, activation))
        if squeezes:
            layers.append(SqueezeExcitation(expanded))
        layers.append(_convolution(expanded, outputs))
        self.block = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, added to its input where the shapes allow it."""
        y: Tensor = self.block(x)
        return x + y if self.residual else y


class SqueezeExcitation(nn.Module):
    """Each channel weighed by what all channels say about the whole clip."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        narrow = _multiple_of_8(channels / 4)
        layers = {"fc1": nn.Linear(channels, narrow), "fc2": nn.Linear(narrow, channels)}
        self.conc_se_layers = nn.ModuleList([nn.ModuleDict(layers)])  # as checkpoints name it

    def forward(self, x: Tensor) -> Tensor:
        """The input with its channels weighed."""
        layers: Any = self.conc_se_layers[0]
        weights = layers["fc2"](layers["fc1"](x.mean(dim=(2, 3))).relu()).sigmoid()
        return x * weights[:, :, None, None]


def _convolution(
    inputs: int,
    outputs: int,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
    activation: type[nn.Module] = nn.Identity,
) -> nn.Sequential:
    padding = (kernel - 1) // 2
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=BATCH_NORM_EPS),
        activation(),
    )


def _channels(wanted: int) -> int:
    return _multiple_of_8(wanted * 0.4)


def _multiple_of_8(wanted: float) -> int:
    """The nearest multiple of 8, at least 8 and never below 90 %."""
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * wanted else rounded


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
