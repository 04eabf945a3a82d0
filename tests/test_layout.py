"""How the package is laid out: imports point one way, nothing heavy is loaded, everything public is documented."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import trackers
import trackers.testing

ROOT = Path(trackers.__file__).parent
MODULES = {
    ".".join(("trackers", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}
PUBLIC = [name for name in MODULES if not any(part.startswith("_") for part in name.split("."))]
HEAVY = ("wandb", "trackio", "mlflow", "tensorboard", "numpy", "torch", "pandas", "polars", "matplotlib", "PIL",
         "pynvml", "amdsmi", "jax", "tensorflow", "sklearn", "gradio", "sqlalchemy")  # fmt: skip

CORE = {"trackers.records", "trackers.tracker", "trackers.errors"}
ALLOWED = {
    "trackers.errors": set(),
    "trackers.records": set(),
    "trackers.tracker": {"trackers.records"},
    "trackers.registry": {"trackers.errors", "trackers.tracker"},
    "trackers.failpoints": set(),
    "trackers.beneath": set(),
    "trackers.descriptors": set(),
    "trackers.journal": {"trackers.beneath", "trackers.records", "trackers.errors", "trackers.failpoints"}
    | {"trackers.descriptors", "trackers.packed"},
    "trackers.formats": {"trackers.errors", "trackers.formats"},
    "trackers.naming": {"trackers.naming"},
    "trackers.benchmark": CORE | {"trackers.beneath", "trackers.benchmark", "trackers.formats", "trackers.naming"},
    "trackers.backends": CORE
    | {"trackers.backends", "trackers.beneath", "trackers.failpoints", "trackers.identity", "trackers.formats"}
    | {"trackers.benchmark", "trackers.naming", "trackers.terminal", "trackers.console_logging"},
    "trackers.testing": CORE | {"trackers.registry", "trackers.testing", "trackers.readers.reader"},
}
"""Packages and modules that may know only these (prefixes of module names)."""

FORBIDDEN = {
    "trackers.cli": "",
    "trackers.testing": "trackers.testing",
    "trackers.backends": "trackers.backends",
}
"""What nothing else imports but the named prefix and ``__main__``: backends are reached by the registry alone."""

FORMATS = {"trackers.backends.tensorboard_events", "trackers.backends.mlflow_names", "trackers.backends.system_names"}
"""Parts of backends that are a format and nothing else: what a backend writes so, its reader reads so."""


def imports(path: Path, *, at_top: bool = False) -> Iterator[str]:
    """Modules of this package that a module imports, anywhere in it or only when it is loaded itself."""
    tree = ast.parse(path.read_text())
    for node in _nodes(tree, at_top):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "trackers")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "trackers":
            assert node.level == 0, f"{path}: a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else str(node.module)


def _nodes(tree: ast.AST, at_top: bool) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if at_top and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        yield node
        yield from _nodes(node, at_top)


LAZY = {"trackers.backends.tensorboard_values", "trackers.backends.tensorboard_hparams"}
"""Parts of a backend that are made of their vendor's types; the backend imports them when it is open."""


def below(name: str, prefixes: set[str] | str) -> bool:
    """A module is one of these or lies in one of them."""
    chosen = {prefixes} if isinstance(prefixes, str) else prefixes
    return any(name == prefix or name.startswith(prefix + ".") for prefix in chosen)


@pytest.mark.parametrize("layer", ALLOWED)
def test_layer_knows_only_what_it_may(layer: str) -> None:
    """The contract, the backends and the kit import only what lies below them."""
    strange = {
        f"{name} imports {target}"
        for name, path in MODULES.items()
        if below(name, layer)
        for target in imports(path)
        if not below(target, ALLOWED[layer])
    }
    assert not strange


@pytest.mark.parametrize("part", FORBIDDEN)
def test_outer_part_is_imported_by_nobody(part: str) -> None:
    """The command line and the kit are leaves, and a backend is only ever found by its name."""
    users = {
        f"{name} imports {target}"
        for name, path in MODULES.items()
        if name != "trackers.__main__" and not below(name, part)
        for target in imports(path)
        if below(target, part) and not (target in FORMATS and below(name, "trackers.readers"))
    }
    assert not users


def test_imports_have_no_cycle() -> None:
    """No module needs, to be loaded, one that needs it."""
    graph = {name: {t for t in imports(path, at_top=True) if t != name} for name, path in MODULES.items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"cycle: {' -> '.join((*trail[trail.index(name) :], name))}"
        if name not in done:
            for target in graph.get(name, ()):
                visit(target, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def heavy_after(code: str) -> list[str]:
    """Which heavy packages a fresh process has loaded after this code."""
    tail = f"; import sys; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code + tail], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_import_loads_nothing_heavy() -> None:
    """``import trackers`` costs no vendor's client, no NumPy and no torch."""
    assert heavy_after("import trackers") == []


def test_start_loads_no_tracker(tmp_path: Path) -> None:
    """``init`` asks each tracker's front: no module of a tracker itself, and no delivery, is loaded by training."""
    code = (
        "import sys, trackers; run = trackers.init('wandb,trackio,tensorboard,mlflow,json,csv', mode='online', "
        f"dir={str(tmp_path)!r}, options={{'TRACKER_RELAY': False}}); run.log({{'loss': 1.0}}); run.finish(); "
        "loaded = [m for m in sys.modules if m.startswith(('trackers.backends.', 'trackers.relay.delivery'))]; "
        "print(*sorted(loaded))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    light = ("folders", "mlflow_address", "wandb_login")
    loaded = [name.removeprefix("trackers.backends.") for name in done.stdout.split()]
    assert [name for name in loaded if name not in light and not name.endswith("precheck")] == []


def test_modules_load_nothing_heavy() -> None:
    """Neither does any module: clients and arrays are imported where they are used."""
    names = [name for name in PUBLIC if name not in LAZY]
    assert len(names) > 20
    assert heavy_after(f"import {', '.join(names)}") == []


def test_lazy_modules_are_imported_late() -> None:
    """What needs its vendor to be loaded is imported by nobody's loading."""
    early = {
        f"{name} imports {target}"
        for name, path in MODULES.items()
        if name not in LAZY
        for target in imports(path, at_top=True)
        if target in LAZY
    }
    assert not early
    assert set(MODULES) >= LAZY


def test_heavy_package_would_be_seen() -> None:
    """The probe above sees a package that is loaded."""
    assert heavy_after("import numpy") == ["numpy"]


@pytest.mark.parametrize("name", MODULES)
def test_public_names_have_docstrings(name: str) -> None:
    """Each module, public class and public function says what it is for."""
    tree = ast.parse(MODULES[name].read_text())
    missing = [node.name for node in _public(tree) if not ast.get_docstring(node)]
    if tree.body and not ast.get_docstring(tree):
        missing.insert(0, name)
    assert [name for name in missing if name != "Record"] == []  # records.py explains Record in its own text


def _public(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node


@pytest.mark.parametrize("name", sorted({*trackers.__all__, *trackers.testing.__all__} - {"__version__"}))
def test_exported_class_documents_its_methods(name: str) -> None:
    """What users and plug-in authors call explains itself; a property may be explained by its class."""
    exported = getattr(trackers if name in trackers.__all__ else trackers.testing, name)
    assert inspect.getdoc(exported)
    if not inspect.isclass(exported) or not exported.__module__.startswith("trackers."):
        return
    missing = [
        key
        for key, member in vars(exported).items()
        if not key.startswith("_")
        and (inspect.isfunction(member) or isinstance(member, (property, classmethod, staticmethod)))
        and not inspect.getdoc(getattr(exported, key))
        and not (isinstance(member, property) and key in str(exported.__doc__))
    ]
    assert not missing


EXPORTED = [
    "All",
    "Artifact",
    "Audio",
    "BenchmarkCallback",
    "Cursor",
    "Histogram",
    "Html",
    "Image",
    "Max",
    "Mean",
    "Min",
    "MinMax",
    "NotFound",
    "NullRun",
    "Run",
    "RunData",
    "RunInfo",
    "State",
    "Status",
    "Std",
    "Sum",
    "Table",
    "Tracker",
    "TrackersError",
    "UsageError",
    "Video",
    "__version__",
    "add_arguments",
    "compare_runs",
    "init",
    "init_from_args",
    "load",
    "load_all",
    "sql",
]


def test_exported_names_are_pinned() -> None:
    """A name that users rely on neither appears nor goes by accident, and each can be had."""
    assert sorted(trackers.__all__) == EXPORTED
    for name in EXPORTED:
        assert getattr(trackers, name) is not None


def test_kit_exports_are_pinned() -> None:
    """So with what plug-in authors rely on."""
    assert sorted(trackers.testing.__all__) == [
        "ConformanceError", "Driver", "Limits", "Point", "ReaderError", "Report", "Stored", "check_reader",
        "check_tracker", "checks", "number",
    ]  # fmt: skip
