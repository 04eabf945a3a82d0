"""Files of option values: a ``.config``, the defconfigs, and where they lie."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from trackers.configuration import plugin_options, trusted
from trackers.configuration.declaration import Assignment
from trackers.configuration.kconfig import Tree, is_prefixed
from trackers.errors import ConfigError, did_you_mean, quoted, shortened
from trackers.support import confined

_PACKAGE = Path(__file__).resolve().parents[1]
_SET = re.compile(r"CONFIG_([A-Za-z0-9_]+)=(.*)")
_UNSET = re.compile(r"# CONFIG_([A-Za-z0-9_]+) is not set")
_QUOTED = re.compile(r'"((?:[^\\"]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_FEW, _MANY = 20, 500
MOST_ABOUT = 1000
_MENTION = re.compile(r"\s*(CONFIG_)?([A-Za-z][A-Za-z0-9_]*)")


class Contents(NamedTuple):
    """Settings of a file.

    strangers: symbols of no tree that we know, left out. dropped: messages on unknown options, and on those
    of distributions of ours that aren't installed, left out. remarks:
    messages on lines about symbols of the tree that sources ours, left out.
    """

    assignments: list[Assignment]
    strangers: list[str]
    dropped: list[str]
    remarks: list[str]


def config_path(environ: Mapping[str, str], cwd: Path) -> Path:
    """Where the configuration of this directory lies: ``.config``, or what KCONFIG_CONFIG says."""
    return cwd / (environ.get("KCONFIG_CONFIG") or ".config")


def _brought() -> Path:
    """Where the defconfigs lie that we bring: in a wheel inside the package; in a checkout beside it."""
    packaged = _PACKAGE / "defconfigs"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "defconfigs"


def defconfig_folders(cwd: Path) -> list[Path]:
    """Where defconfigs are looked for by name: the working directory's first, then those that we bring."""
    return [folder for folder in dict.fromkeys([cwd / "defconfigs", _brought()]) if folder.is_dir()]


def list_defconfigs(cwd: Path) -> dict[str, Path]:
    """Defconfigs by name, sorted."""
    defconfigs: dict[str, Path] = {}
    for folder in defconfig_folders(cwd):
        for path in folder.iterdir():
            if path.is_file() and not path.name.startswith(".") and not path.name.endswith("~"):
                defconfigs.setdefault(path.name, path)
    return dict(sorted(defconfigs.items()))


def describe(path: Path) -> str:
    """The first comment of a defconfig: what it is for; "" for one that isn't to be read."""
    try:
        first = _lines(path, path.name, untrusted(path, Path.cwd()))[0][:MOST_ABOUT]
    except ConfigError:
        return ""
    return first.lstrip("# ").strip() if first.startswith("#") else ""


def find_defconfig(name: str, cwd: Path) -> tuple[Path, str]:
    """A defconfig by name or path, and what to call it in messages.

    Raises:
        ConfigError: there is none; the message lists the known ones.
    """
    known = list_defconfigs(cwd)
    if name in known:
        return known[name], f"defconfigs/{name}"
    path = cwd / Path(name).expanduser()
    if path.is_file():
        return path, name
    raise ConfigError(f"no defconfig {name!r}{did_you_mean(name, known)} Known: {', '.join(known)}, or a path")


def read(
    path: Path, label: str, tree: Tree, *, explicit: bool, drop_unknown: bool = False, root: Path | None = None
) -> Contents:
    """Read the values that a file gives to options of ``tree``.

    Args:
        label: what to call the file in messages.
        explicit: the user named this file as ours. Else it may be another program's ``.config``, and lines that
            don't speak of our options are left out.
        root: a directory whose files are data: a link, or what is no ordinary file, isn't read.
        drop_unknown: leave unknown options out (an older version's, to be brought up to date) rather than raise.

    Raises:
        ConfigError: with file and line: an unknown symbol, a malformed line, a value of the wrong form, or
            an option that is set twice.
    """
    contents = Contents([], [], [], [])
    unknown: list[tuple[str, str]] = []
    for number, line in enumerate(_lines(path, label, root), 1):
        source = f"{label}:{number}"
        if match := _SET.fullmatch(line) or _UNSET.fullmatch(line):
            name, text = match.group(1), match.group(2) if match.re is _SET else "n"
            is_unset = match.re is _UNSET and tree.knows(name) and tree.kind(name) != "bool"
            if not is_unset and not _take(contents, name, text, source, tree):
                unknown.append((name, source))
        elif line and not line.lstrip().startswith("#"):
            _judge_malformed(contents, line, source, tree, explicit)
    meant = unknown if explicit else _meant_for_us(unknown, contents, tree)
    contents.strangers.extend(name for name, source in unknown if (name, source) not in meant)
    errors = [tree.unknown(name, source) for name, source in meant]
    if errors and not drop_unknown:
        raise errors[0]
    contents.dropped.extend(map(str, errors))
    return contents


def _take(contents: Contents, name: str, text: str, source: str, tree: Tree) -> bool:
    """Add an assignment, or say why it isn't taken. False: nothing here has this symbol."""
    if tree.takes_quotes(name) and not _QUOTED.fullmatch(text):
        contents.remarks.append(f"{source}: {name}={shortened(text)} isn't taken: it must be text in double quotes")
    elif tree.knows(name) or tree.knows_elsewhere(name) or tree.takes(name):
        contents.assignments.append(Assignment(name, _value(name, text, source, tree), source))
    elif why := plugin_options.absent(name):
        contents.dropped.extend([f"{source}: {why}"] if text not in ('""', "n") else [])
    else:
        return False
    return True


def _judge_malformed(contents: Contents, line: str, source: str, tree: Tree, explicit: bool) -> None:
    """Raise ConfigError for a line that is no assignment and means one of ours; another program's is left."""
    mention = _MENTION.match(line)
    name = mention.group(2).removeprefix("CONFIG_") if mention else ""
    ours = "CONFIG_" in line and (tree.knows(name) or is_prefixed(name))
    if explicit or ours:
        raise ConfigError(f"{source}: malformed line {quoted(line.strip())}: {_advice(line, name, tree)}")
    if tree.foreign:  # as conf warns, whatever it says
        meant = f"CONFIG_{name if tree.knows_elsewhere(name) else 'NAME'}=value"
        contents.remarks.append(f"{source}: malformed line {quoted(line.strip())} isn't taken: write {meant}")


def _meant_for_us(unknown: list[tuple[str, str]], contents: Contents, tree: Tree) -> list[tuple[str, str]]:
    """Which unknown symbols of a file that may be another program's are ours, misspelt."""
    meant = [(name, source) for name, source in unknown if is_prefixed(name)]
    # A stranger's file has thousands of symbols, some like ours by chance; one that has ours, or no others, is ours.
    ours = any(tree.knows(assignment.symbol) for assignment in contents.assignments)
    if ours or len(unknown) < _FEW:
        near = [(name, source) for name, source in unknown[:_MANY] if not is_prefixed(name) and tree.is_similar(name)]
        if ours or len(near) + len(meant) == len(unknown):
            meant += near
    return meant


def untrusted(path: Path, cwd: Path, word: str = "") -> Path | None:
    """The directory whose file this is, where the user neither trusts it nor named the file by a path; None for any
    other file. word: what the user called the file."""
    ours = path.parent.resolve() == _brought().resolve()
    return None if ours or not path.is_relative_to(cwd) or trusted.is_named(word, cwd) else cwd


def _lines(path: Path, label: str, root: Path | None) -> list[str]:
    if root is not None and (real := path.resolve()).parent == _brought().resolve():
        path, root = real, None  # a link to one of those that we bring
    try:
        content = path.read_bytes() if root is None else confined.read(path, root=root, most=trusted.MOST_BYTES)
        text = content.decode("utf-8-sig", errors="surrogateescape")
    except OSError as error:
        how = "" if root is None else f"; {trusted.HOW}"
        raise ConfigError(f"{label}: can't be read: {error.strerror}{how}") from None
    return [line.rstrip() for line in text.split("\n")]


def _value(name: str, text: str, source: str, tree: Tree) -> str:
    if not tree.knows(name):  # another tree's option: its own tools check it; or one that a plug-in hasn't declared
        quoted = _QUOTED.fullmatch(text)
        return _unescape(quoted.group(1)) if quoted else text
    if tree.kind(name) == "string":
        quoted = _QUOTED.fullmatch(text)
        if quoted is None:
            raise ConfigError(
                f'{source}: {name} must be text in double quotes, with \\" and \\\\ for a quote and a backslash '
                f"inside, not {shortened(text)}"
            )
        return _unescape(quoted.group(1))
    if tree.kind(name) == "bool" and text not in ("y", "n"):
        raise ConfigError(f"{source}: {name} is y or n, not {shortened(text)}")
    return text


def _unescape(text: str) -> str:
    return _ESCAPE.sub(r"\1", text)


def _advice(line: str, name: str, tree: Tree) -> str:
    if not tree.knows(name):
        return 'write CONFIG_NAME=value, CONFIG_NAME="text", or "# CONFIG_NAME is not set"'
    example = {"bool": "y", "string": '"text"'}.get(tree.kind(name), "10")
    if line[0].isspace():
        return "it must begin at the start of the line"
    if re.match(r"CONFIG_\w+\s+=|CONFIG_\w+=\s", line):
        return f"write CONFIG_{name}={example}, without spaces around ="
    return f"write CONFIG_{name}={example}"
