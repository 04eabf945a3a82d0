"""Selection of a section's layers, with nvdlfw-inspect's names and rules.

A linear layer is chosen by its name alone. A module of another kind is so, too, if it is named whole, or if
``layer_types`` has the name of its class.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trackers.errors import UsageError

KEYS = ("layer_name_regex_pattern", "layer_types", "layer_numbers", "exact_layer_names")
ROOT = "model"
WRAPPERS = ("DistributedDataParallel", "DataParallel", "OptimizedModule")
_NUMBER = re.compile(r"(?<!fc)\d+")


class Layers(NamedTuple):
    """A section's choice. numbers: None for all."""

    pattern: re.Pattern[str] | None = None
    types: tuple[str, ...] = ()
    numbers: frozenset[int] | None = None
    exact: tuple[str, ...] = ()

    def chosen(self, name: str, kind: str, linear: bool) -> bool:
        """Whether a module is meant.

        Args:
            name: of the layer. kind: of its class. linear: whether it is a linear layer.
        """
        if self.exact:
            return name in self.exact
        if not linear and kind not in self.types:
            return False
        if self.pattern is not None:
            return self.pattern.search(name) is not None
        if self.types and not (kind in self.types or "all" in self.types or any(one in name for one in self.types)):
            return False
        return self.numbers is None or _number(name) in self.numbers

    def describe(self) -> str:
        """What was asked for, in its own words."""
        if self.pattern is not None:
            return f"layer_name_regex_pattern {self.pattern.pattern!r}"
        return " and ".join(
            f"{key} {value}"
            for key, value in (
                ("exact_layer_names", list(self.exact)),
                ("layer_types", list(self.types)),
                ("layer_numbers", sorted(self.numbers or ())),
            )
            if value
        )

    @classmethod
    def read(cls, values: Any, where: str) -> Layers:
        """From a section's ``layers``.

        Raises:
            UsageError: nothing is chosen, an unknown key, or no regular expression.
        """
        if not isinstance(values, Mapping) or not set(values) & set(KEYS):
            raise UsageError(f"{where}: layers is missing: choose by {', '.join(KEYS)}")
        strange = [str(key) for key in values if key not in KEYS]
        if strange:
            raise UsageError(f"{where}: layers: unknown {', '.join(strange)}; known are {', '.join(KEYS)}")
        pattern = values.get("layer_name_regex_pattern")
        try:
            compiled = None if pattern is None else re.compile(str(pattern))
        except re.error as error:
            raise UsageError(f"{where}: layer_name_regex_pattern {pattern!r}: {error}") from None
        return cls(
            compiled,
            _words(values.get("layer_types"), f"{where}: layer_types"),
            _numbers(values.get("layer_numbers"), f"{where}: layer_numbers"),
            _words(values.get("exact_layer_names"), f"{where}: exact_layer_names"),
        )


def unwrapped(model: Any) -> list[Any]:
    """The model's chunks, without what training wraps them in."""
    chunks = list(model) if isinstance(model, (list, tuple)) else [model]
    found = []
    for chunk in chunks:
        while type(chunk).__name__ in WRAPPERS:
            chunk = getattr(chunk, "_orig_mod", None) or chunk.module
        found.append(chunk)
    return found


def names(chunks: Sequence[Any]) -> dict[str, Any]:
    """The modules of a model by name: "model", "model.blocks.0.project". Several chunks of which two have a layer of
    the same name are told apart as "model.0", "model.1", ….

    A module in a list takes its ``layer_number``, if it has one (as Megatron's have), for its place.
    """
    trees = [_tree(chunk, ROOT) for chunk in chunks]
    every = [name for tree in trees for name, module in tree.items() if next(module.children(), None) is None]
    if len(every) > len(set(every)):
        trees = [_tree(chunk, f"{ROOT}.{number}") for number, chunk in enumerate(chunks)]
    found = {name: module for tree in trees for name, module in tree.items()}
    last = {id(module): name for name, module in found.items()}  # a shared module goes by one name, the last
    return {name: module for name, module in found.items() if last[id(module)] == name}


def _tree(module: Any, name: str) -> dict[str, Any]:
    found = {name: module}
    for child_name, child in module.named_children():
        place = getattr(child, "layer_number", None) if type(module).__name__ == "ModuleList" else None
        found.update(_tree(child, f"{name}.{child_name if place is None else place}"))
    return found


def _number(name: str) -> int | None:
    match = _NUMBER.search(name)
    return int(match.group()) if match else None


def _words(value: Any, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, (list, tuple)) or not value:
        raise UsageError(f"{where}={value!r}: give a list of names")
    return tuple(str(word) for word in value)


def _numbers(value: Any, where: str) -> frozenset[int] | None:
    if value is None or value == "all":
        return None
    found: set[int] = set()
    for one in value if isinstance(value, (list, tuple)) else [value]:
        if one == "all":
            return None
        match = re.fullmatch(r"(\d+)-(\d+)", str(one).strip())
        if match:
            found.update(range(int(match[1]), int(match[2]) + 1))
        elif type(one) is int:
            found.add(one)
        else:
            raise UsageError(f'{where}={one!r}: give numbers, or ranges as in "2-5"')
    return frozenset(found)
