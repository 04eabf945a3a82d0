"""What stands in the rest of a line behind a secret's name, when no context that is known joins them.

The rest is read as a row of texts: quoted ones, words, tags and signs. Words that merely lead on ("is set to", a type)
and markup are passed over; what then comes is masked if it looks as the secret of that name does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from trackers.support.secret_names import Secrecy, meaning
from trackers.support.secret_shapes import OF_TOKENS, STATUS, is_attribute, is_code, is_drawn, is_mixed, is_name
from trackers.support.secret_values import MASK, is_secret, is_template, looks_made, looks_random

_TEXT = re.compile(
    r"""(?P<tag></?[A-Za-z][^<>\n]{0,80}>)"""
    r"""|(?P<quote>\\{0,7}["'`]{1,3})(?P<quoted>[^\n"'`\\]{1,400})\\{0,7}["'`]"""
    r"""|(?P<bare>[^\s"'`<>,;|(){}\[\]=:\\]{1,400}(?::[^\s"'`<>,;|(){}\[\]=:\\]{16,400})?=*)|(?P<sign>[^\s])"""
)
_BEFORE = re.compile(r"((?:[A-Za-z]{2,12}[ ]){1,2})$")
_LEADS = frozenset(("=", ":", ">", "}", "{"))
_TO = frozenset(("to", "is", "was", "from", "lautet", "est", "es"))
_FARTHEST = 200
"""Characters behind a name that are looked at."""
_END = re.compile(r"""[\\"'][ \t;,})]{0,8}(?:#.*)?""")
_WORDS = re.compile(r"(?:[ ][a-z]{2,16}){1,4}:[ ]")
_MAKING = frozenset(("generated", "created", "assigned", "issued", "chosen"))
"""Words of a sentence that ends with the secret: A temporary password is generated for root@localhost: …"""
_CHANGED = re.compile(r"""\*{3}\\?["'][ ](?:[-=]>|\u2192)[ ]\\?["']$""")
"""What stands before a new value of what is masked, in plans and patches."""
_MOST_TEXTS = 24
_BASE64 = re.compile(r"[A-Za-z0-9+/]{20,}={0,2}")
_DIGITS = re.compile(r"\d{6,20}")


class _Text(NamedTuple):
    begin: int
    text: str
    quoted: bool
    before: str
    """The sign or word before it."""
    after: str
    """The character behind it."""
    alone: bool
    """Does it stand between spaces, or alone in an element?"""


def following(line: str, place: int, name: str, until: int) -> tuple[int, int]:
    """Where the secret stands that belongs to a name, behind it in its line; an empty place: nowhere.

    Args:
        until: where the next secret's name stands, whose own is what follows that.
    """
    end = place + len(name)
    says = meaning(name)
    loose = says < Secrecy.SECRET or OF_TOKENS.fullmatch(name.lower())
    if loose and (before := _BEFORE.search(line, max(0, place - 26), place)) is not None:
        whole = "_".join([*before[1].lower().split(), name.lower()])  # API token, eos token
        name, says = (whole, meaning(whole)) if meaning(whole) in (Secrecy.NOTHING, Secrecy.SECRET) else (name, says)
    if says >= Secrecy.SECRET and name.lower() != "pass":
        for text in _texts(line, end):
            if text.begin > until:
                break
            masked = MASK in line[end : text.begin] and not _is_changed(line, text)
            if not masked and _is_its(line, place, name, says, text):
                return text.begin, text.begin + len(text.text)
    return 0, 0


def _texts(line: str, begin: int) -> Iterator[_Text]:
    """The texts behind a name; the signs and tags between them only stand before or behind."""
    end, before = min(len(line), begin + _FARTHEST), ""
    for number, match in enumerate(_TEXT.finditer(line, begin, end)):
        if number == _MOST_TEXTS or (match.end() == end < len(line)):
            return
        kind = "quoted" if match["quoted"] else "bare"
        if text := match[kind]:
            after = line[match.end() : match.end() + 1]
            alone = line[match.start() - 1] in " \t>{" and after in ("", " ", "\t", "<", ",", ")", "}")
            yield _Text(match.start(kind), text, kind == "quoted", before, after, alone)
        before = match[0]


def _is_its(line: str, place: int, name: str, says: Secrecy, text: _Text) -> bool:
    value = text.text
    if not is_secret(name, value) or is_template(value) or ("@" in value[1:] and "." in value):
        return False
    if "/" in value:
        return _BASE64.fullmatch(value) is not None and looks_random(value)
    if is_drawn(name, value):
        return True
    if text.after in ("(", "[") or is_code(value) or is_attribute(name, value, said=False):
        return False
    if _is_given(line, place, name, text):
        return says is Secrecy.PASSWORD or not value.rstrip(".,").isalpha() or looks_made(value)
    if says is Secrecy.PASSWORD:
        return _is_password(text)
    joined = (text.quoted or text.alone) and text.before[-1:] in _LEADS
    return joined and not is_name(value) and (looks_made(value) or (text.quoted and is_mixed(value)))


def _is_given(line: str, place: int, name: str, text: _Text) -> bool:
    """Is it the value of the name, whatever it looks like: an element beside its own, a text in quotes behind a key, or
    what is said to be it?"""
    if len(text.text) < 4 or text.text.lower() in STATUS or " " in text.text:
        return False
    if text.before.startswith("<") and text.alone and text.after == "<":
        return True
    if _is_changed(line, text):
        return True
    end = text.begin + len(text.text)
    between, behind = line[place + len(name) : text.begin], line[end : end + _FARTHEST]  # not all of a long line
    if text.quoted and "`" not in between[-4:]:
        first = place < _FARTHEST and line[:place].strip(" \t+-:") == "" and _END.fullmatch(behind) is not None
        key = first or name.isupper() or line[max(0, place - 2) : place] == " :"
        said = text.before in _TO and not OF_TOKENS.fullmatch(name)
        return said or (key and between[:1] in (" ", "\t") and between.strip(" \t\"'") == "")
    return text.alone and behind.strip(" \t.") == "" and _is_said(name, between)


def _is_changed(line: str, text: _Text) -> bool:
    return text.quoted and _CHANGED.search(line, max(0, text.begin - 16), text.begin) is not None


def _is_said(name: str, between: str) -> bool:
    """Is what ends a line said to be the name's value?"""
    asked = says_whose(between) and meaning(name) is Secrecy.PASSWORD
    told = between.endswith(": ") and ":" not in between[:-2] and not _MAKING.isdisjoint(between.split())
    return asked or told or _WORDS.fullmatch(between) is not None or (name.isupper() and between == " to ")


def says_whose(between: str) -> bool:
    """Is it a prompt's ``for 'https://…': ``, behind which the password was typed?"""
    return between.startswith((" for '", ' for "')) and between.endswith(("': ", '": ')) and len(between) < 120


def _is_password(text: _Text) -> bool:
    value = text.text
    joined = text.before[-1:] in _LEADS or text.before in _TO
    if not text.quoted and not (text.alone and (joined or not value.isidentifier())):
        return False
    return is_mixed(value) or ((joined or text.quoted) and _DIGITS.fullmatch(value) is not None)
