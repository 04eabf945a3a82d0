"""Real English text that every Python ships: the help on the language's topics, as bytes."""

from __future__ import annotations

from pydoc_data.topics import topics

import torch

VOCABULARY = 256
"""Tokens are bytes."""


def load(val_part: float = 0.1) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens for training and for validation: the last tenth, so that no sentence is in both."""
    text = "\n\n".join(topics[name] for name in sorted(topics))
    tokens = torch.tensor(list(text.encode()), dtype=torch.long)
    border = int(len(tokens) * (1 - val_part))
    return tokens[:border], tokens[border:]


def batch(tokens: torch.Tensor, size: int, block: int, random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Random stretches and the token after each position: two tensors of shape (size, block)."""
    starts = torch.randint(len(tokens) - block, (size,), generator=random)
    places = starts[:, None] + torch.arange(block)
    return tokens[places], tokens[places + 1]


def text_of(tokens: torch.Tensor) -> str:
    """Tokens as text; bytes that are no UTF-8 are shown as such."""
    return bytes(tokens.tolist()).decode(errors="backslashreplace")
