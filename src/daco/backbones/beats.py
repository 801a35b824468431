"""BEATs iter3+ (AudioSet-2M): 62 x 8 tokens of 768 values for ten seconds.

Weight-compatible with the public checkpoints; what can be computed once is folded at load: the
weight norm of the position convolution, the gate of the relative position bias, q, k and v.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from daco.backbones.network import Network
from daco.backbones.transformer import (
    BANDS,
    FRAME_RATE,
    HEADS,
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
from daco.errors import WeightsError

EMBED = 512
BUCKETS = 320
MAX_DISTANCE = 800
KERNEL = 128
GROUPS = 16
GATES = 8
EPS = 1e-5
MEAN, STD = 15.41663, 6.55582
DEEP_NORM = (2 * LAYERS) ** 0.25
CACHED_LENGTHS = 8
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
        Encoder(state_dict),
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
    shapes: dict[str, tuple[int, ...]] = {
        "patch_embedding.weight": (EMBED, 1, PATCH, PATCH),
        "layer_norm.weight": (EMBED,),
        "layer_norm.bias": (EMBED,),
        "post_extract_proj.weight": (WIDTH, EMBED),
        "post_extract_proj.bias": (WIDTH,),
        "encoder.pos_conv.0.bias": (WIDTH,),
        "encoder.pos_conv.0.weight_g": (1, 1, KERNEL),
        "encoder.pos_conv.0.weight_v": (WIDTH, WIDTH // GROUPS, KERNEL),
        "encoder.layer_norm.weight": (WIDTH,),
        "encoder.layer_norm.bias": (WIDTH,),
    }
    layer: dict[str, tuple[int, ...]] = {
        "self_attn.grep_a": (1, HEADS, 1, 1),
        "self_attn.grep_linear.weight": (GATES, WIDTH // HEADS),
        "self_attn.grep_linear.bias": (GATES,),
        "self_attn.relative_attention_bias.weight": (BUCKETS, HEADS),
        "fc1.weight": (HIDDEN, WIDTH),
        "fc1.bias": (HIDDEN,),
        "fc2.weight": (WIDTH, HIDDEN),
        "fc2.bias": (WIDTH,),
    }
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        layer[f"self_attn.{name}.weight"] = (WIDTH, WIDTH)
        layer[f"self_attn.{name}.bias"] = (WIDTH,)
    for name in ("self_attn_layer_norm", "final_layer_norm"):
        layer[f"{name}.weight"] = layer[f"{name}.bias"] = (WIDTH,)
    for number in range(LAYERS):
        shapes |= {f"encoder.layers.{number}.{name}": shape for name, shape in layer.items()}
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
        if first is not None and other is not None and not torch.equal(first, other):
            raise WeightsError(
                f"{HEAD_BIAS.format(number)} differs from layer 0's, but BEATs shares one position "
                "bias among its layers. The checkpoint is damaged or of another network."
            )
    return tensors


class Encoder(TokenEncoder):
    """Filter banks (B, frames, 128) to the grid of tokens (B, frames // 16, 8, 768)."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.patches = linear(weights["patch_embedding.weight"].flatten(1))
        self.patch_norm = named_norm(weights, "layer_norm", EPS)
        self.projection = named_linear(weights, "post_extract_proj")
        self.position_conv = PositionConv(weights)
        self.norm = named_norm(weights, "encoder.layer_norm", EPS)
        self.layers = nn.ModuleList(
            GatedBlock(weights, f"encoder.layers.{number}.") for number in range(LAYERS)
        )
        self.head_bias = nn.Parameter(weights[HEAD_BIAS.format(0)], requires_grad=False)
        self._position_bias: dict[int, Tensor] = {}

    def tokens(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Embedded patches with their positions, and the ungated position bias."""
        x = self.projection(self.patch_norm(self.patches(patches_of(features))))
        x = self.norm(x + functional.gelu(self.position_conv(x)))
        return x, self.position_bias(x.shape[1])

    def output(self, tokens: Tensor) -> Output:
        """The grid; BEATs has no readout of its own."""
        return tokens.view(len(tokens), -1, BANDS, WIDTH), {}

    def position_bias(self, tokens: int) -> Tensor:
        """P[head, i, j], the bias between two tokens before it is gated; kept for each length."""
        found = self._position_bias.get(tokens)
        if found is None:
            distances = torch.arange(1 - tokens, tokens)
            by_distance = self.head_bias[buckets(distances).to(self.head_bias.device)].T
            # Window w of the row of distances starts at -(tokens - 1) + w: row i needs j - i.
            found = by_distance.unfold(1, tokens, 1).flip(1).contiguous()
            if len(self._position_bias) >= CACHED_LENGTHS:
                self._position_bias.clear()
            self._position_bias[tokens] = found
        return found


class GatedBlock(Block):
    """A block whose position bias is scaled per query by a gate computed from that query."""

    def __init__(self, weights: Mapping[str, Tensor], prefix: str) -> None:
        attention = prefix + "self_attn."
        parts = [attention + name for name in ("q_proj", "k_proj", "v_proj")]
        super().__init__(
            qkv=linear(
                torch.cat([weights[f"{part}.weight"] for part in parts]),
                torch.cat([weights[f"{part}.bias"] for part in parts]),
            ),
            out=named_linear(weights, attention + "out_proj"),
            norm1=named_norm(weights, prefix + "self_attn_layer_norm", EPS),
            fc1=named_linear(weights, prefix + "fc1"),
            fc2=named_linear(weights, prefix + "fc2"),
            norm2=named_norm(weights, prefix + "final_layer_norm", EPS),
            alpha=DEEP_NORM,
        )
        self.gate = _gate(weights, attention)
        scale = weights[attention + "grep_a"].view(HEADS, 1)
        self.gate_scale = nn.Parameter(scale, requires_grad=False)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Tokens (B, N, 768) to tokens; ``bias`` (heads, N, N) is the ungated position bias."""
        a, b = self.gate(x).sigmoid().transpose(1, 2).chunk(2, dim=1)
        gate = a * (b * self.gate_scale - 1.0) + 2.0
        return super().forward(x, gate[..., None] * bias)


def _gate(weights: Mapping[str, Tensor], attention: str) -> nn.Linear:
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
    return linear(weight.float(), bias.float())


class PositionConv(nn.Module):
    """The grouped convolution of 128 taps over tokens, as one matrix product per group.

    Eight tokens (one step of time) are computed together from the 135 they see: 5 % more
    arithmetic than the convolution, but in the shape that matrix units are made for.
    """

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        prefix = "encoder.pos_conv.0."
        v = weights[prefix + "weight_v"]
        kernel = weights[prefix + "weight_g"] * v / v.norm(dim=(0, 1), keepdim=True)
        size = WIDTH // GROUPS
        taps = kernel.view(GROUPS, size, size, KERNEL).permute(0, 3, 2, 1)
        matrix = taps.new_zeros(GROUPS, BANDS + KERNEL - 1, size, BANDS, size)
        for shift in range(BANDS):
            matrix[:, shift : shift + KERNEL, :, shift] = taps
        self.matrix = nn.Parameter(
            matrix.view(GROUPS, -1, BANDS * size).contiguous(), requires_grad=False
        )
        self.bias = nn.Parameter(weights[prefix + "bias"], requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, N, 768) to tokens; the even kernel sees 64 before and 63 after."""
        batch, tokens, width = x.shape
        steps, size = tokens // BANDS, width // GROUPS
        seen = BANDS + KERNEL - 1
        padded = functional.pad(x, (0, 0, KERNEL // 2, KERNEL // 2 - 1))
        grouped = padded.view(batch, -1, GROUPS, size).permute(2, 0, 1, 3).flatten(2)
        windows = grouped.unfold(2, seen * size, BANDS * size).reshape(GROUPS, batch * steps, -1)
        y = torch.bmm(windows, self.matrix).view(GROUPS, batch, steps, BANDS, size)
        return y.permute(1, 2, 3, 0, 4).reshape(batch, tokens, width) + self.bias


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
