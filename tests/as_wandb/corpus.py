"""``python -m tests.as_wandb.corpus CHECKOUT…``: which uses of wandb in other people's repositories this package has.

Each Python file that imports wandb is read, none is run: its imports, the names of modules, and the attributes and
keyword arguments of what ``wandb.init`` and W&B's classes give where a variable is nothing else. Checkouts may be bare.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import dataclasses
import importlib
import inspect
import os
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import trackers
from trackers.artifacts.stored import StoredArtifact
from trackers.training.wandb_arguments import RefusedName

SERVICE = {"Api", "PublicApi", "InternalApi"}
"""Classes that ask W&B's service. A file that does nothing with ``Api`` but find artifacts doesn't."""
GIVES_ARTIFACT = ("use_artifact", "artifact", "log_artifact")
ASSIGNED = ("config", "summary", "settings", "config_static")
"""Attributes with names of the user's own."""


@dataclasses.dataclass
class Found:
    """What one file does. uses: how often. unknown: what isn't there. service: what W&B's service does. Each a text."""

    uses: int = 0
    unknown: list[str] = dataclasses.field(default_factory=list)
    service: list[str] = dataclasses.field(default_factory=list)


class _Is:
    """A value of a class."""

    def __init__(self, of: type) -> None:
        self.of = of


def files(checkout: Path) -> Iterator[tuple[str, str]]:
    """Paths and texts of the files that import wandb."""
    git = ("git", "-C", str(checkout))
    imports = r"^\s*(import|from) +wandb\b"
    found = subprocess.run([*git, "grep", "-lE", imports, "HEAD", "--", "*.py"], capture_output=True, text=True)
    for name in filter(None, found.stdout.splitlines()):
        shown = subprocess.run([*git, "show", name], capture_output=True, check=True)
        yield name.partition(":")[2], shown.stdout.decode("utf-8", "replace")


class Uses(ast.NodeVisitor):
    """Collects the uses in one file; ``found`` has them.

    Args:
        values: one of each class that has more attributes than its class.
    """

    def __init__(self, tree: ast.AST, values: dict[type, Any]) -> None:
        import wandb

        self.found = Found()
        self._wandb = wandb
        self._values = values
        self._known: dict[str, Any] = {}
        self._import(tree)
        self._name(tree)
        self._finds = False
        self.visit(tree)
        if self._finds:
            self.found.service = [text for text in self.found.service if text.rpartition(".")[2] not in SERVICE]

    def _import(self, tree: ast.AST) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.partition(".")[0] == "wandb" and (module := self._module(alias.name)) is not None:
                        self._known[alias.asname or "wandb"] = module if alias.asname else self._wandb
            elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "wandb":
                for alias in node.names if not node.level else ():
                    self._import_from(str(node.module), alias)

    def _import_from(self, name: str, alias: ast.alias) -> None:
        module = self._module(name)
        if module is None or alias.name == "*":
            return
        value = _get(module, alias.name)
        if value is None:
            value = self._module(f"{name}.{alias.name}", told=False)
        if value is None and alias.name != "run":
            self.found.unknown.append(f"from {name} import {alias.name}")
        self._tell(value, f"{name}.{alias.name}")
        self._known[alias.asname or alias.name] = value

    def _module(self, name: str, told: bool = True) -> Any:
        self.found.uses += told
        try:
            return importlib.import_module(name)
        except ImportError as error:
            lacks = (error.name or "wandb").partition(".")[0]
            if lacks == "wandb" and told:
                self.found.unknown.append(f"import {name}")
            return None if lacks == "wandb" else _Lacking()

    def _name(self, tree: ast.AST) -> None:
        """Variables that are one thing of W&B's and nothing else."""
        stored = collections.Counter(
            node.id if isinstance(node, ast.Name) else node.arg
            for node in ast.walk(tree)
            if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        )
        for node in ast.walk(tree):
            target: Any = None
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target, value = node.targets[0], node.value
            elif isinstance(node, ast.withitem):
                target, value = node.optional_vars, node.context_expr
            name = ast.unparse(target) if isinstance(target, (ast.Name, ast.Attribute)) else ""
            if re.fullmatch(r"(self\.)?\w+", name) and stored[name] <= 1 and name not in self._known:
                is_it = self._value(value)
                if isinstance(is_it, _Is):
                    self._known[name] = is_it

    def _value(self, node: ast.AST) -> Any:
        """What an expression is; None where nobody knows."""
        if isinstance(node, (ast.Name, ast.Attribute)) and (known := self._known.get(ast.unparse(node))) is not None:
            return known
        if isinstance(node, ast.Attribute):
            of = self._value(node.value)
            if of is self._wandb and node.attr == "run":
                return _Is(trackers.Run)
            if isinstance(of, _Is):
                return getattr(of.of, node.attr, None) if node.attr not in ASSIGNED else None
            return _get(of, node.attr) if isinstance(of, (types.ModuleType, type)) else None
        if isinstance(node, ast.Call):
            called = self._value(node.func)
            if called is self._wandb.init:
                return _Is(trackers.Run)
            if getattr(called, "__name__", "") in GIVES_ARTIFACT:
                return _Is(StoredArtifact)
            return _Is(called) if isinstance(called, type) else None
        return None

    def visit_Attribute(self, node: ast.Attribute) -> None:
        of = self._value(node.value)
        text = ast.unparse(node)
        if isinstance(of, types.ModuleType) and (of is not self._wandb or node.attr not in ("run", *ASSIGNED)):
            self.found.uses += 1
            value = _get(of, node.attr)
            if value is None:
                self.found.unknown.append(text)
            self._tell(value, text)
        elif isinstance(of, _Is):
            self.found.uses += 1
            if of.of.__name__ in SERVICE - {"Api"}:
                self.found.service.append(text)
            else:
                self._finds = self._finds or (of.of.__name__ == "Api" and node.attr in dir(of.of))
                value = _get(self._values.get(of.of, of.of), node.attr)
                if value is None and not hasattr(of.of, node.attr):
                    self.found.unknown.append(text)
                self._tell(value, text)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = self._value(node.func)
        if callable(called) and not isinstance(called, RefusedName):
            with contextlib.suppress(TypeError, ValueError):
                taken = inspect.signature(called).parameters
                if not any(one.kind is one.VAR_KEYWORD for one in taken.values()):
                    lacking = [word.arg for word in node.keywords if word.arg and word.arg not in taken]
                    self.found.unknown += [f"{ast.unparse(node.func)}({name}=)" for name in lacking]
        self.generic_visit(node)

    def _tell(self, value: Any, text: str) -> None:
        if isinstance(value, RefusedName) or getattr(value, "__name__", "") in SERVICE:
            self.found.service.append(text)


class _Lacking:
    """What needs a library that isn't installed here."""


def _get(of: Any, name: str) -> Any:
    """An attribute; None where there is none."""
    try:
        return getattr(of, name, None)
    except ImportError:
        return _Lacking()


def look(text: str, values: dict[type, Any]) -> Found | None:
    """What a file does; None where Python can't read it."""
    try:
        return Uses(ast.parse(text), values).found
    except SyntaxError:
        return None


def prepared() -> dict[type, Any]:
    """Have ``wandb`` be this package; a run, and one of each of W&B's types that such files make."""
    trackers.install_as_wandb()
    import wandb

    with wandb.init(project="corpus", mode="offline") as run:
        stored = run.use_artifact(wandb.Artifact("a", type="b"))
        new = {kind: kind(*given) for kind, given in ((wandb.Artifact, ("a", "b")), (wandb.Table, (["a"],)))}
        return {trackers.Run: run, StoredArtifact: stored, wandb.Api: wandb.Api(), **new}


def main(checkouts: list[str], say: Callable[[str], None] = print) -> int:
    """Tell of each file with something unknown, and how many there are of each kind."""
    count: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        os.environ.update(TRACKER_RELAY="n", TRACKER_QUIET="y", HOME=place)
        values = prepared()
        for checkout in checkouts:
            for path, text in files(Path(checkout)):
                found = look(text, values)
                if found is None:
                    continue
                count.update(files=1, uses=found.uses, unknown=len(found.unknown), service=len(found.service))
                count["files with all there"] += not found.unknown and not found.service
                count["files with W&B's service"] += not found.unknown and bool(found.service)
                if found.unknown:
                    say(f"{checkout} {path}: {', '.join(sorted(set(found.unknown)))}")
    say(", ".join(f"{name}: {number:,}" for name, number in count.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main([str(Path(name).resolve()) for name in sys.argv[1:]]))
