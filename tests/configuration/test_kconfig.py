"""The Kconfig file, files of values, and trees of other people that source ours."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from trackers.configuration import files, menu, trusted
from trackers.configuration.declaration import Assignment, Declaration
from trackers.configuration.kconfig import Tree
from trackers.configuration.menu import Workspace
from trackers.configuration.options import resolve
from trackers.configuration.search_path import KCONFIG, find_root
from trackers.errors import ConfigError
from trackers.training.init import init as begin_run

SYMBOLS = list(Tree().declarations)
PRINTABLE = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")))


def write(folder: Path, text: str, name: str = ".config") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def test_symbols_are_explained() -> None:
    """Every option has a prompt, a help text in sentences, and a place in the documentation."""
    declarations = Tree().declarations
    documented = (ROOT / "docs/options.md").read_text("utf-8")
    for symbol in SYMBOLS:
        declaration = declarations[symbol]
        assert declaration.prompt, symbol
        assert len(declaration.help) > 20, symbol
        assert declaration.help.endswith("."), symbol
        assert f"`{symbol}`" in documented


PLACES = {
    "TENSORBOARD_DIR": "<directory>/<project>/<run name>",
    "JSON_DIR": "<run name>_<date>_<time>.json",
    "CSV_DIR": "<run name>-<run id>/metrics.csv",
    "BENCHMARK_DIR": "benchmark_<platform>_<time>.json",
}


@pytest.mark.slow
def test_help_of_a_directory_says_what_is_written_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file lies where its option's help says."""
    monkeypatch.chdir(tmp_path)
    trackers = "tensorboard,json,csv,benchmark"
    options = {symbol: f"dir/{symbol}" for symbol in PLACES}
    run = begin_run(trackers, project="p", name="my run", inline=True, options=options)
    for step in range(3):
        run.log({"train_loss": 1.0}, step=step)
    run.finish()
    for symbol, place in PLACES.items():
        assert place in Tree().declarations[symbol].help
        folder = tmp_path / options[symbol]
        form = place.removeprefix("<directory>/").replace("<run name>", "my run").replace("<run id>", run.id)
        assert list(folder.glob(re.sub("<[^>]+>", "*", form))), symbol


def test_symbols_named_by_the_documents_are_declared() -> None:
    """The options that users were promised by name exist."""
    promised = """TRACKER TRACKER_PROJECT TRACKER_RUN_NAME TRACKER_GROUP TRACKER_TAGS TRACKER_NOTES TRACKER_MODE
        TRACKER_DIR TRACKER_FINISH_TIMEOUT TRACKER_RELAY TRACKER_INLINE TRACKER_PYTHON TRACKER_RUN_ID TRACKER_RESUME
        TRACKER_RANK TRACKER_MEDIA_MAX_MB TRACKER_NICE WANDB_ENTITY WANDB_PROJECT WANDB_OFFLINE MLFLOW_TRACKING_URI
        MLFLOW_EXPERIMENT MLFLOW_NESTED TRACKIO_SERVER_URL TRACKIO_PORT TENSORBOARD_DIR JSON_DIR JSON_SAVE_INTERVAL
        JSON_EVAL_ONLY CSV_DIR TRACKER_LOG_INTERVAL BASELINE_RUN_ID"""
    assert set(promised.split()) <= set(SYMBOLS)


def test_hexadecimal_option() -> None:
    """A hex option keeps its base in files and is a number in Python."""
    declaration = Declaration("X", "hex", "X", "X.", "", default=0, limits=(0, 255))
    assert declaration.text(31, "test") == "0x1f"
    assert declaration.parse("0x1f") == 31
    declaration.check("0xFF", "test")
    for wrong in ("31", "0x100", "0x"):
        with pytest.raises(ConfigError, match=r"^test: X is "):
            declaration.check(wrong, "test")


def test_no_symbol_is_a_secret() -> None:
    """Keys and passwords are never options: they would be written into run.json and .config."""
    assert not [name for name in SYMBOLS if any(word in name for word in ("KEY", "TOKEN", "SECRET", "PASSWORD"))]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('CONFIG_TRACKER_PROJCT="x"', "d:2: unknown option TRACKER_PROJCT: did you mean TRACKER_PROJECT?"),
        ("CONFIG_FROBNICATE=y", "d:2: unknown option FROBNICATE. Known: TRACKER, "),
        ("# CONFIG_WANDB_OFLINE is not set", "d:2: unknown option WANDB_OFLINE: did you mean WANDB_OFFLINE?"),
        (
            "CONFIG_TRACKIO_PORT = 5",
            "d:2: malformed line 'CONFIG_TRACKIO_PORT = 5': write CONFIG_TRACKIO_PORT=10, without",
        ),
        ("CONFIG_TRACKIO_PORT= 5", "d:2: TRACKIO_PORT is a whole number, not ' 5'"),
        ("  CONFIG_TRACKIO_PORT=5", "d:2: malformed line 'CONFIG_TRACKIO_PORT=5': it must begin at the start"),
        ('TRACKER="wandb"', 'd:2: malformed line \'TRACKER="wandb"\': write CONFIG_TRACKER="text"'),
        ("nonsense", "d:2: malformed line 'nonsense': write CONFIG_NAME=value"),
        ("CONFIG_TRACKER=wandb", "d:2: TRACKER must be text in double quotes"),
        ("CONFIG_TRACKER='wandb'", "d:2: TRACKER must be text in double quotes"),
        ('CONFIG_TRACKER="wandb', "d:2: TRACKER must be text in double quotes"),
        ('CONFIG_TRACKER="wandb" # why', "d:2: TRACKER must be text in double quotes"),
        ('CONFIG_TRACKER="a"b"', "d:2: TRACKER must be text in double quotes"),
        ("CONFIG_TRACKIO_PORT=http", "d:2: TRACKIO_PORT is a whole number, not 'http'"),
        ('CONFIG_TRACKIO_PORT="7860"', "d:2: TRACKIO_PORT is a whole number"),
        ("CONFIG_TRACKIO_PORT=0x10", "d:2: TRACKIO_PORT is a whole number, not '0x10'"),
        ("CONFIG_TRACKIO_PORT=1e4", "d:2: TRACKIO_PORT is a whole number, not '1e4'"),
        ("CONFIG_TRACKIO_PORT=99999", "d:2: TRACKIO_PORT is 1 to 65535, not 99999"),
        ("CONFIG_TRACKIO_PORT=-1", "d:2: TRACKIO_PORT is 1 to 65535, not -1"),
        ("CONFIG_TRACKIO_PORT=" + "9" * 5000, "d:2: TRACKIO_PORT is 1 to 65535"),
        ("CONFIG_WANDB_OFFLINE=yes", "d:2: WANDB_OFFLINE is y or n, not yes"),
        ("CONFIG_WANDB_OFFLINE=m", "d:2: WANDB_OFFLINE is y or n, not m"),
        ("CONFIG_WANDB_OFFLINE=True", "d:2: WANDB_OFFLINE is y or n, not True"),
        (
            'CONFIG_TRACKER_MODE="offlin"',
            "d:2: TRACKER_MODE is online, offline or disabled, not 'offlin': did you mean",
        ),
        ('CONFIG_BASELINE_RUN_ID="abc"', "d:2: BASELINE_RUN_ID is entity/project/run_id, not 'abc'"),
        ('CONFIG_TRACKER_RANK="first"', 'd:2: TRACKER_RANK is a rank\'s number or "last"'),
        ('CONFIG_TRACKER_RUN_ID="../x"', "d:2: TRACKER_RUN_ID is up to 128 letters"),
        ('CONFIG_TRACKER_RESUME="yes"', "d:2: TRACKER_RESUME is allow, must, never or auto"),
        ('CONFIG_TRACKER_PYTHON="/usr/bin/python"', "d:2: TRACKER_PYTHON is tracker=/path/to/python"),
        ("CONFIG_TRACKER_RELAY=n\nCONFIG_TRACKER_NICE=5", "d:3: TRACKER_NICE needs TRACKER_RELAY, which isn't so"),
        ("CONFIG_TRACKIO_PORT=1\nCONFIG_TRACKIO_PORT=2", "d:3: TRACKIO_PORT is set to '2', but d:2 says '1': keep one"),
        (
            'CONFIG_TRACKER_PROJECT="x"\nCONFIG_TRACKER_PROJECT="' + "y" * 3000 + '"',
            "d:3: TRACKER_PROJECT is set to 'yyy",
        ),
        ("CONFIG_" + "FROBNI" * 500 + "=y", "d:2: unknown option FROBNI"),
        (
            'CONFIG_TRACKER_MODE="online"\nCONFIG_TRACKER_MODE_OFFLINE=y',
            "d:3: TRACKER_MODE is set to 'offline', but d:2",
        ),
    ],
)
def test_mistake_in_a_defconfig_names_its_line(tmp_path: Path, line: str, message: str) -> None:
    """A mistake in a named file is one short error with the file, the line and what would be right."""
    write(tmp_path, f"# what it is for\n{line}\n", "d")
    trusted.trust(tmp_path)
    with pytest.raises(ConfigError) as caught:
        resolve(defconfig="d", environ={}, cwd=tmp_path)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment\n",
        "\r\n\r\n",
        "\ufeff# with a byte order mark\n",
        "CONFIG_TRACKIO_PORT=1\nCONFIG_TRACKIO_PORT=1",
    ],
)
def test_harmless_files_are_taken(tmp_path: Path, text: str) -> None:
    """Empty lines, comments, Windows line ends, byte order marks and repetitions of one value are no mistakes."""
    write(tmp_path, text, "d")
    assert resolve(defconfig="d", environ={}, cwd=tmp_path)["TRACKER"] == "json"


@pytest.mark.parametrize(
    "line",
    [
        "CONFIG_64BIT=y", "CONFIG_TRACER_MAX_TRACE=y", "CONFIG_TRACER_SNAPSHOT=y", "# CONFIG_TRACERS is not set",
        "CONFIG_JUMP_LABEL=y", 'CONFIG_CC_VERSION_TEXT="gcc (Debian 12.2.0-14) 12.2.0"', "CONFIG_RELAY=y",
        "{ not: Kconfig at all }", "[section]", "TRACKER = other", "CONFIG_X = 1",
    ],
)  # fmt: skip
def test_config_of_another_program_is_left_alone(tmp_path: Path, line: str) -> None:
    """A kernel's .config in the working directory stops nothing and changes nothing."""
    write(tmp_path, f"CONFIG_SMP=y\n{line}\n")
    options = resolve(environ={}, cwd=tmp_path)
    assert {options.source(name) for name in options} == {"default"}


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ('CONFIG_TRACKER_PROJCT="x"', "TRACKER_PROJECT"),
        ('CONFIG_TRAKCER_PROJECT="x"', "TRACKER_PROJECT"),
        ("CONFIG_WADNB_OFFLINE=y", "WANDB_OFFLINE"),
        ("CONFIG_TRACKIO_PORT = 1", "TRACKIO_PORT"),
    ],
)
def test_misspelt_option_in_config_is_an_error(tmp_path: Path, line: str, near: str) -> None:
    """In a .config that may be another program's, what was clearly meant for us must still be right."""
    write(tmp_path, f'CONFIG_TRACKER="csv"\n{line}\n')
    with pytest.raises(ConfigError, match=rf"^\.config:2: .*{near}"):
        resolve(environ={}, cwd=tmp_path)
    write(tmp_path, line)
    with pytest.raises(ConfigError, match=rf"^\.config:1: .*{near}"):
        resolve(environ={}, cwd=tmp_path)


def test_folder_named_config_is_ignored(tmp_path: Path) -> None:
    """In a home directory .config is a folder."""
    (tmp_path / ".config").mkdir()
    assert resolve(environ={}, cwd=tmp_path)["TRACKER"] == "json"


def test_file_that_is_not_utf8(tmp_path: Path) -> None:
    """Bytes that aren't UTF-8 stop nothing in a stranger's lines, and are an error in ours."""
    (tmp_path / ".config").write_bytes(b'CONFIG_OTHER="\xff"\n')
    assert resolve(environ={}, cwd=tmp_path)["TRACKER_NOTES"] == ""
    (tmp_path / ".config").write_bytes(b'CONFIG_TRACKER_NOTES="\xff"\n')
    with pytest.raises(ConfigError, match=r"^\.config:1: TRACKER_NOTES isn't valid UTF-8"):
        resolve(environ={}, cwd=tmp_path)


@pytest.mark.slow
@given(text=PRINTABLE)
def test_any_string_survives_a_file(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Quotes, backslashes, #, $(…) and all other printable characters come out of a file as they went in."""
    folder = tmp_path_factory.mktemp("any")
    workspace = Workspace({}, folder)
    workspace.tree.assign([Assignment("TRACKER_NOTES", text, "test")])
    workspace.write()
    options = resolve(environ={}, cwd=folder)
    assert options["TRACKER_NOTES"] == text
    workspace.savedefconfig(folder / "saved")
    assert resolve(defconfig="saved", environ={}, cwd=folder)["TRACKER_NOTES"] == text


@pytest.mark.parametrize(
    "text",
    ["-1", "0x10", "1e-4", "a#b", 'say "x"', "back\\slash\\", "$(shell,touch ran)", "`touch ran`", "'; import os"],
)
def test_string_is_neither_read_nor_run(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks like a number, a comment or a command is text."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    write(folder, f'CONFIG_TRACKER_NOTES="{escaped}"\n')
    assert resolve(environ={}, cwd=folder)["TRACKER_NOTES"] == text
    assert os.listdir(folder) == [".config"]


def test_file_in_the_users_directory_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kconfiglib would import a kconfigfunctions.py that happens to lie on the path; we don't let it."""
    write(tmp_path, "raise SystemExit('ran')\n", "kconfigfunctions.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert resolve(environ={}, cwd=tmp_path)["TRACKER"] == "json"
    assert "kconfigfunctions" not in sys.modules


OTHERS = """mainmenu "Their project"
config TRAINING
	bool "Training"
	default y
config LEARNING_RATE
	string "Learning rate"
	default "1e-4"
if TRAINING
source "{kconfig}"
endif
"""


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A directory with a Kconfig tree of its own that sources ours by the variable."""
    write(tmp_path, OTHERS.format(kconfig="$(TRACKERS_KCONFIG)"), "Kconfig")
    return tmp_path


def test_own_tree_sources_ours(theirs: Path) -> None:
    """One .config serves another tree's options and ours."""
    write(theirs, 'CONFIG_TRAINING=y\nCONFIG_LEARNING_RATE="3e-4"\nCONFIG_TRACKER="wandb"\n')
    options = resolve(environ={}, cwd=theirs)
    assert options["TRACKER"] == "wandb"
    assert options.source("TRACKER") == ".config:3"
    assert "LEARNING_RATE" not in options
    assert os.environ.get("TRACKERS_KCONFIG") is None


def test_own_tree_switches_tracking_off(theirs: Path) -> None:
    """Where the tree's condition around our options isn't met, nothing is tracked, and saying otherwise is an error."""
    write(theirs, "# CONFIG_TRAINING is not set\n")
    options = resolve(environ={}, cwd=theirs)
    assert (options["TRACKER"], options["TRACKER_MODE"]) == ("none", "disabled")
    assert isinstance(options["TRACKIO_PORT"], int)
    with pytest.raises(ConfigError, match="flag --tracker: TRACKER needs TRAINING"):
        resolve(flags={"TRACKER": "wandb"}, environ={}, cwd=theirs)


@pytest.mark.parametrize(
    "environ",
    [
        {}, {"TRACKER": "wandb"}, {"TRACKER_PROJECT": "q"}, {"WANDB_MODE": "offline"}, {"WANDB_PROJECT": "q"},
        {"MLFLOW_TRACKING_URI": "sqlite:///x.db"}, {"TRACKER_RELAY": "n"}, {"TRACKER_MODE_OFFLINE": "y"},
    ],
    ids=lambda environ: next(iter(environ), "nothing"),
)  # fmt: skip
def test_nothing_is_tracked_whatever_is_given_besides(
    theirs: Path, environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Variables, init's own arguments and flags were meant for when the condition is met; it is said that they wait."""
    write(theirs, '# CONFIG_TRAINING is not set\nCONFIG_TRACKER="csv"\nCONFIG_TRACKER_NICE=5\n')
    given = {"TRACKER": "json", "TRACKER_PROJECT": "p", "TRACKER_MODE": "online", "TRACKIO_PORT": 7}
    options = resolve(environ=environ, cwd=theirs)
    assert (options["TRACKER"], options["TRACKER_MODE"], options.source("TRACKER")) == ("none", "disabled", "default")
    said = caplog.text
    options = resolve(given, {"TRACKER_PROJECT": "f", "TRACKER": "none"}, environ=environ, cwd=theirs)
    assert (options["TRACKER"], options["TRACKER_MODE"]) == ("none", "disabled")
    name = next(iter(environ), "")
    assert bool(said) == bool(name)
    assert "nothing is tracked: the condition around the options in " in caplog.text
    assert "(TRAINING) isn't met, so " in caplog.text
    assert len(caplog.text.splitlines()) == 1


TYPES = """config DEPTH
	int "Depth"
	range 1 10
	default 4
config MASK
	hex "Mask"
	range 0x1 0xff
	default 0x2
config SHAPE
	string "Shape"
	default "flat"
config DEEP
	bool "Deep"
choice SIZE
	prompt "Size"
config SMALL
	bool "Small"
config LARGE
	bool "Large"
endchoice
if DEEP
config INNER
	int "Inner"
	default 1
endif
"""


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("CONFIG_DEPTH=99", [".config:1: DEPTH=99 isn't taken: it is 1 to 10, and becomes 4"]),
        ("CONFIG_MASK=0x1ff", [".config:1: MASK=0x1ff isn't taken: it is 0x1 to 0xff, and becomes 0x2"]),
        ("CONFIG_DEPTH=deep", [".config:1: DEPTH=deep isn't taken: it is a whole number"]),
        ("CONFIG_MASK=zz", [".config:1: MASK=zz isn't taken: it is a number like 0x1f"]),
        ("CONFIG_DEEP=1", [".config:1: DEEP=1 isn't taken: it is y or n"]),
        ("CONFIG_DEEP=yes", []),
        ("CONFIG_SHAPE=round", [".config:1: SHAPE=round isn't taken: it must be text in double quotes"]),
        ("CONFIG_DEPTH = 3", [".config:1: malformed line 'CONFIG_DEPTH = 3' isn't taken: write CONFIG_DEPTH=value"]),
        ("deep and more", [".config:1: malformed line 'deep and more' isn't taken: write CONFIG_NAME=value"]),
        ("CONFIG_DEPTH=2\nCONFIG_DEPTH=3", [".config:2: DEPTH is set to '3', but .config:1 says '2'"]),
        (
            "CONFIG_SMALL=y\nCONFIG_LARGE=y",
            [".config:1: SMALL=y isn't taken: of this choice, LARGE is y"],
        ),
        ("CONFIG_INNER=7", []),  # not visible: conf drops it without a word, too
        ('CONFIG_DEPTH=10\nCONFIG_MASK=0x1\nCONFIG_SHAPE="round"\n# CONFIG_DEEP is not set\nCONFIG_LARGE=y', []),
    ],
)
def test_olddefconfig_says_what_the_surrounding_tree_does_not_take(
    theirs: Path, lines: str, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What conf warns of is said, and what is written is what the tree makes of it."""
    monkeypatch.chdir(theirs)
    with (theirs / "Kconfig").open("a") as tree:
        tree.write(TYPES)
    write(theirs, lines + "\n")
    workspace = Workspace({}, theirs)
    workspace.olddefconfig()
    assert workspace.remarks == said
    again = Workspace({}, theirs)
    assert again.olddefconfig()[1] == []
    assert again.remarks == []


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ('config TRACKER_PROJECT\n\tstring "Project"\n', "Kconfig:11: TRACKER_PROJECT is an option of trackers: give"),
        ("config JSON_DIR\n\tbool\n", "Kconfig:11: JSON_DIR is an option of trackers: give the tree's own symbol"),
        ('config TRACKER_MODE_OFFLINE\n\tbool "x"\n', "Kconfig:11: TRACKER_MODE_OFFLINE is an option of trackers"),
        ('config JSON_DIR\n\tdefault "logs"\n', ""),
        ('config JSON_DIR\n\tstring\n\tdefault "logs"\n', ""),
    ],
)
def test_symbol_of_the_tree_under_a_name_of_ours_is_named(theirs: Path, declaration: str, message: str) -> None:
    """A tree may give an option of ours another default; a symbol of its own needs a name of its own."""
    with (theirs / "Kconfig").open("a") as tree:
        tree.write(declaration)
    if not message:
        assert resolve(environ={}, cwd=theirs)["JSON_DIR"] == "logs"
        return
    with pytest.raises(ConfigError) as caught:
        resolve(environ={}, cwd=theirs)
    assert str(caught.value).startswith(message)


def test_own_tree_commands_keep_their_symbols(theirs: Path) -> None:
    """The commands write the whole tree's .config, and a defconfig of the tree may set its own symbols."""
    write(theirs, 'CONFIG_LEARNING_RATE="3e-4"\nCONFIG_TRACKER="csv"\n', "defconfigs/mine")
    workspace = Workspace({}, theirs)
    workspace.defconfig("mine")
    text = (theirs / ".config").read_text("utf-8")
    assert 'CONFIG_LEARNING_RATE="3e-4"' in text
    assert 'CONFIG_TRACKER="csv"' in text
    Workspace({}, theirs).savedefconfig(theirs / "saved")
    assert (theirs / "saved").read_text("utf-8") == 'CONFIG_LEARNING_RATE="3e-4"\nCONFIG_TRACKER="csv"\n'


def test_own_tree_in_parts(tmp_path: Path) -> None:
    """Our file is found through the tree's own files, by variables, patterns and relative paths; or named outright."""
    write(tmp_path, 'source "sub/Kconfig*"\n', "Kconfig.mine")
    write(tmp_path, 'rsource "deep/Kconfig"\n', "sub/Kconfig.one")
    write(tmp_path, f'source "{KCONFIG}"\n', "sub/deep/Kconfig")
    assert find_root({}, tmp_path).path == KCONFIG
    for variable in ("TRACKER_KCONFIG", "KCONFIG"):
        environ = {variable: "Kconfig.mine"}
        assert find_root(environ, tmp_path).path == (tmp_path / "Kconfig.mine").resolve()
        assert resolve(environ=environ, cwd=tmp_path)["TRACKER"] == "json"


def test_unrelated_tree_is_not_run(tmp_path: Path) -> None:
    """A Kconfig that doesn't source ours isn't parsed: its macros would run commands."""
    write(
        tmp_path,
        f'config X\n\tdef_bool $(shell,touch {tmp_path}/ran && echo y)\nsource "arch/$(SRCARCH)/Kconfig"\n',
        "Kconfig",
    )
    assert resolve(environ={}, cwd=tmp_path)["TRACKER"] == "json"
    assert not (tmp_path / "ran").exists()
    with pytest.raises(ConfigError, match="TRACKER_KCONFIG=Kconfig: doesn't source trackers' options"):
        resolve(environ={"TRACKER_KCONFIG": "Kconfig"}, cwd=tmp_path)
    with pytest.raises(ConfigError, match="TRACKER_KCONFIG=nowhere: no such file"):
        resolve(environ={"TRACKER_KCONFIG": "nowhere"}, cwd=tmp_path)


@pytest.mark.parametrize(
    ("symbol", "default", "said"),
    [("TRACKER_RANK", '"zz"', "a rank's number or"), ("TRACKER_MODE", '"weird"', "online, offline or disabled"),
     ("TRACKER_RUN_ID", '"../x"', "up to 128 letters"), ("TRACKER", '""', "names no tracker")],
)  # fmt: skip
def test_default_of_a_tree_that_an_option_can_not_take_is_one_line(
    symbol: str, default: str, said: str, tmp_path: Path
) -> None:
    """It is checked as a value of a file is."""
    write(tmp_path, f'config {symbol}\n\tdefault {default}\nsource "$(TRACKERS_KCONFIG)"\n', "Kconfig")
    with pytest.raises(ConfigError, match=f"Kconfig: {symbol} .*{said}"):
        resolve(environ={}, cwd=tmp_path)


def test_long_condition_of_a_tree_is_shortened_in_a_message(tmp_path: Path) -> None:
    """A message is a line that can be read, whatever the directory's tree says."""
    conditions = "\tdepends on FAST && WIDE\n" * 300
    tree = f"config FAST\n\tbool\nconfig WIDE\n\tbool\nconfig TRACKER_PYTHON\n{conditions}"
    write(tmp_path, f'{tree}source "$(TRACKERS_KCONFIG)"\n', "Kconfig")
    with pytest.raises(ConfigError, match="TRACKER_PYTHON needs ") as raised:
        resolve({"TRACKER_PYTHON": "json=/x", "TRACKER_INLINE": True}, environ={}, cwd=tmp_path)
    assert len(str(raised.value)) < 500


RUNS_PROGRAMS = {
    "shell": "config X\n\tdef_bool $(shell,touch ran && echo y)\n",
    "a computed name": "s = shell\nconfig X\n\tdef_bool $($(s),touch ran && echo y)\n",
    "a variable": "r := $(shell,touch ran)\n",
    "a Python function": "config X\n\tdef_bool $(pwn,y)\n",
    "an included file": 'source "more"\n',
    "a file elsewhere": 'source "/proc/self/environ"\n',
    "a pipe": 'source "pipe"\n',
    "a program by default": 'config TRACKER_PYTHON\n\tdefault "json=/evil"\n',
}


@pytest.mark.parametrize("kind", RUNS_PROGRAMS)
@pytest.mark.processes
def test_own_tree_is_data_until_it_is_named(
    theirs: Path, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Reading options runs nothing of a tree that happens to be in the directory; its .config still counts."""
    monkeypatch.chdir(theirs)
    monkeypatch.syspath_prepend(str(theirs))
    monkeypatch.delitem(sys.modules, "kconfigfunctions", raising=False)
    write(theirs, "config Y\n\tdef_bool $(shell,touch ran && echo y)\n", "more")
    os.mkfifo(theirs / "pipe")
    ran = "import pathlib\npathlib.Path('ran').touch()\nfunctions = {'pwn': (lambda *a: 'y', 1, 1)}\n"
    write(theirs, ran, "kconfigfunctions.py")
    with (theirs / "Kconfig").open("a") as tree:
        tree.write(RUNS_PROGRAMS[kind])
    write(theirs, 'CONFIG_TRACKER="csv"\nCONFIG_LEARNING_RATE="3e-4"\n')
    options = resolve(environ={}, cwd=theirs)
    assert (options["TRACKER"], options["TRACKER_PYTHON"]) == ("csv", "")
    assert not (theirs / "ran").exists()
    if kind != "a program by default":
        assert "to let it count: trackers trust ." in caplog.text
        assert len(caplog.text.splitlines()) == 1
    if kind not in ("a pipe", "a file elsewhere", "a program by default"):
        resolve(environ={"TRACKER_KCONFIG": "./Kconfig"}, cwd=theirs)
        assert (theirs / "ran").exists()


@pytest.mark.processes
def test_commands_evaluate_the_tree_of_a_trusted_directory(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the user's word a command refuses a tree that calls programs; with it, it gets the whole tree."""
    monkeypatch.chdir(theirs)
    with (theirs / "Kconfig").open("a") as tree:
        tree.write(RUNS_PROGRAMS["shell"])
    with pytest.raises(
        ConfigError, match=r"^Kconfig calls macros, as \$\(shell\); to let it count: trackers trust \.$"
    ):
        Workspace({}, theirs)
    assert not (theirs / "ran").exists()
    trusted.trust(theirs)
    Workspace({}, theirs).olddefconfig()
    assert (theirs / "ran").exists()
    (theirs / "ran").unlink()
    resolve(environ={}, cwd=theirs)
    assert (theirs / "ran").exists()
    assert trusted.distrust(theirs) == theirs.resolve()
    with pytest.raises(ConfigError, match="trackers trust"):
        Workspace({}, theirs)


ATTACKS = {
    "a pipe": "source 'pipe'\n",
    "a pipe, unquoted": "source pipe\n",
    "zeros without end": "source '/dev/zero'\n",
    "a device by a link": "source 'zero'\n",
    "a secret file": "source '../secret'\n",
    "a secret file by a link": "source 'link'\n",
    "a secret file behind a folder that is a link": "source 'up/secret'\n",
    "a secret file by a pattern": "source '../sec*'\n",
    "all that there is": "source '/*/*/*/*'\n",
    "an optional file elsewhere": "osource '/proc/self/environ'\n",
    "a relative file elsewhere": "rsource '../../secret'\n",
    "a program behind single quotes": "source 'macros'\n",
    "a program": 'config X\n\tstring\n\tdefault "$(shell,touch ran)"\n',
    "a program, expanded later": "m = $(shell,touch ran)\nconfig X\n\tstring\n\tdefault '$(m)'\n",
    "a program, at once": "m := $(shell,touch ran)\n",
    "a program by a computed name": "s = shell\n$($(s),touch ran)\n",
    "a message": "$(info,\x1b]0;owned\x07)\n",
    "an error": "$(error-if,y,stop)\n",
    "a Python function": "config X\n\tdef_bool $(pwn,y)\n",
    "the environment": 'config MLFLOW_TRACKING_URI\n\tdefault "http://127.0.0.1:1/$(MY_SECRET)"\n',
    "the environment, as a shell": 'config MLFLOW_TRACKING_URI\n\tdefault "http://127.0.0.1:1/$MY_SECRET"\n',
    "the environment, by option": 'config X\n\tstring\n\toption env="MY_SECRET"\n',
    "text without end": "a = $(b)$(b)\nb = $(c)$(c)\nc = $(a)\nx := $(a)\n",
    "many files": "source 'many'\n",
    "our own file, again and again": 'source "$(TRACKERS_KCONFIG)"\n' * 5000,
    "a deep nesting": "if TRACKER_RELAY\n" * 3000 + "endif\n" * 3000,
    "a deep expression": "config X\n\tbool\n\tdepends on " + "(" * 5000 + "y" + ")" * 5000 + "\n",
    "a long file": "# x\n" * 100_000,
    "no text": "\0\0\0\n",
    "a loop": "source 'Kconfig'\n",
}


@pytest.mark.parametrize("kind", ATTACKS)
@pytest.mark.parametrize("after", [True, False], ids=["after ours", "before ours"])
@pytest.mark.processes
def test_tree_of_the_directory_reaches_nothing(
    tmp_path: Path, kind: str, after: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It runs no program, reads nothing elsewhere, ends, prints nothing, and expands no variable of the environment."""
    here = tmp_path / "outer/here"
    monkeypatch.setenv("MY_SECRET", "of-the-environment")
    ours = 'source "$(TRACKERS_KCONFIG)"\n'
    write(here, ours + ATTACKS[kind] if after else ATTACKS[kind] + ours, "Kconfig")
    write(here, "config Y\n\tstring\n\tdefault '$(shell,touch ran)'\n", "macros")
    write(here, "source 'many2'\n" * 50, "many")
    write(here, "source 'many3'\n" * 50, "many2")
    write(here, "# nothing\n", "many3")
    write(
        here,
        "import pathlib\npathlib.Path('ran').touch()\nfunctions = {'pwn': (lambda *a: 'y', 1, 1)}\n",
        "kconfigfunctions.py",
    )
    secret = write(tmp_path, "topsecretvalue here\n", "outer/secret")
    os.mkfifo(here / "pipe")
    (here / "zero").symlink_to("/dev/zero")
    (here / "link").symlink_to(secret)
    (here / "up").symlink_to("..")
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(str(here))
    for command in (
        lambda: resolve(cwd=here), lambda: Workspace(cwd=here).olddefconfig(),
        lambda: Workspace(cwd=here).savedefconfig(here / "saved"), lambda: Workspace(cwd=here).defconfig("local"),
        lambda: Workspace(cwd=here).allconfig(yes=True),
    ):  # fmt: skip
        try:
            found = command()
        except ConfigError as error:
            found = str(error)
        assert "topsecret" not in str(found)
        assert "of-the-environment" not in str(found)
    for made in (here / ".config", here / "saved"):
        text = made.read_text("utf-8") if made.exists() else ""
        assert "topsecret" not in text
        assert "of-the-environment" not in text
    assert not (here / "ran").exists()
    assert "owned" not in capfd.readouterr().out


@pytest.mark.parametrize("place", [".config", "defconfigs/mine", "Kconfig"])
@pytest.mark.parametrize(
    ("symbol", "value", "taken"),
    [
        ("MLFLOW_TRACKING_URI", "http://127.0.0.1:9/x", False),
        ("MLFLOW_TRACKING_URI", "databricks", False),
        ("MLFLOW_TRACKING_URI", "mlruns", True),
        ("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db", True),
        ("MLFLOW_TRACKING_URI", "sqlite:////etc/x.db", False),
        ("MLFLOW_TRACKING_URI", "postgresql://host/db", False),
        ("TRACKIO_SERVER_URL", "http://127.0.0.1:9", False),
        ("TRACKER_ALERT_SMTP", "smtp://127.0.0.1:9", False),
        ("TRACKER_DIR", "s3://bucket/runs", False),
        ("TRACKER_DIR", "/tmp/elsewhere", False),
        ("TRACKER_DIR", "out/runs", True),
        ("JSON_DIR", "../victim", False),
        ("JSON_DIR", "~/victim", False),
        ("JSON_DIR", "away/x", False),
        ("CSV_DIR", "csv", True),
        ("TRACKER_NODES", "network", False),
        ("TRACKER_NODES_TLS", "off", False),
        ("TRACKER_PYTHON", "json=/evil", False),
        ("TRACKER_SHARE", "umask", False),
        ("TRACKER_PRIVATE", "n", False),
        ("TRACKER_INLINE", "y", False),
        ("WANDB_ENTITY", "another-team", False),
        ("TRACKER_DATA", "/etc/hostname", False),
        ("TRACKER_DATA", "data/*.bin", False),
        ("TRACKER_PROJECT", "p", True),
        ("TRACKER", "json,wandb", True),
    ],
)
def test_file_of_the_directory_names_nothing_elsewhere(
    tmp_path: Path, place: str, symbol: str, value: str, taken: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """What lies in a directory by chance names neither addresses, nor files outside of it, nor who reads new files;
    what is trusted does.
    """
    here = tmp_path / "here"
    quote, meant = ("", value == "y") if value in ("y", "n") else ('"', value)
    text = f"CONFIG_{symbol}={quote}{value}{quote}\n"
    if place == "Kconfig":
        text = f'config {symbol}\n\tdefault {quote}{value}{quote}\nsource "$(TRACKERS_KCONFIG)"\n'
    write(here, text, place)
    (here / "away").symlink_to("/tmp")
    named = "mine" if place == "defconfigs/mine" else None
    options = resolve(defconfig=named, environ={}, cwd=here)
    assert (options[symbol] == meant) == taken
    if place != "Kconfig":
        assert ("trackers trust ." in caplog.text) == (not taken)
    trusted.trust(here)
    assert resolve(defconfig=named, environ={}, cwd=here)[symbol] == meant


@pytest.mark.parametrize(
    ("symbol", "harmless", "default"),
    [("TRACKER_SHARE", '"owner"', '"umask"'), ("TRACKER_SHARE", '"owner"', '"group"'),
     ("JSON_DIR", '"out"', '"/tmp/x"'), ("TRACKER_PRIVATE", "y", "n"), ("TRACKER_INLINE", "n", "y"),
     ("WANDB_ENTITY", '""', '"another-team"')],
)  # fmt: skip
def test_harmless_value_covers_no_other_of_the_directorys_tree(
    symbol: str, harmless: str, default: str, tmp_path: Path
) -> None:
    """An option without a prompt takes the tree's default, whatever ``.config`` gives it: that one is judged."""
    write(tmp_path, f"CONFIG_{symbol}={harmless}\n", ".config")
    write(tmp_path, f'config FAST\n\tdef_bool y\n\timply {symbol}\nconfig {symbol}\n\tdefault {default}\n'
          'source "$(TRACKERS_KCONFIG)"\n', "Kconfig")  # fmt: skip
    value = resolve(environ={}, cwd=tmp_path)[symbol]
    assert value == {"y": True, "n": False}.get(harmless, harmless.strip('"'))


def test_list_of_trusted_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own file alone counts, by real paths, and not for directories below."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    here, below = tmp_path / "here", tmp_path / "here/below"
    below.mkdir(parents=True)
    (tmp_path / "link").symlink_to(here)
    assert trusted.trust(tmp_path / "link") == here.resolve()
    assert (trusted.is_trusted(here), trusted.is_trusted(tmp_path / "link"), trusted.is_trusted(below)) == (
        True,
        True,
        False,
    )
    assert trusted.list_path().stat().st_mode & 0o777 == 0o600
    trusted.trust(below)
    assert trusted.directories() == [here.resolve(), below.resolve()]
    trusted.distrust(below)
    trusted.list_path().chmod(0o666)
    assert trusted.directories() == []
    with pytest.raises(ConfigError, match="isn't trusted"):
        trusted.distrust(below)
    with pytest.raises(ConfigError, match="no such directory"):
        trusted.trust(tmp_path / "nowhere")
    trusted.trust(below)
    below.rename(tmp_path / "away")
    below.symlink_to(tmp_path / "away")
    assert not trusted.is_trusted(below)
    trusted.distrust(below)
    assert trusted.directories() == []


def test_link_to_a_file_of_the_package_may_be_swapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was looked at as the package's own file, and is another one as it is read, is data."""
    (tmp_path / ".config").symlink_to(files.list_defconfigs(tmp_path)["wandb"])
    assert resolve(environ={}, cwd=tmp_path)["TRACKER"] == "wandb,json"
    judge = files.untrusted

    def swapping(path: Path, cwd: Path, word: str = "") -> Path | None:
        root = judge(path, cwd, word)
        (tmp_path / ".config").unlink()
        write(tmp_path, 'CONFIG_TRACKER="csv"\nCONFIG_TRACKER_PYTHON="json=/evil"\n', ".config")
        return root

    monkeypatch.setattr(files, "untrusted", swapping)
    options = resolve(environ={}, cwd=tmp_path)
    assert (options["TRACKER"], options["TRACKER_PYTHON"]) == ("csv", "")


@pytest.mark.parametrize("name", [".config", "defconfigs/mine"])
def test_directorys_own_file_names_no_program(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """A program is named by the environment, a flag, an argument, or a file that is named by its path."""
    write(tmp_path, 'CONFIG_TRACKER="csv"\nCONFIG_TRACKER_PYTHON="json=/evil"\n', name)
    found = None if name == ".config" else "mine"
    for _ in range(2):
        options = resolve(defconfig=found, environ={}, cwd=tmp_path)
        assert (options["TRACKER"], options["TRACKER_PYTHON"]) == ("csv", "")
    assert f"{name}:2: TRACKER_PYTHON is left out" in caplog.text
    assert len(caplog.text.splitlines()) == 1
    assert resolve(defconfig=f"./{name}", environ={}, cwd=tmp_path)["TRACKER_PYTHON"] == "json=/evil"
    assert resolve(environ={"TRACKER_PYTHON": "json=/mine"}, cwd=tmp_path)["TRACKER_PYTHON"] == "json=/mine"
    assert resolve(environ={"KCONFIG_CONFIG": f"./{name}"}, cwd=tmp_path)["TRACKER_PYTHON"] == "json=/evil"


@pytest.mark.parametrize(
    "variable", ["--defconfig", "TRACKER_DEFCONFIG", "KCONFIG_CONFIG", "TRACKER_KCONFIG", "KCONFIG"]
)
@pytest.mark.parametrize("word", ["cluster", ".cluster", "./cluster", "../here/cluster", "/"])
def test_file_of_the_directory_by_a_bare_name_is_data(
    tmp_path: Path, variable: str, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Who exported a bare name didn't mean the file of that name in a directory of somebody else's; a path is meant."""
    here = tmp_path / "here"
    text = 'CONFIG_TRACKER="csv"\nCONFIG_TRACKER_PYTHON="json=/evil"\nCONFIG_MLFLOW_TRACKING_URI="http://evil"\n'
    if variable.endswith("_KCONFIG") or variable == "KCONFIG":
        text = "".join(
            f'config {name}\n\tdefault "{value}"\n'
            for name, value in (
                ("TRACKER", "csv"),
                ("TRACKER_PYTHON", "json=/evil"),
                ("MLFLOW_TRACKING_URI", "http://evil"),
            )
        )
        text += 'source "$(TRACKERS_KCONFIG)"\n'
    path = write(here, text, word if word == ".cluster" else "cluster")
    named = str(path) if word == "/" else word
    flag, environ = (named, {}) if variable == "--defconfig" else (None, {variable: named})

    def found() -> tuple[object, object, object]:
        options = resolve(defconfig=flag, environ=environ, cwd=here)
        return options["TRACKER"], options["TRACKER_PYTHON"], options["MLFLOW_TRACKING_URI"]

    evil = ("csv", "json=/evil", "http://evil")
    assert found() == (evil if "/" in named else ("csv", "", ""))
    assert ("trackers trust ." in caplog.text) == (
        "/" not in named and "_KCONFIG" not in variable and variable != "KCONFIG"
    )
    trusted.trust(here)
    assert found() == evil
    if "/" not in named:
        trusted.distrust(here)
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
        with contextlib.suppress(ConfigError):
            assert found()[1:] == ("", "")


def test_own_tree_with_a_mistake(theirs: Path) -> None:
    """A tree that can't be parsed, or that holds an old copy of ours, is one line."""
    write(theirs, f'source "{KCONFIG}"\nconfig\n', "Kconfig")
    with pytest.raises(ConfigError, match=r"Kconfig:2: ") as caught:
        resolve(environ={}, cwd=theirs)
    assert "\n" not in str(caught.value)
    write(theirs, 'config TRACKER\n\tstring "Trackers"\n', "Kconfig")
    with pytest.raises(ConfigError, match="TRACKER_PROJECT isn't declared; source trackers' own file"):
        resolve(environ={}, cwd=theirs)


def test_defconfigs_in_the_checkout_are_right() -> None:
    """Each defconfig that we bring can be read, names known trackers, and says in its first line what it is for."""
    from trackers.backends import registry

    found = files.list_defconfigs(ROOT)
    promised = "local wandb wandb-trackio all-local mlflow-server hpc-offline gpt2-local gpt2-wandb-trackio"
    assert set(promised.split()) <= set(found)
    for name, path in found.items():
        options = resolve(defconfig=name, environ={}, cwd=ROOT)
        assert registry.parse(options["TRACKER"])
        assert set(registry.parse(options["TRACKER"])) <= set(registry.BUILT_IN)
        assert files.describe(path).endswith(".")


def test_defconfig_by_name_and_path(tmp_path: Path) -> None:
    """A directory's own defconfigs come before ours; a path is taken as it is; others are named."""
    write(tmp_path, 'CONFIG_TRACKER="csv"\n', "defconfigs/local")
    path = write(tmp_path, 'CONFIG_TRACKER="console"\n', "elsewhere/mine")
    local = resolve(defconfig="local", environ={}, cwd=tmp_path)
    assert (local["TRACKER"], local.source("TRACKER")) == ("csv", "defconfigs/local:1")
    brought = resolve(defconfig="wandb", environ={}, cwd=tmp_path)
    assert (brought["TRACKER"], brought.source("TRACKER")) == ("wandb,json", "defconfigs/wandb:2")
    assert resolve(defconfig="elsewhere/mine", environ={}, cwd=tmp_path).source("TRACKER") == "elsewhere/mine:1"
    assert resolve(defconfig=str(path), environ={}, cwd=tmp_path)["TRACKER"] == "console"
    with pytest.raises(ConfigError, match="no defconfig 'gpt2-locl': did you mean 'gpt2-local'\\? Known: all-local, "):
        resolve(defconfig="gpt2-locl", environ={}, cwd=tmp_path)


def test_strangers_config_is_not_overwritten(tmp_path: Path) -> None:
    """The commands refuse to write over another program's .config."""
    before = write(tmp_path, "CONFIG_64BIT=y\n").read_bytes()
    for command in (
        lambda: Workspace({}, tmp_path).defconfig("local"),
        lambda: Workspace({}, tmp_path).olddefconfig(),
        lambda: Workspace({}, tmp_path).allconfig(yes=True),
    ):
        with pytest.raises(ConfigError, match=r"\.config belongs to another Kconfig tree \(it sets CONFIG_64BIT\)"):
            command()
    assert (tmp_path / ".config").read_bytes() == before


def test_strangers_long_name_is_shortened(tmp_path: Path) -> None:
    """One line, whatever a file that merely lies there sets."""
    write(tmp_path, f"CONFIG_{'W1' * 1500}=y\n")
    with pytest.raises(ConfigError, match="belongs to another Kconfig tree") as caught:
        Workspace({}, tmp_path).olddefconfig()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", list(files.list_defconfigs(ROOT)))
def test_defconfig_round_trip(tmp_path: Path, name: str) -> None:
    """defconfig, savedefconfig, defconfig again and olddefconfig all mean the same."""
    shutil.copytree(ROOT / "defconfigs", tmp_path / "defconfigs")
    trusted.trust(tmp_path)
    wanted = dict(resolve(defconfig=name, environ={}, cwd=tmp_path))
    Workspace({}, tmp_path).defconfig(name)
    assert dict(resolve(environ={}, cwd=tmp_path)) == wanted
    Workspace({}, tmp_path).savedefconfig(tmp_path / "saved")
    assert dict(resolve(defconfig="saved", environ={}, cwd=tmp_path)) == wanted
    before = (tmp_path / ".config").read_bytes()
    Workspace({}, tmp_path).olddefconfig()
    assert (tmp_path / ".config").read_bytes() == before


def test_value_that_is_no_utf8_is_not_written_again(theirs: Path) -> None:
    """kconfiglib reads it; the file stays as it was, and the message says why."""
    (theirs / ".config").write_bytes(b'CONFIG_LEARNING_RATE="\xff"\n')
    with pytest.raises(ConfigError, match=r"\.config can't be written: what line \d+ would be isn't valid UTF-8"):
        Workspace({}, theirs).olddefconfig()
    assert (theirs / ".config").read_bytes() == b'CONFIG_LEARNING_RATE="\xff"\n'


def test_olddefconfig_updates_and_says_what_it_drops(tmp_path: Path) -> None:
    """An older .config keeps its values, gains new options, and loses unknown ones with a message each."""
    write(tmp_path, 'CONFIG_TRACKER="wandb"\nCONFIG_TRACKER_ANCIENT=y\n')
    _, dropped = Workspace({}, tmp_path).olddefconfig()
    assert len(dropped) == 1
    assert dropped[0].startswith(".config:2: unknown option TRACKER_ANCIENT")
    options = resolve(environ={}, cwd=tmp_path)
    assert options["TRACKER"] == "wandb"
    assert options.source("TRACKIO_PORT").startswith(".config:")
    assert "ANCIENT" in (tmp_path / ".config.old").read_text("utf-8")


def in_the_menu(save: Callable[[Any], object]) -> Callable[[Workspace], object]:
    """What a key of the menu does."""

    def press(workspace: Workspace) -> None:
        with mock.patch.object(menu, "_check_terminal"), mock.patch("menuconfig.menuconfig", save):
            workspace.menuconfig()

    return press


WRITERS: dict[str, Callable[[Workspace], object]] = {
    "olddefconfig": lambda workspace: workspace.olddefconfig(),
    "defconfig": lambda workspace: workspace.defconfig("local"),
    "allyesconfig": lambda workspace: workspace.allconfig(yes=True),
    "save": in_the_menu(lambda kconf: kconf.write_config(".config")),
    "save a minimal one": in_the_menu(lambda kconf: kconf.write_min_config("defconfig")),
}


@pytest.mark.parametrize("trusts", [False, True])
@pytest.mark.parametrize("command", WRITERS)
def test_file_that_is_replaced_is_not_kept_through_a_link(command: str, trusts: bool, tmp_path: Path) -> None:
    """A link named .config.old gives way to the file itself, and what it pointed to stays."""
    victim, here = write(tmp_path, "mine\n", "victim"), tmp_path / "here"
    write(here, 'CONFIG_TRACKER="json"\ntouch it\n')
    (here / ".config.old").symlink_to(victim)
    if trusts:
        trusted.trust(here)
    WRITERS[command](Workspace({}, here))
    assert victim.read_text() == "mine\n"
    if command != "save a minimal one":
        assert (here / ".config.old").read_text() == 'CONFIG_TRACKER="json"\ntouch it\n'
        assert not (here / ".config.old").is_symlink()


@pytest.mark.parametrize("target", ["victim", "new", "nowhere/new", "fifo"])
@pytest.mark.parametrize("command", WRITERS)
def test_configuration_is_not_written_through_a_link(command: str, target: str, tmp_path: Path) -> None:
    """Whether or not what it points to is there, the link and its target stay, and the message says why."""
    here, outside, names = tmp_path / "here", tmp_path / "outside", (".config", "defconfig")
    write(outside, "mine\n", "victim")
    os.mkfifo(outside / "fifo")
    here.mkdir()
    for name in names[command == "save a minimal one" :]:
        (here / name).symlink_to(outside / target)
    with pytest.raises((ConfigError, OSError), match="is a link"):
        WRITERS[command](Workspace({}, here))
    assert sorted(path.name for path in outside.iterdir()) == ["fifo", "victim"]
    assert (outside / "victim").read_text() == "mine\n"
    assert (here / "defconfig").is_symlink()


def test_all_yes_and_all_no(tmp_path: Path) -> None:
    """allyesconfig and allnoconfig set every bool, and leave the rest at its default."""
    trusted.trust(tmp_path)
    for yes in (True, False):
        Workspace({}, tmp_path).allconfig(yes)
        options = resolve(environ={}, cwd=tmp_path)
        bools = {name: value for name, value in options.items() if isinstance(value, bool)}
        assert set(bools.values()) == {yes}
        assert options["TRACKER_MODE"] == "online"


def test_line_break_is_refused_in_a_file(tmp_path: Path) -> None:
    """A value with a line break works as an argument but would break a file."""
    environ = {"TRACKER_NOTES": "two\nlines"}
    assert resolve(environ=environ, cwd=tmp_path)["TRACKER_NOTES"] == "two\nlines"
    with pytest.raises(ConfigError, match="TRACKER_NOTES holds a line break"):
        Workspace(environ, tmp_path).defconfig("local", ["TRACKER_NOTES"])
    assert not (tmp_path / ".config").exists()


def test_config_file_of_another_name(tmp_path: Path) -> None:
    """KCONFIG_CONFIG names the file, as for every Kconfig program."""
    environ = {"KCONFIG_CONFIG": "other.config"}
    Workspace(environ, tmp_path).defconfig("wandb")
    assert resolve(environ=environ, cwd=tmp_path).source("TRACKER").startswith("other.config:")
    assert resolve(environ={}, cwd=tmp_path)["TRACKER"] == "json"


@pytest.mark.parametrize("kind", ["link", "pipe", "too large"])
def test_config_that_is_no_plain_file_of_some_size_is_refused(kind: str, tmp_path: Path) -> None:
    """A .config or defconfig that is a link isn't followed; one that is a pipe or has more than 1 MiB isn't read."""
    elsewhere = write(tmp_path, 'CONFIG_TRACKER="csv"\n', "elsewhere/secret")
    here = tmp_path / "here"
    for path in (here / ".config", here / "defconfigs/mine"):
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "link":
            path.symlink_to(elsewhere)
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.write_text('CONFIG_TRACKER="csv"\n' + "#" * (1 << 20))
    if kind != "pipe":  # ~/.config is a folder, and what is no file is none
        with pytest.raises(ConfigError, match=r"\.config"):
            resolve(cwd=here)
    else:
        assert resolve(cwd=here)["TRACKER"] != "csv"
    (here / ".config").unlink()
    with pytest.raises(ConfigError, match="mine"):
        resolve(cwd=here, defconfig="mine")


def test_list_of_defconfigs_shows_nothing_of_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a defconfig is for stands in its first line; that of a file elsewhere isn't read through a link."""
    write(tmp_path, "# of a private file\n", "elsewhere/secret")
    mine = write(tmp_path, "# mine\n", "here/defconfigs/mine")
    (mine.parent / "link").symlink_to(tmp_path / "elsewhere/secret")
    (mine.parent / "ours").symlink_to(files.find_defconfig("wandb", tmp_path)[0])
    monkeypatch.chdir(tmp_path / "here")
    listed = files.list_defconfigs(tmp_path / "here")
    assert [files.describe(listed[name]) for name in ("mine", "link")] == ["mine", ""]
    assert files.describe(listed["ours"]).startswith("W&B")


def test_option_that_is_defined_again_and_again_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """kconfiglib would take hours for a directory's file of 200 kB: the package's own options count in its place."""
    write(tmp_path, "menuconfig X\n" * 9000 + 'source "$(TRACKERS_KCONFIG)"\n', "Kconfig")
    assert resolve(cwd=tmp_path)["TRACKER"]
    with pytest.raises(ConfigError, match="more than 50 times"):
        Workspace(cwd=tmp_path).olddefconfig()


@pytest.mark.parametrize(
    ("begin", "letter"),
    [("", "x"), ("CONFIG_TRACKER_RELAY=", "y"), ('CONFIG_TRACKER_DIR="', "z"), ("CONFIG_TRACKER_STEP_DIGITS=x", "9"),
     ("CONFIG_TRACKER_", "A")],
)  # fmt: skip
def test_message_of_a_long_line_is_short(begin: str, letter: str, tmp_path: Path) -> None:
    """However long a line somebody wrote, a message shows its beginning."""
    write(tmp_path, f'CONFIG_TRACKER="json"\n{begin}{letter * 9000}\n', "defconfigs/mine")
    with pytest.raises(ConfigError) as refused:
        resolve(cwd=tmp_path, defconfig="mine")
    assert len(str(refused.value)) < 1000
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("link", ['config X{0}\n string "x"\n default X{1}', "config X{0}\n bool\n default y if X{1}"])
def test_chain_of_thousands_is_one_clear_error(link: str, tmp_path: Path) -> None:
    """Its end is never reached: Python's own bound is."""
    chain = "\n".join(link.format(number, number + 1) for number in range(6000))
    (tmp_path / "Kconfig").write_text(f'source "$(TRACKERS_KCONFIG)"\n{chain}\nconfig TRACKER_GROUP\n default X0\n')
    with pytest.raises(ConfigError, match="refer to one another in too long a chain"):
        resolve(environ={}, cwd=tmp_path)
