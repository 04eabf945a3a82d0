"""Names that docs and docstrings mention exist: who looks one up finds it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import trackers
from tests import ROOT
from tests.test_layout import MODULES, parsed

PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):`~?(trackers\.[\w.]+)`")
"""A reference in a docstring."""
PLAIN = re.compile(r"``(trackers(?:\.\w+)+)``|`(trackers(?:\.\w+)+)`")
"""The same without a role, and in docs."""
PATH = re.compile(r"`(trackers/[\w/]+\.(?:py|js|css|html))`")
NO_NAMES = frozenset({
    "trackers.json", "trackers.yaml",
    "trackers.commands", "trackers.copies", "trackers.devices", "trackers.flags", "trackers.fuzz", "trackers.options",
    "trackers.parts", "trackers.prechecks", "trackers.preloads", "trackers.readers", "trackers.trackers",
    "trackers.exit_code", "trackers.files", "trackers.run_id", "trackers.status", "trackers.tags",
})  # fmt: skip
"""Files, groups of entry points, and tags that runs have in other trackers."""


def names_in(module: str) -> set[str]:
    """What a module has at its top: defined, assigned or imported, also for types."""
    found: set[str] = set()
    waiting: list[ast.stmt] = list(parsed()[MODULES[module]].body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, (ast.If, ast.Try)):
            waiting += [*node.body, *node.orelse]
    return found


def members_of(module: str, name: str) -> set[str] | None:
    """What a class has in its own body or gets in its methods; None where it isn't one of this module, or inherits."""
    for node in parsed()[MODULES[module]].body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            text = ast.unparse(node)
            own = set(re.findall(r"(?:def |self\.)(\w+)", text))
            own |= set(re.findall(r"^ {4}(\w+)(?=:| =)", text, re.M))
            return None if node.bases else own
    return None


def exists(name: str) -> bool:
    """Whether a dotted name is a module, something in one, or a member of a class in one."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        module, rest = ".".join(parts[:size]), parts[size:]
        if module in MODULES and (size > 1 or len(parts) > 2):
            if not rest:
                return True
            lazy = f'"{rest[0]}"' in MODULES[module].read_text("utf-8")  # as the public names are
            if rest[0] not in names_in(module) and not lazy:
                return False
            members = members_of(module, rest[0]) if len(rest) > 1 else None
            return members is None or rest[1] in members
    return len(parts) == 2 and hasattr(trackers, parts[1])


def mentioned(text: str) -> set[str]:
    """Names of the package that a text mentions."""
    plain = {first or second for first, second in PLAIN.findall(text)}
    return {name.rstrip(".") for name in {*ROLE.findall(text), *plain}} - NO_NAMES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_and_paths_that_a_page_mentions_exist(page: Path) -> None:
    """A renamed module or function takes the pages along that name it."""
    text = page.read_text("utf-8")
    assert [name for name in sorted(mentioned(text)) if not exists(name)] == []
    paths = [path for path in PATH.findall(text) if "foo" not in path and "NAME" not in path]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_names_that_docstrings_mention_exist() -> None:
    """The same of the package's own texts, and of what tests and scripts say."""
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("trackers", "scripts", "benchmarks", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in sorted(mentioned(path.read_text("utf-8")))
        if not exists(name)
    ]
    assert wrong == []


@pytest.mark.parametrize(("name", "is_there"), [
    ("trackers.tracker.Tracker", True), ("trackers.tracker.Tracker.open", True), ("trackers.init", True),
    ("trackers.relay.parts.part", True), ("trackers.tracker.Trackr", False), ("trackers.support.process_info", False),
    ("trackers.journal.lease.Lease.acquire", True), ("trackers.journal.lease.Lease.gain", False),
])  # fmt: skip
def test_missing_name_would_be_seen(name: str, is_there: bool) -> None:
    """The search above finds modules, names in them and members of classes, and none that isn't there."""
    assert exists(name) == is_there
