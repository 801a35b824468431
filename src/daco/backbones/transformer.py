"""The post-norm transformer block that BEATs and EAT share, and how weights become layers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 768
HEADS = 12
HIDDEN = 3072
LAYERS = 12


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A frozen linear layer around existing weights."""
    # "meta" skips the random initialisation, a second for networks of this size.
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer


def named_linear(weights: Mapping[str, Tensor], name: str) -> nn.Linear:
    """The linear layer that a state dict keeps under ``name``."""
    return linear(weights[f"{name}.weight"], weights[f"{name}.bias"])


def named_norm(weights: Mapping[str, Tensor], name: str, eps: float) -> nn.LayerNorm:
    """The LayerNorm that a state dict keeps under ``name``."""
    layer = nn.LayerNorm(len(weights[f"{name}.weight"]), eps=eps, device="meta")
    layer.weight = nn.Parameter(weights[f"{name}.weight"], requires_grad=False)
    layer.bias = nn.Parameter(weights[f"{name}.bias"], requires_grad=False)
    return layer


class Block(nn.Module):
    """x = norm1(alpha x + attention(x)), then x = norm2(alpha x + mlp(x)); exact GELU."""

    def __init__(
        self,
        *,
        qkv: nn.Linear,
        out: nn.Linear,
        norm1: nn.LayerNorm,
        fc1: nn.Linear,
        fc2: nn.Linear,
        norm2: nn.LayerNorm,
        alpha: float = 1.0,
    ) -> None:
        super().__init__()
        self.qkv, self.out, self.norm1 = qkv, out, norm1
        self.fc1, self.fc2, self.norm2 = fc1, fc2, norm2
        self.alpha = alpha

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Tokens (B, N, 768) to tokens; ``bias`` (B, heads, N, N) is added to the logits."""
        batch, tokens, width = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, HEADS, width // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        heads = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        y = self.out(heads.transpose(1, 2).reshape(batch, tokens, width))
        x = self.norm1(torch.add(y, x, alpha=self.alpha))
        y = self.fc2(functional.gelu(self.fc1(x)))
        return self.norm2(torch.add(y, x, alpha=self.alpha))
