"""A plug-in's options count wherever ours do, and what is wrong in its declaration stops nothing."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import trackers
from trackers.configuration import kconfig, options, plugin_options, resolve
from trackers.configuration.menu import as_markdown
from trackers.errors import ConfigError, Refused, UsageError
from trackers.journal import trust
from trackers.relay.delivery.delivery import Delivery
from trackers.support import plugins
from trackers.support.redaction import MASK
from trackers.tracker import RunInfo

MODULE = """
class Toy:
    name = "toy"
    accepts = frozenset()

    def open(self, info, state):
        state["url"] = str(info.option("TOY_URL", "(default)"))

    def write(self, records, cursor):
        pass

    def close(self, status):
        pass
"""
KCONFIG = """
config TOY_URL
	string "Address"
	default "toy://here"
	help
		Where rows go.

config TOY_ROWS
	int "Rows"
	range 1 100
	default 10
	help
		How many at once.
"""
Install = Callable[..., None]


def _forget() -> None:
    for cached in (plugin_options.fragments, plugin_options.undeclared, kconfig.declared, trust._reader):
        cached.cache_clear()
    kconfig._unused.clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a plug-in ``toy`` of the distribution ``trackers-toy``, with this Kconfig; None: without options."""

    def installs(text: str | None = KCONFIG, target: str = "trackers_toy:Kconfig") -> None:
        site = tmp_path / "site"
        package, metadata = site / "trackers_toy", site / "trackers_toy-1.dist-info"
        for folder in (package, metadata):
            folder.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text(MODULE)
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: trackers-toy\nVersion: 1\n")
        points = "[trackers.trackers]\ntoy = trackers_toy:Toy\n"
        if text is not None:
            (package / "Kconfig").write_text(text)
            points += f"[trackers.options]\ntoy = {target}\n"
        (metadata / "entry_points.txt").write_text(points)
        monkeypatch.syspath_prepend(site)
        _forget()

    yield installs
    monkeypatch.undo()
    _forget()


def test_declared_option_has_a_flag_a_variable_and_a_line_of_config(install: Install, tmp_path: Path) -> None:
    """Default, ``.config``, environment, flag, argument: each beats the one before, and says where it came from."""
    install()
    assert (resolve()["TOY_URL"], resolve()["TOY_ROWS"]) == ("toy://here", 10)
    named = tmp_path / "mine"
    named.write_text('CONFIG_TOY_URL="toy://file"\nCONFIG_TOY_ROWS=20\n')
    environ = {"TRACKER_DEFCONFIG": str(named)}
    read = resolve(environ=environ)
    assert (read["TOY_URL"], read["TOY_ROWS"], read.source("TOY_URL")) == ("toy://file", 20, f"{named}:1")
    environ["TOY_URL"] = "toy://variable"
    assert resolve(environ=environ)["TOY_URL"] == "toy://variable"
    parser = argparse.ArgumentParser()
    trackers.add_arguments(parser)
    given = parser.parse_args(["--tracker-toy-url", "toy://flag", "--tracker-toy-rows", "30"])
    flags = {"TOY_URL": given.tracker_toy_url, "TOY_ROWS": given.tracker_toy_rows}
    assert resolve(flags=flags, environ=environ)["TOY_URL"] == "toy://flag"
    assert resolve({"TOY_URL": "toy://argument"}, flags, environ=environ)["TOY_URL"] == "toy://argument"
    assert "`TOY_URL`" in as_markdown(kconfig.declared()[0])
    assert kconfig.declared()[0]["TOY_ROWS"].menu == "toy (trackers-toy)"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"TOY_ULR": "x"}, "argument: unknown option TOY_ULR: did you mean TOY_URL?"),
        ({"TOY_ROWS": 101}, "argument: TOY_ROWS is 1 to 100, not 101"),
    ],
)
def test_wrong_value_is_said_as_of_our_own_options(install: Install, arguments: dict[str, str], line: str) -> None:
    """A misspelt name, a number out of range."""
    install()
    with pytest.raises(ConfigError) as refused:
        resolve({"TRACKER": "toy", **arguments})
    assert str(refused.value) == line


def test_undeclared_option_is_text_from_anywhere(install: Install, tmp_path: Path) -> None:
    """A plug-in that declares nothing gets what begins with its name, where it was chosen."""
    install(None)
    named = tmp_path / "mine"
    named.write_text('CONFIG_TOY_URL="toy://file"\n')
    environ = {"TRACKER_DEFCONFIG": str(named)}
    assert resolve({"TRACKER": "toy"}, environ=environ)["TOY_URL"] == "toy://file"
    assert "TOY_URL" not in resolve(environ=environ)
    environ["TOY_URL"] = "toy://variable"
    read = resolve({"TRACKER": "toy"}, environ=environ)
    assert (read["TOY_URL"], read.source("TOY_URL")) == ("toy://variable", "environment")
    assert resolve({"TRACKER": "toy", "TOY_URL": "toy://argument"}, environ=environ)["TOY_URL"] == "toy://argument"


def test_surrounding_tree_may_declare_what_the_plugin_does_not(install: Install, tmp_path: Path) -> None:
    """Its own symbol that begins with the plug-in's name has an effect."""
    install(None)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "Kconfig").write_text(
        'source "$(TRACKERS_KCONFIG)"\nconfig TOY_URL\n\tstring "url"\n\tdefault "toy://tree"\n'
    )
    environ = {"TRACKER_KCONFIG": str(tree / "Kconfig")}
    assert resolve({"TRACKER": "toy"}, environ=environ)["TOY_URL"] == "toy://tree"


@pytest.mark.parametrize(
    ("text", "target", "why"),
    [
        ("config MLFLOW_EXPERIMENT\n\tstring\n", "trackers_toy:Kconfig", "its options begin with TOY_"),
        ("config TOY_URL\n\tstring\n\tdefault \"$(shell,touch ran)\"\n", "trackers_toy:Kconfig", "calls"),
        ('source "/etc/passwd"\n', "trackers_toy:Kconfig", "/etc/passwd"),
        ("if TOY\n", "trackers_toy:Kconfig", "endif"),
        ("", "trackers_toy:Kconfig", "is empty"),
        ("# nothing\n", "trackers_toy:Kconfig", "declares no option"),
        (KCONFIG, "trackers_toy:Other", "is no file"),
        (KCONFIG, "no_such_package:Kconfig", "there is no no_such_package"),
        (KCONFIG, "trackers_toy", "package:file"),
    ],
)  # fmt: skip
def test_declaration_that_is_wrong_is_left_out_and_said(
    install: Install, caplog: pytest.LogCaptureFixture, text: str, target: str, why: str
) -> None:
    """One line that names the plug-in; all other options are there, and nothing was run."""
    install(text, target)
    with caplog.at_level(logging.WARNING):
        assert resolve()["TRACKER"] == "json"
    (line,) = [record.getMessage() for record in caplog.records if "toy" in record.getMessage()]
    assert line.startswith(f"the options of plug-in toy are left out ({target}): ")
    assert why in line
    assert not Path("ran").exists()


def test_directory_that_nobody_trusts_names_no_address(install: Install, tmp_path: Path) -> None:
    """A plug-in's text may be an address: a ``.config`` that merely lies there gives none, declared or not."""
    for text in (KCONFIG, None):
        install(text)
        home = tmp_path / f"home-{text is None}"
        home.mkdir()
        (home / ".config").write_text('CONFIG_TRACKER="toy"\nCONFIG_TOY_URL="toy://elsewhere"\n')
        read = resolve(cwd=home, environ={})
        assert (read["TRACKER"], read.get("TOY_URL", "toy://here")) == ("toy", "toy://here")


def test_directory_and_level_count_as_ours(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a directory that nobody trusts: one inside of it, and a level of logging. Of somebody else's run, the level,
    and the reader's directory, none by default."""
    install('config TOY_DIR\n\tstring "d"\n\tdefault "./toys"\nconfig TOY_LEVEL\n\tstring "l"\n\tdefault "INFO"\n')
    home = tmp_path / "home-of-others"
    home.mkdir()
    for given, found in (("here", "here"), ("../there", "./toys"), ("/there", "./toys")):
        (home / ".config").write_text(f'CONFIG_TOY_DIR="{given}"\nCONFIG_TOY_LEVEL="DEBUG"\n')
        read = resolve(cwd=home, environ={})
        assert (read["TOY_DIR"], read["TOY_LEVEL"]) == (found, "DEBUG")
    of_run = {"TRACKER": "toy", "TOY_DIR": "/victim", "TOY_LEVEL": "DEBUG"}
    taken, left_out = trust._options(of_run, str(home), tmp_path)
    assert (taken["TOY_DIR"], taken["TOY_LEVEL"], left_out) == ("", "DEBUG", ["TOY_DIR"])
    monkeypatch.setenv("TOY_DIR", "mine")
    trust._reader.cache_clear()
    assert trust._options(of_run, str(home), tmp_path)[0]["TOY_DIR"] == str(home / "mine")


def test_tracker_added_later_gets_the_readers_options(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run hasn't recorded comes from whoever delivers it; what it has recorded stays."""
    install()
    monkeypatch.setenv("TOY_URL", "toy://mine")
    info = RunInfo(id="a", name="a", project="p", options={"TRACKER": "json"})
    assert trust.options_for(info, "toy")["TOY_URL"] == "toy://mine"
    assert "TOY_URL" not in trust.options_for(info, "json")
    info.options["TOY_URL"] = "toy://recorded"
    assert trust.options_for(info, "toy")["TOY_URL"] == "toy://recorded"


def test_login_that_is_not_kept_is_asked_for(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address has a mask in the place of the password: it isn't tried with that."""
    install()
    info = RunInfo(id="a", name="a", project="p", options={"TRACKER": "toy", "TOY_URL": f"toy://me:{MASK}@host"})
    with pytest.raises(UsageError, match="TOY_URL has a login, which isn't kept with the run: export TOY_URL"):
        trust.need_logins(trust.options_for(info, "toy"), "toy")
    monkeypatch.setenv("TOY_URL", "toy://me:secret@host")
    options = trust.options_for(info, "toy")
    trust.need_logins(options, "toy")
    assert options["TOY_URL"] == "toy://me:secret@host"


@pytest.mark.processes
def test_delivery_without_the_login_waits_for_it(install: Install) -> None:
    """It isn't opened with what isn't a password, and says what to do."""
    install()
    run = trackers.init("toy", project="p", mode="offline", options={"TOY_URL": f"toy://me:{MASK}@host"})
    run.finish()
    delivery = Delivery(run._recorder.run, "toy", say=print)
    with pytest.raises(Refused, match="export TOY_URL"):
        delivery._open()


@pytest.mark.parametrize("name", plugins.OURS)
def test_option_of_a_distribution_that_isnt_installed_is_said_once(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What an earlier release, or another machine, saved is read on: one line says what to install. ``init`` takes it,
    too, unless it is for a tracker that is chosen: then that is what lacks."""
    for symbol in plugins.OURS[name].options:
        options._warned.clear()
        caplog.clear()
        (tmp_path / ".config").write_text(f'CONFIG_TRACKER="json"\nCONFIG_{symbol}="out"\nCONFIG_JSON_DIR="here"\n')
        for _ in range(2):
            found = resolve({symbol: "out"}, cwd=tmp_path, environ={}, defconfig=str(tmp_path / ".config"))
            assert (found["TRACKER"], found["JSON_DIR"], found.get(symbol)) == ("json", "here", None)
        lacks = f"{symbol} has no effect without trackers-{name}: pip install 'trackers-relay[{name}]'"
        assert caplog.messages == [f"{tmp_path / '.config'}:2: {lacks}", f"argument: {lacks}"]
        assert resolve({"TRACKER": name, symbol: "out"}, cwd=tmp_path, environ={}, project_file=False)[symbol] == "out"
        (tmp_path / ".config").write_text(f'CONFIG_{symbol}=""\n')  # its default: nothing is lost
        assert resolve(cwd=tmp_path, environ={})["TRACKER"] == "json"
        assert len(caplog.messages) == 2
