"""PANNs CNN14 for 16 kHz: a convolutional network over log-mel, 2048 values per clip.

Weight-compatible with the public checkpoint; every BatchNorm is folded into its convolution.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from daco.backbones.network import Network, batch_norm
from daco.backbones.weights import model_of
from daco.compute.device import torch_device
from daco.errors import WeightsError

SAMPLE_RATE = 16_000
N_FFT = 512
HOP = 160
N_MELS = 64
WIDTHS = (64, 128, 256, 512, 1024, 2048)
HALVINGS = len(WIDTHS) - 1
DIM = WIDTHS[-1]
EPS = 1e-5
POWER_FLOOR = 1e-10
REAL = "spectrogram_extractor.stft.conv_real.weight"
IMAGINARY = "spectrogram_extractor.stft.conv_imag.weight"
MEL = "logmel_extractor.melW"


def build(state_dict: Mapping[str, Tensor], device: str, precision: str) -> Network:
    """The network of a cleaned state dict. ``embed`` gives relu(fc1(max + mean)), 2048 values."""
    place = torch_device(device)
    mel, scale, shift = (
        value.float().to(place) for value in (state_dict[MEL], *batch_norm(state_dict, "bn0", EPS))
    )
    return Network(
        "panns",
        lambda waveforms: log_mel(waveforms, mel) * scale + shift,
        # In exact float32 cuDNN is slower in channels last: 7.5 ms a clip, against 5.4 (H200).
        Encoder(state_dict, channels_last=place.type == "cuda" and precision != "fp32"),
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


def stft_kernels() -> dict[str, Tensor]:
    """The Fourier transform that a checkpoint stores as two convolutions, each (257, 1, 512)."""
    time = torch.arange(N_FFT, dtype=torch.float64)
    angle = 2.0 * torch.pi / N_FFT * (time * torch.arange(N_FFT // 2 + 1)[:, None] % N_FFT)
    window = torch.hann_window(N_FFT, dtype=torch.float64)
    return {
        REAL: (window * angle.cos()).float()[:, None],
        IMAGINARY: (window * -angle.sin()).float()[:, None],
    }


def expected_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors that the network needs, after ``clean``."""
    shapes: dict[str, tuple[int, ...]] = {
        MEL: (N_FFT // 2 + 1, N_MELS),
        "fc1.weight": (DIM, DIM),
        "fc1.bias": (DIM,),
    }
    norms = {"bn0": N_MELS}
    before = 1
    for number, width in enumerate(WIDTHS, start=1):
        for name, inputs in (("conv1", before), ("conv2", width)):
            shapes[f"conv_block{number}.{name}.weight"] = (width, inputs, 3, 3)
        norms |= {f"conv_block{number}.bn1": width, f"conv_block{number}.bn2": width}
        before = width
    for name, width in norms.items():
        for field in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{name}.{field}"] = (width,)
    return shapes


def clean(state_dict: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a checkpoint without its wrapper and what an embedding does not need.

    Left out are the classifier, the counters of BatchNorm and the two kernels of the Fourier
    transform, which is computed faster; a WeightsError is raised where they are anything else.
    """
    model = model_of(state_dict)
    for name, kernel in stft_kernels().items():
        if name in model and (
            model[name].shape != kernel.shape
            or not torch.allclose(model[name].float().cpu(), kernel, rtol=0.0, atol=1e-5)
        ):
            raise WeightsError(
                f"{name} is not the Hann-windowed Fourier transform of {N_FFT} points that CNN14 "
                "for 16 kHz has. Use Cnn14_16k_mAP=0.438.pth."
            )
    needless = (REAL, IMAGINARY, "fc_audioset.weight", "fc_audioset.bias")
    return {
        key: value
        for key, value in model.items()
        if key not in needless and not key.endswith(".num_batches_tracked")
    }


class Encoder(nn.Module):
    """Normalised log-mel (B, frames, 64) to the grid (B, frames // 32, 1, 2048).

    Channels last is what a GPU wants; a CPU adds less exactly that way and gains nothing.
    """

    def __init__(self, weights: Mapping[str, Tensor], *, channels_last: bool) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            Convolution(weights, f"conv_block{block}.conv{half}", f"conv_block{block}.bn{half}")
            for block in range(1, len(WIDTHS) + 1)
            for half in (1, 2)
        )
        self.channels_last = channels_last
        if channels_last:
            self.convolutions.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.fc1_weight = nn.Parameter(weights["fc1.weight"], requires_grad=False)
        self.fc1_bias = nn.Parameter(weights["fc1.bias"], requires_grad=False)

    def forward(self, features: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean over frequency of the last feature map, and the readout ``"own"``."""
        # One channel is channels-last only if its strides say so; else the first map is copied.
        x = features[..., None].permute(0, 3, 1, 2) if self.channels_last else features[:, None]
        for number, convolution in enumerate(self.convolutions):
            x = convolution(x)
            if number % 2 == 1 and number < 2 * HALVINGS:
                x = functional.avg_pool2d(x, 2)
        over_time = x.mean(dim=3).transpose(1, 2)
        clip = over_time.amax(dim=1) + over_time.mean(dim=1)
        own = functional.linear(clip, self.fc1_weight, self.fc1_bias).relu()
        return over_time[:, :, None], {"own": own}


class Convolution(nn.Module):
    """A 3 x 3 convolution with its BatchNorm folded in, and a ReLU."""

    def __init__(self, weights: Mapping[str, Tensor], name: str, norm: str) -> None:
        super().__init__()
        scale, shift = batch_norm(weights, norm, EPS)
        weight = (weights[f"{name}.weight"].double() * scale[:, None, None, None]).float()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = nn.Parameter(shift.float(), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Feature map (B, C, T, F) to the next."""
        if x.is_cuda and torch.version.cuda and x.is_contiguous(memory_format=torch.channels_last):
            # One kernel, where conv2d would pass over the map twice more.
            return torch.cudnn_convolution_relu(
                x, self.weight, self.bias, (1, 1), (1, 1), (1, 1), 1
            )
        return functional.conv2d(x, self.weight, self.bias, padding=1).relu_()
