"""EAT-base (epoch 30, pre-trained): 64 x 8 tokens of 768 values and a CLS token, any length.

Weight-compatible with the public checkpoint. The network always sees 1024 frames: shorter clips
are padded with zeros, longer ones lose what comes after 10.255 seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from daco.backbones.network import Network
from daco.backbones.transformer import (
    BANDS,
    FRAME,
    FRAME_RATE,
    HIDDEN,
    LAYERS,
    PATCH,
    SAMPLE_RATE,
    WIDTH,
    Block,
    Output,
    TokenEncoder,
    fbank,
    linear,
    named_linear,
    named_norm,
    patches_of,
    samples_for,
)
from daco.backbones.weights import model_of

FRAMES = 1024
STEPS = FRAMES // PATCH
TABLE_STEPS = 768
EPS = 1e-6
MEAN, TWICE_STD = -4.268, 9.138
POSITIONS = "model.fixed_positional_encoder.positions"


def build(state_dict: Mapping[str, Tensor], device: str, precision: str) -> Network:
    """The network of a cleaned state dict. ``embed`` gives the CLS token, 768 values."""
    return Network(
        "eat",
        features,
        Encoder(state_dict),
        sample_rate=SAMPLE_RATE,
        shortest=FRAME,
        own_readouts=("cls",),
        default_readout="cls",
        frame_rate=FRAME_RATE,
        device=device,
        precision=precision,
    )


def features(waveforms: Tensor) -> Tensor:
    """Normalised filter banks (B, 1024, 128), padded or cut."""
    centred = waveforms - waveforms.mean(dim=1, keepdim=True)
    frames = fbank(centred[:, : samples_for(FRAMES)], "hanning")
    padded = functional.pad(frames, (0, 0, 0, FRAMES - frames.shape[1]))
    return (padded - MEAN) / TWICE_STD


def expected_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of the 150 tensors of a checkpoint."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.extra_tokens": (1, 1, WIDTH),
        "model.local_encoder.proj.weight": (WIDTH, 1, PATCH, PATCH),
        "model.local_encoder.proj.bias": (WIDTH,),
        POSITIONS: (1, TABLE_STEPS * BANDS, WIDTH),
        "model.pre_norm.weight": (WIDTH,),
        "model.pre_norm.bias": (WIDTH,),
    }
    layers = {
        "norm1": (WIDTH,),
        "attn.qkv": (3 * WIDTH, WIDTH),
        "attn.proj": (WIDTH, WIDTH),
        "norm2": (WIDTH,),
        "mlp.fc1": (HIDDEN, WIDTH),
        "mlp.fc2": (WIDTH, HIDDEN),
    }
    for number in range(LAYERS):
        for name, shape in layers.items():
            shapes[f"model.blocks.{number}.{name}.weight"] = shape
            shapes[f"model.blocks.{number}.{name}.bias"] = shape[:1]
    return shapes


def clean(state_dict: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a checkpoint under the names of the public file, which start with ``model.``.

    The position table is a formula, so it may be missing.
    """
    tensors = {
        key if key.startswith("model.") else f"model.{key}": value
        for key, value in model_of(state_dict).items()
    }
    tensors.setdefault(POSITIONS, positions())
    return tensors


def positions() -> Tensor:
    """The fixed sine-cosine table (1, 6144, 768): half the values tell the band, half the time."""
    frequency = 10000.0 ** -(torch.arange(WIDTH // 4, dtype=torch.float64) / (WIDTH // 4))
    band = _waves(torch.arange(BANDS), frequency).expand(TABLE_STEPS, BANDS, -1)
    time = _waves(torch.arange(TABLE_STEPS), frequency)[:, None].expand(TABLE_STEPS, BANDS, -1)
    return torch.cat([band, time], dim=2).reshape(1, TABLE_STEPS * BANDS, WIDTH).float()


def _waves(position: Tensor, frequency: Tensor) -> Tensor:
    angle = position[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1)


class Encoder(TokenEncoder):
    """Filter banks (B, 1024, 128) to the grid (B, 64, 8, 768) and the CLS token."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        patches = "model.local_encoder.proj."
        self.patches = linear(weights[patches + "weight"].flatten(1), weights[patches + "bias"])
        # The position table is wide enough for 768 steps of time, of which the network sees 64.
        seen = weights[POSITIONS][:, : STEPS * BANDS].clone()
        self.positions = nn.Parameter(seen, requires_grad=False)
        self.cls = nn.Parameter(weights["model.extra_tokens"], requires_grad=False)
        self.norm = named_norm(weights, "model.pre_norm", EPS)
        self.layers = nn.ModuleList(
            _block(weights, f"model.blocks.{number}.") for number in range(LAYERS)
        )

    def tokens(self, features: Tensor) -> tuple[Tensor, None]:
        """The CLS token, and embedded patches with their positions."""
        x = self.patches(patches_of(features)) + self.positions
        return self.norm(torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1)), None

    def output(self, tokens: Tensor) -> Output:
        """The grid without the CLS token, and that token as ``"cls"``."""
        return tokens[:, 1:].reshape(len(tokens), STEPS, BANDS, WIDTH), {"cls": tokens[:, 0]}


def _block(weights: Mapping[str, Tensor], prefix: str) -> Block:
    return Block(
        qkv=named_linear(weights, prefix + "attn.qkv"),
        out=named_linear(weights, prefix + "attn.proj"),
        norm1=named_norm(weights, prefix + "norm1", EPS),
        fc1=named_linear(weights, prefix + "mlp.fc1"),
        fc2=named_linear(weights, prefix + "mlp.fc2"),
        norm2=named_norm(weights, prefix + "norm2", EPS),
    )
