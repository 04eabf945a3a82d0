"""What a tracker can be asked is declared in one class, and asked of no other name."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import ROOT
from trackers.analysis.sql import SqlTables
from trackers.backends import registry
from trackers.copying.destinations import CopyTarget
from trackers.errors import MissingPackage, UsageError
from trackers.hardware.gpus.base import GpuSource
from trackers.readers.reader import Reader
from trackers.records import Metrics
from trackers.relay.parts.part import RelayPart
from trackers.tracker import RunInfo, State, Status, Tracker
from trackers.training.rank_run import RankRecorder
from trackers.training.recorder import Recorder

PROBES = {"getattr", "hasattr"}


def members(contract: type) -> set[str]:
    """Public names that a contract declares."""
    return {name for name in {*vars(contract), *inspect.get_annotations(contract)} if not name.startswith("_")}


def probes() -> Iterator[tuple[str, str]]:
    """Each constant name that the package asks an object for by ``getattr`` or ``hasattr``, with where it does."""
    for path in sorted((ROOT / "trackers").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PROBES:
                name = node.args[1]
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    yield name.value, f"{path.relative_to(ROOT)}:{node.lineno}"


CONTRACTS = (Tracker, Reader, GpuSource, RelayPart, CopyTarget, SqlTables, Recorder, RankRecorder)
OTHERS = {"name", "columns", "read", "version", "poll", "source", "config"}
"""Names of members that files, tables, torch and frameworks' own objects have, too."""


def probed() -> Iterator[str]:
    """Members of the contracts that the package asks for by name."""
    known = set().union(*map(members, CONTRACTS)) - OTHERS
    return (f"{where}: {name}" for name, where in probes() if name in known)


def test_no_member_is_probed_by_name() -> None:
    """A class without a member has its default: nobody looks whether it is there."""
    assert list(probed()) == []


OF_THE_MAIN_RANK = {"now", "run"}
"""Asked of the main rank's recorder alone: behind ``is_main``, or ``resumed``, which no other rank's run is."""


def test_recorders_of_all_ranks_have_what_instruments_ask() -> None:
    """What both kinds of runs share asks each rank's recorder of nothing that only the main rank's has."""
    shared = [ROOT / "trackers/training" / f"{name}.py" for name in ("measuring", "inspecting", "profiling")]
    asked = set().union(*(_attributes(path.read_text("utf-8"), "self._recorder") for path in shared))
    own = members(RankRecorder) | _attributes(inspect.getsource(RankRecorder), "self")
    assert asked >= OF_THE_MAIN_RANK
    assert asked - own == OF_THE_MAIN_RANK


def _attributes(source: str, of: str) -> set[str]:
    """Names that a source text has behind an expression and a dot."""
    nodes = ast.walk(ast.parse(source))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == of}


@pytest.mark.parametrize("contract", [Tracker, Reader, GpuSource, RelayPart, CopyTarget, SqlTables])
def test_each_member_is_documented(contract: type) -> None:
    """Methods by their docstring, attributes by the text behind them or by the class's own."""
    (tree,) = ast.parse(inspect.getsource(contract)).body
    assert isinstance(tree, ast.ClassDef)
    texts: dict[str, str] = {}
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef):
            texts[node.name] = ast.get_docstring(node) or ""
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            told = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            texts[node.target.id] = str(after.value.value) if told else ""  # type: ignore[union-attr]
    assert members(contract) <= texts.keys()
    of_class = set(re.findall(r"\w+(?=(?:, \w+)*: )", ast.get_docstring(tree) or ""))
    assert [name for name, text in texts.items() if not text and name not in of_class and name[0] != "_"] == []


def test_the_page_names_each_member() -> None:
    """docs/plugins.md has what an author may define."""
    page = (ROOT / "docs/plugins.md").read_text("utf-8")
    assert [name for name in sorted(members(Tracker)) if f"`{name}" not in page] == []


@pytest.mark.parametrize("name", sorted(registry.BUILT_IN))
def test_built_in_trackers_add_no_member(name: str) -> None:
    """What a built-in tracker is asked from outside, a plug-in can be asked, too."""
    own = {"lines", "command", "key_prefix", "clock"}  # for the base of those that write archives; for tests
    for cls in (registry.load(name), registry.precheck(name)):
        assert issubclass(cls, Tracker)
        assert {member for member in dir(cls) if not member.startswith("_")} - members(Tracker) <= own


class Plain:
    """A tracker as authors wrote them before there was a class to derive from."""

    name = "plain"
    accepts = frozenset({Metrics})

    def open(self, info: RunInfo, state: State) -> None:
        state["url"] = "there"

    def write(self, records: Any, cursor: Any) -> None:
        pass

    def close(self, status: Status) -> None:
        pass


class Closed(Tracker):
    """A tracker that can't be opened."""

    name = "closed"
    accepts = frozenset({Metrics})

    def write(self, records: Any, cursor: Any) -> None:
        pass


class Deaf(Tracker):
    """A tracker that doesn't say what it takes, and so would get nothing."""

    name = "closed"

    def open(self, info: RunInfo, state: State) -> None:
        pass

    def write(self, records: Any, cursor: Any) -> None:
        pass

    def close(self, status: Status) -> None:
        pass


def plug_in(monkeypatch: pytest.MonkeyPatch, name: str, target: Any) -> None:
    """Have an entry point name an object."""
    module = ModuleType("trackers_test_plugin")
    module.target = target  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(registry, "_plugins", lambda: {name: "trackers_test_plugin:target"})


def test_plain_class_gets_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in's class that derives from nothing is loaded as a Tracker, each time the same one."""
    plug_in(monkeypatch, "plain", Plain)
    cls = registry.load("plain")
    assert issubclass(cls, Plain)
    assert issubclass(cls, Tracker)
    assert cls is registry.load("plain") is registry.precheck("plain")
    info, tracker = RunInfo(id="a", name="a", project="p"), cls()
    assert (cls.__name__, cls.batch_records, cls.place(info), tracker.held()) == ("Plain", 1000, "", None)
    assert registry.check("plain", {}) is cls


@pytest.mark.parametrize(
    ("target", "line"),
    [
        (Closed, f"tracker 'closed': {__name__}:Closed has no close, no open: see docs/plugins.md"),
        (Deaf, f"tracker 'closed': {__name__}:Deaf says in no `accepts` which records it takes: see docs/plugins.md"),
        (object, "tracker 'closed': builtins:object can't derive from Tracker: see docs/plugins.md"),
        (print, "tracker 'closed': <built-in function print> is no class: see docs/plugins.md"),
    ],
)
def test_what_is_no_tracker_is_refused(monkeypatch: pytest.MonkeyPatch, target: Any, line: str) -> None:
    """``init`` and ``doctor`` say in one line what is missing."""
    plug_in(monkeypatch, "closed", target)
    with pytest.raises(UsageError) as refused:
        registry.check("closed", {})
    assert str(refused.value) == line


@pytest.mark.parametrize("failure", ["raise ValueError('bad')", "import no_such_module", "1 +"])
def test_import_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failure: str) -> None:
    """Whatever a plug-in's module does as it is imported, the error names the plug-in."""
    (tmp_path / "trackers_failing_plugin.py").write_text(f"{failure}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_plugins", lambda: {"failing": "trackers_failing_plugin:Cls"})
    with pytest.raises(UsageError, match=r"^tracker 'failing' can't be loaded from 'trackers_failing_plugin:Cls': .+$"):
        registry.load("failing")


def test_missing_package_names_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the entry point, under whose name anybody's project may lie on PyPI."""
    plug_in(monkeypatch, "plain", type("Needy", (Plain,), {"needs": ("no_such_client",)}))
    monkeypatch.setattr(registry, "_distribution", lambda name: "trackers-plain")
    with pytest.raises(MissingPackage) as refused:
        registry.check("plain", {})
    expected = "tracker 'plain' needs the no_such_client package: pip install 'trackers-plain'"
    assert str(refused.value) == expected
