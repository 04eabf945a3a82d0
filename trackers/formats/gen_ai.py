"""Names of OpenTelemetry's semantic conventions for calls of language models, and those that were used before.

https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trackers.records import double

INPUT = "gen_ai.usage.input_tokens"
OUTPUT = "gen_ai.usage.output_tokens"
TOKENS: dict[str, tuple[str, ...]] = {
    INPUT: (INPUT, "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    OUTPUT: (OUTPUT, "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
}
"""The numbers of tokens of a call, by their names of today."""
MODEL = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
OPERATION = "gen_ai.operation.name"
KINDS = {
    "chat": "llm", "text_completion": "llm", "generate_content": "llm", "embeddings": "embedding",
    "execute_tool": "tool", "invoke_agent": "agent", "create_agent": "agent",
}  # fmt: skip
"""What we call an operation."""


def tokens(attributes: Mapping[str, Any]) -> dict[str, int]:
    """The numbers of tokens that a span's attributes have, by :data:`TOKENS`; those that are no whole number aren't."""
    counts = {}
    for name, names in TOKENS.items():
        number = next((value for key in names if (value := double(attributes.get(key))) is not None), None)
        if number is not None and 0 <= number < 2**53 and number == int(number):
            counts[name] = int(number)
    return counts


def model(attributes: Mapping[str, Any]) -> str:
    """The model of a call; "" where none is said."""
    return next((str(attributes[name]) for name in MODEL if attributes.get(name)), "")
