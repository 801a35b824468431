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

from daco.backbones.network import Network, Output, loaded
from daco.backbones.transformer import (
    BANDS,
    FRAME,
    FRAME_RATE,
    LAYERS,
    PATCH,
    SAMPLE_RATE,
    WIDTH,
    Block,
    TokenEncoder,
    embedded,
    fbank,
    published,
    samples_for,
)
from daco.backbones.weights import model_of, shapes_of

FRAMES = 1024
STEPS = FRAMES // PATCH
TABLE_STEPS = 768
EPS = 1e-6
MEAN, TWICE_STD = -4.268, 9.138
NAMES = {
    "patches": "local_encoder.proj",
    "cls": "extra_tokens",
    "norm": "pre_norm",
    "positions": "fixed_positional_encoder.positions",
    "layers": "blocks",
    "qkv": "attn.qkv",
    "out": "attn.proj",
    "fc1": "mlp.fc1",
    "fc2": "mlp.fc2",
}
"""Names of tensors of `Encoder`, and those of checkpoints."""

PREFIX = "model."
POSITIONS = f"{PREFIX}fixed_positional_encoder.positions"


def build(state_dict: Mapping[str, Tensor], device: str, precision: str) -> Network:
    """The network of a cleaned state dict. ``embed`` gives the CLS token, 768 values."""
    weights = {name: state_dict[PREFIX + published(name, NAMES)] for name in shapes_of(Encoder)}
    return Network(
        "eat",
        features,
        loaded(weights, Encoder),
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
    return {PREFIX + published(name, NAMES): shape for name, shape in shapes_of(Encoder).items()}


def clean(state_dict: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a checkpoint under the names of the public file, which start with ``model.``.

    The position table is a formula, so it may be missing.
    """
    tensors = {
        key if key.startswith(PREFIX) else f"{PREFIX}{key}": value
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

    positions: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, PATCH, PATCH)
        # The position table is wide enough for 768 steps of time, of which the network sees 64.
        self.register_buffer("positions", torch.empty(1, TABLE_STEPS * BANDS, WIDTH))
        self.cls = nn.Parameter(torch.empty(1, 1, WIDTH))
        self.norm = nn.LayerNorm(WIDTH, EPS)
        self.layers = nn.ModuleList(Block(EPS) for _ in range(LAYERS))

    def tokens(self, features: Tensor) -> tuple[Tensor, None]:
        """The CLS token, and embedded patches with their positions."""
        x = embedded(self.patches, features) + self.positions[:, : STEPS * BANDS]
        return self.norm(torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1)), None

    def output(self, tokens: Tensor) -> Output:
        """The grid without the CLS token, and that token as ``"cls"``."""
        return tokens[:, 1:].reshape(len(tokens), STEPS, BANDS, WIDTH), {"cls": tokens[:, 0]}
