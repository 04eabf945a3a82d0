"""Conversion of the values passed to ``log`` into the values of records.

Numbers from Python, NumPy, torch, JAX and anything with ``item()``; text; nested mappings, joined with "/".
Imports none of these packages: a value brings its own.
"""

from __future__ import annotations

import enum
import hashlib
import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

from trackers.errors import reason
from trackers.formats.json_values import MAX_DEPTH, MAX_NAME, key_text
from trackers.records import MAX_STEP, SUMMARY_PREFIX, Number, escaped
from trackers.reductions import Reduction
from trackers.support.interruption import pass_on

MAX_TEXT = 1_000_000
"""Longest text, in characters; a longer one is cut, and said once: no tracker shows more, and some refuse it."""


PLAIN_NUMBERS = frozenset({int, float, bool})


class Unrecordable(ValueError):
    """A value that no record can hold. The message says what it was."""


class ListText(str):
    """A list as JSON text."""


class Split:
    """The values of one ``log`` call, by kind.

    Args:
        move: starts moving a value from an accelerator; None for a value that can be read at once.
        otherwise: text, mapping or media for a value that is neither a number nor anything else here; None where it has
            none.

    Attributes:
        numbers: name to number. texts: name to text. media: name to whatever ``media`` understands.
        lists: names of the texts that are lists as JSON.
        reductions: name to what this rank adds to a value of all ranks.
        within: names of values in mappings, and the mapping's name.
        problems: one line for each value or name that couldn't be recorded.
    """

    __slots__ = ("_move", "_otherwise", "lists", "media", "numbers", "problems", "reductions", "texts", "within")

    def __init__(
        self, move: Callable[[Any], Any] = lambda value: None, otherwise: Callable[[Any], Any] | None = None
    ) -> None:
        self._move = move
        self._otherwise = otherwise
        self.numbers: dict[str, Any] = {}
        self.texts: dict[str, str] = {}
        self.lists: set[str] = set()
        self.media: dict[str, Any] = {}
        self.reductions: dict[str, Reduction] = {}
        self.within: dict[str, str] = {}
        self.problems: list[str] = []

    def add(self, values: Mapping[Any, Any], prefix: str = "", depth: int = 0) -> None:
        """Sort values in. Never raises: what can't be taken becomes a problem."""
        try:
            items = list(values.items())
        except RuntimeError as error:  # another thread changed it: try once more, then take what a copy gives
            pass_on(error)
            try:
                items = list(dict(values).items())
            except Exception as error:
                pass_on(error)
                self.problems.append(f"values that changed while they were logged: {reason(error)}")
                return
        except Exception as error:
            pass_on(error)
            which = prefix.rstrip("/") or "values"
            self.problems.append(f"{which}: a {type(values).__name__} that can't be read: {reason(error)}")
            return
        for key, value in items:
            name = prefix
            try:
                plain_key = not prefix and type(key) is str and key.isascii() and len(key) <= MAX_NAME
                name = key if plain_key else flat_name(key, self.problems, prefix)
                if prefix:
                    self.within[name] = prefix[:-1]
                self._add_one(name, value, depth)
            except Unrecordable as error:
                self.problems.append(f"{name[:200]}: {error}"[:300])
            except Exception as error:
                pass_on(error)
                named = name if name != prefix else f"{prefix}{type(key).__name__}"
                self.problems.append(f"{named[:200]}: {reason(error)}"[:300])

    def _add_one(self, name: str, value: Any, depth: int) -> None:
        if name in ("", "/", SUMMARY_PREFIX):
            raise Unrecordable("an empty name")
        if not name.strip():  # a page would show nothing
            name = "".join(f"\\x{ord(character):02x}" for character in name)
        kind = type(value)
        if kind is float or kind is bool or isinstance(value, float):  # NumPy's float64 among them
            if name in self.numbers:
                self._say_twice(name)
            self.numbers[name] = value if kind is float or kind is bool else float.__float__(value)
        elif kind is int:
            self._add(self.numbers, name, number(value))
        elif isinstance(value, Reduction):
            self._add(self.reductions, name, value)
        elif isinstance(value, str):
            self._add(self.texts, name, self._text(name, value))
            self.lists.discard(name)
        elif isinstance(value, Mapping):
            if depth >= MAX_DEPTH:
                raise Unrecordable(f"nested deeper than {MAX_DEPTH} levels")
            self.add(value, name + "/", depth + 1)
        elif value is None:
            return  # "nothing to say about it this time", as W&B takes it
        elif is_media(value):
            kinds = media_by_kind(value) if isinstance(value, (list, tuple)) else {}
            if len(kinds) > 1:  # no tracker shows several kinds as one
                self.add(kinds, name + "/", depth + 1)
            else:
                self._add(self.media, name, value)
        elif isinstance(value, (list, tuple)) and any(map(is_media, {type(item): item for item in value}.values())):
            raise Unrecordable("a list of media and of other values: log these under another name")
        else:
            try:
                moving = self._move(value)
                scalar = number(value) if moving is None else moving
            except Unrecordable:
                if not self._keep_otherwise(name, value, depth):
                    raise
            else:
                self._add(self.numbers, name, scalar)

    def _keep_otherwise(self, name: str, value: Any, depth: int) -> bool:
        converted = None if self._otherwise is None else self._otherwise(value)
        if isinstance(converted, Mapping):
            self._add_one(name, converted, depth)
            return True
        if isinstance(converted, str):
            self._add(self.texts, name, self._text(name, converted))
            is_list = isinstance(converted, ListText) and len(converted) <= MAX_TEXT  # what was cut is no JSON
            (self.lists.add if is_list else self.lists.discard)(name)
        elif converted is not None:
            self._add(self.media, name, converted)
        return converted is not None

    def _add(self, target: dict[str, Any], name: str, value: Any) -> None:
        if name in target:
            self._say_twice(name)
        target[name] = value

    def _say_twice(self, name: str) -> None:
        self.problems.append(f"{name}: several values of one call have this name: the last one is kept")

    def _text(self, name: str, value: str) -> str:
        if len(value) <= MAX_TEXT:
            return escaped(value)
        self.problems.append(
            f"{name}: a text of {len(value):,} characters was cut to {MAX_TEXT:,}: keep it whole as a file, by run.save"
        )
        return escaped(value[:MAX_TEXT])


def flat_name(key: Any, problems: list[str], prefix: str = "") -> str:
    """A key of a mapping, behind the prefix, as a name that can be written; what had to be cut is a problem.

    Names that differ still do so: one that is cut ends with a digest of the whole, and surrogates are escaped.
    """
    told = isinstance(key, (enum.Enum, tuple, bool, bytes, type))  # as JSON has them
    text = prefix + (key_text(key) if told else escaped(key if isinstance(key, str) else str(key)))
    if len(text) > MAX_NAME:
        problems.append(f"{text[:60]}…: a name of {len(text)} characters was cut to {MAX_NAME}")
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        text = f"{text[: MAX_NAME - 17]}~{digest}"
    return text


def number(value: Any) -> Number:
    """A scalar as a Python number; one-element arrays and tensors count as scalars.

    Raises:
        Unrecordable: not a scalar.
    """
    kind = type(value)
    if kind is float or kind is bool:
        return value  # type: ignore[no-any-return]
    if isinstance(value, int):
        return _bounded(int.__index__(value))
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, enum.Enum):
        return number(value.value)
    if isinstance(value, (bytes, bytearray, complex)):
        raise Unrecordable(f"{kind.__name__} is not a number")
    item = getattr(value, "item", None)
    if callable(item):
        size = getattr(value, "numel", None)
        count = size() if callable(size) else getattr(value, "size", 1)
        if count != 1:
            shape = tuple(getattr(value, "shape", ()))
            raise Unrecordable(f"an array of shape {shape} is not a scalar: log a reduction of it, or a Histogram")
        if kind.__name__.startswith("Masked") and bool(getattr(value, "mask", False)):
            raise Unrecordable("a masked value")  # NumPy's item() gives what lies beneath the mask, or 0
        plain = whole(value).item()
        if type(plain) is not kind:
            return number(plain)
        if not isinstance(value, numbers.Real):  # NumPy's long double is one
            raise Unrecordable(f"{kind.__name__} is not a number")
    if isinstance(value, numbers.Integral):
        return _bounded(int(value))
    if isinstance(value, numbers.Real) or hasattr(kind, "__float__"):
        converted = float(value)
        if math.isinf(converted) and value != converted:
            raise Unrecordable(f"{kind.__name__} is too large for a number")
        return converted
    raise Unrecordable(f"{kind.__name__} can't be recorded")


def read_at_once(values: Mapping[Any, Any]) -> dict[Any, Number]:
    """The numbers of a call that holds nothing but numbers, NumPy's scalars and tensors of one value on the processor:
    those that :class:`Split` makes of them.

    Raises:
        Exception: something else is among them, or a number that isn't finite.
    """
    scalars: dict[Any, Number] = {}
    for name, value in values.items():
        kind = type(value)
        if kind in PLAIN_NUMBERS:
            scalars[name] = value
        elif kind in _TENSORS:
            if not value.is_cpu:
                raise Unrecordable("a value on an accelerator isn't waited for")
            scalars[name] = value.item()
        else:
            scalars[name] = (_READERS.get(kind) or _reader(kind))(value)
    if not math.isfinite(sum(scalars.values(), 0.0)):
        raise Unrecordable("not finite")
    return scalars


_TENSORS: set[type] = set()
_READERS: dict[type, Callable[[Any], Any]] = {}
"""NumPy's scalars and torch's tensors, as far as any were logged."""
_NUMPY = frozenset({
    "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
    "bool_",
})  # fmt: skip


def _reader(kind: type) -> Callable[[Any], Any]:
    if kind.__module__ == "numpy" and kind.__name__ in _NUMPY:
        _READERS[kind] = kind.item  # type: ignore[attr-defined]
    elif kind.__module__ == "torch" and kind.__name__ == "Tensor":
        _TENSORS.add(kind)
        return lambda value: read_at_once({"": value})[""]
    else:
        raise Unrecordable(f"{kind.__name__} needs a closer look")
    return _READERS[kind]


def _bounded(value: int) -> int:
    try:
        float(value)
    except OverflowError:
        raise Unrecordable(f"an integer of {value.bit_length()} bits is too large for a number") from None
    return value


def whole(value: Any) -> Any:
    """A scalar as this rank has it, which all ranks have alike.

    Raises:
        Unrecordable: a DTensor (FSDP2, tensor parallel) of which each rank holds a part: ``item()`` would give that.
    """
    placements = getattr(value, "placements", None)
    if placements is None or not hasattr(value, "to_local"):
        return value
    if not all(placement.is_replicate() for placement in placements):
        raise Unrecordable(
            f"each rank holds a part of this DTensor ({', '.join(map(str, placements))}): log value.full_tensor(), "
            "which every rank must call"
        )
    return value.to_local()


def whole_step(step: Any, say: Callable[[str, str], object]) -> int | None:
    """A step as a record holds it, or None where it is no number in bounds: then the next step is to be taken.

    Args:
        say: called with one line about what is changed, and what that line is about, whatever the number.
    """
    if type(step) is int and -MAX_STEP <= step <= MAX_STEP:
        return step
    try:
        whole = int(plain(step))
        same = bool(whole == step)
    except Exception as error:
        pass_on(error)
        say(f"log: step {short_repr(step)} is not a number: the next step is taken", "no step")
        return None
    if not -MAX_STEP <= whole <= MAX_STEP:
        say(f"log: step {short_repr(step)} is beyond {MAX_STEP} (2**53 - 1): the next step is taken", "large step")
        return None
    if not same:
        say(f"log: step {short_repr(step)} is not a whole number: {whole} is taken", "broken step")
    return whole


def plain(value: Any) -> Any:
    """A text of a class of one's own as a plain one, any other value as it is: where such a text is no number and its
    repr fails, Python 3.10 raises what looks as if another thread had raised it."""
    return str.__str__(value) if isinstance(value, str) else value


def short_repr(value: Any) -> str:
    """A value as messages show it: its ``repr``, truncated, or its type if that fails."""
    try:
        text = repr(value)
    except Exception as error:
        pass_on(error)
        return f"<{type(value).__name__}>"
    return text if len(text) <= 60 else text[:59] + "…"


def is_media(value: Any) -> bool:
    """Is this something that ``trackers.media`` takes? Decided without importing it for plain numbers."""
    if type(value).__module__.partition(".")[0] in ("numpy", "torch", "jax", "jaxlib", "decimal", "fractions"):
        return False  # scalars, most of the time; an array is no scalar and is named so
    from trackers import media

    return media.is_media(value)


def media_by_kind(values: list[Any] | tuple[Any, ...]) -> dict[str, list[Any]]:
    """Media of a list by their types."""
    from trackers import media

    kinds: dict[str, list[Any]] = {}
    for value in values:
        kinds.setdefault(media.kind_of(value), []).append(value)
    return kinds
