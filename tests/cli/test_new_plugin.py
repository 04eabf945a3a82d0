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
from trackers.testing import DeviceError, PluginError, check_plugin


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
    groups = ("commands", "copies", "fuzz", "options", "preloads", "prechecks", "readers", "sql", "trackers")
    assert sorted(checked(toydb)) == sorted(f"{group} toydb" for group in groups)
    texts = [path.read_text() for path in toydb.rglob("*") if path.suffix in (".py", ".md", ".toml")]
    assert not any("@" in text.replace("@classmethod", "").replace("@app.", "") for text in texts)


@pytest.mark.processes
def test_what_every_python_here_loads_is_no_fault_of_it(
    toydb: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As coverage's start in each process loads sqlite3."""
    tmp_path.joinpath("sitecustomize.py").write_text("import sqlite3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "prechecks toydb" in checked(toydb)


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
COUNT, SQLITE = "def count(directory: Path) -> None:\n", "    import sqlite3  # noqa: F401\n"
READ, MISSING = "        last = run.created\n", '        raise NotFound(f"toydb: no file {path}")\n'
FAULTS += [
    ("commands.py", COUNT, f"{COUNT}    directory\n", "command 'toydb count' has no help"),
    ("tracker.py", SQLITE, "    raise ValueError('no')\n", "ValueError: no"),
    ("tracker.py", SQLITE, "    import threading; threading.Timer(60, print).start()\n", "leaves a thread"),
    ("reader.py", READ, f"{READ}        yield Finish(time=__import__('time').time(), status='x')\n", "read twice"),
    ("reader.py", MISSING, "        path = next(path.parent.glob('*.sqlite'))\n", "must be NotFound, it found"),
    ("sql.py", "if not name.starts", "if record['step'] < 10 and not name.starts", "10 rows, the reader's runs 20"),
    ("sql.py", "float(value)]", "float(value) + 1]", "metrics has 20 rows, the reader's runs 20"),
    ("sql.py", '("runs", "metrics")\n', '("runs", "numbers")\n', "numbers does not exist"),
]  # fmt: skip


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


PART = """
from trackers.hardware.gpus.base import Gpu, GpuSource, Reading
from trackers.relay.parts.part import RelayPart

class Part(RelayPart):
    def poll(self, moment):
        pass
    def end(self):
        return True

class Source(GpuSource):
    name = "toy"
    def __init__(self):
        self.gpus = [Gpu(label="0", index=0, vendor="toy", name="Toy 1")]
    def read(self, whole=False):
        return [Reading(gpu=self.gpus[0], power_w=5.0)]

def part(beside):
    return Part()

def devices(opening):
    opening.entering()
    return Source()
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("", "", ""),
        ("return Part()", "return None", "skipped parts toy: it makes no part"),
        ("return Part()", "return 5", "part 'toy' made no RelayPart but int"),
        ('name = "toy"', 'name = "toy"; AT_ONCE_S = 0', "part 'toy': begin took 0.0 s: it has to return at once"),
        ("        pass\n", "        1 / 0\n", "part 'toy': poll raised ZeroDivisionError"),
        ("return True", "return False", "part 'toy': it hadn't ended"),
        ("return Source()", "return None", "skipped devices toy: this machine has none"),
        ("    return Source()", "    1 / 0", "devices 'toy': opened on this machine it raised ZeroDivisionError"),
        ("power_w=5.0", "power_w=-5.0", "device 0: power_w is -5.0"),
        ("    opening.entering()\n", "", "without calling entering() before"),
    ],
)
def test_kit_runs_parts_and_reads_devices(
    old: str, new: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part beside a run that ends, devices as a sampler reads them; what isn't here is skipped, and why."""
    if "AT_ONCE_S" in new:
        monkeypatch.setattr(kit, "AT_ONCE_S", 0)
    monkeypatch.setattr(kit.beside, "END_S", 0.0)
    assert old in PART
    plugin_site.install(
        tmp_path / "site", "toy", {"parts": {"toy": "toy_mod:part"}, "devices": {"toy": "toy_mod:devices"}},
        toy_mod=PART.replace(old, new) if old else PART,
    )  # fmt: skip
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "toy_mod", raising=False)
    if words and not words.startswith("skipped"):
        with pytest.raises((PluginError, DeviceError), match=re.escape(words)):
            check_plugin("toy", directory=tmp_path / "kit")
        return
    report = check_plugin("toy", directory=tmp_path / "kit")
    assert words in str(report)
    assert len(report.passed) == 2 - bool(words)


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
    """As its author would: built, installed, its test run with pytest alone."""
    home, site = written(), tmp_path / "site"
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", site, home], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, home / "tests"],
        env={**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout[-3000:]


@pytest.mark.slow
@pytest.mark.processes
def test_type_checker_holds_it_to_the_contract() -> None:
    """mypy finds nothing in it, and a method with other arguments than the contract's."""
    home = written()
    mypy = [sys.executable, "-m", "mypy", home / "trackers_toydb"]
    assert "no issues found" in subprocess.run(mypy, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    tracker = home / "trackers_toydb/tracker.py"
    tracker.write_text(tracker.read_text().replace("def close(self, status: Status)", "def close(self, status: str)"))
    done = subprocess.run(mypy, cwd=ROOT, capture_output=True, text=True, check=False)
    assert 'Argument 1 of "close" is incompatible with supertype "trackers.tracker.Tracker"' in done.stdout
