"""Kaldi filter banks of many waveforms at once, on any torch device, in float32.

The recipe is Kaldi's with its defaults at 16 kHz: frames of 25 ms every 10 ms (only whole ones),
each with its mean removed, pre-emphasised and windowed; the power spectrum of 512 points; 128
triangles, even on the mel scale from 20 Hz to 8 kHz; the natural logarithm.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

SAMPLE_RATE = 16_000
FRAME = 400
HOP = 160
N_FFT = 512
N_MELS = 128
PREEMPHASIS = 0.97
LOWEST_HZ = 20.0
FLOOR = torch.finfo(torch.float32).eps


def fbank(waveforms: Tensor, window: str) -> Tensor:
    """Log-mel energies (B, frames, 128) of waveforms (B, samples).

    Parameters
    ----------
    waveforms : float32, at 16 kHz
    window : "povey" or "hanning"

    Examples
    --------
    >>> fbank(torch.zeros(2, 16_000), "povey").shape
    torch.Size([2, 98, 128])
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


def frames_in(samples: int) -> int:
    """How many whole frames fit into so many samples.

    >>> frames_in(160_000)
    998
    """
    return max(0, 1 + (samples - FRAME) // HOP)


def samples_for(frames: int) -> int:
    """The fewest samples that give so many frames."""
    return FRAME + (frames - 1) * HOP


@lru_cache(maxsize=16)
def _constants(window: str, device: torch.device) -> tuple[Tensor, Tensor]:
    # Made on the CPU wherever they are used: a logarithm of another device could move a triangle.
    weights = torch.hann_window(FRAME, periodic=False)
    if window == "povey":
        weights = weights.pow(0.85)
    return weights.to(device), _mel_bank().to(device)


def _mel_bank() -> Tensor:
    """Triangles in mel as columns, (257, 128); the Nyquist bin belongs to none."""
    low, high = _mel(LOWEST_HZ), _mel(SAMPLE_RATE / 2)
    step = (high - low) / (N_MELS + 1)
    number = torch.arange(N_MELS)
    left, centre, right = (low + (number + shift) * step for shift in (0.0, 1.0, 2.0))
    hertz = SAMPLE_RATE / N_FFT * torch.arange(N_FFT // 2)
    mel = 1127.0 * (1.0 + hertz / 700.0).log()[:, None]
    rising, falling = (mel - left) / (centre - left), (right - mel) / (right - centre)
    bank = torch.zeros(N_FFT // 2 + 1, N_MELS)
    bank[:-1] = torch.minimum(rising, falling).clamp(min=0.0)
    return bank


def _mel(hertz: float) -> float:
    return 1127.0 * math.log(1.0 + hertz / 700.0)
