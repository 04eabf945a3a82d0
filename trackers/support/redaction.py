"""Secrets stay out of everything that is written: masked by the name that they are under, by what stands around them,
or by their known form (:mod:`trackers.support.secret_patterns`).

Where a name says secret (:mod:`trackers.support.secret_names`), the text under it is masked whatever its shape, unless
it refers to one (:mod:`trackers.support.secret_values`). Only lines with such a name, or with a command that takes
secrets, are looked at closely (:mod:`trackers.support.secret_contexts`).
"""

from __future__ import annotations

import bisect
import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trackers.support import secret_patterns
from trackers.support.secret_commands import in_commands, in_words
from trackers.support.secret_contexts import (
    BESIDE,
    COMMANDS,
    CONTEXTS,
    INSERT,
    QUERY,
    RULED,
    SPANNING,
    UNPACKED,
    Columns,
    Contexts,
    columns,
    in_columns,
    in_values,
    is_rule,
    names_next,
)
from trackers.support.secret_following import following
from trackers.support.secret_names import Secrecy, is_of_secrets, meaning, names_in
from trackers.support.secret_values import MASK as MASK
from trackers.support.secret_values import is_mark, is_none, is_secret, looks_made, refers

CARRIER = "TRACKER_SECRET_"
"""Prefix of the environment variables by which options with a login in them reach the relay, never a file."""

_kept: dict[str, str] = {}

_NAMED_AS = ("name", "Name", "key", "Key", "variable", "ParameterKey", "field")
_VALUED_AS = ("value", "Value", "val", "ParameterValue", "default")
"""Keys of mappings that hold a name, and what is under it."""

_SCHEMES = r"(?:Bearer|Basic|Token|ApiKey|Api-Key|Digest|Negotiate|AWS4-HMAC-SHA256|SharedKey|SharedAccessSignature)"
_AUTHORIZATION = re.compile(
    rf"""(?i)(\b(?:proxy-)?authorization\\?["']?"""
    rf"""(?:[ \t]{{0,8}}[:=,][ \t]{{0,8}}|[ \t](?=["']{_SCHEMES}))(?:[frb]{{0,2}}\\?["'])?"""
    rf"""(?:{_SCHEMES}[ \t]{{1,8}}|(?!{_SCHEMES}[ \t])))([^\s"',;\\${{][^\s"',;\\]{{3,4000}})"""
)
_BEARER = re.compile(r"(\b[Bb]earer[ \t]{1,8})(?=[\w.~+/\-]{0,4000}?\d|[\w.~+/\-=]{24})[\w.~+/\-]{12,4000}=*")
_KEY_OF_ID = re.compile(
    r"""((?<![A-Z0-9])A[KS]IA[A-Z0-9]{16}\\?["']?[ \t,:;]{1,4}\\?["']?)[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])"""
)
"""AWS' secret behind its id, without a name."""
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,60}(?:PRIVATE KEY|OPENSSH KEY|OpenVPN Static key V\d)(?: BLOCK)?-----"
    r"|PuTTY-User-Key-File-\d:"
)
_SEVERAL_LINES = re.compile("\n|-----BEGIN|PuTTY")
_PASSES = 4
"""Maximum number of passes over one line."""
_NEAR = 5
"""Lines over which a name and its value may lie apart."""
_MOST_NAMES = 4
"""Names of secrets that a value goes over at most."""
_PEM_END = re.compile(r"-----END [A-Za-z0-9 ]{0,80}-----|Private-MAC:[^\n]{0,200}")
_END_OF_LINE = re.compile("\n")
_NAMED_NEXT = re.compile(r"[,;]([A-Za-z_][\w.\-]{0,80})([=:]?)$")
_GIVEN_NEXT = re.compile("[ \t]{0,8}[=:]")
_OF_KEY = re.compile(
    r"(?:(?=.{0,200}[a-z])(?=.{0,200}[A-Z])[A-Za-z0-9+/]{20,}={0,2}|[A-Za-z0-9+/]{1,19}={1,2}"
    r"|(?:Proc-Type|DEK-Info): .{1,100})?"
)
"""A line in the middle of a private key."""
_SPACES = str.maketrans(dict.fromkeys("\u00a0\u2007\u2009\u202f\u3000", " "))
"""Spaces that don't break and the like: no pattern has to know them."""
_URL_LOGIN = re.compile(
    r"""((?:(?<=:)|(?<![\w/:]))//[^/\s:"'<>]{0,200}):(?!\d{1,5}(?:[/?#\s"']|$))([^\s"'<>]{1,400})@"""
    r"""(?=[\w\[][\w.\-\]:]{0,253}(?:[/?#,;|&<>{}`\s"')]|$))"""
)
_LOGIN = re.compile(
    r"""(?<![\w.\-/:@])((?!(?i:\w{0,8}mail(?:to)?|acct|xmpp|sips?|contact|author|owner|from|to|cc|by):)[A-Za-z][\w.\-]{0,60}):([^\s:@/"'<>]{8,400})@"""
    r"""(?=(?:[\w\-]{1,63}\.){1,8}[\w\-]{1,63}(?:[:/,;)\s"']|$))"""
)
"""user:password@host, without a scheme: where the password looks made."""
_URL_TOKEN = re.compile(r"""(https?://)(?!git@|\*{3}@|\$)([^/\s:@"'<>?#]{4,1000})@""")
_VARIABLE = re.compile(r"-{0,2}[\w.\-/]{1,200}")
_OPTION_NAME = re.compile(r"-{1,2}[\w.\-]{1,200}")
_HEX40 = re.compile(r"[0-9a-f]{40}")
_OF_HASHES = re.compile(r"(?i)(?:sha|rev|commit|hash|digest|git|ref|version|checksum|etag)[^=]*$")


def _replace(decides: Callable[[re.Match[str]], bool], match: re.Match[str]) -> str:
    if not decides(match):
        return match[0]
    begin, end = (place - match.start() for place in match.span("value"))
    named = _NAMED_NEXT.search(match["value"])  # value,name = value
    given = named and (named[2] or _GIVEN_NEXT.match(match.string, match.end("value")))
    if named and given and meaning(named[1]) >= Secrecy.SECRET:
        end -= len(named[0])
    return f"{match[0][:begin]}{MASK}{match[0][end:]}"


def _apply(contexts: Contexts, text: str) -> str:
    for _, pattern, decides in contexts.hinted(text.lower()):
        text = pattern.sub(functools.partial(_replace, decides), text)
    return text


def mask_text(text: str) -> str:
    """Text with known forms of keys, and logins inside addresses and headers, masked."""
    if len(text) < 8:
        return text
    if "-----BEGIN" in text or "PuTTY" in text:
        text = _without_pem(text)
    if "//" in text:
        text = _URL_LOGIN.sub(_hide_url_password, text)
        text = _URL_TOKEN.sub(rf"\1{MASK}@", text)
    if "@" in text and ":" in text:
        text = _LOGIN.sub(lambda match: f"{match[1]}:{MASK}@" if looks_made(match[2]) else match[0], text)
    if "=" in text and ("://" in text or "&" in text or "sig=" in text):
        text = _apply(QUERY, text)
    small = text.lower()
    if "authorization" in small:
        text = _AUTHORIZATION.sub(_hide_authorization, text)
    if "bearer" in small:
        text = _BEARER.sub(rf"\1{MASK}", text)
    if "AKIA" in text or "ASIA" in text:
        text = _KEY_OF_ID.sub(rf"\1{MASK}", text)
    return secret_patterns.hide(text, MASK) if len(text) >= 12 else text


_ADDRESS = re.compile(r"[\w+.\-]{0,20}://[^\s'\"<>]*[^\s'\"<>;,.:)]")


def mask_addresses(text: str) -> str:
    """A text with the logins and keys in its addresses masked, and all else as it is."""
    return _ADDRESS.sub(lambda match: mask_text(match[0]), text)


def mask_source(text: str) -> str:
    """Text such as a patch, a command or a message, with known forms masked, and what a secret's name is given."""
    if "\0" in text:  # as an environment has it, each entry as a line
        entries = text.split("\0")
        alone = {entry: "" for entry in entries if _SEVERAL_LINES.search(entry)}
        plain = list(dict.fromkeys(entry for entry in entries if entry not in alone))
        masked = mask_source("\n".join(plain)).split("\n")
        alone |= dict(zip(plain, masked, strict=True)) if len(masked) == len(plain) else dict.fromkeys(plain, "")
        return "\0".join(map({entry: done or mask_source(entry) for entry, done in alone.items()}.__getitem__, entries))
    known_lines: dict[str, str] = {}
    before, text = text, _mask(text, None, known_lines)[0]
    for _ in range(_PASSES - 1):  # what is masked may uncover the form of what stands beside it
        if text == before:
            break
        before, text = text, _mask_near_changes(before, text, known_lines)
    return text


def _mask_near_changes(before: str, text: str, known: dict[str, str]) -> str:
    """A masked text masked again, but for the lines that are far from what was masked: there nothing is new."""
    old, new = before.split("\n"), text.split("\n")
    if len(old) != len(new):
        return _mask(text, None, known)[0]
    changed, place = [], 0
    for one, other in zip(old, new, strict=True):
        if one != other:
            changed.append(place)
        place += len(other) + 1
    return _around(text, changed, lambda part, _: _mask(part, None, known)[0])


def _around(text: str, places: Sequence[int], change: Callable[[str, list[int]], str]) -> str:
    """A text with the lines around some places, in their order, changed, those that are near each other at once.

    Args:
        change: gets some lines, and where in them the places are.
    """
    spans: list[list[int]] = []
    starts = [0, *(match.end() for match in _END_OF_LINE.finditer(text))]
    last = -1
    for place in places:
        line = bisect.bisect_right(starts, place) - 1
        if line == last:
            continue
        last, beyond = line, line + _NEAR + 2
        begin, end = starts[max(0, line - _NEAR)], starts[beyond] - 1 if beyond < len(starts) else len(text)
        if spans and begin <= spans[-1][1]:
            spans[-1][1] = end
        else:
            spans.append([begin, end])
    parts, position = [], 0
    for begin, end in spans:
        inside = places[bisect.bisect_left(places, begin) : bisect.bisect_left(places, end)]
        parts += [text[position:begin], change(text[begin:end], [place - begin for place in inside])]
        position = end
    return "".join([*parts, text[position:]])


def _mask(text: str, table: Columns | None, known: dict[str, str]) -> tuple[str, Columns | None]:
    """A text that begins in a table, masked, and the table that it ends in."""
    text = plain = mask_text(text)
    places = _telling(text)
    if not places:
        return (
            (text, None) if table is None and "== =" not in text and "==  =" not in text else _rows(text, table, text)
        )
    listed = text
    if "values" in text or "VALUES" in text:
        listed = INSERT.sub(in_values, listed)
    if ", " in text and " = " in text:
        listed = UNPACKED.sub(in_values, listed)
    if listed != text:
        text, places = listed, _telling(listed)
    return _rows(_around(text, sorted(places), functools.partial(_mask_names, known)), table, plain)


def _mask_names(known: dict[str, str], text: str, places: list[int]) -> str:
    """Some lines with what secrets' names are given masked. places: where such names begin."""
    if (spanned := _apply(SPANNING, text)) != text:  # what is masked may uncover the form of what stands beside it
        return _mask_names(known, spanned, sorted(_telling(spanned)))
    parts, position = [], 0
    for place in places:
        if place >= position:
            begin, end = text.rfind("\n", position, place) + 1, text.find("\n", place)
            begin, end = max(begin, position), len(text) if end < 0 else end
            parts += [text[position:begin], _in_line(text[begin:end], known)]
            position = end
    return "".join([*parts, text[position:]])


def _in_line(line: str, known: dict[str, str], passes: int = _PASSES) -> str:
    """A line masked. known: lines, and what masking makes of them; gets this one."""
    if line not in known:
        spaced = line if line.isascii() else line.translate(_SPACES)
        masked = _apply(CONTEXTS, spaced) if passes else spaced
        # What is masked may uncover the form of what stands beside it, and many lines are one when they are masked.
        masked = _beside(in_commands(spaced)) if masked == spaced else _in_line(masked, known, passes - 1)
        known[line] = line if masked == spaced else masked
    return known[line]


def _rows(text: str, table: Columns | None, plain: str) -> tuple[str, Columns | None]:
    """A text with the columns of its tables masked that have a secret's name. plain: as it was, its heads too."""
    lines, heads = text.split("\n"), plain.split("\n")
    heads = heads if len(heads) == len(lines) else lines
    for number, line in enumerate(lines):
        row = in_columns(line, table) if table and table != RULED else None
        if row is None and table and table.separator in ("|", "  ") and is_rule(line):
            row = line
        lines[number] = line if row is None else row
        table = table if row is not None else columns(heads[number], table == RULED)
    return "\n".join(lines), table


def _telling(text: str) -> list[int]:
    """Where a name or a command stands that tells of a secret, in no order."""
    small = _small(text)
    found = [place for place, name in names_in(text, small) if meaning(name)]
    for word in COMMANDS:
        at = small.find(word)
        while at >= 0:
            found.append(at)
            at = small.find(word, at + len(word))
    return found


def _small(text: str) -> str:
    """A text in small letters, character for character."""
    small = text.lower()
    return small if len(small) == len(text) else "".join(one.lower()[:1] or one for one in text)


def _beside(text: str) -> str:
    """A line, with what stands beside a secret's name and looks like one masked, whatever is between them."""
    parts, position = [], 0
    small = _small(text)
    contexts = BESIDE.hinted(small)
    named = sorted({(place, name) for place, name in names_in(text, small) if meaning(name)})
    ends = [place for place, name in named[1:] if meaning(name) >= Secrecy.SECRET]
    for number, (place, name) in enumerate(named):
        if place < position:
            continue
        until = ends[at] if (at := bisect.bisect_right(ends, place)) < len(ends) else len(text)
        end = named[number + _MOST_NAMES][0] if number + _MOST_NAMES < len(named) else len(text)
        matches = (context.pattern.match(text, place, end) for context in contexts)
        found = [match for context, match in zip(contexts, matches, strict=True) if match and context.decides(match)]
        begin, end = found[0].span("value") if found else following(text, place, name, until)
        if begin < end:
            parts += [text[position:begin], MASK]
            position = end
    return "".join([*parts, text[position:]])


class LineMask:
    """Masks text that comes line by line, as :func:`mask_source` does whole; a private key may span lines, a name and
    its value two."""

    def __init__(self) -> None:
        self._lines_of_key = 0
        self._perhaps_of_key = False
        self._named = ""
        self._table: Columns | None = None

    def go_on(self, before: Sequence[str]) -> None:
        """Go on behind lines that another has masked, or behind ones that nobody knows: the next may be of a key."""
        self.lines(before)
        self._perhaps_of_key = not before or before[-1].endswith(MASK)

    def lines(self, texts: Sequence[str]) -> list[str]:
        """Lines that follow each other, masked; quicker than one by one."""
        whole = "\n".join(texts)
        of_key = self._lines_of_key or self._perhaps_of_key or "-----BEGIN" in whole or "PuTTY" in whole
        if texts and not of_key:
            masked, table = self._after(self._named, whole)
            lines = masked.split("\n")
            if len(lines) == len(texts):
                self._named, self._table = names_next(texts[-1]), table
                return lines
        return [self.line(text) for text in texts]

    def line(self, text: str) -> str:
        """A line, masked."""
        if self._perhaps_of_key:
            self._perhaps_of_key = _OF_KEY.fullmatch(text.strip()) is not None
            if self._perhaps_of_key or _PEM_END.match(text.strip()):
                return MASK if text.strip() else text
        if self._lines_of_key:
            end = _PEM_END.search(text)
            self._lines_of_key = 0 if end is not None else (self._lines_of_key + 1) % KEY_LINES
            return MASK if end is None else MASK + mask_source(text[end.end() :])
        if "-----BEGIN" in text or "PuTTY" in text:
            begin = _PEM.search(text)
            if begin is not None and _PEM_END.search(text, begin.end()) is None:
                self._lines_of_key = 1
        named, self._named = self._named, names_next(text)
        if named and not self._named and (text[:1].isspace() or not text) and named.count("\n") < 4:
            self._named = f"{named}\n{text[:400]}"  # the value may stand below: name:, type: string, value: …
        masked, self._table = self._after(named, text)
        return masked

    def _after(self, named: str, text: str) -> tuple[str, Columns | None]:
        if not named:
            return _mask(text, self._table, {})
        masked = mask_source(f"{named}\n{text}").split("\n", named.count("\n") + 1)[-1]
        return _rows(masked, self._table, text)


KEY_LINES = 200
"""Maximum number of lines of a private key: one without an end hides no more than these."""


def _without_pem(text: str) -> str:
    """Text without private keys; one without an end is cut there."""
    parts, position = [], 0
    while (begin := _PEM.search(text, position)) is not None:
        parts += [text[position : begin.start()], MASK]
        end = _PEM_END.search(text, begin.end())
        if end is None:
            return "".join(parts)
        position = end.end()
    return "".join([*parts, text[position:]])


def _hide_url_password(match: re.Match[str]) -> str:
    if match[2] == "x-oauth-basic":  # GitHub's: the token is the user
        return f"//{MASK}:{match[2]}@"
    return match[0] if refers(match[2]) or is_mark(match[2]) else f"{match[1]}:{MASK}@"


def _hide_authorization(match: re.Match[str]) -> str:
    passed = "," in match[1][-9:] and match[2].rstrip(")]").isalpha()
    code = passed or match[2].endswith(("(", "[")) or (match[2].endswith(":") and "=" not in match[2])
    return match[0] if code or is_none(match[2]) else f"{match[1]}{MASK}"


def mask(value: Any, key: str = "", inside: bool = False) -> Any:
    """A nested value with secrets masked; numbers, but under a password's name, and other types are untouched.

    Args:
        inside: a key around this one is of secrets.
    """
    if isinstance(value, dict):
        inside = inside or is_of_secrets(key)
        masked = {mask_text(n) if type(n) is str else n: mask(item, str(n), inside) for n, item in value.items()}
        named = next((value[name] for name in _NAMED_AS if isinstance(value.get(name), str)), "")
        if named and meaning(named):
            masked |= {name: mask(value[name], named) for name in _VALUED_AS if name in value}
        return masked
    if isinstance(value, (list, tuple)):
        if any(isinstance(item, str) and item.startswith("--") for item in value):
            return _mask_options([mask(item, key, inside) for item in value])
        return in_words([mask(item, key, inside) for item in value])
    if isinstance(value, str):
        return _mask_value(value, key, inside)
    if type(value) is int and abs(value) > 999 and meaning(key) is Secrecy.PASSWORD:
        return MASK
    return value


def _mask_value(value: str, key: str, inside: bool) -> str:
    if inside and value and not is_mark(value) and not refers(value):
        return MASK
    return MASK if key and is_secret(key, value) else mask_source(value)


def mask_argv(argv: Sequence[str]) -> list[str]:
    """A command line with secrets masked: ``--api-key X``, ``--api-key=X``, ``TOKEN=X``, and known forms."""
    words = _mask_options(argv)
    return [_mask_word(word, before) for before, word in zip(["", *words], words, strict=False)]


def _mask_options(words: Sequence[Any]) -> list[Any]:
    """Words with the values of secrets' options masked."""
    masked: list[Any] = []
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        is_value = isinstance(word, str) and isinstance(before, str) and not word.startswith("--")
        hidden = is_value and _OPTION_NAME.fullmatch(before) and is_secret(before.lstrip("-"), word)
        masked.append(MASK if hidden else word)
    return masked


def _mask_word(word: str, before: str) -> str:
    name, equals, value = word.partition("=")
    if equals and value and _VARIABLE.fullmatch(name) and is_secret(name.lstrip("-"), value):
        return f"{name}={MASK}"
    of_hash = _OF_HASHES.search(name if equals else before)
    if _HEX40.fullmatch(value or word) and not of_hash:  # the older form of a W&B key
        return f"{name}={MASK}" if equals else MASK
    return mask_source(word)


def hide(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as they may be written, logins masked. What was masked is kept for this process's helpers."""
    hidden = {}
    for symbol, value in options.items():
        hidden[symbol] = mask(value, symbol)
        if hidden[symbol] != value and isinstance(value, str):
            _kept[symbol] = value
    return hidden


def reveal(options: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of :func:`hide`, where this process knows: from ``init``, its relay, or an option's variable."""
    revealed = {}
    for symbol, value in options.items():
        if isinstance(value, str) and MASK in value:
            value = _kept.get(symbol) or os.environ.get(CARRIER + symbol) or os.environ.get(symbol) or value
        revealed[symbol] = value
    return revealed


def carried() -> dict[str, str]:
    """Environment variables that take what is hidden to a helper process."""
    return {CARRIER + symbol: value for symbol, value in _kept.items()}
