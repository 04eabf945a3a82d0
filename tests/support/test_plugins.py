"""Whose plug-ins count: all, or those that TRACKER_PLUGINS names; doctor and the run's record say which."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests import ROOT
from tests.plugin_site import install
from trackers.backends import registry
from trackers.cli.app import app
from trackers.errors import MissingPackage, UnknownTracker, UsageError
from trackers.hardware.gpus import detect
from trackers.readers import registry as readers
from trackers.relay.agent import server
from trackers.relay.environment import gather_environment
from trackers.support import plugins
from trackers.tracker import RunInfo

CODE = """
from trackers.tracker import Tracker
class Sink(Tracker):
    name = "sink"
    accepts = frozenset()
    def open(self, info, state): return None
    def write(self, records, cursor): pass
    def close(self, status): pass
"""
POINTS = """
[trackers.trackers]
{0} = {0}_code:Sink
[trackers.readers]
{0} = {0}_code:Reader
[trackers.devices]
{0} = {0}_code:devices
[console_scripts]
{0} = {0}_code:main
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two distributions with a tracker, a reader and devices each."""
    for name in ("good_sink", "Other.Sink"):
        word = name.lower().replace(".", "_")
        folder = tmp_path / f"site/{word}-1.2.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (folder / "entry_points.txt").write_text(POINTS.format(word))
        (tmp_path / f"site/{word}_code.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delenv(plugins.VARIABLE, raising=False)


def known() -> set[str]:
    """The plug-ins' names among trackers, readers and devices."""
    found = {*registry.tracker_names(), *readers.schemes(), *detect.sources()}
    return {name for name in found if name.endswith("_sink")}


@pytest.mark.parametrize(
    ("said", "wanted"),
    [(None, {"good_sink", "other_sink"}), ("", {"good_sink", "other_sink"}), ("good-sink", {"good_sink"}),
     ("other.sink, GOOD_SINK", {"good_sink", "other_sink"}), ("none", set()), ("nobody", set())],
)  # fmt: skip
def test_variable_limits_what_counts(said: str | None, wanted: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Trackers, readers and devices of the named distributions alone; names as installers compare them."""
    if said is not None:
        monkeypatch.setenv(plugins.VARIABLE, said)
    assert known() == wanted
    for name in ("good_sink", "other_sink"):
        if name in wanted:
            assert registry.load(name).name == "sink"
        else:
            with pytest.raises(UnknownTracker):
                registry.load(name)


def test_doctor_says_whose_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each distribution with its version and what it brings, those that are left out, and names of none."""
    monkeypatch.setenv(plugins.VARIABLE, "good-sink,gone")
    found = {check["name"]: check for check in json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)}
    assert found["plug-in good_sink"]["text"] == "1.2: trackers good_sink, readers good_sink, devices good_sink"
    assert found["plug-in Other.Sink"]["text"] == "left out by TRACKER_PLUGINS"
    assert found["plug-in gone"]["text"] == "named by TRACKER_PLUGINS, not installed"


def test_record_of_a_run_names_its_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The distributions that could run code in it, with their versions."""
    info = RunInfo(id="r", name="r", project="p")
    both = {"good_sink": "1.2", "Other.Sink": "1.2"}
    assert gather_environment(info)["plugins"].items() >= both.items()
    monkeypatch.setenv(plugins.VARIABLE, "good-sink")
    assert gather_environment(info)["plugins"] == {"good_sink": "1.2"}
    monkeypatch.setenv(plugins.VARIABLE, "none")
    assert "plugins" not in gather_environment(info)


def test_one_look_serves_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed is looked through once, however many groups are asked for, and by how many."""
    looked: list[str] = []
    read = plugins._read
    monkeypatch.setattr(plugins, "_read", lambda home: looked.append(home) or read(home))
    plugins._look.cache_clear()
    for _ in range(2):
        known()
        plugins.brought()
        plugins.targets("trackers.options")
        plugins.targets("trackers.commands")
        plugins.distribution("trackers.trackers", "good_sink")
    assert len(looked) == len(set(looked))


def test_look_finds_what_installers_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments, blanks, extras, names of any case, old and new metadata, eggs and archives, as importlib.metadata; the
    same distribution counts where it is first on the path."""
    text = "# made by hand\n[ other ]\na = b:c\n\n[trackers.trackers]\n# no = no:no\n  My-Db=my.db : X [fast,slow]\n"
    text = text.replace("my.db : X", "my.db:X") + "[trackers.readers]\nold = old.reader:Old.Inner\n"
    for name, file in (("New-1.dist-info", "METADATA"), ("old.egg-info", "PKG-INFO"), ("egg.egg/EGG-INFO", "PKG-INFO")):
        home = tmp_path / "more" / name
        home.mkdir(parents=True)
        title = name.partition(".")[0].removesuffix("-1")
        (home / file).write_text(f"Metadata-Version: 2.1\nname: {title}\nVersion: 2.0\n\nName: none\nVersion: 3\n")
        (home / "entry_points.txt").write_text(text)
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as packed:
        packed.writestr("packed-4.dist-info/METADATA", "Metadata-Version: 2.1\nName: packed\nVersion: 4\n")
        packed.writestr("packed-4.dist-info/entry_points.txt", text)
    later = tmp_path / "later/new-9.dist-info"
    later.mkdir(parents=True)
    (later / "METADATA").write_text("Metadata-Version: 2.1\nName: new\nVersion: 9\n")
    (later / "entry_points.txt").write_text("[trackers.trackers]\nlater = later:Later\n")
    places = [str(tmp_path / name) for name in ("more", "more/egg.egg", "packed.zip", "later")]
    monkeypatch.setattr(sys, "path", [*places, *sys.path])
    wanted = {
        (entry.group, entry.name, entry.module, entry.attr, distribution.metadata["Name"], distribution.version)
        for distribution in importlib.metadata.distributions(path=places[:3])
        for entry in distribution.entry_points
        if entry.group.startswith("trackers.")
    }
    assert len(wanted) == 8
    found = {
        (entry.group, entry.name, *entry.value.split(":"), entry.distribution, entry.version)
        for group in ("trackers.trackers", "trackers.readers")
        for entry in plugins.entries(group)
        if entry.distribution not in ("good_sink", "Other.Sink")
    }
    assert found == wanted


PARTS = """
from trackers.hardware.gpus.base import GpuSource
from trackers.tracker import Tracker
LOADED = []
class Precheck(Tracker):
    name = "quick"
    needs = ("no_such_client",)
def preload():
    LOADED.append(1)
nothing = None
"""


@pytest.fixture
def _parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with a light precheck and a preload, and all that can be wrong in one."""
    for module in ("good_sink_code", "quick_heavy", "quick_parts"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    points = {
        "trackers": {"quick": "quick_heavy:Sink", "json": "quick_heavy:Sink", "gone": "no_such_module:X"},
        "prechecks": {"quick": "quick_parts:Precheck", "gone": "quick_parts:nothing"},
        "preloads": {"quick": "quick_parts:preload"},
        "readers": {"torn": "quick_parts:torn"},
        "options": {"quick": "quick_parts:Kconfig"},
        "commands": {"ls": "quick_parts:x", "torn": "quick_parts:nothing", "no.such": "quick_parts:x"},
        "copies": {"torn": "quick_parts:nothing"},
        "devices": {"torn": "quick_raises:open"},
        "parts": {"fine": "quick_parts:preload", "torn": "quick_parts:nothing"},
        "flags": {"torn": "quick_parts:nothing"},
        "reader": {"misspelt": "quick_parts:x"},
    }
    modules = {"quick_heavy": CODE, "quick_parts": PARTS, "quick_raises": "raise RuntimeError('no luck')\n"}
    install(tmp_path / "site", "trackers-quick", points, "3.1", **modules)


@pytest.mark.usefixtures("_parts")
def test_init_asks_the_light_precheck_alone() -> None:
    """What init asks is answered without the tracker's module; a missing package is one of the distribution."""
    with pytest.raises(MissingPackage, match=r"needs the no_such_client package: pip install 'trackers-quick'$"):
        registry.check("quick", {})
    assert "quick_heavy" not in sys.modules
    with pytest.raises(UsageError, match=r"tracker 'gone': its precheck 'quick_parts:nothing' doesn't derive"):
        registry.precheck("gone")


@pytest.mark.usefixtures("_parts")
def test_agent_preloads_what_says_that_it_may() -> None:
    """A process that forks deliveries imports a plug-in only if that names a function for it."""
    server._import("good_sink")
    assert "good_sink_code" not in sys.modules
    server._import("quick")
    assert sys.modules["quick_parts"].LOADED == [1]
    assert [registry.preloads(name) for name in ("quick", "good_sink", "json")] == [True, False, True]


@pytest.mark.usefixtures("_parts")
def test_doctor_names_each_fault_of_a_plug_in() -> None:
    """A row for each thing that can't be used, with the reason; the distribution's has its version, and nothing else
    stops."""
    result = CliRunner().invoke(app, ["doctor", "--json"])
    found = {check["name"]: (check["state"], check["text"]) for check in json.loads(result.stdout)}
    start = "plug-in trackers-quick"
    assert found[start][0] == "ok"
    assert found[start][1].startswith("3.1: trackers quick, trackers json")
    said = {name.partition(", ")[2]: text for name, (state, text) in found.items() if name.startswith(f"{start}, ")}
    assert said.keys() == {
        "trackers json", "trackers gone", "prechecks gone", "readers torn", "options quick", "commands ls",
        "commands torn", "commands no.such", "copies torn", "devices torn", "flags torn", "parts torn",
        "reader misspelt",
    }  # fmt: skip
    assert said["trackers json"] == "ignored: 'json' is built in"
    assert said["commands ls"] == "ignored: 'ls' is built in"
    assert said["commands no.such"] == "ignored: there is no command 'no'"
    assert "No module named 'no_such_module'" in said["trackers gone"]
    assert "RuntimeError: no luck" in said["devices torn"]
    assert said["reader misspelt"].startswith("there is no group 'trackers.reader': did you mean 'trackers.readers'?")
    assert "is no typer.Typer" in said["commands torn"]
    assert all("\n" not in text for text in said.values())
    assert found["tracker json"][0] == "ok"


@pytest.mark.parametrize("first", ["", "."])
def test_what_lies_in_the_current_directory_is_not_installed(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notebooks and ``python -m`` have it first on their path; a directory that is named behind that counts."""
    home = tmp_path / "evil-1.0.dist-info"
    home.mkdir()
    (home / "entry_points.txt").write_text("[trackers.trackers]\nevil = evil:Tracker\n")
    monkeypatch.chdir(tmp_path)
    others = [path for path in sys.path if path]
    monkeypatch.setattr(sys, "path", [first and str(tmp_path), *others])
    assert "evil" not in plugins.targets("trackers.trackers")
    monkeypatch.setattr(sys, "path", [*others, str(tmp_path)])
    assert plugins.targets("trackers.trackers")["evil"] == "evil:Tracker"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("named", "counts"), [("{0}:", False), (":{0}", False), (".", False), ("{0}", False), ("{0}:{1}", True)]
)
def test_empty_part_of_pythonpath_installs_nothing(named: str, counts: bool, tmp_path: Path) -> None:
    """`PYTHONPATH=:/my/code` means the current directory, too: what lies there is no plug-in unless it is named."""
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    elsewhere.mkdir()
    install(here, "evil", {"trackers": {"evil": "evil:Tracker"}})
    look = "from trackers.support import plugins; print(plugins.targets('trackers.trackers'))"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([named.format(elsewhere, here), str(ROOT)])}
    done = subprocess.run([sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", "-c", look], cwd=here,
                          env=environ, capture_output=True, text=True, check=True)  # fmt: skip
    assert ("evil" in done.stdout) == counts
