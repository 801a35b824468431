"""PANNs CNN14 for 16 kHz: a convolutional network over log-mel, 2048 values per clip.

Weight-compatible with the public checkpoint; every BatchNorm is folded into its convolution.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from daco.backbones.network import Network, Output, folded
from daco.backbones.weights import model_without, shapes_of
from daco.compute.device import torch_device

SAMPLE_RATE = 16_000
N_FFT = 512
HOP = 160
N_MELS = 64
WIDTHS = (64, 128, 256, 512, 1024, 2048)
HALVINGS = len(WIDTHS) - 1
DIM = WIDTHS[-1]
EPS = 1e-5
POWER_FLOOR = 1e-10
NORM = ("running_mean", "running_var", "weight", "bias")
MEL = "logmel_extractor.melW"


def build(state_dict: Mapping[str, Tensor], device: str, precision: str) -> Network:
    """The network of a cleaned state dict. ``embed`` gives relu(fc1(max + mean)), 2048 values."""
    place = torch_device(device)
    # In exact float32 cuDNN is slower in channels last: 7.5 ms a clip, against 5.4 (H200).
    channels_last = place.type == "cuda" and precision != "fp32"
    encoder = folded(state_dict, partial(Encoder, channels_last=channels_last))
    if channels_last:
        encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    mel, *norm = (state_dict[name].to(place) for name in (MEL, *(f"bn0.{field}" for field in NORM)))

    def features(waveforms: Tensor) -> Tensor:
        bands = log_mel(waveforms, mel)
        mean, variance, weight, bias = norm
        flat = bands.flatten(0, 1)
        return functional.batch_norm(flat, mean, variance, weight, bias, eps=EPS).view_as(bands)

    return Network(
        "panns",
        features,
        encoder,
        sample_rate=SAMPLE_RATE,
        shortest=(2**HALVINGS - 1) * HOP,
        own_readouts=("own",),
        default_readout="own",
        frame_rate=SAMPLE_RATE / (HOP * 2**HALVINGS),
        device=device,
        precision=precision,
    )


def log_mel(waveforms: Tensor, mel: Tensor) -> Tensor:
    """Mel power in decibels (B, frames, 64); ``mel`` is the checkpoint's matrix (257, 64)."""
    padded = functional.pad(waveforms, (N_FFT // 2, N_FFT // 2), mode="reflect")
    frames = padded.unfold(1, N_FFT, HOP) * _window(waveforms.device)
    power = torch.fft.rfft(frames).abs().square()
    return 10.0 * (power @ mel).clamp(min=POWER_FLOOR).log10()


@lru_cache(maxsize=8)
def _window(device: torch.device) -> Tensor:
    return torch.hann_window(N_FFT, dtype=torch.float64).float().to(device)


def expected_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors that the network needs, after ``clean``."""
    front: dict[str, tuple[int, ...]] = {MEL: (N_FFT // 2 + 1, N_MELS)}
    front |= {f"bn0.{name}": (N_MELS,) for name in NORM}
    return front | shapes_of(Encoder)


def clean(state_dict: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a checkpoint without its classifier and its slow Fourier transform."""
    return model_without(state_dict, "fc_audioset.", "spectrogram_extractor.")


class Encoder(nn.Module):
    """Normalised log-mel (B, frames, 64) to the grid (B, frames // 32, 1, 2048).

    Channels last is what a GPU wants; a CPU adds less exactly that way and gains nothing.
    """

    def __init__(self, *, channels_last: bool = False) -> None:
        super().__init__()
        for number, (inputs, width) in enumerate(pairwise((1, *WIDTHS)), start=1):
            self.add_module(f"conv_block{number}", ConvBlock(inputs, width))
        self.fc1 = nn.Linear(DIM, DIM)
        self.channels_last = channels_last

    def forward(self, features: Tensor) -> Output:
        """The mean over frequency of the last feature map, and the readout ``"own"``."""
        # One channel is channels-last only if its strides say so; else the first map is copied.
        x = features[..., None].permute(0, 3, 1, 2) if self.channels_last else features[:, None]
        for number in range(1, len(WIDTHS) + 1):
            x = self.get_submodule(f"conv_block{number}")(x)
            if number <= HALVINGS:
                x = functional.avg_pool2d(x, 2)
        over_time = x.mean(dim=3).transpose(1, 2)
        clip = over_time.amax(dim=1) + over_time.mean(dim=1)
        return over_time[:, :, None], {"own": self.fc1(clip).relu()}


class ConvBlock(nn.Module):
    """Two 3 x 3 convolutions, each with a BatchNorm, which `folded` removes, and a ReLU."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width, eps=EPS)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width, eps=EPS)

    def forward(self, x: Tensor) -> Tensor:
        """Feature map (B, C, T, F) to the next."""
        return _convolved(self.conv2, _convolved(self.conv1, x))


def _convolved(layer: nn.Conv2d, x: Tensor) -> Tensor:
    if x.is_cuda and torch.version.cuda and x.is_contiguous(memory_format=torch.channels_last):
        # One kernel, where a convolution and a ReLU would pass over the map twice more.
        ones, bias = (1, 1), layer.bias
        return torch.cudnn_convolution_relu(x, layer.weight, bias, ones, ones, ones, 1)
    y: Tensor = layer(x)
    return y.relu_()
