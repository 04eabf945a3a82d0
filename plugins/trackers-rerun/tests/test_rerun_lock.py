"""A run's packages as requirements, and an environment that is made of them."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import pytest
from trackers_rerun import environment
from trackers_rerun.lock import Lock, differences, lock
from trackers_rerun.plan import Python, RerunPlan

from trackers.errors import UsageError
from trackers.provenance.manifest import Manifest
from trackers.provenance.packages import Origin

COMMIT = "a" * 40
NAMES = ("numpy", "torch", "git", "wheel", "copy", "own", "edit", "away", "hub", "loose")


def test_packages_become_requirements(tmp_path: Path) -> None:
    """Versions from an index, PyTorch's by their local part, commits, archives with their hashes, directories."""
    (tmp_path / "there").mkdir()
    there = (tmp_path / "there").as_uri()
    found = lock(
        Manifest(
            run="one", root="/work",
            packages=dict.fromkeys(NAMES, "1.0")
            | {"torch": "2.4.0+cu124", "odd": "", "-e evil": "1", "bad": "1; evil", "own.one": "1+abc"},
            origins={
                "git": Origin("vcs", "https://h/r", vcs="git", commit=COMMIT, subdirectory="s"),
                "wheel": Origin("archive", "https://h/w.whl", hash="sha256:ab"),
                "copy": Origin("directory", there), "edit": Origin("editable", there),
                "own": Origin("editable", "file:///work/pkg"), "away": Origin("editable", "file:///nowhere"),
                "hub": Origin("vcs", "https://u:***@h/r", vcs="git", commit=COMMIT),
                "loose": Origin("vcs", "https://h/r", vcs="git"),
            },
        )
    )  # fmt: skip
    assert found.lines == [
        "--extra-index-url https://download.pytorch.org/whl/cu124", "numpy==1.0", "torch==2.4.0+cu124",
        f"git @ git+https://h/r@{COMMIT}#subdirectory=s", "wheel @ https://h/w.whl#sha256=ab", f"copy @ {there}",
        "own.one==1+abc",
    ]  # fmt: skip
    assert found.beside == [str(tmp_path / "there")]
    said = "\n".join(found.remarks)
    for text in ("own was installed from its own files", "away isn't restored", "hub isn't restored: its address has a",
                 "loose isn't restored: no commit", "could be asked for: odd, -e evil, bad"):  # fmt: skip
        assert text in said


@pytest.mark.parametrize("url", ["https://h/r\nevil", "https://h/ -e /evil", "--index-url=x y"])
def test_hostile_address_adds_no_line(url: str) -> None:
    """A requirement can't end and be followed by another one, or by an option."""
    found = lock(Manifest(run="one", packages={"a": "1"}, origins={"a": Origin("archive", url)}))
    assert found.lines == []


def test_differences_of_two_environments() -> None:
    """Versions, what is missing, what is there besides, and where it came from; however names are written."""
    run = Manifest(
        run="one", packages={"A_b": "1", "c": "1", "d": "1", "e": "1"}, origins={"d": Origin("editable", "file:///d")}
    )
    here = {"a-B": "1", "c": "2", "d": "1", "f": "3"}
    assert differences(run, here, {}) == [
        "c 2, not 1", "d 1 was installed from file:///d, here from an index", "e 1 isn't installed",
        "installed beside those: f 3",
    ]  # fmt: skip
    assert differences(run, run.packages, run.origins) == []


def planned(*lines: str) -> RerunPlan:
    """A plan that needs these packages."""
    manifest = Manifest(run="one", python_version=".".join(map(str, sys.version_info[:3])))
    return RerunPlan(
        manifest=manifest, directory="", own=True, repository="", files=[], python=Python(sys.executable, "new"),
        lock=Lock(list(lines), [], []), command=[], cwd=".", variables={}, links=[], remarks=[],
    )  # fmt: skip


UV = """#!{python}
import os, sys
words = sys.argv[1:]
with open({log!r}, "a") as file:
    print(words[0], file=file)
if words[0] == "venv":
    os.makedirs(words[-1] + "/bin")
    os.symlink({python!r}, words[-1] + "/bin/python")
else:
    text = open(words[words.index("-r") + 1]).read()
    if "nosuch" in text:
        sys.exit("error: No solution found: nosuch==1 isn't in the registry")
"""


@pytest.mark.processes
def test_environment_is_made_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv makes it, if there is one; the next run takes it; one that fails leaves nothing, and is one line."""
    log = tmp_path / "log"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/uv").write_text(UV.format(python=sys.executable, log=str(log)))
    (tmp_path / "bin/uv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    said: list[str] = []
    first = environment.environment(planned("a==1"), said.append)
    assert Path(first).exists()
    assert environment.environment(planned("a==1"), said.append) == first
    assert log.read_text().split() == ["venv", "pip"]
    assert "a==1\n" in (Path(first).parent.parent / environment.WHOLE).read_text()
    with pytest.raises(UsageError, match=r"uv said: error: No solution found.*--env current") as failed:
        environment.environment(planned("nosuch==1"), said.append)
    assert "\n" not in str(failed.value)
    assert not environment.where(planned("nosuch==1")).exists()


@pytest.mark.soak
@pytest.mark.processes
def test_environment_by_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without uv a real one is made, of a real wheel."""
    wheel = tmp_path / "wheels/toy-1-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("toy.py", "VALUE = 5\n")
        file.writestr("toy-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
        file.writestr("toy-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("toy-1.dist-info/RECORD", "")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    python = environment.environment(planned("toy==1"), lambda line: None)
    assert list(Path(python).parent.parent.glob("lib/python3*/site-packages/toy.py"))
    with pytest.raises(UsageError, match=r"pip said: ERROR: .*toy==2"):
        environment.environment(planned("toy==2"), lambda line: None)
