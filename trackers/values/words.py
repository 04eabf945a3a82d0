"""Results by word: ``{"acc": {"min": 1}}`` of a metric whose definition asks for some."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trackers.formats.json_values import MAX_DEPTH
from trackers.metrics.definitions import Definition
from trackers.metrics.summary import SUMMARIES


def by_word(
    values: Mapping[str, Any], definition_of: Callable[[str], Definition | None]
) -> tuple[dict[str, Any], list[str], dict[str, str]]:
    """Results by name, the metrics that have some by word, and of all names in mappings, the mappings'."""
    metrics: list[str] = []
    named: dict[str, Any] = {}
    within: dict[str, str] = {}

    def add(values: Mapping[str, Any], prefix: str, depth: int = 0) -> None:
        for key, value in values.items():
            name = f"{prefix}{key}" if prefix else key
            if prefix:
                within[name] = prefix[:-1]
            if not isinstance(value, Mapping) or depth >= MAX_DEPTH or not {*map(type, (key, *value))} <= {str}:
                named[name] = value  # what is odd in it is named where it is split
                continue
            definition = definition_of(name)
            words = definition.summary if definition is not None else ()
            results = {word: result for word, result in value.items() if words and word in SUMMARIES}
            if results:
                metrics.append(name)
            for word, result in results.items():
                named[name if words == (word,) == tuple(value) else f"{name}.{word}"] = result
            add({key: other for key, other in value.items() if key not in results}, f"{name}/", depth + 1)

    add(values, "")
    return named, metrics, within
