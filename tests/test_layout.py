"""How the package is laid out: imports point one way, nothing heavy is loaded, everything public is documented."""

from __future__ import annotations

import ast
import functools
import gc
import inspect
import re
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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

FLOORS: tuple[tuple[str, ...], ...] = (
    ("__init__", "__main__"),
    ("cli",),
    ("frameworks",),
    ("as_wandb",),
    ("training",),
    ("ui",),
    ("editing",),
    ("testing",),
    ("plugged",),
    ("instruments", "inspection", "plotting", "retention", "copying"),
    ("artifacts",),
    ("analysis",),
    ("readers",),
    ("relay",),
    ("relay.delivery", "relay.aggregation", "relay.alerting", "relay.sampling", "relay.agent", "relay.nodes"),
    ("relay.parts",),
    ("ranks", "provenance"),
    ("journal",),
    ("values", "hardware", "configuration"),
    ("media",),
    ("backends",),
    ("benchmark",),
    ("alerts", "formats", "metrics", "object_storage", "reductions"),
    ("tracker",),
    ("records",),
    ("support",),
    ("errors",),
    ("_version",),
)
"""Packages from the top down. One imports packages of lower floors, and none of its own floor but itself."""

CONTRACT = {"__init__", "__main__", "tracker", "records", "reductions", "errors", "_version"}
"""Modules at the root: the contract and its words."""

REGISTRY_ONLY = "trackers.backends"
"""Trackers are found by their names: outside, only the registry's module is imported."""


@functools.cache
def parsed() -> dict[Path, ast.Module]:
    """Each module's syntax, parsed with no garbage collection: it would look through all of them again and again."""
    gc.disable()
    try:
        return {path: ast.parse(path.read_text()) for path in MODULES.values()}
    finally:
        gc.freeze()
        gc.enable()


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node, those of functions and classes, too; expressions hold none."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, part, ()):
            yield child
            yield from statements(child)


MOST_OF_SUPERVISOR = 17
"""Modules of ours that the relay's supervisor may import."""


def imports(path: Path) -> Iterator[str]:
    """Modules of this package that a module imports: at its top, in its functions and for its types."""
    for node in statements(parsed()[path]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "trackers")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "trackers":
            assert node.level == 0, f"{path}: a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else str(node.module)


@functools.cache
def all_imports() -> dict[str, set[str]]:
    """For each module those that it imports."""
    return {name: {target for target in imports(path) if target != name} for name, path in MODULES.items()}


def package(module: str) -> str:
    """The package of a module that has a place among the floors."""
    known = {name for floor in FLOORS for name in floor}
    parts = module.split(".")[1:] or ["__init__"]
    return next((found for size in (2, 1) if (found := ".".join(parts[:size])) in known), "")


def folder(module: str) -> str:
    """The folder that a module lies in; a package's own module lies in its folder."""
    return module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Names that import each other around, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in graph.get(name, ()):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            part = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(part) > 1:
                found.append(sorted(part))

    for name in graph:
        if name not in index:
            visit(name)
    return found


def test_every_module_has_a_floor() -> None:
    """No loose module at the root but the contract, and no package without a place."""
    assert [name for name in MODULES if not package(name)] == []
    assert {name for name in MODULES if name.count(".") == 1 and MODULES[name].name != "__init__.py"} | {
        "trackers.__init__"
    } == {f"trackers.{name}" for name in CONTRACT}


def test_imports_point_down() -> None:
    """A package imports lower floors only, inside functions and for types, too."""
    floors = {name: number for number, floor in enumerate(FLOORS) for name in floor}
    wrong = [
        f"{name} (floor of {package(name)}) imports {target} (floor of {package(target)})"
        for name, targets in all_imports().items()
        for target in targets
        if package(name) != package(target) and floors[package(name)] >= floors[package(target)]
    ]
    assert wrong == []


def test_imports_have_no_cycle() -> None:
    """Neither among modules nor among folders."""
    assert cycles(all_imports()) == []
    folders: dict[str, set[str]] = {}
    for name, targets in all_imports().items():
        for target in targets:
            if folder(name) != folder(target) and "trackers" not in (folder(name), folder(target)):
                folders.setdefault(folder(name), set()).add(folder(target))
    assert cycles(folders) == []


def test_supervisor_knows_little() -> None:
    """The relay's main process knows its deliveries and its parts, none of their features."""
    ours = {found for found in imports(MODULES["trackers.relay.supervisor"]) if found in MODULES}
    assert len(ours) <= MOST_OF_SUPERVISOR


def test_cycle_would_be_seen() -> None:
    """The search above finds one."""
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def vendor(module: str) -> tuple[str, str] | None:
    """("backends", "wandb") for a module in a vendor's folder."""
    parts = module.split(".")[1:]
    if len(parts) < 2 or parts[0] not in ("backends", "readers") or parts[1] == "shared":
        return None
    return (parts[0], parts[1]) if f"trackers.{parts[0]}.{parts[1]}" in {folder(name) for name in MODULES} else None


def test_no_vendor_imports_another() -> None:
    """What two vendors need lies in ``backends.shared`` or ``formats``."""
    pairs = [(name, target) for name, targets in all_imports().items() for target in targets]
    wrong = [
        f"{name} imports {target}"
        for name, target in pairs
        if (own := vendor(name)) and (other := vendor(target)) and own[0] == other[0] and own != other
    ]
    assert wrong == []


def test_no_module_changes_another_as_it_is_imported() -> None:
    """What one needs of another is passed to it: what is assigned depends on who was imported before."""
    wrong = []
    for name, path in MODULES.items():
        modules: set[str] = set()
        for node in parsed()[path].body:
            if isinstance(node, ast.Import):
                modules |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                modules |= {
                    alias.asname or alias.name for alias in node.names if f"{node.module}.{alias.name}" in MODULES
                }
            targets = node.targets if isinstance(node, ast.Assign) else []
            wrong += [
                f"{name}: {ast.unparse(target)}"
                for target in targets
                if isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id in modules
            ]
    assert wrong == []


def test_file_names_have_no_vendor() -> None:
    """The folder says which vendor it is."""
    repeated = [name for name in MODULES if (own := vendor(name)) and name.rpartition(".")[2].startswith(own[1] + "_")]
    assert repeated == []


def test_trackers_are_reached_by_their_names() -> None:
    """Outside of the backends nobody imports one but its registry; the command line is imported by nobody."""
    users = [
        f"{name} imports {target}"
        for name, targets in all_imports().items()
        for target in targets
        if (
            below(target, REGISTRY_ONLY)
            and not below(name, REGISTRY_ONLY)
            and target not in (REGISTRY_ONLY, f"{REGISTRY_ONLY}.registry")
        )
        or (below(target, "trackers.testing") and not below(name, "trackers.testing"))
    ]
    assert users == []


CHAINED = {f"trackers/{path}.py" for path in (
    "backends/mlflow/tracker", "backends/tensorboard/tracker", "backends/trackio/tracker", "backends/wandb/tracker",
    "readers/run_data",
)}  # fmt: skip
"""Modules whose chains are yet to be rewritten: take one out with the change that does it."""


def test_kinds_of_records_are_matched() -> None:
    """Three kinds or more are told apart by ``match``, which reads as a table, not by a chain of isinstance."""
    found = set()
    for path in MODULES.values():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            tests = []
            while isinstance(node, ast.If):
                tests.append(ast.unparse(node.test))
                node = node.orelse[0] if len(node.orelse) == 1 else ast.Pass()
            if len(tests) > 2 and all(test.startswith("isinstance(record, ") for test in tests):
                found.add(path.relative_to(ROOT.parent).as_posix())
    assert found <= CHAINED


def test_the_kit_knows_only_the_contract() -> None:
    """Plug-in authors test with ``trackers.testing`` against public names, and a whole distribution by its kit."""
    allowed = ("records", "tracker", "errors", "backends.registry", "testing", "readers.reader",
               "hardware.gpus.base", "metrics.gpu_details", "plugged.kit")  # fmt: skip
    strange = {
        f"{name} imports {target}"
        for name, targets in all_imports().items()
        if below(name, "trackers.testing")
        for target in targets
        if not below(target, {f"trackers.{part}" for part in allowed})
    }
    assert strange == set()


CALLBACKS = (
    "accelerate",
    "catboost",
    "composer",
    "fastai",
    "gymnasium",
    "hydra",
    "jax",
    "keras",
    "lightgbm",
    "lightning",
    "optuna",
    "pytorch",
    "ray",
    "sklearn",
    "stable_baselines3",
    "torchtitan",
    "transformers",
    "ultralytics",
    "xgboost",
)
"""Modules of ``trackers.frameworks`` whose classes are subclasses of their framework's, or in another distribution."""

LAZY = {"trackers.backends.tensorboard.summary_protos", *(f"trackers.frameworks.{name}" for name in CALLBACKS)}
"""Modules that are made of their vendor's types; who has the vendor imports them, a backend when it is open."""


def below(name: str, prefixes: set[str] | str) -> bool:
    """A module is one of these or lies in one of them."""
    chosen = {prefixes} if isinstance(prefixes, str) else prefixes
    return any(name == prefix or name.startswith(prefix + ".") for prefix in chosen)


def early_imports(path: Path) -> Iterator[str]:
    """Modules of this package that are imported when a module is loaded itself."""
    for node in _nodes(parsed()[path]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            yield str(node.module)


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield node
            yield from _nodes(node)


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
    """``init`` asks each tracker's precheck: no module of a tracker itself, and no delivery, is loaded by training."""
    code = (
        "import sys, trackers; run = trackers.init('wandb,trackio,tensorboard,mlflow,json,csv', mode='online', "
        f"dir={str(tmp_path)!r}, options={{'TRACKER_RELAY': False}}); run.log({{'loss': 1.0}}); run.finish(); "
        "loaded = [m for m in sys.modules if m.startswith(('trackers.backends.', 'trackers.relay.delivery.d'))]; "
        "print(*sorted(loaded))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    light = ("registry", "shared", "shared.directory")
    parts = [name.removeprefix("trackers.backends.") for name in done.stdout.split()]
    packages = {name.rpartition(".")[0] for name in parts}
    assert [part for part in parts if not (part in light or part in packages or part.endswith("precheck"))] == []


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
        for target in early_imports(path)
        if target in LAZY
    }
    assert not early
    assert set(MODULES) >= LAZY


def test_heavy_package_would_be_seen() -> None:
    """The probe above sees a package that is loaded."""
    assert heavy_after("import numpy") == ["numpy"]


def test_public_names_have_docstrings() -> None:
    """Each module, public class and public function says what it is for."""
    missing = []
    for name, path in MODULES.items():
        tree = parsed()[path]
        missing += [name] if tree.body and not ast.get_docstring(tree) else []
        missing += [f"{name}.{node.name}" for node in _public(tree) if not ast.get_docstring(node)]
    assert [
        name for name in missing if not name.endswith(".Record")
    ] == []  # records.py explains Record in its own text


def _public(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node


FRAMEWORK_CLASSES = ("TrackersCallback", "TrackersLogger")
"""Names that ``trackers.frameworks`` has once for each framework: a script imports one of them."""


def test_public_class_names_stand_in_one_module() -> None:
    """A name says which class is meant. Aside: frameworks' callbacks, and names that W&B chose."""
    modules: dict[str, list[str]] = {}
    for name, path in MODULES.items():
        for node in _public(parsed()[path]):
            if isinstance(node, ast.ClassDef) and not below(name, "trackers.as_wandb"):
                modules.setdefault(node.name, []).append(name)
    several = {name: its for name, its in modules.items() if len(its) > 1}
    assert {name: its for name, its in several.items() if name not in FRAMEWORK_CLASSES} == {}
    assert all(below(name, "trackers.frameworks") for its in several.values() for name in its)


def shown(module: types.ModuleType) -> dict[str, Any]:
    """What the Tab key offers after a module's name and a dot, as far as it is ours."""
    found = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    return {
        name: value for name, value in found.items() if getattr(value, "__module__", "").partition(".")[0] == "trackers"
    }


@pytest.mark.parametrize("module", [trackers, trackers.testing], ids=lambda module: module.__name__)
def test_what_users_call_is_documented(module: types.ModuleType) -> None:
    """Each class, method, property and field that the Tab key offers explains itself."""
    found = shown(module)
    assert len(found) > 10
    missing = [line for name, value in found.items() for line in undocumented(name, value)]
    assert missing == []


def undocumented(name: str, value: Any) -> Iterator[str]:
    """What of a class or function has no docstring of its own or of a class of ours that it inherits from."""
    text = inspect.getdoc(value)
    if not text:
        yield name
    if not inspect.isclass(value):
        return
    yield from (f"{name}.{key}" for key in getattr(value, "__struct_fields__", ()) if not _names(str(text), key))
    for key in filter(lambda key: not key.startswith("_"), dir(value)):
        member = inspect.getattr_static(value, key)
        owner = next(cls for cls in value.__mro__ if key in vars(cls))
        if owner.__module__.partition(".")[0] != "trackers":
            continue
        if isinstance(member, (property, classmethod, staticmethod)) or inspect.isfunction(member):
            documented = member if isinstance(member, property) else getattr(value, key)
            if not inspect.getdoc(documented):
                yield f"{name}.{key}"


def _names(text: str, field: str) -> bool:
    return re.search(rf"^ *(?:\w+, )*{field}(?:, \w+)*: |[.] {field}: ", text, re.M) is not None


def test_undocumented_member_would_be_seen() -> None:
    """The search above finds a method, a property and a field without a word."""

    class Parent:
        """Has words."""

        def inherited(self) -> None: ...

    class Example(Parent):
        """An example. told: a field."""

        __struct_fields__ = ("told", "untold")

        @property
        def silent(self) -> int:
            return 1

    Parent.__module__ = Example.__module__ = "trackers.example"
    assert sorted(undocumented("Example", Example)) == ["Example.inherited", "Example.silent", "Example.untold"]


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
    "OpenedRun",
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
    "best_runs",
    "compare_runs",
    "diff_tables",
    "init",
    "init_from_args",
    "install_as_wandb",
    "join_tables",
    "load",
    "load_all",
    "open",
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
        "ConfinedError", "ConformanceError", "DeviceError", "Driver", "Limits", "PluginError", "Point", "ReaderError",
        "Report", "Stored", "check_confined", "check_devices", "check_plugin", "check_reader", "check_tracker",
        "checks", "number",
    ]  # fmt: skip


TEXTS = [
    path
    for folder in ("trackers", "tests", "docs", "examples", "scripts", "benchmarks", "defconfigs", ".")
    for path in sorted((ROOT.parent / folder).glob("*" if folder == "." else "**/*"))
    if path.suffix in {".py", ".md", ".sh", ".js", ".mk", ".toml", ".yaml", ".yml"}
    or path.name in {"Kconfig", "Makefile"}
]
"""Files that people read: code, docs, help of options, recipes."""

UNKNOWN = re.compile(r"document[\s_]*[0-9]|\bDESIGN[.]md", re.IGNORECASE)
"""References to documents that the repository doesn't hold. Name the format: "session log", "benchmark result"."""


def test_texts_refer_to_nothing_that_readers_lack() -> None:
    """A format is called by its name, never by the number of a document that no reader of the repository has."""
    assert len(TEXTS) > 400
    found = [
        f"{path.relative_to(ROOT.parent)}: {match[0]!r}"
        for path in TEXTS
        for match in UNKNOWN.finditer(path.read_text())
    ]
    assert not found, "; ".join(found)


RIDDLE = re.compile(
    r"(So (many|much|long|often)|What becomes of|Whether what) |.*\b(stands? side by side|stand one after)", re.S
)
"""Beginnings and phrases that hide the subject. Write "Maximum number of …", "True if …", "Time after which …"."""


def test_docstrings_name_their_subject() -> None:
    """Docstrings of modules, classes, functions and constants say what they describe before anything else."""
    found = [
        f"{name}:{node.lineno}: {node.value.value[:60]!r}"
        for name, path in MODULES.items()
        for node in statements(parsed()[path])
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if RIDDLE.match(node.value.value)
    ]
    assert not found, "; ".join(found)
