"""The texts in which a name and its secret stand: lines of a shell, YAML, JSON, code, tables, sentences, commands.

Each is a pattern with the groups "name" and "value", and a decision whether the value of a match is masked: what refers
to a secret (a variable, an attribute, an argument) isn't. Patterns are linear in the text: repetitions are of one class
of characters, and bounded where something follows.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from typing import NamedTuple

from trackers.support.secret_commands import PROGRAMS
from trackers.support.secret_names import Secrecy, is_of_secrets, meaning, split, word_set
from trackers.support.secret_shapes import (
    CALL,
    IDENTIFIER,
    NUMBERED,
    OF_TOKENS,
    STATUS,
    is_attribute,
    is_code,
    is_mixed,
    is_name,
    is_shaped,
)
from trackers.support.secret_values import (
    MASK,
    is_mark,
    is_none,
    is_release,
    is_secret,
    is_template,
    looks_made,
    looks_random,
    refers,
)


class Context(NamedTuple):
    """hints: one of them is in the text, in small letters. decides: whether the value of a match is masked."""

    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    decides: Callable[[re.Match[str]], bool]


class Contexts:
    """Some contexts, in their order, of which few are tried in a text: those that it has a hint of."""

    def __init__(self, *contexts: Context) -> None:
        self._contexts = contexts
        self._of: dict[str, int] = {}
        for number, context in enumerate(contexts):
            for hint in context.hints:
                self._of[hint] = self._of.get(hint, 0) | 1 << number

    def hinted(self, small: str) -> list[Context]:
        """Those that a text may have.

        Args:
            small: the text in small letters.
        """
        left, found = functools.reduce(operator.or_, [of for hint, of in self._of.items() if hint in small], 0), []
        while left:
            found.append(self._contexts[(left & -left).bit_length() - 1])
            left &= left - 1
        return found


_SENTENCE = STATUS | word_set(
    "if when as on by which flag option argument parameter instead via at then so all any are due provided again"
)
_QUERY = frozenset({"sig", "signature", "code", "key", "auth", "password", "pwd", "x-amz-credential"})
_NAMERS = word_set(
    "get load read fetch find add next to use require mount has is check create delete remove describe list resolve "
    "lookup ref make from generate parse"
)
"""First words of functions that take a secret's name, not the secret."""

_PLACEHOLDERS = word_set("TEXT VALUE PATH FILE FILENAME")
"""What help has in place of an option's value."""
_WORD = re.compile(r"\w")
_WORD_AFTER = re.compile(r" [a-z]{2,20}[ ,.]")
_ARGUMENT = re.compile(r"[A-Za-z_]\w{0,80}=(?=[^=\s])")
_SAID_OF = ("ed", "ing", "able", "ible", "ally", "tive", "based", "itive", "less", "ful")
"""Ends of words that say something of a password."""
_LAST = re.compile(r"[ \t]{0,8}(?:\*/|-->|[.!]|\)|)[ \t]{0,8}$")
"""What may stand behind the last word of a line or a comment."""
_BLOCK = re.compile(
    r"(?P<indent>[+\- ]?[ \t]{0,80})(?:-[ ]|(?:export|const|let|var|final|static)[ ]){0,3}[\"':]?"
    r"(?P<name>[^\W\d][\w.\-]{0,80})[\"']?[ \t]{0,8}(?::=|=>|[:=])[ \t]{0,8}(?:[\[{(]|(?<=:[ \t])|(?<=:))[ \t]{0,8}\r?"
)
_TEXT_IN = re.compile(
    r"""(?P<key>[\w.\-]{1,80}["']?[ ]{0,4}(?:=>|[:=])[ ]{0,4})?"""
    r"""(?:(?P<quote>["'])(?P<quoted>[^\n"']{6,4000})(?P=quote)"""
    r"""|(?:(?<=[:=,][ ])|(?<=\[))(?P<bare>[^\s"',;(\[{][^\s"',;(\[{\]]{5,4000})"""
    r"""(?=[,;\]]{0,3}[ \t]{0,8}(?:\#[^\n]{0,400})?\r?$))"""
)
_OF_CLUSTER = re.compile(
    r"""[ \t]{1,80}["']?[\w.\-]{1,200}["']?:[ ]["']?(?P<value>[A-Za-z0-9+/]{8,4000}={0,2})["']?,?\r?"""
)
_ITEM = re.compile(
    r"([ \t]{0,80}-[ ]{1,8}[\"']?)([^\s\"':,#\[{][^\s\"'#]{0,4000})([\"']?[ \t]{0,8}(?:#[^\n]{0,400})?\r?)"
)
_GAP = re.compile(r"[ \t]{2,80}")
_RULE = re.compile(r"[ \t]{0,80}={2,80}(?:[ ]{1,8}={2,80}){1,60}[ \t]{0,8}\r?")
_CHAP_HEAD = re.compile(r"#[ \t]{0,8}client[ \t]{1,40}server[ \t]{1,40}secret\b", re.IGNORECASE)
_CHAP = re.compile(
    r"""[ \t]{0,8}(?:(?:"[^"\n]{1,200}"|(?!\#)[^\s"]{1,200})[ \t]{1,80}){2}"""
    r"""(?P<quote>"?)(?P<value>(?<=")[^"\n]{1,400}|(?<!")[^\s"]{1,400})(?P=quote)(?=\s|$)"""
)
_RESULT = re.compile(r"""((?:^|[{,])[ \t]{0,80}"?(?:result|bcrypt_hash)"?[ \t]{0,80}[:=][ \t]{0,8}")[^"\n]{1,400}(")""")
_TOP = re.compile(r"(?!kind:|apiVersion:)[A-Za-z]{1,40}:(?:[ ]|\r?$)")
_KEYWORDS = word_set("await not lambda new yield return typeof if")
_GIVEN = re.compile(r"[A-Za-z_][\w.]{0,80}\s?(?:[,})\]]|$)")
_CALLED = re.compile(r"([\w.]{1,80})!?\(\s{0,100}$")
_INDEX = re.compile(r"([A-Za-z]\w{2,60}) {2,1000}")
_HEAD = re.compile(r"[^\W\d][\w .\-/]{0,60}")
_SETTERS = word_set(
    "set setdefault setenv putenv put get getenv getattr setattr add define environ env header headers property "
    "setopt string option config credential credentials basic auth login pop param secret password update insert "
    "append key"
)
"""Functions that take a name and its value."""
_WRAPPERS = word_set(
    "from string str bytes secretstr secretbytes secret some new of field literal password quote quoted encode trim "
    "strip b64encode unquote raw fromstring newstring tostring ptr value asis sensitive securestring securestr"
)
"""Functions that make of a text a text."""
_COMPARED = re.compile(r"""["'`\])]{0,3}\s{0,8}[=!]==?(?!>)""")
_OF_SHELL = re.compile(r"=|[ \t]*[?:]=[ \t]*")
"""What stands between a name and its value in a shell or a Makefile."""
_TYPED = re.compile(r"[\w\[\], .|]{1,100} = ")


def _by_name(match: re.Match[str]) -> bool:
    return is_secret(match["name"], match["value"])


def _always(match: re.Match[str]) -> bool:
    value = match["value"]
    return value != MASK and not is_template(value) and not is_mark(value) and not is_none(value)


def _of_made(match: re.Match[str]) -> bool:
    return looks_made(match["value"]) and _always(match)


def _of_header(match: re.Match[str]) -> bool:
    value = match["value"]
    if match[0][: match.start("value") - match.start()].rstrip(" ")[-2:] in ('":', "':") and _GIVEN.match(value):
        return False  # of code: {"x-api-key": key}
    return _always(match) and not is_release(value) and not is_code(value)


def _of_assignment(match: re.Match[str]) -> bool:
    """name: type = "value"; what is the type may be the name: $env:NAME = "value". What is compared may be any text."""
    opened = match.string[match.end("type") if match["type"] else match.end("name") : match.start("quote")]
    if opened.rstrip(" bfr")[-2:] in (" (", "=(", ":(") and match.string[match.end() :].lstrip()[:1] == ",":
        return False  # a pair, of which this is the first
    models = meaning(match["name"]) is not Secrecy.PASSWORD and split(match["name"])[-1:] != ["secret"]
    if models and _COMPARED.match(match.string, match.end("name")):
        return _by_name(match) and looks_made(match["value"])
    return _by_name(match) or (bool(match["type"]) and is_secret(match["type"].strip(), match["value"]))


def _of_printed(match: re.Match[str]) -> bool:
    value = match["value"]
    return _by_name(match) and not is_code(value) and not _is_number(match["name"], value) and "&" not in value[:1]


def _of_mapping(match: re.Match[str]) -> bool:
    """All of a mapping under a secret's name, if one of its texts was made by a machine."""
    if not is_of_secrets(match["name"]):
        return False
    return any(_in_text(found, match["name"]) != found[0] for found in _TEXT_IN.finditer(match["value"]))


def _of_connection(match: re.Match[str]) -> bool:
    return _by_name(match) and not is_attribute(match["name"], match["value"]) and not _is_variable(match["value"])


def _of_pair(match: re.Match[str]) -> bool:
    """("name", "value"), or name: NAME and value: value, not two names."""
    name, value = match["name"], match["value"]
    called = _CALLED.search(match.string, max(0, match.start() - 90), match.start("name") - 1)
    shaped = is_shaped(value)
    if called is not None and not _SETTERS.intersection(split(called[1])) and not shaped:
        return False
    quoted = match.string[match.start("value") - 1] in "\"'"
    code = CALL.match(value) if quoted else is_code(value)
    if value.startswith("--") or code or (meaning(value) and (value.islower() or value.isupper())):
        return False
    return is_secret(name, value) and ((name != "token" and value[0] != "-") or looks_made(value))


def _of_call(match: re.Match[str]) -> bool:
    """Of a method that takes a secret, not of one that takes its name: get_password("database")."""
    first = split(match["name"].rpartition(".")[2])[:1]
    checked = first == ["check"] and meaning(match["name"]) is Secrecy.PASSWORD
    return _by_name(match) and (checked or _NAMERS.isdisjoint(first))


def _of_block(match: re.Match[str]) -> bool:
    name, value = match["name"], match["value"]
    code = match["sign"] != ":" and (_is_variable(value) or is_attribute(name, value))
    return value[-1] != ":" and not code and not is_code(value) and _by_name(match)


def _of_shell(match: re.Match[str]) -> bool:
    """NAME=value without spaces: of a shell, an option, a connection string, or an argument of a function."""
    name, value, text = match["name"], match["value"], match.string
    before, after = text[: match.start()].rstrip(" ")[-1:], text[match.end() : match.end() + 1]
    if after in ("(", "[", "{") or (after in ("'", '"', "`") and len(value) < 3):  # a call, an f-string
        return False
    if value.startswith(("=", "~=")) or is_template(value) or _is_number(name, value):
        return False
    if not is_secret(name, value.rstrip(":")):
        return False
    indented = not before and after in (",", ")") and text[: match.start()][-1:] == " "
    tight = text[: match.start()][-1:] == "," and "(" not in text  # of a list of options: username=ada,password=…
    argument = not tight and before in ("(", ",") and after in (",", ")", "")
    if (indented or argument) and not name.isupper():  # login(token=hub_token), also with arguments of a line each
        return _is_chosen(name, value) or not is_name(value) or looks_made(value)
    coded = text.rstrip()[-1:] in tuple(",()[]{}:;")
    return not is_attribute(name, value, said=False) and not (coded and (_is_variable(value) or value in _KEYWORDS))


def _of_line(match: re.Match[str]) -> bool:
    """NAME=value, NAME = value or NAME: value alone on a line: of a shell, INI, YAML, or code."""
    name, value, separator = match["name"], match["value"], match["separator"]
    bare, spaced = value.rstrip(",;"), " " in value or "\t" in value
    if len(bare) < 2 or not is_secret(name, bare) or _is_number(name, bare) or CALL.match(value) or _TYPED.match(value):
        return False
    if name.isupper() and _OF_SHELL.fullmatch(separator) and not spaced:
        return True
    if _is_enclosed(name, value, spaced):
        return False
    if spaced:
        return _is_phrase(name, value)
    if _is_passed(match, bare):
        return _is_chosen(name, bare) and not is_attribute(name, bare) and not _is_type(name, bare)
    code = separator != "=" and not (":" in separator and bare == value)
    if is_attribute(name, bare, code) or (split(bare) == split(name.rpartition(".")[2]) and ":" not in separator):
        return False
    if IDENTIFIER.fullmatch(bare) and not any(map(str.isdigit, bare)):
        return _is_said(name, bare, separator) and not (code and _is_variable(bare)) and not _is_type(name, bare)
    return True


def _is_enclosed(name: str, value: str, spaced: bool) -> bool:
    """Is it ``<a mark>``, a regular expression, ``/[a-z]+/g``, or what begins with a sign as expressions do?"""
    if (value[0] == "<" and value[-1] == ">") or (value[0] == "/" and value.rstrip(",;").rstrip("gimsu")[-1:] == "/"):
        return True
    if value[0] not in "([{&|!*^=<>":
        return False
    return spaced or meaning(name) is not Secrecy.PASSWORD or IDENTIFIER.fullmatch(value[1:]) is not None


def _is_passed(match: re.Match[str], bare: str) -> bool:
    """Is it a variable that is an argument, ``token=hub_token,``, or an item of a dict, ``"token": hub_token``?"""
    item = match["quote"] and (meaning(bare) or "." in bare or " " in match["separator"].rstrip())
    return bool(bare != match["value"] or item) and is_name(bare)


def _is_said(name: str, word: str, separator: str) -> bool:
    """May a word be the secret? Of code, "token = line" is a variable; what people choose as a password may be one."""
    if meaning(name) is Secrecy.PASSWORD or ":" in separator:
        return True
    return separator.strip() == separator or not word[1:].islower()


def _of_option(match: re.Match[str]) -> bool:
    name, value = match["name"], match["value"]
    if match["quote"] or not is_secret(name, value):
        return is_secret(name, value)
    named = value.rstrip(",").replace("_", "-").lower() == name.replace("_", "-").lower()
    if named or value in _PLACEHOLDERS or value.lower() in _SENTENCE:  # of help
        return False
    word = value.isalpha() and value.islower() and len(value) < 12 and meaning(name) is not Secrecy.PASSWORD
    if word and _WORD_AFTER.match(match.string, match.end()):
        return False
    if value.startswith(("|", "&", ">", "\\", "2>", "(")) or value[-1] == ":" or "=" in value[:-2]:
        return False
    return not is_attribute(name, value, said=False) and (not value.startswith("-") or looks_made(value))


def _of_flow(match: re.Match[str]) -> bool:
    """{name: value} of YAML or JavaScript."""
    name, value = match["name"], match["value"].rstrip()
    if match["quote"] and not value.isdigit():  # of Python: {"token": token}
        return False
    if is_code(value) or is_attribute(name, value) or _is_number(name, value) or " " in value:
        return False
    return is_secret(name, value) and not _is_variable(value) and not _is_type(name, value)


def _of_sentence(match: re.Match[str]) -> bool:
    """Your API key: value."""
    value, verb = match["value"].rstrip(".,;:!?)*_'\"`}"), match["verb"].strip()
    name = "_".join(match["what"].lower().split())
    if not is_secret(name, value) or value.lower() in _SENTENCE or is_template(value):
        return False
    if is_code(value) and not (value[0] in "^*!" and is_shaped(value)):
        return False
    if is_attribute(name, value, said=False) or _is_type(name, value) or _ARGUMENT.match(value):
        return False
    if _is_of_model(match["before"], name):
        return False
    mixed = any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and len(value) > 5
    if verb:
        return mixed or looks_made(value) or _is_told(match, name, value, verb)
    if match["whose"]:  # for whom it is
        return looks_made(value) and not match["quote"]
    if match["quote"] and name not in ("token", "secret", "bearer"):
        return True
    return looks_made(value) or (mixed and meaning(name) is Secrecy.PASSWORD)


def _is_of_model(before: str, name: str) -> bool:
    """Is it a token or a key that a model or data has: "the eos token"?"""
    of = "_".join(before.lower().split()[-1:])
    return bool(of and meaning(name) and not meaning(f"{of}_{name}") and OF_TOKENS.fullmatch(name))


def _is_told(match: re.Match[str], name: str, value: str, verb: str) -> bool:
    """Is a plain word behind a verb or a colon what the sentence tells, not how it goes on?"""
    last = match.string[match.end() :].strip(" \t.,;:!?)*_'\"`|") == ""
    if name == "token" and not match["before"]:
        return False
    if verb[-1] not in ":=->\u2192":
        one = not value.isalpha() or meaning(name) is Secrecy.PASSWORD or len(value) > 20
        return bool(match["quote"]) or (last and one and not value.endswith(_SAID_OF))
    if verb == "=" and IDENTIFIER.fullmatch(value) and value.islower() and not match["before"]:
        return False
    return last and len(value) > 3 and not _is_number(name, value)


class Columns(NamedTuple):
    """What separates the columns of a table, and their names; "": the head of a frame, as pandas prints it; "-": what
    is indented below a name, "kind": a cluster's Secret, "<": OpenVPN's user and password, "result": Terraform's,
    "chap": the columns of pppd's secrets, "index": the name of a frame's index, as pandas prints it."""

    separator: str
    names: tuple[str, ...]
    indent: int = 0


RULED = Columns("=", ())


def columns(line: str, ruled: bool = False) -> Columns | None:
    """The columns of a table whose head the line may be; None: none has a secret's name.

    Args:
        ruled: a rule of reStructuredText stands above: a head follows.
    """
    if _RULE.fullmatch(line):
        return RULED
    if line.rstrip() == "kind: Secret":
        return Columns("kind", ())
    if "random_password" in line:
        return Columns("result", ())
    if line.strip() == "<auth-user-pass>":
        return Columns("<", ())
    if _CHAP_HEAD.match(line):
        return Columns("chap", ())
    block = _BLOCK.fullmatch(line)
    if block is not None:
        name = block["name"]
        return Columns("-", (name,), len(block["indent"])) if is_of_secrets(name) else None
    framed = _of_frame(line)
    if framed is not None:
        return framed if framed.names else None
    for separator in ("|", "\t", ",", ";", "  "):
        if separator not in line or (separator == "  " and not line.isupper() and not ruled):
            continue
        cells = tuple(cell.strip(" \t\"'`*") for cell in _cells(line.strip().strip("|"), separator))
        if 1 < len(cells) < 60 and all(map(_HEAD.fullmatch, cells)):
            return Columns(separator, cells) if any(meaning(cell) >= Secrecy.PERHAPS for cell in cells) else None
    return None


def _of_frame(line: str) -> Columns | None:
    """The head of a frame as pandas prints it, or the name of its index; without names: no secret is in it."""
    if line[:1] == " " and "  " in line and all(map(_HEAD.fullmatch, line.split())):
        return Columns("", (line.rstrip(),) if any(map(meaning, line.split())) else ())
    index = _INDEX.fullmatch(line)
    if index is not None and meaning(index[1]) >= Secrecy.PERHAPS:
        return Columns("index", (index[1],), len(line))
    return None


def _cells(row: str, separator: str) -> list[str]:
    return _GAP.split(row, 60) if separator == "  " else row.split(separator, 60)


def is_rule(line: str) -> bool:
    """Does the line only rule off a table's head or rows?"""
    return line.strip() != "" and line.strip(" \t\r-+|=:") == ""


def in_columns(line: str, table: Columns) -> str | None:
    """A row of a table with what stands under secrets' names masked; None: the line is no row of it."""
    separator, names, _ = table
    if separator == "kind":
        return _in_cluster(line)
    if separator == "-":
        return _in_block(line, names[0], table.indent)
    if separator == "result":
        return None if '"type"' in line or line[:1] in ("", "}") else _RESULT.sub(rf"\1{MASK}\2", line)
    if separator == "<":
        return None if line.lstrip().startswith("</") else line.replace(line.strip(), MASK, 1) if line.strip() else line
    if separator == "chap":
        one = _CHAP.match(line)
        return line if one is None else line[: one.start("value")] + MASK + line[one.end("value") :]
    if separator in ("", "index"):
        return _in_frame(line, names[0], table.indent)
    edge = "|" if separator == "|" else ""
    bare = line.strip()
    row = bare.removeprefix(edge).removesuffix(edge)
    cells = _cells(row, separator)
    if len(cells) != len(names):
        return None
    for place, (cell, name) in enumerate(zip(cells, names, strict=True)):
        value = cell.strip(" \t\"'`*")
        if meaning(name) < Secrecy.PERHAPS or (OF_TOKENS.fullmatch(name) and not looks_made(value)):
            continue
        if any(map(str.isalnum, value)) and value[0] != "(" and is_secret(name, value):
            if separator == "  ":
                line = line.replace(value, MASK, 1)
            cells[place] = cell.replace(value, MASK, 1)
    return line if separator == "  " else line.replace(row, separator.join(cells), 1)


def _in_frame(line: str, head: str, width: int) -> str | None:
    """A row of a frame whose columns end where their names in its head do, masked; None: the line is no row of it.

    Args:
        width: of a frame whose index has the name ``head``, else 0.
    """
    if width:
        value = line.split("  ", 1)[0].strip()
        return line.replace(value, MASK, 1) if len(line) == width and is_secret(head, value) else None
    if len(line) == len(head) and line[-1:] == " " and len(line.split()) == 1:  # the name of the index
        return line
    if len(line.rstrip()) != len(head):
        return None
    for name in reversed(list(re.finditer(r"\S+", head))):
        value = line[: name.end()].rpartition("  ")[2]
        if not value or meaning(name[0]) < Secrecy.PERHAPS or not is_secret(name[0], value):
            continue
        if looks_made(value) or not OF_TOKENS.fullmatch(name[0]):
            line = line[: name.end() - len(value)] + MASK + line[name.end() :]
    return line


def _in_block(line: str, name: str, indent: int) -> str | None:
    """A line of a list or a mapping under a secret's name, masked; None: it stands below no longer."""
    item = _ITEM.fullmatch(line)
    if item is not None:
        return line if meaning(item[2]) or not is_secret(name, item[2]) else f"{item[1]}{MASK}{item[3]}"
    if line[indent : indent + 1].strip() or len(line) <= indent:
        return line if line.strip() == "" else None
    return _TEXT_IN.sub(lambda match: _in_text(match, name), line)


def _in_text(match: re.Match[str], name: str) -> str:
    kind = "quoted" if match["quoted"] else "bare"
    value, key = match[kind], (match["key"] or "").rstrip(" :=>\"'")
    if key and (split(key)[-1:] == ["id"] or meaning(f"secret_{key}") is Secrecy.NOTHING):
        return match[0]  # it says something of the secret, as path and created do
    made = (looks_made(value) and "[" not in value) or (len(value) > 15 and value.isalnum() and is_mixed(value))
    chosen = meaning(name) is Secrecy.PASSWORD and is_mixed(value)
    if not (made or chosen) or not is_secret(name, value) or is_code(value):
        return match[0]
    begin = match.start(kind) - match.start()
    return f"{match[0][:begin]}{MASK}{match[0][begin + len(value) :]}"


def _in_cluster(line: str) -> str | None:
    """A line of a Kubernetes Secret with the texts of its data masked; None: the manifest has ended."""
    if not line[:1].isspace():
        return line if _TOP.match(line) else None
    match = _OF_CLUSTER.fullmatch(line)
    if match is None or match["value"].isdigit() or len(match["value"]) % 4:
        return line
    value = match["value"]
    made = value.endswith("=") or looks_made(value)
    return line[: match.start("value")] + MASK + line[match.end("value") :] if made else line


def in_values(match: re.Match[str]) -> str:
    """An INSERT with what stands under secrets' names masked."""
    names, values = match["names"].split(","), match["values"].split(",")
    if len(names) == len(values):
        for place, (name, value) in enumerate(zip(names, values, strict=True)):
            bare, name = value.strip(" \t\n'\""), name.strip(" \t\n'\"`[]")
            if bare != value.strip() and meaning(name) >= Secrecy.SECRET and is_secret(name, bare):
                values[place] = value.replace(bare, MASK, 1)
    return match[0].replace(match["values"], ",".join(values))


def _of_words(match: re.Match[str]) -> bool:
    """A line of two words, the first a password's name: one that no sentence begins with, or what looks like one."""
    name, value = match["name"], match["value"]
    if meaning(name) is not Secrecy.PASSWORD or value.lower() in _SENTENCE or not is_secret(name, value):
        return False
    said = name.lower() in ("password", "passwords", "pass", "passphrase", "passcode", "pwd")
    return is_shaped(value) if said else not is_code(value)


def _of_cell(match: re.Match[str]) -> bool:
    name, value = match["name"].strip(), match["value"].strip()
    told = OF_TOKENS.fullmatch(name.lower()) and value.isalpha()  # | token | probability |
    return not told and value[0] != "(" and STATUS.isdisjoint(value.lower().split()) and is_secret(name, value)


def _of_query(match: re.Match[str]) -> bool:
    name, value = match["name"].lower(), match["value"]
    if is_mark(value) or is_template(value) or value == MASK or refers(value):
        return False
    if name in _QUERY or name.endswith(("signature", "token")):
        return name not in ("code", "key", "auth") or looks_random(value)
    return _by_name(match)


def _of_beside(match: re.Match[str]) -> bool:
    """A name, and beside it what looks as machines or careful people make secrets, whatever stands between them."""
    name, value, between, quoted = match["name"], match["value"], match["between"].strip(), match["quote"]
    if meaning(name) is Secrecy.NOTHING or not is_secret(name, value):
        return False
    if match["call"]:
        return bool(quoted) and _is_wrapped(match, between)
    if is_template(value) or split(value) == split(name.rpartition(".")[2]) or _is_prose(match, between):
        return False
    if between == "," and not name.isupper() and "." not in name:
        return bool(quoted) and looks_made(value)
    if match["words"]:
        return is_shaped(value) and not is_code(value) and not _ARGUMENT.match(value)
    if not name.isascii() and between not in ("", ","):
        return True
    if not quoted:
        return _is_bare_secret(match, between)
    if meaning(name) is not Secrecy.PASSWORD and (between.endswith("==") or between.startswith("!=")):
        return is_shaped(value)
    return is_shaped(value) or (not _is_loose(between) and ("`" not in quoted or not is_name(value)))


def _is_prose(match: re.Match[str], between: str) -> bool:
    """Is the name a verb, or a role of reStructuredText?"""
    verb = between == "" and match["name"].lower() == "pass"
    return verb or (between == ":" and match.string[: match.start()].endswith(":"))


def _is_wrapped(match: re.Match[str], between: str) -> bool:
    """Is a function's argument the secret: of one that makes of a text a text, or made by a machine?"""
    value, function = match["value"], split(match["call"])[-1:]
    closed = match.string[match.end() :].lstrip("\\\"'`")[:1] == ")"
    if (not function or function[0] in _WRAPPERS) and ((between != "" and closed) or is_shaped(value)):
        return True
    return looks_made(value) and not meaning(value)


def _is_bare_secret(match: re.Match[str], between: str) -> bool:
    """Is what stands behind a name without quotes its secret, not code, a number, or a sentence that goes on?"""
    name, value = match["name"], match["value"]
    if value[0] in "!*^" and between[-1:] == ":":
        return meaning(name) is Secrecy.PASSWORD and is_shaped(value)
    if is_code(value) or is_attribute(name, value, said=False) or _is_type(name, value) or _is_number(name, value):
        return False
    if _ARGUMENT.match(value) or value[0] in "-/.%":
        return False
    if NUMBERED.fullmatch(value) and meaning(name) is not Secrecy.PASSWORD:
        return _is_long_number(value)
    if _is_loose(between):
        given = not is_name(value) or (not value.islower() and any(map(str.isdigit, value)))
        return between != "," and looks_made(value) and given
    if between[-1] in ":\uff1a" and _LAST.match(match.string, match.end()) and not OF_TOKENS.fullmatch(name):
        return value.lower() not in _SENTENCE and meaning(name) >= Secrecy.SECRET
    if is_name(value) and value.islower():
        return looks_made(value)
    return is_shaped(value) or _is_long_number(value)


def _is_long_number(value: str) -> bool:
    return value.isdigit() and len(value) > 7


def _is_loose(between: str) -> bool:
    """Does nothing but a space, a comma or a word, "password is", join a name and what follows?"""
    return between in ("", ",") or between.isalpha()


def _of_compared(match: re.Match[str]) -> bool:
    """Of a value that stands before its name."""
    shaped, name = is_shaped(match["value"]), match["name"]
    if "=" in match["sign"] or "n" in match["sign"]:
        number = _is_long_number(match["value"]) and not OF_TOKENS.fullmatch(name)
        return _by_name(match) and (shaped or number or meaning(name) is Secrecy.PASSWORD)
    name = name.rstrip(".").removesuffix(".txt")
    shaped = shaped or _is_long_number(match["value"])
    return shaped and meaning(name) >= Secrecy.SECRET and is_secret(name, match["value"])


def _of_before(match: re.Match[str]) -> bool:
    """Of a value that stands before what says that it is one."""
    name, value = match["name"], match["value"]
    shaped = looks_made(value) if OF_TOKENS.fullmatch(name) else is_shaped(value)
    return meaning(name) >= Secrecy.SECRET and shaped and _by_name(match)


def _of_comment(match: re.Match[str]) -> bool:
    """Of a value that only the comment behind or above it says something of."""
    named = max(map(meaning, (match["comment"], *match["comment"].split())))
    return named >= Secrecy.SECRET and is_shaped(match["value"]) and _always(match)


def _of_alone(match: re.Match[str]) -> bool:
    """Of a value alone in its line, below a sentence that ends with its name."""
    value = match["value"]
    chosen = meaning(match["name"]) is Secrecy.PASSWORD and is_mixed(value)
    return (is_shaped(value) or chosen) and not refers(value) and _always(match)


def _of_login(match: re.Match[str]) -> bool:
    value = match["value"]
    last = value.lower() not in _SENTENCE and match.string[match.end() :].strip(" .") == "" and value.isascii()
    given = is_shaped(value) or (value.isdigit() and len(value) > 5) or last
    return _always(match) and not refers(value) and given


def _is_chosen(name: str, value: str) -> bool:
    """Is it, under a password's name, what people choose sooner than they name a variable so?"""
    return meaning(name) is Secrecy.PASSWORD and (value[:1].isupper() or any(map(str.isdigit, value)))


def _is_variable(value: str) -> bool:
    """Is it a variable's name that says itself that it holds a secret: ``hub_token``, ``apiKey``?"""
    if not IDENTIFIER.fullmatch(value) or any(map(str.isdigit, value)) or value.isupper():
        return False
    return len(split(value)) > 1 and meaning(value) is not Secrecy.NOTHING


def _is_type(name: str, value: str) -> bool:
    """Is it a type, as code says behind a colon: ``Secret``, ``SecretStr``?"""
    if not value[:1].isupper() or not IDENTIFIER.fullmatch(value):
        return False
    words = split(value)
    return words == split(name) or (len(words) > 1 and max(map(meaning, (value, *words))) > Secrecy.WEAK)


def _is_number(name: str, value: str) -> bool:
    """Is it a number, and no password or key that is one?"""
    if not value.lstrip("+-").replace(".", "", 1).isdigit():
        return False
    if meaning(name) is Secrecy.PASSWORD or "secret" in name.lower():
        return len(value) < 4
    if meaning(name) is Secrecy.SECRET and "." not in value:
        return len(value) < (9 if name.lower() == "token" else 6)
    return True


def _is_phrase(name: str, value: str) -> bool:
    """Are these words a secret, not a sentence about one, nor an expression?"""
    words = value.lower().split()
    if not all(map(_WORD.search, words)):
        return False
    if "phrase" in name.lower() or "mnemonic" in name.lower():
        return True
    return meaning(name) is Secrecy.PASSWORD and len(words) < 7 and _SENTENCE.isdisjoint(words)


_SAID = (
    r"(?:secret[ _\-])?[a-z]{2,20}[ _\-]key|api[ _\-]?key|(?:client|app|api|shared|webhook) secret|senha|"
    r"(?:seed|recovery) phrase|(?:recovery|backup) codes?|pass ?(?:word|phrase|code)|passwd|pwd|pw|secret|bearer|"
    r"(?:access |auth |bearer |api )?token|credentials?|mot de passe|contrase\u00f1a|passwort|kennwort|wachtwoord"
)
_FRAGMENTS = {
    "NAME": r"(?P<name>[^\W\d][\w.\-]{0,80})",
    # One that begins where the word does: behind each of its letters it would be looked for anew.
    "BARE": r"(?<![^\W\d])(?=(?P<name>[^\W\d][\w.\-]{0,80}))(?P=name)",
    # Between quotes; one before a letter is part of the text: 'it's'. Of these a few: each may begin a text of its own.
    "QUOTED": r"""[a-zA-Z]{0,2}(?P<quote>\\{0,7}(?:"{3}|'{3}|["'`]))"""
    r"""(?P<value>(?:(?!(?P=quote))(?:\\[^\n]|[^\n\\])){1,4000}"""
    r"""(?:(?P=quote)(?!\W|$)(?:(?!(?P=quote))(?:\\[^\n]|[^\n\\])){0,4000}){0,4})(?P=quote)""",
    "WORD": r"""(?P<quote>["']?)(?P<value>[^\s"'\-][^\s"']{0,400})(?P=quote)""",
    "BEGIN": r"^[+\- ]?[ \t]{0,80}",  # of a line, of a patch, too
    "END": r"[ \t]{0,80}\\?\r?$",
    "BAR": "[|\u2502\u2503]",
    "CELL": "[^|\u2502\u2503\\n`]",
    "NAMED": r"""(?:[nN]ame|[kK]ey|[pP]arameter(?:Key|Name)|[vV]ariable|[fF]ield)["']?\s{0,4}[:=]\s{0,4}["']?""",
    "VALUED": r"""["']?(?:(?:[a-z]{1,12}V|[vV]|[pP]arameterV)al(?:ue)?|content)["']?\s{0,4}[:=][ \t]{0,4}""",
    "SAID": _SAID,
}
_FRAGMENTS["PHRASE"] = r"(?<!\\)" + _FRAGMENTS["QUOTED"][13:].replace("4000", "400").replace("{0,4}", "{0,1}")
_FRAGMENT = re.compile("~([A-Z]+)~")


def _in(*parts: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern of parts, in which ``~NAME~`` is a fragment."""
    return re.compile(_FRAGMENT.sub(lambda match: _FRAGMENTS[match[1]], "".join(parts)), re.MULTILINE | flags)


CONTEXTS = Contexts(
    # name = "value", "name": "value", name == "value", name = Secret("value"), in whatever language.
    Context(("=", ":"), _in(
        r"""(?<![\w.])(?<!\w-)-{0,2}\\{0,7}["'`]?~NAME~\\{0,7}["'`]?\]?(?:\[\d{0,6}\])?\s{0,8}""",
        r"""(?::\s{0,8}(?P<type>[\w\[\]. |,&]{0,60})|[ ]As[ ]\w{1,20}\s{0,8})?""",
        r"(?:=>|:=|[=!]==?|[?+]?=|:)\s{0,8}(?:(?:string\(\d{1,6}\)|&\w{1,40})[ ])?",
        r"(?:(?:(?:SecretStr|Secret|Field|str|bytes|String|Some|Literal|Password|(?:typer\.)?(?:Option|Argument))?\(\s{0,100}(?:default=)?)",
        r"|[\w.]{1,60}\(\s{0,100}default(?:_factory=lambda:\s?|=))?~QUOTED~",
    ), _of_assignment),
    # names = ["value", "value"]
    Context(("[",), _in(
        r"""(?<![\w.])~NAME~["']?\s{0,8}[=:]\s{0,8}[\[(]""",
        r"""(?P<value>\s{0,8}["'][^\n\[\](){}]{1,4000}["'],?\s{0,8})[\])]""",
    ), lambda match: meaning(match["name"]) >= Secrecy.SECRET and not refers(match["value"].strip(" ,\"'"))),
    # names = {"prod": "value"}
    Context(("{",), _in(r"""(?<![\w.])~NAME~["']?\s{0,8}[=:]\s{0,8}\{(?P<value>[^\n{}]{1,4000})\}"""), _of_mapping),
    # ;Password=value;
    Context((";",), _in(r"""(?<=;)[ ]?~NAME~[ ]?=(?P<value>[^\s"';<>()]{1,400})(?=[;"'])"""), _of_connection),
    Context((",",), _in(
        r"""=\S{1,200}[ ]~NAME~=(?P<value>[^\s;"'<>(),]{1,200},[^\s;"'<>()]{0,199}[^\s;"'<>(),])""",
        r"""(?=["']|[ ]\w{1,40}=)""",
    ), _of_connection),
    # .password("value"), set_password("value")
    Context(("(",), _in(
        r"(?:\.|\bset_?|\bwith_?|(?<=[a-z])(?=Password|Secret|Token|ApiKey))~NAME~\(\s{0,8}",
        r"""(?:["'][^"'\n]{0,100}["'],\s{0,8}){0,2}~QUOTED~\s{0,8}\)""",
    ), _of_call),
    # key = given or "value"
    Context((" or ", "||", "??", " else "), _in(
        r"(?<![\w.])~NAME~\s?[:=](?:[^\n:=]{0,200}?[:=]{1,3}){0,2}?[^\n:=]{0,200}?(?:\bor|\|\||\?\?|\belse)\s?~QUOTED~",
    ), _by_name),
    # environ.get("name") or "value"
    Context((" or ", "||", "??"), _in(r"""["']~NAME~["']\s?[\])]{1,2}\s?(?:\bor|\|\||\?\?)\s?~QUOTED~"""), _by_name),
    # invalid name 'value', as messages have it
    Context((" '", ' "'), _in(
        r"""(?<![\w.\-"'`])~NAME~[ ]~QUOTED~""",
    ), lambda match: "_" in match["name"] and _by_name(match) and looks_made(match["value"])),
    # <name>value</name>, <string name="name">value</string>
    Context(("</",), _in(
        r"<(?:[\w\-]{1,20}:)?~NAME~(?:\s[^<>\n]{0,200})?>\s{0,20}(?:<!\[CDATA\[)?(?P<value>[^<>\s][^<>]{0,4000}?)(?:\]\]>)?\s{0,20}</",
    ), _by_name),
    Context(("</",), _in(
        r"""\b(?:name|key|id)=["']~NAME~["'][^<>\n]{0,200}>(?P<value>[^<>\s][^<>\n]{0,4000})</""",
    ), _by_name),
    # {name, "value"}
    Context(("{",), _in(r"\{\s{0,4}~NAME~,\s{0,4}~QUOTED~\s{0,4}\}"), _by_name),
    # {Name:value Other:value}, as Go prints
    Context(("{",), _in(
        r"(?<=[{ ])(?=[A-Z])~NAME~:(?!\?)(?P<value>[^\s{}:\"'()]{3,400}(?<!,))(?=[ ][A-Z]\w{0,60}:|\}(?:[ })\]]|$))",
    ), _of_printed),
    # {name: value}
    Context((":",), _in(
        r"""[{,]\s{0,8}(?P<quote>["']?)~NAME~(?P=quote):(?:\s{1,8}|(?<=["']:))""",
        r"""(?P<value>[^\s,{}\[\]"'`()][^\n,{}\[\]"'`()]{0,4000})(?=[,}])""",
    ), _of_flow),
    # name: value and name = value alone on a line of YAML, INI or a patch of one; export NAME=value
    Context(("=", ":", "->"), _in(
        r"~BEGIN~(?:(?:-|\*|#{1,3}|//|;|:|@)[ ]?){0,2}(?:export[ ]|set[ ]|ENV[ ]|ARG[ ]|env[ ]|Environment=)?",
        r"""(?P<quote>["']?)~NAME~["']?""",
        r"(?P<separator>[ \t]{0,8}(?:[:?+\\]?=>?|:|->)(?:[ \t]{1,40}|(?<==)|(?<=:)(?![:/])))",
        r"""(?:!!\w{1,20}[ ]|&\w{1,20}[ ])?(?P<value>[^\s"'`][^\n]{0,4000}?)(?:[ \t]{1,80}#[^\n]{0,400})?~END~""",
    ), _of_line),
    # NAME=value; without spaces, as in a shell or a connection string.
    Context(("=",), _in(
        r"(?<![\w.])(?:\$env:|-D(?=[A-Za-z_])|-{1,2}[\w\-]{1,40}=(?=[A-Za-z_][\w.\-]{0,80}=[^=\s])|-{1,2})?",
        r"""~NAME~=(?P<value>[^\s"'`;,&()\[\]{}<>|]{1,4000})""",
    ), _of_shell),
    # ENV NAME value, pip config set name value
    Context(("env ", "arg ", "set", "put ", "add", "modify", "define", "create", "git config", "param", "header"), _in(
        r"(?:(?:~BEGIN~|\bStep[ ]\d{1,4}/\d{1,4}[ ]:[ ]|/\d{1,4}\][ ])",
        r"(?:ENV|ARG|%(?:set_)?env|setenv|SetEnv|set[ ]-[gxU]{1,3}|#[ ]?define"
        r"|(?:add|more_set|proxy_set|grpc_set)_headers?"
        r"|(?:fastcgi|uwsgi|scgi)_param|header_up|(?:Request)?Header[ ](?:always[ ])?(?:set|add|append|merge))"
        r"|\bsetx|\bset-?env(?:ironment)?|[ ]-genv"
        r"|(?:\b(?:config|configure|conda|npm|pip|secrets?|kaggle|remote|kv|etcdctl|redis-cli|CONFIG)[ ]|[ ]--)",
        r"(?:set|SET|put|add|modify|config[ ]set|config[ ]--set)|\bgit[ ]config(?=[ ]))",
        r"(?:[ ]-{1,2}[a-z]{1,20}){0,2}(?:[ ](?=[a-z]{1,20}[ ])\S{1,20})?",
        r"""[ \t]{1,8}(?:\S{0,200}[:/])?["']?~NAME~["']?[ \t]{1,8}["']?(?P<value>[^\s"'=\-][^\s"']{0,4000})""",
    ), _by_name),
    # printf -v NAME '%s' value
    Context(("printf -v",), _in(
        r"""\bprintf[ ]-v[ ]{0,4}["']?~NAME~["']?[ \t]{1,8}(?:--[ ])?(?:["']?%[sqb](?:\\n)?["']?[ \t]{1,8})?["']?""",
        r"""(?P<value>[^\s"'%\-][^\s"']{0,4000})""",
    ), _by_name),
    # spark.hadoop.fs.account.key value
    Context((" ",), _in(
        r"~BEGIN~(?P<name>[a-z]\w{0,40}(?:\.[\w\-]{1,40}){2,12})[ ](?P<value>[^\s=:]{1,4000})~END~",
    ), _by_name),
    # bindpw value
    Context(("pw", "pass", "pwd", "masterauth"), _in(
        r"""~BEGIN~~NAME~[ \t]{1,80}(?P<quote>["']?)(?P<value>[^\s=:"']{3,400})(?P=quote)~END~""",
    ), _of_words),
    # | name | value |
    Context(("|", "\u2502", "\u2503"), _in(
        r"~BEGIN~(?:~BAR~[ \t`*]{0,40}(?=[A-Za-z_])|(?=[\w.\-]{1,80}[ \t]{0,80}~BAR~))",
        r"(?P<name>[A-Za-z_][\w. \-]{0,80}?)",
        r"[ \t`*]{0,80}~BAR~[ \t`]{0,40}(?P<value>(?!\s)~CELL~{1,400}?)[ \t`]{0,80}(?:~BAR~|$)",
    ), _of_cell),
    # name ..... value; name,value
    Context(("...", "  ", "\t", ",", ";"), _in(
        r"""~BEGIN~["']?~NAME~["']?(?:[ \t]?\.{3,200}[ \t]?|[ \t]{2,80}|\t|[,;])["']?""",
        r"""(?P<value>[^\s,"']{3,4000})["']?~END~""",
    ), _of_cell),
    # --name value
    Context(("-",), _in(
        r"(?<![\w\-})`])-{1,2}~NAME~[ \t]{1,8}",
        r"""(?P<quote>["']?)(?P<value>(?<=["'])[^\n"']{1,4000}|(?!--|-[A-Za-z]{2,20}[ ])[^\s"']""",
        r"""[^\s"'\])]{0,4000})(?P=quote)""",
    ), _of_option),
    Context(("/",), _in(r"""(?<![^\s])/~NAME~:(?P<value>[^\s"']{1,400})"""), _by_name),
    # ${NAME:-value}, ${oc.env:NAME,value}
    Context(("${",), _in(
        r"""\$\{(?:[\w.]{1,20}:)?~NAME~(?::?[\-=+]|,|:(?!\?))["']?(?P<value>[^\s{}"'$][^\n{}"']{0,400})["']?\}""",
    ), _by_name),
    # name: ${ANY:value}
    Context(("${",), _in(
        r"""(?<![\w.])~NAME~["']?[ \t]{0,8}[:=][ \t]{0,8}["']?\$\{(?:[\w.]{0,20}(?i:env|sys):)?[A-Za-z_][\w.]{0,80}""",
        r"""(?::?[\-=+]|,|:(?!\?))["']?(?P<value>[^\s{}"'$][^\n{}"']{0,400})["']?\}""",
    ), _by_name),
    # --name TEXT  [default: value]
    Context(("default: ", "default="), _in(
        r"""(?<![\w\-])--~NAME~[ \t,=][^\n]{0,200}?[\[(](?:[^\n\[\]()]{0,80}[;,][ ])?default[:=][ ]?["']?""",
        r"""(?P<value>[^\s\];,)"'][^\n\];,)"']{0,200})["']?(?=[\];,)])""",
    ), _by_name),
    # assertEqual(name, "value")
    Context(("assert", "equal", "compare", "eq("), _in(
        r"\b(?:assert\w{0,40}|\w{0,40}[eE]quals?|compare\w{0,40}|eq)!?\([ ]?~NAME~[ ]?,[ ]?~QUOTED~",
    ), _by_name),
    # "value" == name, "value" > name.txt, MOVE "value" TO name
    Context(("==", "!=", " to ", ">", " into ", " -"), _in(
        r"""~PHRASE~[ \t]{0,8}(?P<sign>[=!]==?|>{1,2}|->|(?i:to|into)[ ]|--?n(?:ame)?[ =])[ \t]{0,8}["']?~NAME~""",
    ), _of_compared),
    # Login: user / value, credentials are user:value
    Context(("login", "cred", "account", "pw", "pass", "stats auth"), _in(
        r"(?:\b(?:login|credentials?|creds|account|stats[ ]auth)(?:[ ](?:is|are)|[ ]?[:=]|(?<=auth))[ ]{1,3}",
        r"|\b(?:id|user(?:name)?|login)[ ]?[/(][ ]?(?:pw|pwd|pass(?:word)?)\)?(?:[ ](?:is|are)|[ ]?[:=(])?[ ]{0,3})",
        r"""[\w.\-@]{1,60}(?:[ ]?/[ ]?|[:(,])(?P<value>[^\s"'`<>()\[\]{},/]{6,200})(?=[\s"'`.,)]|$)""",
        flags=re.IGNORECASE,
    ), _of_login),
    # Your API key: value. The password is "value".
    Context((" ",), _in(
        r"(?<![\w.\-/$])(?P<before>(?:[a-z]{1,20}[ ]){0,2}?)(?P<what>~SAID~)(?![\w/\-])[*`]{0,3}",
        r"(?P<whose>[ ](?:for|of)[ ][^\n:=]{1,60}?(?=[ ]{0,3}[:=]|[ ]is[ ]|[ ]\S{12}))?",
        r"(?:[ ](?:provided|given|used|received|found|created)(?=:))?",
        r"(?P<verb>[ ]{0,3}[:=]|[ ](?:is|was|to|ist|lautet|es|est|\u00e8|\u00e9)",
        r"(?:[ ]now|[ ](?:re)?set[ ]to|[ ]changed[ ]to)?[ ]?:?|[ ](?:[-=]?>|\u2192|-)|)\*{0,2}[ \t]{1,8}\*{0,2}",
        r"""(?P<quote>[`"']?)(?P<value>(?<=[`"'])[^\n"'`]{1,400}|[^\s"'`<]{3,400})(?P=quote)""",
        flags=re.IGNORECASE,
    ), _of_sentence),
    # auth=("user", "value"), HTTPBasicAuth("user", "value"), smtp.login("user", "value")
    Context(("auth", "login", "credential"), _in(
        r"(?:\b(?:basic_|http_)?auth\s?[=:]\s?|BasicAuth|DigestAuth|ProxyAuth|Credentials?|\.(?:login|basic_auth))[(\[]\s{0,8}",
        r"""(?:[a-zA-Z]?["'][^"'\n]{0,200}["']|[\w.\[\]]{1,80})\s{0,8},\s{0,8}(?:Some\()?~QUOTED~(?=\s{0,8}[,)\]])""",
    ), _always),
    Context(("<<<",), _in(r"~NAME~[ ]?<<<[ ]?~WORD~"), _by_name),
    Context(("\", \"--", "', '--", "[\"--", "['--"), _in(r"""["']-{1,2}~NAME~["'],[ ]?~QUOTED~"""), _by_name),
    Context(("<<<",), _in(
        r"(?:login|token|password|passwd|secret|sudo[ ]-S|kinit|chpasswd|keepassxc-cli|pass[ ]insert|cryptsetup)\b",
        r"[^\n]{0,200}?<<<[ ]?~WORD~",
    ), _always),
    Context(("<(",), _in(
        r"(?:login|token|password|passwd|secret|cryptsetup|keepassxc-cli)\b[^\n]{0,200}?",
        r"<\((?:echo|printf)[ ](?:-n[ ])?~WORD~\)",
    ), _always),
    Context(("/t/",), _in(r"(?<=/t/)(?P<value>[\w\-]{20,200})(?=/)"), _of_made),
    Context(("/t/",), _in(r"""conda[\w.\-/:]{0,100}/t/(?P<value>[^\s/"'<>]{3,200})"""), _always),
    Context(("wifi:",), _in(r"""\bWIFI:(?:[^\n"']{0,200};)?P:(?P<value>(?:\\[^\n]|[^\n;\\"']){1,200})"""), _always),
    Context(("setuser", "user "), _in(
        r"(?:\bSETUSER|^user)[ ]\S{1,80}[ ]on[ ](?:[^\n]{0,80}[ ])?>(?P<value>\S{1,200})",
    ), _always),
    Context(("password ", "secret "), _in(r"\b(?:password|secret)[ ]\d[ ](?P<value>\S{3,200})~END~"), _always),
    Context(("community",), _in(r"\b(?:snmp-server[ ]community|r[ow]community6?)[ ](?P<value>\S{3,200})"), _always),
    Context(("{plain", "{clear", "{crypt", "sha", "md5}"), _in(
        r"\{(?:PLAIN|CLEARTEXT|[\w\-]{0,8}CRYPT|S?SHA\d{0,3}|S?MD5)\}(?P<value>[^\s:\"'{}]{3,400})",
    ), _always),
    # Of Postfix: [host]:port user:value
    Context((":587", ":465"), _in(
        r"~BEGIN~\[?[\w.\-]{1,200}\]?:\d{2,3}[ \t]{1,80}[^\s:]{1,200}:(?P<value>\S{3,200})~END~",
    ), _always),
    # username=ada%value
    Context(("user",), _in(r"""\buser(?:name)?=[\w.\\@\-]{1,80}%(?P<value>[^\s,;&"'%]{4,400})"""), _always),
    # user "ada" pass "value"
    Context(("pass",), _in(
        r"""\b(?:user|login)[ ]["']?[^\s"']{1,80}["']?[ ](?:pass|passwd)[ ](?=["'])~QUOTED~""",
    ), _always),
    # Use value as the password; send "value\\r"  # password; default = "value"  # password
    Context((" as ",), _in(
        r"""\b(?:[uU]se|[eE]nter|[tT]ype)[ ](?P<quote>["'`]?)(?P<value>[^\s"'`]{6,200})(?P=quote)""",
        r"[ ]as[ ](?:the[ ]|your[ ]|a[ ])?~NAME~",
    ), _of_before),
    Context(("#", "//"), _in(
        r"""\b(?:send(?:[ ]--)?[ ]|[a-zA-Z]\w{0,40}\s{0,8}[:=]\s{0,8})(?P<quote>["'])(?P<value>[^\s"']{6,200}?)""",
        r"(?:\\[rn])?(?P=quote)[ \t;,]{1,8}(?:\#|//)(?P<comment>[^\n]{1,120})$",
    ), _of_comment),
    # name = [[value]]
    Context(("[[",), _in(r"~NAME~\s?=\s?\[\[(?P<value>[^\n\[\]]{3,400})\]\]"), _by_name),
    # What runners of CI are told to hide.
    Context(("::add-mask::", "issecret=true"), _in(
        r"(?:::add-mask::|issecret=true[^\]\n]{0,80}\])(?P<value>\S{1,4000})",
    ), _always),
    Context(("ftp(", "ftp_tls(", "fernet(",
             "hmac.new(", "session(", "getconnection(", "directoryentry(", "client(", "connect(", "mysqli("), _in(
        r"""(?:\b(?:Fernet|hmac\.new)\([ \t]{0,8}b?|(?:getConnection|DirectoryEntry)\((?:[^,()\n]{1,200},\s{0,4}){2}""",
        r"""|\b(?:FTP(?:_TLS)?|(?:pymysql|MySQLdb|DBI)(?:\.|->)connect|(?<=new )mysqli)""",
        r"""\((?:["'][^"'\n]{1,200}["'],\s?){2}"""
        r"""|\.connect\(["'][^"'\n]{1,200}["'],\s?\d{1,5},\s?["'][^"'\n]{1,100}["'],\s?""",
        r"""|\bClient\(["']AC\w{0,32}["'],[ ]?""",
        r"""|\b(?:boto3|aioboto3|session)\.Session\([ ]?["'][^"'\n]{1,40}["'],[ ]?)~QUOTED~""",
    ), _always),
    Context(("login", "experiment", "init", "api"), _in(
        r"\b(?:wandb|comet_ml|neptune|huggingface_hub|mlflow|openai|clearml|swanlab|aim)\.(?:login|init|Experiment|API)",
        r"""\([ \t]{0,8}(?:key[ \t]{0,8}=[ \t]{0,8})?(?P<quote>["'])(?P<value>[^"'\n]{8,400})(?P=quote)""",
    ), _always),
    Context(("login(",), _in(r"\blogin\([ \t]{0,8}~QUOTED~"), _of_made),
    # Of netrc.
    Context(("password",), _in(
        r"\b(?:login|account|user)[ \t]+(?!and[ ]|or[ ])\S{1,200}[ \t]+password[ \t]+(?P<value>[^\s$]\S{0,400})",
    ), _always),
    Context(("password",), _in(r"~BEGIN~(?P<name>password)[ \t]{1,8}(?P<value>[^\s=:,;]{3,400})~END~"), _of_cell),
    # Of SQL, PowerShell and HTML.
    Context(("password('", 'password("'), _in(r"""\bPASSWORD\([ ]?~QUOTED~[ ]?\)"""), _always),
    Context(("identified", "password '", "secret '", "securestring"), _in(
        r"\b(?:identified\s(?:with\s['\w]{1,40}\s)?(?:by|as)|password|secret",
        r"""|ConvertTo-SecureString(?:[ ]-\w{1,20}){0,3})[ ](?P<quote>\\?['"])(?P<value>[^'"\n]{1,400}?)(?P=quote)""",
        flags=re.IGNORECASE,
    ), _always),
    Context(("securestring", "identified"), _in(
        r"(?:(?i:ConvertTo-SecureString)(?:[ ]-\w{1,20}){0,3}[ ](?![$(\-])|(?:\bIDENTIFIED\sBY|(?i:\b(?:user|role|to)",
        r"\s(?!(?:is|are|was|be)\s)\S{1,80}\sidentified\sby))\s)(?P<value>[^\s'\";<]{1,400})",
    ), _always),
    Context(("password",), _in(r"""\btype=["']password["'][^<>\n]{0,200}?\bvalue=~QUOTED~"""), _always),
    # Commands that secret_commands doesn't know: what holds the secret has a form of its own.
    Context(("sqlplus", "oracle", "impdp", "expdp", "rman ", "sqlldr"), _in(
        r"""(?:\b(?:sqlplus|impdp|expdp|rman|sqlldr)\b[^\n]{0,80}?[ ]|jdbc:oracle:\w{1,10}:""",
        r"""|[oO]racle(?:db)?\.connect\(["'])"""
        r"""[\w.\-]{1,80}/(?P<value>[^\s@"'/]{1,200})@""",
    ), _always),
    Context(("htpasswd",), _in(
        r"\bhtpasswd(?=[^\n]{0,40}[ ]-\w{0,6}b)(?P<none>(?=[^\n]{0,40}[ ]-\w{0,6}n))?",
        r"(?:[ ]-\w{1,8}(?:[ ]\d{1,2})?){1,4}(?(none)|[ ]\S{1,200})[ ]\S{1,100}[ \t]{1,8}~WORD~",
    ), _always),
    # Of .pgpass.
    Context((":543", ":6432:"), _in(
        r"~BEGIN~[\w.\-*]{1,200}:(?:543\d|6432):[\w.\-*]{1,80}:[\w.\-*]{1,80}:(?P<value>\S{1,400})$",
    ), _always),
    Context(("echo", "printf", "<<<"), _in(
        r"""(?:\b(?:echo|printf)[ ](?:-[neE]{1,2}[ ]|["']?%s(?:\\n)?["']?[ ]){0,2}|<<<[ ]?)""",
        r"""(?P<quote>["']?)(?P<value>[^\s"'|]{3,400})(?P=quote)[ ]?\|[ ]?""",
        r"(?:sudo[ ]-S|[^\n|]{0,200}(?:--password-stdin|--with-token|--stdin|-pass[ ]stdin|--data-file=-|secrets?[ ])",
        r"|(?:ch|smb|vnc)?passwd|kinit|cryptsetup|pass[ ]insert)",
    ), _always),
    # Headers.
    Context((":",), _in(
        r"\b(?:x-[a-z\-]{0,40}(?:key|token|secret|auth|signature)|(?:set-)?cookie|api-key|apikey|private-token|job-token",
        r"""|(?<=-H ["'])[a-z][a-z\-]{0,40}(?:key|token|secret|auth))\\?["']?[ \t]{0,8}:[ \t]{0,8}["']?""",
        r"""(?P<value>[^"'\n\\]{4,4000})""",
        flags=re.IGNORECASE,
    ), _of_header),
)  # fmt: skip
"""Those of a line."""

INSERT = re.compile(r"\((?P<names>[^()\n]{1,2000})\)\s{0,80}(?i:values)\s{0,80}\((?P<values>[^()\n]{1,4000})\)")

UNPACKED = re.compile(
    r"""^[ \t]{0,80}(?P<names>[\w.]{1,80}(?:,[ ]?[\w.]{1,80}){1,8})[ ]?=[ ]?(?P<values>["'][^\n]{1,1000})$""",
    re.MULTILINE,
)
"""user, password = "ada", "…"."""

BESIDE = Contexts(
    # name = { value = "value" }
    Context(("{",), _in(
        r"""~BARE~["']?\s{0,4}[:=]?\s{0,4}\{\s{0,8}["']?(?:value|default)["']?\s{0,4}[:=]\s{0,4}~QUOTED~""",
    ), _by_name),
    # --name name --value value
    Context((" -",), _in(
        r"""~BARE~["']?[ ][^\n]{0,120}?-{1,2}(?:(?:secret|string)-?(?:value|string)|secret|[vV]alue|val|body""",
        r"""|data|b|v)[ =](?P<quote>["']?)(?P<value>(?<=["'])[^\n"']{1,4000}|[^\s"'\-][^\s"']{2,4000})(?P=quote)""",
    ), lambda match: meaning(match["name"]) >= Secrecy.SECRET and _by_name(match)),
    Context(("",), _in(
        r"""~BARE~(?:[ ]DEFAULT(?==))?\\{0,7}(?:["'`\])*}>]|&quot;|\\?u0022|%22){0,4}(?:\[\d{0,6}\])?""",
        r"""(?:[ ]?\([^()\n]{1,40}\)(?=[ ]?[:=])|[ ]?\{[^{}\n]{0,40}\}(?=[ ]?=)""",
        r"""|[ ](?:for|of)[ ][^\n:="'`]{1,40}(?=:))?(?P<words>(?:[ ][a-z]{2,12}){1,3}(?=[ ]?:[ ]))?""",
        r"(?P<between>[ \t]{0,8}[:=?|~<>!+\-]{0,2}[:=>\uff1a\u2192\u00bb][ \t]{0,8}|%3[aAdD]",
        r"|[ \t]{1,8}(?:is|was|as|ist|es|est|\u00e8|\u00e9)[ ]|[ \t]{1,8}|[ \t]{0,8},[ \t]{0,8}|(?=\())",
        r"""(?P<call>(?:&?(?:new[ ])?[A-Za-z_][\w.:]{0,60}!?)?\([ \t]{0,8})?""",
        r"""(?P<quote>[a-zA-Z@]{0,2}\\{0,7}(?:"{3}|'{3}|`{1,3}|"(?!")|'(?!')|\*{1,2}(?!\*)["'`]?)|&quot;|\\u0022|%22|)""",
        r"""(?P<value>(?<=["'`;2])[^\n"'`]{3,4000}?(?=\\{0,7}["'`]|&quot;|\\u0022|%22)|(?<=\*)[^\n*]{3,400}(?=\*)""",
        r"""|[^\s"'`<>,;&|(){}\[\]\\=:][^\s"'`<>,;&|(){}\[\]\\]{2,4000})""",
    ), _of_beside),
)  # fmt: skip
"""What begins with a name, and has a value behind it, whatever stands between them."""

SPANNING = Contexts(
    # ("name", "value"), setdefault("NAME", "value"), environ.get("NAME", "value")
    *(
        Context((",",), _in(
            r"\(\s{0,100}", before,
            r"""["']~NAME~["']\s{0,8},\s{0,100}(?:default=)?~QUOTED~(?=\s{0,100}[,)])""",
        ), _of_pair)
        for before in ("", r"""(?:[^()\n"']{0,40},\s?|["'][^()\n"']{0,100}["'],\s?)""")
    ),
    # add_argument("--name", default="value")
    *(
        Context(("default",), _in(before, r"""~NAME~["'][^()]{0,300}?\bdefault\s?=\s?~QUOTED~"""), _by_name)
        for before in (r"""["']-{1,2}""", r"""\benvvar=["']""")
    ),
    # name = """, and the value below
    Context(("\"\"\"", "'''"), _in(
        r"""(?<![\w.\-])~NAME~\s?[=:]\s?(?:"{3}|'{3})\r?\n[ \t]{0,80}(?P<value>[^\s"'][^\n"']{2,4000})""",
    ), _by_name),
    # name = (, and the value below
    Context(("(",), _in(r"(?<![\w.\-])~NAME~\s?[=:]\s?\(\s{1,100}~QUOTED~"), _by_name),
    # name: NAME, value: value; also in JSON, XML and over two lines
    Context(("val", "content"), _in(
        r"""\b~NAMED~~NAME~["']?[ \t,;]{0,8}""",
        r"""\r?\n?[ \t+\-]{0,100}(?:[\w"']{1,40}\s{0,4}[:=]\s{0,4}[\w"']{1,40},?[ \t]{0,8})??\r?\n?[ \t+\-]{0,100}""",
        r"""~VALUED~(?P<quote>["']?)(?P<value>[^\s"',;{}\[\]<>][^\n"'<>,;}]{0,4000}?)""",
        r"""(?=["'<>,;}]|[ ]/>|[ \t]{0,80}\r?$)""",
    ), _of_pair),
    Context(("val",), _in(
        r"""[{,]\s{0,8}["']?[vV]alue["']?\s{0,4}[:=]\s{0,4}~QUOTED~,\s{1,8}["']?(?:name|key|Name|Key)["']?\s{0,4}[:=]\s{0,4}["']~NAME~["']""",
    ), _of_pair),
    # <name>NAME</name><value>value</value>
    Context(("<value>", "<string>"), _in(
        r"<(?:name|key)>\s{0,20}~NAME~\s{0,20}</(?:name|key)>\s{0,200}<(?:value|string)>(?P<value>[^<>\n]{1,4000})</",
    ), _by_name),
    # * - name, and - value below: a row of reStructuredText's lists
    Context(("* - ",), _in(
        r"""^[ \t]{0,80}\*[ ]-[ ]{1,8}[`"']{0,2}(?P<name>[^\W\d][\w .\-/]{0,60}?)[`"']{0,2}[ \t]{0,8}\r?\n""",
        r"""[ \t]{1,80}-[ ]{1,8}(?P<quote>[`"']{0,2})(?P<value>[^\s"'`][^\n"'`]{2,4000}?)(?P=quote)[ \t]{0,8}\r?$""",
    ), _of_cell),
    # variable "name" { default = "value" }, output "name" { value = "value" }
    Context(("variable", "output"), _in(
        r"""\b(?:variable|output)\s{1,8}["']~NAME~["']\s{0,8}\{[^{}]{0,400}?\b(?:default|value)\s{0,8}=\s{0,8}~QUOTED~""",
    ), _by_name),
    # A comment that says so, and variable = "value" below
    Context(("#", "//"), _in(
        r"^[ \t]{0,80}(?:\#|//)[ \t]{0,8}(?P<comment>[^\n]{1,120}?)[ \t.:]{0,8}\r?\n",
        r"""[ \t]{0,80}[a-zA-Z][\w.]{0,40}\s{0,8}[:=]\s{0,8}(?P<quote>["'])(?P<value>[^\s"']{6,200})(?P=quote)[,;]?$""",
    ), _of_comment),
    # Your API key is:, and the value alone below, behind an empty line perhaps
    Context(("is:", "key:", "token:", "password:", "secret:"), _in(
        r"""(?i:\b(?P<name>~SAID~))[^\n:=]{0,30}:[ \t]{0,8}\r?\n(?:[ \t]{0,8}\r?\n)?[ \t>]{0,80}""",
        r"""(?P<quote>[`"']?)(?P<value>[^\s"'`]{6,400})(?P=quote)[ \t]{0,8}\r?$""",
    ), _of_alone),
    # name:, and value: below
    Context(("val", "default"), _in(
        r"""^(?P<indent>[+\- ]?[ \t]{0,80})(?:-[ ])?["']?~NAME~["']?:[ \t]{0,8}\{?[ \t]{0,8}\r?\n""",
        r"""(?:(?P=indent)[ \t]{1,80}[\w"']{1,40}:[ ][^\n]{0,200}\n){0,3}(?P=indent)[ \t]{1,80}""",
        r"""["']?(?:[vV]alue|[dD]efault)["']?:[ \t]{1,8}["']?(?P<value>[^\s"'{\[][^\n"']{0,4000})""",
    ), _by_name),
    # ? name, and : value below
    Context(("? ",), _in(
        r"""^[ \t]{0,80}\?[ ]{1,8}["']?~NAME~["']?[ ]{0,8}\r?\n[ \t]{0,80}:[ ]{1,8}["']?""",
        r"""(?P<value>[^\s"'{\[][^\n"']{0,4000})""",
    ), _by_name),
    # expect "password:", and send "value\\r" behind it
    Context(("send",), _in(
        r"""(?i:assword|passphrase|passcode)[^\n"']{0,40}["'][)};{\s]{0,40}(?:\w{1,40}\.)?""",
        r"""send(?:line|text)?[ (](?:--[ ])?b?(?P<quote>["'])(?P<value>[^\n"'\\]{3,400})(?:\\[rn]){0,2}(?P=quote)""",
    ), lambda match: _always(match) and not refers(match["value"])),
    # name: or name =, and the value below
    Context((":", "="), _in(
        r"""^(?P<indent>[+\- ]?[ \t]{0,80})(?:-[ ]|\{)?["']?~NAME~["']?[ \t]{0,8}(?P<sign>:|=[ \t]{0,8}\\?)""",
        r"""[ \t]{0,8}\r?\n(?P=indent)[ \t]{1,80}["']?""",
        r"""(?P<value>[^\s"'\-{\[][^\s"']{2,4000})["']?[},]{0,3}[ \t]{0,8}$""",
    ), _of_block),
    # name, and below what is said of its value by pydantic
    Context(("input_value=",), _in(
        r"^[ \t]{0,8}(?P<name>[A-Za-z_][\w.]{0,80})\r?\n[ \t]{1,8}[^\n]{1,400}?\binput_value=~QUOTED~",
    ), _by_name),
    # signature:, and a machine's text alone on the line below
    Context((":\n", ": \n", ":\r\n", "=\n", "= \n", "=\r\n"), _in(
        r"""~BARE~["']?[ ]?[:=][ ]?\r?\n[ \t]{0,80}["']?(?P<value>[^\s"']{12,4000})["']?[ \t]{0,8}\r?$""",
    ), lambda match: _by_name(match) and looks_random(match["value"])),
    # name: |, and the first line of the text below
    Context(("|", ">"), _in(
        r"""^(?P<indent>[+\- ]?[ \t]{0,80})(?:-[ ])?["']?~NAME~["']?:[ \t]{1,8}[|>][+\-]?\d?[ \t]{0,8}\r?\n""",
        r"(?P=indent)[ \t]{1,80}(?P<value>[^\s][^\n]{0,4000})",
    ), _by_name),
)  # fmt: skip
"""Those that may span lines."""

QUERY = Contexts(Context(("=",), _in(
    r"""(?:[?&;]|(?:^|(?<=["'\s]))(?=[^\s"'#;]{1,4000}&))(?P<name>[\w.\-]{1,80})=(?P<value>[^&\s"'#;?]{1,4000}""",
    r"""(?:\?[^&\s"'#;?]{0,4000}){0,4})(?=[&\s"'#;?]|$)""",
), _of_query))  # fmt: skip
"""That of addresses."""

COMMANDS = (
    "ftp(", "ftp_tls(", "login", "echo ", "printf ", "identified", "securestring", "pass:", "sqlplus", "oracle",
    "impdp ", "expdp ", "rman ", "sqlldr", ".init(", ".experiment(", ".api(", "fernet(", "hmac.new(", "session(", "<<<",
    "cifs", ":543", ":6432:", "getconnection(", "directoryentry(", "client(", "connect(", "mysqli(", "wifi:", "setuser",
    "snmp-server", "rocommunity", "rwcommunity", "{plain", "{clear", "crypt}", "{sha", "{ssha", "md5}", ":587", ":465",
    "htpasswd", "send \"", "send --", "sendline(", "::add-mask::", "issecret=true", "/t/", "mot de passe", *PROGRAMS,
)  # fmt: skip
"""What tells of a secret without a name, in small letters."""

_NAME_OF_NEXT = re.compile(
    r"""(?:(?:\b(?:name|key|Name|Key)["']?[ ]{0,4}[:=][ ]{0,4}["']?|<(?:name|key)>)"""
    r"""(?P<name>[A-Za-z_][\w.\-]{0,80})(?:["']?,?|</(?:name|key)>)"""
    r"""|["']?(?P<block>[A-Za-z_][\w.\-]{0,80})["']?(?: is)?(?::(?:[ ]{1,8}(?:[|>][+\-]?|\{))?|[ ]{0,8}=[ ]{0,8}\\?)"""
    r"""|(?P<text>[A-Za-z_][\w.\-]{0,80})[ ]?[=:][ ]?(?:"{3}|'{3})"""
    r"""|^[ \t]{0,80}\*[ ]-[ ](?P<item>[A-Za-z][\w .\-]{0,60}?)[`"']{0,2}"""
    r"""|^[ \t]{0,80}\?[ ]{1,8}["']?(?P<asked>[A-Za-z_][\w.\-]{0,80})["']?"""
    r"""|(?P<prompt>assword|passphrase|passcode)[: *]{0,4}["']\)?"""
    r"""|^[ \t]{0,8}(?P<alone>[A-Za-z_][\w.]{0,80})|^[ \t]{0,80}(?:\#|//)[ \t]{0,8}(?P<comment>[^\n.:]{1,120})[.:]?"""
    r"""|\b(?:variable|output)[ ]{1,8}["'](?P<variable>[A-Za-z_][\w.\-]{0,80})["'][ ]{0,8}\{)[ ]{0,8}\r?$"""
)


def names_next(line: str) -> str:
    """The line, if it ends with a name whose value may be in the next one; else nothing."""
    ends = line.rstrip()[-1:] in tuple(":|>-+,\"'{=\\")
    if not ends and len(line) > 90 and not any(word in line.lower() for word in ("name", "key")):
        return ""
    found = _NAME_OF_NEXT.search(line[-200:])
    name = next(filter(None, found.groups()), "") if found is not None else ""
    return line[-2000:] if name == "assword" or (name and meaning(name)) else ""
