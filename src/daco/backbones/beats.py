"""BEATs iter3+ (AudioSet-2M): 62 x 8 tokens of 768 values for ten seconds.

Weight-compatible with the public checkpoints; what can be computed once is folded at load: the
weight norm of the position convolution, the gate of the relative position bias, q, k and v.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from daco.backbones.network import Network, Output, loaded
from daco.backbones.transformer import (
    BANDS,
    FRAME_RATE,
    HEADS,
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
from daco.errors import WeightsError

EMBED = 512
BUCKETS = 320
MAX_DISTANCE = 800
KERNEL = 128
GROUPS = 16
GROUP_WIDTH = WIDTH // GROUPS
SEEN = BANDS + KERNEL - 1
GATES = 8
EPS = 1e-5
MEAN, STD = 15.41663, 6.55582
DEEP_NORM = (2 * LAYERS) ** 0.25
NAMES = {
    "patches": "patch_embedding",
    "patch_norm": "layer_norm",
    "projection": "post_extract_proj",
    "norm": "encoder.layer_norm",
    "position_conv": "encoder.pos_conv.0",
    "layers": "encoder.layers",
    "out": "self_attn.out_proj",
    "norm1": "self_attn_layer_norm",
    "norm2": "final_layer_norm",
}
"""Names of tensors of `Encoder`, and those of checkpoints."""

FOLDED = re.compile(r"matrix|head_bias|qkv|gate")  # made of several tensors of a checkpoint
HEAD_BIAS = "encoder.layers.{}.self_attn.relative_attention_bias.weight"
# What a checkpoint's "cfg" must say where it says anything: no shape would show the difference.
CONFIG = {
    "layer_norm_first": False,
    "deep_norm": True,
    "gru_rel_pos": True,
    "relative_position_embedding": True,
    "activation_fn": "gelu",
    "max_distance": MAX_DISTANCE,
}


def build(state_dict: Mapping[str, Tensor], device: str, precision: str) -> Network:
    """The network of a cleaned state dict. ``embed`` gives the mean over tokens, 768 values."""
    return Network(
        "beats",
        features,
        loaded(encoder_weights(state_dict), Encoder),
        sample_rate=SAMPLE_RATE,
        shortest=samples_for(PATCH),
        default_readout="mean",
        frame_rate=FRAME_RATE,
        device=device,
        precision=precision,
    )


def features(waveforms: Tensor) -> Tensor:
    """Normalised filter banks (B, frames, 128)."""
    return (fbank(waveforms * 2.0**15, "povey") - MEAN) / (2 * STD)


def expected_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of the 250 tensors of a checkpoint."""
    own = {name: shape for name, shape in shapes_of(Encoder).items() if not FOLDED.search(name)}
    shapes = {published(name, NAMES): shape for name, shape in own.items()}
    shapes["encoder.pos_conv.0.weight_g"] = (1, 1, KERNEL)
    shapes["encoder.pos_conv.0.weight_v"] = (WIDTH, GROUP_WIDTH, KERNEL)
    for number in range(LAYERS):
        attention = f"encoder.layers.{number}.self_attn."
        shapes[HEAD_BIAS.format(number)] = (BUCKETS, HEADS)
        shapes[f"{attention}grep_a"] = (1, HEADS, 1, 1)
        shapes[f"{attention}grep_linear.weight"] = (GATES, WIDTH // HEADS)
        shapes[f"{attention}grep_linear.bias"] = (GATES,)
        for part in "qkv":
            shapes[f"{attention}{part}_proj.weight"] = (WIDTH, WIDTH)
            shapes[f"{attention}{part}_proj.bias"] = (WIDTH,)
    return shapes


def clean(state_dict: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a checkpoint without its wrapper and classifier head.

    A WeightsError is raised when the wrapper's configuration is another network's, or the layers
    do not share one position bias.
    """
    config = state_dict.get("cfg")
    if isinstance(config, Mapping):
        for key, value in CONFIG.items():
            if config.get(key, value) != value:
                raise WeightsError(
                    f"The checkpoint is of another kind of BEATs: its cfg has {key} = "
                    f"{config[key]!r} where iter3+ has {value!r}. Use BEATs_iter3_plus_AS2M.pt."
                )
    model = model_of(state_dict)
    tensors = {key: value for key, value in model.items() if not key.startswith("predictor.")}
    first = tensors.get(HEAD_BIAS.format(0))
    for number in range(1, LAYERS):
        other = tensors.get(HEAD_BIAS.format(number))
        if not isinstance(first, Tensor) or not isinstance(other, Tensor):
            continue
        if not torch.equal(first, other):
            raise WeightsError(
                f"{HEAD_BIAS.format(number)} differs from layer 0's, but BEATs shares one position "
                "bias among its layers. The checkpoint is damaged or of another network."
            )
    return tensors


def encoder_weights(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of `Encoder`: those of a checkpoint, some of them put together."""
    own = [name for name in shapes_of(Encoder) if not FOLDED.search(name)]
    tensors = {name: state_dict[published(name, NAMES)] for name in own}
    tensors["position_conv.matrix"] = _position_matrix(state_dict)
    tensors["head_bias"] = state_dict[HEAD_BIAS.format(0)]
    for number in range(LAYERS):
        ours, attention = f"layers.{number}", f"encoder.layers.{number}.self_attn."
        for kind, gate in zip(("weight", "bias"), _gate(state_dict, attention), strict=True):
            parts = [state_dict[f"{attention}{part}_proj.{kind}"] for part in "qkv"]
            tensors[f"{ours}.qkv.{kind}"] = torch.cat(parts)
            tensors[f"{ours}.gate.{kind}"] = gate
        tensors[f"{ours}.gate_scale"] = state_dict[attention + "grep_a"].view(HEADS, 1)
    return tensors


def _gate(weights: Mapping[str, Tensor], attention: str) -> tuple[Tensor, Tensor]:
    """The two gates of each head as one product with the tokens: rows (a of heads, b of heads).

    The checkpoint computes them from the query, which is itself linear in the tokens; each is the
    sum of four of ``grep_linear``'s eight outputs.
    """
    size = WIDTH // HEADS
    sums = weights[attention + "grep_linear.weight"].double().view(2, GATES // 2, size).sum(1)
    offset = weights[attention + "grep_linear.bias"].double().view(2, GATES // 2).sum(1)
    query = weights[attention + "q_proj.weight"].double().view(HEADS, size, WIDTH)
    query_bias = weights[attention + "q_proj.bias"].double().view(HEADS, size)
    weight = torch.einsum("gd,hdw->ghw", sums, query).reshape(2 * HEADS, WIDTH)
    bias = (torch.einsum("gd,hd->gh", sums, query_bias) + offset[:, None]).reshape(2 * HEADS)
    return weight.float(), bias.float()


def _position_matrix(weights: Mapping[str, Tensor]) -> Tensor:
    """The matrix of `PositionConv` for each group, with the weight norm folded in."""
    v = weights["encoder.pos_conv.0.weight_v"]
    kernel = weights["encoder.pos_conv.0.weight_g"] * v / v.norm(dim=(0, 1), keepdim=True)
    taps = kernel.view(GROUPS, GROUP_WIDTH, GROUP_WIDTH, KERNEL).permute(0, 3, 2, 1)
    matrix = taps.new_zeros(GROUPS, SEEN, GROUP_WIDTH, BANDS, GROUP_WIDTH)
    for shift in range(BANDS):
        matrix[:, shift : shift + KERNEL, :, shift] = taps
    return matrix.view(GROUPS, SEEN * GROUP_WIDTH, BANDS * GROUP_WIDTH)


class Encoder(TokenEncoder):
    """Filter banks (B, frames, 128) to the grid of tokens (B, frames // 16, 8, 768)."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, EMBED, PATCH, PATCH, bias=False)
        self.patch_norm = nn.LayerNorm(EMBED, EPS)
        self.projection = nn.Linear(EMBED, WIDTH)
        self.position_conv = PositionConv()
        self.norm = nn.LayerNorm(WIDTH, EPS)
        self.layers = nn.ModuleList(GatedBlock(EPS, DEEP_NORM) for _ in range(LAYERS))
        self.head_bias = nn.Parameter(torch.empty(BUCKETS, HEADS))
        self._position_bias: Tensor | None = None

    def tokens(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Embedded patches with their positions, and the ungated position bias."""
        x = self.projection(self.patch_norm(embedded(self.patches, features)))
        x = self.norm(x + functional.gelu(self.position_conv(x)))
        return x, self.position_bias(x.shape[1])

    def output(self, tokens: Tensor) -> Output:
        """The grid; BEATs has no readout of its own."""
        return tokens.view(len(tokens), -1, BANDS, WIDTH), {}

    def position_bias(self, tokens: int) -> Tensor:
        """P[head, i, j], the bias between two tokens before it is gated; kept for one length."""
        if self._position_bias is None or self._position_bias.shape[-1] != tokens:
            distances = torch.arange(1 - tokens, tokens)
            by_distance = self.head_bias[buckets(distances).to(self.head_bias.device)].T
            # Window w of the row of distances starts at -(tokens - 1) + w: row i needs j - i.
            self._position_bias = by_distance.unfold(1, tokens, 1).flip(1).contiguous()
        return self._position_bias


class GatedBlock(Block):
    """A block whose position bias is scaled per query by a gate computed from that query."""

    def __init__(self, eps: float, alpha: float) -> None:
        super().__init__(eps, alpha)
        self.gate = nn.Linear(WIDTH, 2 * HEADS)
        self.gate_scale = nn.Parameter(torch.empty(HEADS, 1))

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Tokens (B, N, 768) to tokens; ``bias`` (heads, N, N) is the ungated position bias."""
        a, b = self.gate(x).sigmoid().transpose(1, 2).chunk(2, dim=1)
        gate = a * (b * self.gate_scale - 1.0) + 2.0
        return super().forward(x, gate[..., None] * bias)


class PositionConv(nn.Module):
    """The grouped convolution of 128 taps over tokens, as one matrix product per group.

    Eight tokens (one step of time) are computed together from the 135 they see: 5 % more
    arithmetic than the convolution, but in the shape that matrix units are made for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.empty(GROUPS, SEEN * GROUP_WIDTH, BANDS * GROUP_WIDTH))
        self.bias = nn.Parameter(torch.empty(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, N, 768) to tokens; the even kernel sees 64 before and 63 after."""
        batch, tokens, width = x.shape
        padded = functional.pad(x, (0, 0, KERNEL // 2, KERNEL // 2 - 1))
        grouped = padded.view(batch, -1, GROUPS, GROUP_WIDTH).permute(2, 0, 1, 3).flatten(2)
        windows = grouped.unfold(2, SEEN * GROUP_WIDTH, BANDS * GROUP_WIDTH).flatten(1, 2)
        y = torch.bmm(windows, self.matrix).view(GROUPS, batch, tokens, GROUP_WIDTH)
        return y.permute(1, 2, 0, 3).reshape(batch, tokens, width) + self.bias


def buckets(distances: Tensor) -> Tensor:
    """Bucket of each distance j - i: exact up to 79, then logarithmic up to 800; two directions.

    >>> buckets(torch.tensor([-800, -79, 0, 1, 79, 800])).tolist()
    [159, 79, 0, 161, 239, 319]
    """
    # On the CPU in float32: another rounding of the logarithm would move a boundary.
    half = BUCKETS // 2
    exact = half // 2
    size = distances.cpu().abs()
    steps = (size.float() / exact).log() / math.log(MAX_DISTANCE / exact) * (half - exact)
    far = (exact + steps.long()).clamp(max=half - 1)
    return torch.where(size < exact, size, far) + half * (distances.cpu() > 0)
