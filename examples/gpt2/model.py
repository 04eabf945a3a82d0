"""GPT-2's architecture (Radford et al. 2019), small: learned positions, pre-norm blocks, tied embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Shape:
    """Sizes of a model. block: the longest stretch it sees, in tokens."""

    vocabulary: int
    block: int
    layers: int
    heads: int
    width: int


class Block(nn.Module):
    """Causal self-attention and a feed-forward part, each added to what comes in."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm_attention = nn.LayerNorm(shape.width)
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width)
        self.project = nn.Linear(shape.width, shape.width)
        self.norm_feed = nn.LayerNorm(shape.width)
        self.feed = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * shape.width, shape.width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, length, width = x.shape
        parts = self.query_key_value(self.norm_attention(x)).split(width, dim=2)
        query, key, value = (part.view(count, length, self.heads, -1).transpose(1, 2) for part in parts)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(count, length, width))
        return x + self.feed(self.norm_feed(x))


class GPT(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.block, shape.width)
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                # Smaller where the residual stream is written, as in GPT-2.
                written = name.endswith(("project.weight", "feed.2.weight"))
                nn.init.normal_(parameter, std=0.02 / ((2 * shape.layers) ** 0.5 if written else 1))

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy in nats per token. tokens, targets: shape (n, length)."""
        return F.cross_entropy(self.logits(tokens).flatten(0, 1), targets.flatten())

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Shape (n, length, vocabulary)."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)

    @torch.no_grad()
    def generate(self, prompt: torch.Tensor, count: int, temperature: float, random: torch.Generator) -> torch.Tensor:
        """``count`` tokens that continue the prompt, shape (1, length); returns prompt and continuation."""
        tokens = prompt
        for _ in range(count):
            logits = self.logits(tokens[:, -self.shape.block :])[:, -1].cpu() / temperature
            chosen = torch.multinomial(logits.softmax(dim=-1), 1, generator=random)
            tokens = torch.cat([tokens, chosen.to(tokens.device)], dim=1)
        return tokens
