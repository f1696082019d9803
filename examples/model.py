"""A GPT: token ids in, logits out, or the loss where labels are given.

Pre-norm blocks with rotary positions, one matrix for embedding and head. It draws no random numbers after its
initialization (no dropout: a corpus is rarely seen twice), so a resumed run needs no generator's state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it


@dataclass(frozen=True, kw_only=True)
class Shape:
    layers: int
    heads: int
    width: int


SHAPES = {
    "tiny": Shape(layers=2, heads=4, width=128),  # for a CPU
    "small": Shape(layers=12, heads=12, width=768),  # 124 M parameters with a vocabulary of 50k
    "medium": Shape(layers=24, heads=16, width=1024),  # 354 M
    "large": Shape(layers=36, heads=20, width=1280),  # 774 M
}


class GPT(nn.Module):
    def __init__(self, shape: Shape, *, vocab_size: int, seq_len: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        rotation = rotary(seq_len, shape.width // shape.heads)
        self.register_buffer("cos", rotation.cos(), persistent=False)
        self.register_buffer("sin", rotation.sin(), persistent=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:  # what adds to the residual stream starts smaller, the more layers there are
                layers = shape.layers if name.endswith("out.weight") else 0
                nn.init.normal_(weight, std=0.02 / math.sqrt(max(2 * layers, 1)))

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
        """Labels are the next tokens, already shifted; -100 counts for nothing."""
        length = input_ids.shape[1]
        x = self.embed(input_ids)
        for block in self.blocks:
            x = block(x, self.cos[:length], self.sin[:length])  # type: ignore[index] # they are tensors
        logits = F.linear(self.norm(x), self.embed.weight)
        if labels is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100)


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.width)
        self.attention = Attention(shape)
        self.mlp_norm = nn.RMSNorm(shape.width)
        self.mlp = MLP(shape.width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        attended: Tensor = x + self.attention(self.attention_norm(x), cos, sin)
        return attended + self.mlp(self.mlp_norm(attended))  # type: ignore[no-any-return]


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        rows, length, width = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return out


class MLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.out = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(F.gelu(self.up(x)))
        return out


def rotary(seq_len: int, head_width: int) -> Tensor:
    """Angles by position and pair of dimensions."""
    frequencies = 10_000.0 ** (-torch.arange(0, head_width, 2) / head_width)
    return torch.outer(torch.arange(seq_len), frequencies)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).type_as(x)
