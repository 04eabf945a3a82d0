"""What people pass to ``log``, as what a record holds.

Numbers from Python, NumPy, torch, JAX and anything with ``item()``; text; nested mappings, joined with "/".
Imports none of these packages: a value brings its own.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import numbers
import os
from collections.abc import Callable, Mapping
from typing import Any

from trackers.records import SUMMARY_PREFIX, Number
from trackers.reductions import Reduction

MAX_NAME = 1024
"""Longest name of a metric; a longer one is cut, and said once."""
MAX_TEXT = 1_000_000
MAX_DEPTH = 32


class Unrecordable(ValueError):
    """A value that no record can hold. The message says what it was."""


class Split:
    """The values of one ``log`` call, by kind.

    Args:
        move: starts moving a value from an accelerator; None for a value that can be read at once.

    Attributes:
        numbers: name to number. texts: name to text. media: name to whatever ``media`` understands.
        reductions: name to what this rank adds to a value of all ranks.
        problems: one line for each value or name that couldn't be recorded.
    """

    __slots__ = ("_move", "media", "numbers", "problems", "reductions", "texts")

    def __init__(self, move: Callable[[Any], Any] = lambda value: None) -> None:
        self._move = move
        self.numbers: dict[str, Any] = {}
        self.texts: dict[str, str] = {}
        self.media: dict[str, Any] = {}
        self.reductions: dict[str, Reduction] = {}
        self.problems: list[str] = []

    def add(self, values: Mapping[Any, Any], prefix: str = "", depth: int = 0) -> None:
        """Sort values in. Never raises: what can't be taken becomes a problem."""
        try:
            items = list(values.items())
        except RuntimeError:  # another thread changed it: try once more, then take what a copy gives
            try:
                items = list(dict(values).items())
            except Exception as error:
                self.problems.append(f"values that changed while they were logged: {error}")
                return
        except Exception as error:
            self.problems.append(f"values of type {type(values).__name__}: {error}")
            return
        for key, value in items:
            try:
                self._add_one(prefix + flat_name(key, self.problems), value, depth)
            except Unrecordable as error:
                self.problems.append(f"{prefix}{key}: {error}"[:300])
            except Exception as error:
                self.problems.append(f"{prefix}{key}: {type(error).__name__}: {error}"[:300])

    def _add_one(self, name: str, value: Any, depth: int) -> None:
        if name in ("", "/", SUMMARY_PREFIX) or not name.strip():
            raise Unrecordable("an empty name")
        kind = type(value)
        if kind is float or kind is int or kind is bool:
            self.numbers[name] = value
        elif isinstance(value, float):  # NumPy's float64 among them
            self.numbers[name] = float(value)
        elif isinstance(value, Reduction):
            self.reductions[name] = value
        elif isinstance(value, str):
            self.texts[name] = value if len(value) <= MAX_TEXT else value[:MAX_TEXT]
        elif isinstance(value, Mapping):
            if depth >= MAX_DEPTH:
                raise Unrecordable(f"nested deeper than {MAX_DEPTH} levels")
            self.add(value, name + "/", depth + 1)
        elif value is None:
            return  # "nothing to say about it this time", as W&B takes it
        elif is_media(value):
            self.media[name] = value
        else:
            moving = self._move(value)
            self.numbers[name] = number(value) if moving is None else moving


def flat_name(key: Any, problems: list[str]) -> str:
    """A key of a mapping as a part of a name; what had to be cut is a problem."""
    text = key if isinstance(key, str) else str(key)
    if len(text) > MAX_NAME:
        problems.append(f"{text[:60]}…: a name of {len(text)} characters was cut to {MAX_NAME}")
        text = text[:MAX_NAME]
    # Lone surrogates can't be written as UTF-8.
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text


def number(value: Any) -> Number:
    """A scalar as a Python number; one-element arrays and tensors count as scalars.

    Raises:
        Unrecordable: not a scalar.
    """
    kind = type(value)
    if kind is float or kind is int or kind is bool:
        return value  # type: ignore[no-any-return]
    if isinstance(value, enum.Enum):
        return number(value.value)
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, (bytes, bytearray, complex)):
        raise Unrecordable(f"{kind.__name__} is not a number")
    item = getattr(value, "item", None)
    if callable(item):
        size = getattr(value, "numel", None)
        count = size() if callable(size) else getattr(value, "size", 1)
        if count != 1:
            shape = tuple(getattr(value, "shape", ()))
            raise Unrecordable(f"an array of shape {shape} is not a scalar: log a reduction of it, or a Histogram")
        plain = whole(value).item()
        if type(plain) is kind:
            raise Unrecordable(f"{kind.__name__} is not a number")
        return number(plain)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) or hasattr(kind, "__float__"):
        return float(value)
    raise Unrecordable(f"{kind.__name__} can't be recorded")


def whole(value: Any) -> Any:
    """A scalar as this rank has it, which all ranks have alike.

    Raises:
        Unrecordable: a DTensor (FSDP2, tensor parallel) of which each rank holds a part: ``item()`` would give that.
    """
    placements = getattr(value, "placements", None)
    if placements is None or not hasattr(value, "to_local"):
        return value
    if not all(one.is_replicate() for one in placements):
        raise Unrecordable(
            f"each rank holds a part of this DTensor ({', '.join(map(str, placements))}): log value.full_tensor(), "
            "which every rank must call"
        )
    return value.to_local()


def is_media(value: Any) -> bool:
    """Is this something that ``trackers.media`` takes? Decided without importing it for plain numbers."""
    if type(value).__module__.partition(".")[0] in ("numpy", "torch", "jax", "jaxlib", "decimal", "fractions"):
        return False  # scalars, most of the time; an array is no scalar and is named so
    from trackers import media

    return media.is_media(value)


def plain(value: Any, depth: int = 0) -> Any:
    """A configuration value as JSON values: mappings, lists, text, numbers, bool, None; anything else by ``str``."""
    if value is None or type(value) in (str, int, float, bool):
        return _text(value) if type(value) is str else value
    if depth > MAX_DEPTH:
        return str(value)[:MAX_NAME]
    if isinstance(value, enum.Enum):
        return plain(value.value, depth + 1)
    if isinstance(value, str):
        return _text(str(value))
    if isinstance(value, (bool, int, float)):
        return number(value)
    if isinstance(value, Mapping):
        return {_text(str(key)): plain(item, depth + 1) for key, item in list(value.items())}
    if isinstance(value, (set, frozenset)):
        return [plain(item, depth + 1) for item in sorted(value, key=str)]
    if isinstance(value, (list, tuple)) or type(value).__name__ == "ListConfig":
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, os.PathLike):
        return _text(os.fspath(value) if isinstance(os.fspath(value), str) else str(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name), depth + 1) for f in dataclasses.fields(value)}
    tolist = getattr(value, "tolist", None)
    if callable(tolist) and getattr(value, "size", 0) != 0 and _count(value) <= 1000:
        return plain(tolist(), depth + 1)
    if type(value).__name__ == "Namespace":
        return plain(vars(value), depth + 1)
    try:
        return _text(str(value))
    except Exception:
        return f"<{type(value).__name__}>"


def mapping(value: Any) -> dict[str, Any]:
    """A configuration as a plain nested dict: from a mapping, argparse or absl namespace, dataclass, or None."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return dict(plain(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dict(plain(value))
    flags = getattr(value, "flag_values_dict", None)  # absl.flags
    if callable(flags):
        return dict(plain(flags()))
    to_dict = getattr(value, "to_dict", None) or getattr(value, "model_dump", None)
    if callable(to_dict):
        return dict(plain(to_dict()))
    if hasattr(value, "__dict__"):
        return dict(plain({k: v for k, v in vars(value).items() if not k.startswith("_")}))
    items = getattr(value, "items", None)
    if callable(items):
        return dict(plain(dict(items())))
    raise TypeError(f"config of type {type(value).__name__}: give a mapping, a dataclass or a namespace")


def _count(value: Any) -> int:
    return math.prod(getattr(value, "shape", (0,)) or (1,))


def _text(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
