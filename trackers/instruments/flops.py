"""Floating-point operations of a transformer's step: matrix products, two for each multiply-add.

Counted as by Narayanan et al. 2021 ("Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", section 5.1): 72 B s L h² (1 + s/6h + V/12hL) for a step of GPT, here written out by parts, so that
grouped queries (Ainslie et al. 2023), gated feed-forwards (Shazeer 2020) and experts (Fedus et al. 2021) count for
what they are. A backward pass takes twice the forward pass; what is computed again for memory's sake isn't counted,
as in PaLM's model FLOPs utilisation (Chowdhery et al. 2022, appendix B).
"""

from __future__ import annotations

import dataclasses

from trackers.errors import UsageError

TRAINING = 3
"""A step of training, in forward passes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Transformer:
    """A decoder's sizes.

    Args:
        layers, width, heads: of the model. vocabulary: outputs of the last layer. length: tokens of a sequence.
        kv_heads: key and value heads (grouped queries); default ``heads``.
        head_width: default ``width / heads``.
        feed_width: of the dense feed-forward part; default ``4 * width``. gated: it has three matrices (SwiGLU).
        experts: how many a layer of experts has, 0 for a dense model. active: how many a token goes through.
        expert_width: of one expert; default ``feed_width``. shared_width: of what each token goes through besides.
        expert_layers: how many layers have experts; default all.
        causal: count only the half of the attention that a mask leaves. The usual formulas, and so the utilisations
            that people compare, count all of it.

    Raises:
        UsageError: sizes that don't fit together.
    """

    layers: int
    width: int
    heads: int
    vocabulary: int
    length: int
    kv_heads: int | None = None
    head_width: int | None = None
    feed_width: int | None = None
    gated: bool = False
    experts: int = 0
    active: int = 0
    expert_width: int | None = None
    shared_width: int = 0
    expert_layers: int | None = None
    causal: bool = False

    def __post_init__(self) -> None:
        sizes = dataclasses.asdict(self)
        wrong = [name for name in ("layers", "width", "heads", "vocabulary", "length") if sizes[name] < 1]
        if wrong:
            raise UsageError(f"Transformer: {', '.join(wrong)} must be 1 or more")
        if self.experts and not 0 < self.active <= self.experts:
            raise UsageError(f"Transformer: of {self.experts} experts active must be 1 to {self.experts}")
        if self.expert_layers is not None and not 0 <= self.expert_layers <= self.layers:
            raise UsageError(f"Transformer: expert_layers must be 0 to {self.layers}")

    def per_token(self) -> float:
        """Operations that a token of training takes, forward and backward."""
        return TRAINING * self.forward_per_token()

    def per_step(self, tokens: int) -> float:
        """Operations of a step that many tokens go through."""
        return self.per_token() * tokens

    def forward_per_token(self) -> float:
        """Operations of a token's forward pass."""
        with_experts = (self.layers if self.expert_layers is None else self.expert_layers) if self.experts else 0
        dense = self._feed(4 * self.width if self.feed_width is None else self.feed_width)
        logits = 2 * self.width * self.vocabulary
        layers = self.layers * self._attention() + (self.layers - with_experts) * dense + with_experts * self._experts()
        return layers + logits

    def _attention(self) -> float:
        across = self.heads * (self.head_width or self.width / self.heads)
        grouped = across * (self.kv_heads or self.heads) / self.heads
        projections = 2 * self.width * (across + 2 * grouped) + 2 * across * self.width
        scores_and_sums = 2 * 2 * self.length * across
        return projections + (scores_and_sums / 2 if self.causal else scores_and_sums)

    def _feed(self, width: int) -> float:
        return 2 * self.width * width * (3 if self.gated else 2)

    def _experts(self) -> float:
        width = self.expert_width or self.feed_width or 4 * self.width
        router = 2 * self.width * self.experts
        return self.active * self._feed(width) + self._feed(self.shared_width) + router
