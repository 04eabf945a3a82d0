"""Each built-in tracker is whole: its folder, its line in the table of trackers, its documentation and its test."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT

REGISTRY = "trackers/backends/registry.py"
PAGE = "docs/choosing-trackers.md"
SEND_FILES = {"storage"}
"""They send the journal's files and store no records: what they hold is read as a run, in tests/object_storage."""
NOT_TRACKERS = {"shared", "__pycache__"}


def listed(root: Path) -> list[str]:
    """Names in the table ``BUILT_IN`` of a checkout, read without importing it."""
    for node in ast.parse((root / REGISTRY).read_text("utf-8")).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "BUILT_IN":
            assert isinstance(node.value, ast.DictComp), f"{REGISTRY}: BUILT_IN is made from one list of names"
            return list(ast.literal_eval(node.value.generators[0].iter))
    raise AssertionError(f"{REGISTRY} has no BUILT_IN")


def folders(root: Path) -> list[str]:
    """Names of the folders beside the table."""
    found = (path for path in (root / "trackers/backends").iterdir() if path.is_dir() and any(path.glob("*.py")))
    return sorted(path.name for path in found if path.name not in NOT_TRACKERS)


def missing(name: str, root: Path) -> Iterator[str]:
    """What a built-in tracker lacks: a file and what has to be in it, one line each."""
    folder, title = f"trackers/backends/{name}", name.capitalize()
    if name not in listed(root):
        yield f'{REGISTRY}: BUILT_IN lacks the line "{name}", so that nobody can choose the tracker in {folder}'
    if not (root / folder / "__init__.py").exists():
        yield f'{folder}/__init__.py is missing: a file with one docstring, """{name}: …"""'
    precheck, tracker = (_class(root, f"{folder}/{part}.py", title + part.capitalize()) for part in _PARTS)
    for part, found in zip(_PARTS, (precheck, tracker), strict=True):
        if isinstance(found, str):
            yield f"{found}: {_PARTS[part].format(title=title, name=name)}"
    if isinstance(precheck, ast.ClassDef):
        if _attribute(precheck, "name") != name:
            yield f'{folder}/precheck.py: {title}Precheck lacks name = "{name}"'
        packages = [need for need in _attribute(precheck, "needs") or () if need not in sys.stdlib_module_names]
        if packages and not re.search(rf"^{name} = \[", (root / "pyproject.toml").read_text("utf-8"), re.M):
            yield (
                f"pyproject.toml: [project.optional-dependencies] lacks {name} = [{str(packages)[1:-1]}], the packages "
                f"in {title}Precheck.needs, and `all` lacks {name}"
            )
    if isinstance(tracker, ast.ClassDef) and f"{title}Precheck" not in map(ast.unparse, tracker.bases):
        yield f"{folder}/tracker.py: {title}Tracker doesn't inherit from {title}Precheck, so that the two may differ"
    if not re.search(rf"^\| `{name}` \|", (root / PAGE).read_text("utf-8"), re.M):
        yield f"{PAGE}: the table under 'What each tracker gets' lacks the row | `{name}` | …"
    if name in SEND_FILES:
        return
    kit = re.compile(rf'check_tracker\(\s*"{name}"')
    if not any(kit.search(path.read_text("utf-8")) for path in (root / "tests/backends").glob("**/test_*.py")):
        yield (
            f'tests/backends/{name}/test_tracker.py is missing: a test with check_tracker("{name}", …), the '
            "conformance kit; docs/plugins.md shows one"
        )


_PARTS = {
    "precheck": "{title}Precheck says before the first step whether the tracker can work: name, needs, check(options)",
    "tracker": "{title}Tracker({title}Precheck) delivers records: accepts, open, write, close (trackers/tracker.py)",
}


def _class(root: Path, path: str, name: str) -> ast.ClassDef | str:
    """A class of a file, or what is missing of it."""
    if not (root / path).exists():
        return f"{path} is missing"
    tree = ast.parse((root / path).read_text("utf-8"))
    found = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    return next(found, f"{path} has no class {name}")


def _attribute(cls: ast.ClassDef, name: str) -> object:
    for node in cls.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return ast.literal_eval(node.value)  # type: ignore[attr-defined]
    return None


@pytest.mark.parametrize("name", sorted({*listed(ROOT), *folders(ROOT)}))
def test_built_in_tracker_is_whole(name: str) -> None:
    """A folder has its line and a line its folder, and nothing around them is forgotten."""
    found = list(missing(name, ROOT))
    assert not found, "\n" + "\n".join(found)


@pytest.mark.slow
def test_help_of_the_flag_lists_the_built_in_trackers() -> None:
    """What `--help` says of ``--tracker`` comes from the table."""
    code = "import argparse, trackers; p = argparse.ArgumentParser(); trackers.add_arguments(p); print(p.format_help())"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert f"Built in: {', '.join(sorted(listed(ROOT)))}." in " ".join(shown.split())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout with a new tracker, ``toy``, as `make new-tracker NAME=toy` writes it."""
    root = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "trackers", root / "trackers", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "docs").mkdir()
    for name in (PAGE, "README.md", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, root / name)
    printed = new_tracker("toy", root)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.splitlines()[:-3] == [
        "trackers/backends/toy/__init__.py", "tests/backends/toy/__init__.py", "trackers/backends/toy/tracker.py",
        "trackers/backends/toy/precheck.py", "tests/backends/toy/test_tracker.py", REGISTRY, PAGE,
    ]  # fmt: skip
    return root


def new_tracker(name: str, root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "scripts/new_tracker.py", name, "--root", root]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run(root: Path, *command: str) -> str:
    """The output of a Python command in a checkout, with that checkout's package; its failure is the test's."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONPYCACHEPREFIX": f"{root}.bytecode"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
def test_new_tracker_lacks_nothing(checkout: Path) -> None:
    """What the script writes is a whole tracker, in this project's style."""
    assert list(missing("toy", checkout)) == []
    new = ("trackers/backends", "tests/backends", "--no-cache")
    run(checkout, "-m", "ruff", "check", *new)
    run(checkout, "-m", "ruff", "format", "--check", *new)


@pytest.mark.slow
def test_new_tracker_passes_the_kit(checkout: Path) -> None:
    """Its test, which is the conformance kit, passes before anything in it is changed."""
    options = ("-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(checkout))
    printed = run(checkout, "-m", "pytest", *options, "tests/backends/toy")
    assert re.search(r"^[12][0-9] passed", printed, re.M), printed


@pytest.mark.slow
def test_new_tracker_takes_a_run(checkout: Path, tmp_path: Path) -> None:
    """``init`` knows it by its name, asks its precheck, and delivers to it."""
    code = (
        "import sys, trackers\n"
        f"run = trackers.init('toy', project='p', dir={str(tmp_path)!r}, options={{'TRACKER_SAMPLE': False}})\n"
        "assert 'trackers.backends.toy.precheck' in sys.modules\n"
        "assert 'trackers.backends.toy.tracker' not in sys.modules\n"
        "run.log({'loss': 0.5}, step=3)\nrun.finish()\nprint(trackers.__file__)"
    )
    assert str(checkout) in run(checkout, "-c", code)
    (file,) = tmp_path.rglob("toy.jsonl")
    lines = file.read_text().splitlines()
    assert any('"loss":0.5' in line and '"step":3' in line for line in lines)
    assert lines[-1] == '{"kind": "status", "status": "finished"}'


@pytest.mark.slow
@pytest.mark.parametrize("name", ["toy", "shared", "none", "Toy", "class", "a-b", "wandb", "../x"])
def test_name_that_cannot_be_one_is_refused(checkout: Path, name: str) -> None:
    """A name that is taken, or that no module or class can have, writes nothing."""
    before = {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}
    done = new_tracker(name, checkout)
    assert done.returncode == 1
    assert done.stderr.startswith("new_tracker: ")
    assert done.stderr.count("\n") == 1
    assert {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()} == before


PIECES = [
    ("trackers/backends/toy/__init__.py", None, "trackers/backends/toy/__init__.py is missing: a file with"),
    (
        "trackers/backends/toy/precheck.py",
        None,
        "trackers/backends/toy/precheck.py is missing: ToyPrecheck says before",
    ),
    ("trackers/backends/toy/tracker.py", None, "trackers/backends/toy/tracker.py is missing: ToyTracker(ToyPrecheck)"),
    ("trackers/backends/toy/tracker.py", ("class ToyTracker", "class Toys"), "tracker.py has no class ToyTracker: "),
    ("trackers/backends/toy/tracker.py", ("(ToyPrecheck)", ""), "ToyTracker doesn't inherit from ToyPrecheck"),
    ("trackers/backends/toy/precheck.py", ('name = "toy"', 'name = "tay"'), 'ToyPrecheck lacks name = "toy"'),
    ("trackers/backends/toy/precheck.py", ("needs = ()", 'needs = ("toylib",)'), "lacks toy = ['toylib'], the"),
    ("tests/backends/toy/test_tracker.py", None, "tests/backends/toy/test_tracker.py is missing: a test with"),
    (REGISTRY, ('        "toy",\n', ""), f'{REGISTRY}: BUILT_IN lacks the line "toy", so that'),
    (PAGE, ("| `toy` |", "| `tay` |"), f"{PAGE}: the table under 'What each tracker gets' lacks the row"),
]


@pytest.mark.parametrize(("path", "change", "said"), PIECES)
def test_missing_piece_is_named(checkout: Path, path: str, change: tuple[str, str] | None, said: str) -> None:
    """One piece less is one line that names the file and what has to be in it."""
    whole = (checkout / path).read_text("utf-8")
    (checkout / path).unlink()
    try:
        if change is not None:
            assert change[0] in whole
            (checkout / path).write_text(whole.replace(*change), "utf-8")
        (line,) = missing("toy", checkout)
    finally:
        (checkout / path).write_text(whole, "utf-8")
    assert said in line
