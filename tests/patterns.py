"""Every regular expression of the package, how it is used, and texts that would make it slow if anything does."""

from __future__ import annotations

import ast
import gc
import importlib
import math
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import trackers

try:
    from re import _constants, _parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_constants as _constants
    import sre_parse as _parser

ROOT = Path(trackers.__file__).parent
ANYWHERE = ("search", "sub", "subn", "findall", "finditer", "split")
AT_BEGINNING = ("match", "fullmatch")
NEVER = ("\x00", "\n!", "~")
"""What follows a text, so that nothing that has been matched so far can be a match."""


class Use(NamedTuple):
    """A pattern and a method that it is used with. place: module and line."""

    place: str
    pattern: re.Pattern[Any]
    method: str

    def __str__(self) -> str:
        return f"{self.place} {self.method}"


def uses() -> list[Use]:
    """All of them, by the package's source: ``NAME = re.compile(…)`` with ``NAME.method(…)``, and ``re.method(…)``."""
    found: dict[tuple[Any, ...], Use] = {}
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text()
        if "re." not in text:
            continue
        for use in _of_module(path, ast.parse(text)):
            found.setdefault((use.pattern.pattern, use.pattern.flags, use.method), use)
    return list(found.values())


def _of_module(path: Path, tree: ast.Module) -> Iterator[Use]:
    name = ".".join(("trackers", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    methods = {
        function.attr
        for function in (node.func for node in calls if isinstance(node.func, ast.Attribute))
        if function.attr in (*ANYWHERE, *AT_BEGINNING) and ast.unparse(function.value) != "re" and _is_local(function)
    }
    named: dict[str, set[str]] = {}
    for node in calls:
        function = node.func
        assert isinstance(function, ast.Attribute)
        if isinstance(function.value, ast.Name) and function.attr in (*ANYWHERE, *AT_BEGINNING):
            if function.value.id == "re":
                pattern = node.args[0]
                with_flags = [arg for arg in (*node.args[2:], *(word.value for word in node.keywords)) if _flags(arg)]
                if isinstance(pattern, ast.Constant):
                    flags = _flags(with_flags[-1]) if with_flags else 0
                    yield Use(f"{name}:{node.lineno}", re.compile(pattern.value, flags), function.attr)
            else:
                named.setdefault(function.value.id, set()).add(function.attr)
    if not any(isinstance(node, ast.Attribute) and node.attr == "compile" for node in ast.walk(tree)):
        return
    module = importlib.import_module(name)
    for attribute, value in vars(module).items():
        for pattern in _patterns(value):
            # A pattern in a table, or one that another module uses, is tried in every way that its module knows.
            ways = named.get(attribute) or methods or {"search"}
            for method in sorted(ways):
                yield Use(f"{name}.{attribute}", pattern, method)


def _is_local(function: ast.Attribute) -> bool:
    """Whether a method is called of a variable or an attribute, not of a module's constant or a text."""
    text = ast.unparse(function.value)
    return text.replace(".", "").replace("_", "").isalnum() and not text.lstrip("_").isupper()


def _flags(node: ast.AST) -> int:
    text = ast.unparse(node)
    return int(eval(text, {"re": re})) if text.startswith("re.") else 0


def _patterns(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        for item in (*value, *value.values()):
            yield from _patterns(item)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _patterns(item)


def attacks(pattern: re.Pattern[Any]) -> list[tuple[str, str, str]]:
    """What may be repeated in a text to make a pattern slow: what precedes, the repeated part, what follows."""
    tree = _parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
    found: list[tuple[str, str, str]] = []
    _walk(list(tree), "", found)
    whole = _sample(list(tree))
    heads = {whole, whole[: len(whole) // 2], whole[:-1]} - {""}
    found = [one for one in found if one[1]] + [("", head, "") for head in heads]
    found += [
        ("", sign, "") for sign in (" ", "1", "a", "A", "_", "/", ".", ":", "\n", '"', "'", "\\", "a.", "1,", "a=")
    ]
    return list(dict.fromkeys(found))


def _walk(items: list[Any], before: str, found: list[tuple[str, str, str]]) -> str:
    """Note each repetition with a sample of what precedes it; returns a sample of everything."""
    for place, (kind, value) in enumerate(items):
        name = str(kind)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, most, inner = value
            bodies = _samples(list(inner))
            if most is _constants.MAXREPEAT or most > 100:
                after = _sample(items[place + 1 :])
                for body in bodies:
                    found.append((before, body, ""))
                    found.append((before, body, after[:-1]))
                    found.append(("", before + body, ""))
            _walk(list(inner), before, found)
            before += bodies[0] * least if bodies else ""
        elif name == "SUBPATTERN":
            before = _walk(list(value[-1]), before, found)
        elif name == "BRANCH":
            ends = [_walk(list(branch), before, found) for branch in value[1]]
            before = ends[0]
        elif name == "ATOMIC_GROUP":
            before = _walk(list(value), before, found)
        else:
            before += _sample([(kind, value)])
    return before


def _samples(items: list[Any]) -> list[str]:
    """A few texts that match: for a set of characters, one of each kind."""
    if len(items) == 1 and str(items[0][0]) == "IN":
        return [sign for sign in "a1 _.,/:-\t\n\"'\\~A" if _in(items[0][1], sign)] or [_sample(items)]
    if len(items) == 1 and str(items[0][0]) in ("ANY", "NOT_LITERAL"):
        return ["a", " ", "1"]
    text = _sample(items)
    return [text] if text else []


def _sample(items: list[Any]) -> str:
    text = ""
    for kind, value in items:
        name = str(kind)
        if name == "LITERAL":
            text += chr(value)
        elif name in ("ANY", "NOT_LITERAL"):
            text += "a" if value != ord("a") else "b"
        elif name == "IN":
            text += next((sign for sign in "a1 _.,/:-\t\n\"'\\~A@[]{}()<>=+*#%&;?!|$^`0bz" if _in(value, sign)), "a")
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            text += _sample(list(value[2])) * max(value[0], 0)
        elif name == "SUBPATTERN":
            text += _sample(list(value[-1]))
        elif name == "ATOMIC_GROUP":
            text += _sample(list(value))
        elif name == "BRANCH":
            text += _sample(list(value[1][0]))
    return text


def _in(parts: Any, sign: str) -> bool:
    negated, found = False, False
    for kind, value in parts:
        name = str(kind)
        if name == "NEGATE":
            negated = True
        elif name == "LITERAL":
            found = found or chr(value) == sign
        elif name == "RANGE":
            found = found or value[0] <= ord(sign) <= value[1]
        elif name == "CATEGORY":
            word = str(value)
            is_in = sign.isdigit() if "DIGIT" in word else sign.isspace() if "SPACE" in word else (
                sign.isalnum() or sign == "_")  # fmt: skip
            found = found or is_in != ("NOT" in word)
    return found != negated


def seconds(use: Use, text: str) -> float:
    """The processor time of one use, in this thread: other tests may have left some that work."""
    given: Any = text.encode("latin-1", "replace") if isinstance(use.pattern.pattern, bytes) else text
    method = getattr(use.pattern, use.method)
    arguments = (b"" if isinstance(given, bytes) else "", given) if use.method in ("sub", "subn") else (given,)
    gc.disable()  # what others left behind is no part of it
    try:
        began = time.thread_time()
        result = method(*arguments)
        if use.method == "finditer":
            for _ in result:
                pass
        return time.thread_time() - began
    finally:
        gc.enable()


WINDOW = 400
"""Length of a text, in characters, from which a pattern with bounded repetitions is looked at once more, longer."""
WINDOW_S = 0.1
"""Seconds that such a pattern stays below: a look at a text four times as long would take sixteen times as much."""


def grows(use: Use, size: int, factor: int = 8, slow_s: float = 0.02) -> str:
    """The text that makes a pattern's time grow faster than the text, shortened; "" if none does.

    Texts are made ``factor`` times as long: linear time grows as much, quadratic by its square.
    """
    for before, part, after in attacks(use.pattern):
        for end in (after, *(after + never for never in NEVER)):
            texts = [before + part * (size * times // len(part)) + end for times in (1, factor, factor * 4)]
            if took := _growing(use, texts, factor, slow_s, windowed=size >= WINDOW):
                return f"{before[:30]!r} + {part[:30]!r}… + {end[-10:]!r}: {took}"
    return ""


def _growing(use: Use, texts: Sequence[str], factor: int, slow_s: float, *, windowed: bool) -> str:
    """The times of a short and a long text, if they grow faster than the texts; "" if not. On a busy machine each can
    take longer than it needs, so the least of several looks counts.

    Args:
        texts: the second is ``factor`` times as long as the first, the third four times as long as the second.
        windowed: whether the texts are long enough for a pattern that looks at so many characters at most.
    """
    short_s = long_s = longer_s = math.inf
    for _ in range(6):
        short_s = min(short_s, seconds(use, texts[0]))
        long_s = min(long_s, seconds(use, texts[1])) if short_s < slow_s else short_s
        if short_s <= slow_s and long_s <= max(slow_s, 2.5 * factor * short_s):
            return ""
        if long_s >= 1:
            break
        if windowed and short_s < slow_s and long_s < WINDOW_S:
            longer_s = min(longer_s, seconds(use, texts[2]))
            if longer_s < 1.5 * 4 * long_s:  # stricter than above: past its window it is to be linear indeed
                return ""
    return f"{short_s * 1e3:.1f} ms, then {long_s * 1e3:.1f} ms"
