"""What BEATs and EAT share: Kaldi filter banks, patches of 16 x 16, and post-norm blocks."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from daco.backbones.network import Output

SAMPLE_RATE = 16_000
FRAME = 400
HOP = 160
N_FFT = 512
N_MELS = 128
PREEMPHASIS = 0.97
LOWEST_HZ = 20.0
FLOOR = torch.finfo(torch.float32).eps

PATCH = 16
BANDS = N_MELS // PATCH
FRAME_RATE = SAMPLE_RATE / (HOP * PATCH)
"""Tokens per second and band."""

WIDTH = 768
HEADS = 12
HIDDEN = 3072
LAYERS = 12


def fbank(waveforms: Tensor, window: str) -> Tensor:
    """Log-mel energies (B, frames, 128) of waveforms (B, samples) at 16 kHz, as Kaldi's.

    Frames of 25 ms every 10 ms (only whole ones), each with its mean removed, pre-emphasised and
    windowed ("povey" or "hanning"); power spectrum of 512 points; 128 triangles, even on the mel
    scale from 20 Hz to 8 kHz; natural logarithm.
    """
    weights, bank = _constants(window, waveforms.device)
    frames = waveforms.unfold(1, FRAME, HOP)
    frames = frames - frames.mean(dim=2, keepdim=True)
    # Two roundings, where sub(alpha=...) would have one: quiet cells next to loud ones show it.
    before = PREEMPHASIS * frames
    padded = frames.new_zeros(*frames.shape[:2], N_FFT)
    padded[..., 0] = frames[..., 0] - before[..., 0]
    torch.sub(frames[..., 1:], before[..., :-1], out=padded[..., 1:FRAME])
    padded[..., :FRAME] *= weights
    power = torch.fft.rfft(padded).abs().square()
    return (power @ bank).clamp(min=FLOOR).log()


def samples_for(frames: int) -> int:
    """The smallest number of samples that gives this number of frames."""
    return FRAME + (frames - 1) * HOP


@lru_cache(maxsize=16)
def _constants(window: str, device: torch.device) -> tuple[Tensor, Tensor]:
    # Computed on the CPU for every device: another rounding of a logarithm could move a triangle.
    weights = torch.hann_window(FRAME, periodic=False)
    if window == "povey":
        weights = weights.pow(0.85)
    bank = mel_bank(SAMPLE_RATE, N_FFT, N_MELS, LOWEST_HZ, SAMPLE_RATE / 2)
    return weights.to(device), bank.to(device)


def mel_bank(rate: int, n_fft: int, n_mels: int, lowest: float, highest: float) -> Tensor:
    """Kaldi's triangles in mel as columns, (n_fft // 2 + 1, n_mels); none has the Nyquist bin."""
    low, high = (1127.0 * math.log(1.0 + hertz / 700.0) for hertz in (lowest, highest))
    step = (high - low) / (n_mels + 1)
    left, centre, right = (low + (torch.arange(n_mels) + shift) * step for shift in (0.0, 1.0, 2.0))
    hertz = rate / n_fft * torch.arange(n_fft // 2)
    mel = 1127.0 * (1.0 + hertz / 700.0).log()[:, None]
    rising, falling = (mel - left) / (centre - left), (right - mel) / (right - centre)
    bank = torch.zeros(n_fft // 2 + 1, n_mels)
    bank[:-1] = torch.minimum(rising, falling).clamp(min=0.0)
    return bank


class Block(nn.Module):
    """x = norm1(alpha x + attention(x)), then x = norm2(alpha x + mlp(x)); exact GELU."""

    def __init__(self, eps: float, alpha: float = 1.0) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps), nn.LayerNorm(WIDTH, eps)
        self.alpha = alpha

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Tokens (B, N, 768) to tokens; ``bias`` (B, heads, N, N) is added to the logits."""
        batch, tokens, width = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, HEADS, width // HEADS)
        if bias is None and x.device.type == "cpu":
            qkv = qkv.float()  # the CPU's attention is slower in bfloat16
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        heads = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias).to(x.dtype)
        y = self.out(heads.transpose(1, 2).reshape(batch, tokens, width))
        x = self.norm1(torch.add(y, x, alpha=self.alpha))
        y = self.fc2(functional.gelu(self.fc1(x)))
        return self.norm2(torch.add(y, x, alpha=self.alpha))


class TokenEncoder(nn.Module):
    """Twelve blocks over tokens; a subclass says how tokens are made and how they are read."""

    depth = LAYERS
    layers: nn.ModuleList

    def tokens(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """Tokens (B, N, 768) of filter banks, and the bias of attention."""
        raise NotImplementedError

    def output(self, tokens: Tensor) -> Output:
        """Grid and own readouts of the tokens after a layer."""
        raise NotImplementedError

    def forward(self, features: Tensor) -> Output:
        """Filter banks (B, frames, 128) to the output of the last layer."""
        return self.at_layers(features, {LAYERS})[LAYERS]

    def at_layers(self, features: Tensor, wanted: Collection[int]) -> dict[int, Output]:
        """The output of each wanted layer, counted from 1; none is computed beyond the last."""
        x, bias = self.tokens(features)
        found: dict[int, Output] = {}
        for number, layer in enumerate(self.layers[: max(wanted)], start=1):
            x = layer(x, bias)
            if number in wanted:
                found[number] = self.output(x)
        return found


def embedded(layer: nn.Conv2d, features: Tensor) -> Tensor:
    """Filter banks (B, frames, 128) as embedded patches (B, 8 (frames // 16), D), by time."""
    tokens: Tensor = layer(features[:, None])
    return tokens.flatten(2).transpose(1, 2)


def published(name: str, names: Mapping[str, str]) -> str:
    """The name that a tensor of an encoder has in a checkpoint, part by part."""
    return ".".join(names.get(part, part) for part in name.split("."))
