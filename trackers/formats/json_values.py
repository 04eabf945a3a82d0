"""Any Python value as JSON values: configurations, attributes, cells of tables. Never raises for an odd object."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import functools
import math
import numbers
import os
import types
from collections.abc import Mapping, MappingView
from typing import Any

from trackers.records import escaped
from trackers.support.interruption import pass_on, suppress

MAX_NAME = 1024
"""Longest name of a metric; a longer one is cut, and said once."""
MAX_DEPTH = 32
MOST_LISTED = 1000
"""Values of an array or a range that are listed; more are text."""
_LISTS: Any = (list, tuple, collections.deque, collections.UserList, MappingView)
_CACHED: Any = type(functools.cache(len))
MAX_BITS = 1023
"""Of an integer in the configuration; a larger one, which no float holds, is kept in hexadecimal, as text."""


def to_json_values(value: Any, above: tuple[int, ...] = ()) -> Any:
    """A configuration value as JSON values: mappings, lists, text, numbers, bool, None; anything else by ``str``.

    Never raises: an object that can't be looked at is its type's name, ``<Model>``, and what is beside it is kept. What
    contains itself (``above`` has the ids of what it lies in), or lies deeper than 32 levels, is text there.
    """
    with suppress(Exception):
        return _to_json_values(value, above)
    return f"<{type(value).__name__}>"


def _to_json_values(value: Any, above: tuple[int, ...]) -> Any:
    kind = type(value)
    if value is None or kind in (float, bool):
        return value
    if isinstance(value, (str, int, float)):
        return _plain(value)
    if len(above) > MAX_DEPTH or id(value) in above:
        return escaped(str(value)[:MAX_NAME])
    above = (*above, id(value))
    if isinstance(value, enum.Enum):
        return to_json_values(value.value, above)
    if isinstance(value, Mapping):
        return {key_text(key): to_json_values(item, above) for key, item in _items(value)}
    if isinstance(value, (set, frozenset)):
        return sorted((to_json_values(item, above) for item in value), key=str)
    if isinstance(value, _LISTS):
        return [to_json_values(item, above) for item in value]
    if kind.__name__ == "ListConfig":
        return [to_json_values(item, above) for _, item in _items(value)]
    if isinstance(value, (range, bytearray)) and len(value) <= MOST_LISTED:
        return list(value)
    if isinstance(value, os.PathLike):
        return escaped(os.fsdecode(value))
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return _object(value, above)


def known_texts(values: Any) -> Any:
    """The values, None for NaN among texts alone: pandas has it where one is missing, and its name would be a text."""
    kinds = {type(one) for one in values if one is not None and not (isinstance(one, float) and math.isnan(one))}
    return [one if isinstance(one, str) else None for one in values] if kinds == {str} else values


def _items(value: Any) -> list[tuple[Any, Any]]:
    """Of OmegaConf's mapping or list, what is missing or can't be resolved as it is written there."""
    is_mapping = isinstance(value, Mapping)
    try:
        return list(value.items() if is_mapping else enumerate(value))
    except Exception as error:
        pass_on(error)
        found = dict(value.items_ex(resolve=False) if is_mapping else enumerate(value._iter_ex(resolve=False)))
        for key in found:
            with suppress(Exception):
                found[key] = value[key]
        return list(found.items())


def _plain(value: str | float) -> Any:
    """Of a subclass, as NumPy's float is one, the plain value."""
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, int):
        whole = int.__index__(value)
        return whole if whole.bit_length() <= MAX_BITS else hex(whole)
    return float.__float__(value)


def _object(value: Any, above: tuple[int, ...]) -> Any:
    """A dataclass, an array, a namespace, a slice; any other object as text."""
    if isinstance(value, type):
        return escaped(_text(value))
    if dataclasses.is_dataclass(value):
        return {f.name: to_json_values(getattr(value, f.name, None), above) for f in dataclasses.fields(value)}
    value = value.dequantize() if getattr(value, "is_quantized", False) is True else value
    tolist = getattr(value, "tolist", None)
    if callable(tolist) and _count(value) <= MOST_LISTED:
        listed = tolist()
        if type(listed) is not type(value):
            return to_json_values(listed, above)
        if isinstance(value, numbers.Real):  # NumPy's long double, which no list of Python's has
            return float(value)
    if type(value).__name__ == "Namespace":
        return to_json_values(vars(value), above)
    if isinstance(value, slice):
        return {f"slice_{part}": to_json_values(getattr(value, part), above) for part in ("start", "step", "stop")}
    return escaped(_text(value))


def _text(value: Any) -> str:
    """Text without an address, as W&B's client writes functions, classes, bytes, complex numbers; else by ``str``."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, complex):
        return str(value).strip("()")
    named = isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, _CACHED))
    return f"{value.__module__}.{value.__qualname__}" if named and value.__module__ else str(value)


def text(value: Any) -> str:
    """Anything as text that can be written. Never raises."""
    return str(to_json_values(value))


def key_text(key: Any) -> str:
    """A mapping's key as W&B's client writes it in JSON."""
    with suppress(Exception):
        if isinstance(key, enum.Enum) and not isinstance(key, str):
            return key_text(key.value)
        if isinstance(key, tuple):
            return ",".join(map(key_text, key))
        return escaped(key if isinstance(key, str) else str(key).lower() if isinstance(key, bool) else _text(key))
    return f"<{type(key).__name__}>"


def mapping(value: Any) -> dict[str, Any]:
    """A configuration as a plain nested dict: from a mapping, argparse or absl namespace, dataclass, or None."""
    if value is None:
        return {}
    if isinstance(value, Mapping) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        result = to_json_values(value)
        if not isinstance(value, Mapping):  # what __post_init__ added
            result = {**to_json_values(getattr(value, "__dict__", {})), **result}
        if not isinstance(result, dict):
            raise TypeError(f"config of type {type(value).__name__} can't be read: give a mapping")
        return result
    flags = getattr(value, "flag_values_dict", None)  # absl.flags
    if callable(flags):
        return dict(to_json_values(flags()))
    to_dict = getattr(value, "to_dict", None) or getattr(value, "model_dump", None)
    if callable(to_dict):
        return dict(to_json_values(to_dict()))
    if hasattr(value, "__dict__"):
        whole = type(value).__name__ == "Namespace"
        return dict(to_json_values({k: v for k, v in vars(value).items() if whole or not k.startswith("_")}))
    items = getattr(value, "items", None)
    if callable(items):
        return dict(to_json_values(dict(items())))
    raise TypeError(f"config of type {type(value).__name__}: give a mapping, a dataclass or a namespace")


def _count(value: Any) -> int:
    return math.prod(value.shape) if hasattr(value, "shape") else len(value) if hasattr(value, "__len__") else 1
