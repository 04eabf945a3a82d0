"""``trackers new-plugin`` writes a distribution that keeps its promises, and the kit sees each that is broken."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests import ROOT, plugin_site
from tests.configuration.test_plugin_options import _forget
from trackers.cli.app import app
from trackers.errors import UsageError
from trackers.plugged import kit
from trackers.testing import PluginError, check_plugin


def written(name: str = "toydb") -> Path:
    """The distribution, below the working directory."""
    result = CliRunner().invoke(app, ["new-plugin", name])
    assert result.exit_code == 0, result.output
    return Path(f"trackers-{name}").absolute()


@pytest.fixture
def toydb(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """It is there as if an installer had put it there, and can be changed before it is loaded."""
    home = written()
    monkeypatch.syspath_prepend(str(home))
    monkeypatch.setattr(kit, "DAMAGED", 40)
    yield home
    for module in [name for name in sys.modules if name.startswith("trackers_toydb")]:
        del sys.modules[module]
    _forget()


def checked(home: Path) -> list[str]:
    """What of it the kit passes."""
    plugin_site.install(home, "trackers-toydb", plugin_site.points(home))
    _forget()
    report = check_plugin("Trackers.ToyDB", directory=Path("kit"), copies={"toydb": str(Path("copies").absolute())})
    assert report.skipped == {}
    return report.passed


@pytest.mark.processes
def test_what_it_writes_keeps_its_promises(toydb: Path) -> None:
    """One thing of each group, but devices; nothing of the template is left in it."""
    groups = ("commands", "copies", "fuzz", "options", "preloads", "prechecks", "readers", "trackers")
    assert sorted(checked(toydb)) == sorted(f"{group} toydb" for group in groups)
    texts = [path.read_text() for path in toydb.rglob("*") if path.suffix in (".py", ".md", ".toml")]
    assert not any("@" in text.replace("@classmethod", "").replace("@app.", "") for text in texts)


FAULTS = [
    ("precheck.py", "from pathlib import Path\n", "from pathlib import Path\nimport sqlite3\n", "imports sqlite3"),
    ("precheck.py", 'name = "toydb"', 'name = "toydb"; from trackers_toydb import reader', ""),
    ("tracker.py", "class ToydbTracker(ToydbPrecheck)", "class ToydbTracker(ToydbPrecheck.__base__)", "doesn't derive"),
    ("tracker.py", "Metrics, Summary, Text}", "Metrics, Summary}", "differs: text 'note': 1, 0 there"),
    ("tracker.py", "        import sqlite3\n\n        folder", "        folder", "copy to toydb:"),
    ("reader.py", "{path} is damaged: {error}", "{path}\\nis damaged: {error}", "fuzz 'toydb': damage"),
    ("reader.py", 'scheme = "toydb"\n', 'scheme = "other"\n', ""),
    ("reader.py", "yield Finish(", "Finish(", "differs: status: finished, none there"),
    ("copies.py", 'scheme = "toydb"', 'scheme = "other"', "its class is for the scheme 'other'"),
    ("Kconfig", "\thelp\n\t  Directory of toydb.sqlite. Empty: the run's directory.\n", "", "has no prompt or no help"),
    ("Kconfig", "TOYDB_DIR", "TOY_DIR", "its options begin with TOYDB_"),
    ("commands.py", "app = typer.Typer(", "app, commands = None, typer.Typer(", "can't be loaded"),
    ("fuzz.py", "'finished')\")", "'finished')\")\n        return 'toydb:nowhere'", "toydb: no file"),
    ("../pyproject.toml", "trackers.copies", "trackers.copy", "there is no group 'trackers.copy': did you mean"),
    ("../pyproject.toml", "trackers_toydb.tracker:preload", "trackers_toydb.tracker:FILE", "is no function"),
]


@pytest.mark.processes
@pytest.mark.parametrize(("file", "old", "new", "words"), FAULTS, ids=[f"{fault[0]}-{fault[3]}" for fault in FAULTS])
def test_kit_sees_each_promise_that_is_broken(file: str, old: str, new: str, words: str, toydb: Path) -> None:
    """A change that breaks one thing fails, with a message that says which; what breaks nothing passes."""
    path = toydb / "trackers_toydb" / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    if words:
        with (
            pytest.raises((PluginError, UsageError), match=re.escape(words))
            if words != "toydb: no file"
            else (pytest.raises(Exception, match=words))
        ):
            checked(toydb)
    else:
        checked(toydb)


NO_NAME = "can't be a plug-in"


@pytest.mark.parametrize(
    ("name", "words"),
    [("json", "is built in"), ("tb", "is built in"), ("My-DB", NO_NAME), ("class", NO_NAME), ("none", NO_NAME)],
)
def test_name_that_cant_be_one_is_refused(name: str, words: str) -> None:
    """In one line, and nothing is written; nor over what is there."""
    result = CliRunner().invoke(app, ["new-plugin", name])
    assert isinstance(result.exception, UsageError)
    assert words in str(result.exception)
    assert list(Path().glob("trackers-*")) == []
    written()
    again = CliRunner().invoke(app, ["new-plugin", "toydb"])
    assert "trackers-toydb exists" in str(again.exception)


@pytest.mark.slow
@pytest.mark.processes
def test_its_own_tests_pass_where_it_is_installed(tmp_path: Path) -> None:
    """As its author would: built, installed, its test run with pytest alone; a type checker finds nothing."""
    home, site = written(), tmp_path / "site"
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", site, home], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, home / "tests"],
        env={**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout[-3000:]
