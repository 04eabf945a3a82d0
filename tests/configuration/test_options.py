"""Resolving options, and the commands that make and show configurations."""

from __future__ import annotations

import fcntl
import itertools
import json
import logging
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from typer.testing import CliRunner

from tests import forked
from tests.configuration.test_flags import example, parser_with_flags
from tests.configuration.test_kconfig import PRINTABLE, ROOT, write
from tests.helpers import readable
from trackers.backends import registry
from trackers.cli import config as commands
from trackers.cli import doctor, main
from trackers.configuration import flags_from_args, menu, resolve, trusted
from trackers.configuration.declaration import Declaration
from trackers.configuration.kconfig import Tree
from trackers.errors import ConfigError
from trackers.support import plugins

DECLARATIONS = Tree().declarations
PARSER = parser_with_flags()
LEVELS = ("default", ".config:1", "environment", "flag", "argument")


def in_file(declaration: Declaration, value: object) -> str:
    if isinstance(value, bool):
        return f"CONFIG_{declaration.symbol}=y\n" if value else f"# CONFIG_{declaration.symbol} is not set\n"
    return (
        f'CONFIG_{declaration.symbol}="{value}"\n'
        if isinstance(value, str)
        else f"CONFIG_{declaration.symbol}={value}\n"
    )


def in_environment(value: object) -> str:
    return {True: "1", False: "no"}[value] if isinstance(value, bool) else str(value)


@pytest.mark.heavy
@pytest.mark.parametrize(("below", "above"), list(itertools.combinations(range(5), 2)))
def test_later_level_wins(tmp_path: Path, below: int, above: int) -> None:
    """For every option, each way to give it beats each way before it, and is named as the source."""
    for symbol in DECLARATIONS:
        folder = tmp_path / symbol
        folder.mkdir()
        check_later_level_wins(folder, symbol, below, above)


def check_later_level_wins(folder: Path, symbol: str, below: int, above: int) -> None:
    declaration = DECLARATIONS[symbol]
    high = example(declaration)
    low = declaration.default
    given: list[dict[str, Any]] = [{}, {}, {}, {}, {}]
    for level, value in ((below, low), (above, high)):
        if value != "" or level not in (0, 2):
            given[level] = {symbol: value}
    if given[1]:
        write(folder, in_file(declaration, given[1][symbol]))
        trusted.trust(folder)
    environ = {name: in_environment(value) for name, value in given[2].items()}
    options = resolve(given[4], given[3], environ=environ, cwd=folder)
    assert options[symbol] == high, symbol
    assert type(options[symbol]) is type(declaration.default)
    assert options.source(symbol) == (f"flag {declaration.flag}" if above == 3 else LEVELS[above])


def test_defconfig_takes_the_place_of_config(tmp_path: Path) -> None:
    """A named defconfig is read instead of .config; the flag's word counts before the environment's."""
    write(tmp_path, 'CONFIG_TRACKER="csv"\nCONFIG_TRACKIO_PORT=1\n')
    named = resolve(defconfig="wandb", environ={"TRACKER_DEFCONFIG": "local"}, cwd=tmp_path)
    assert (named["TRACKER"], named["TRACKIO_PORT"]) == ("wandb,json", 7860)
    assert resolve(environ={"TRACKER_DEFCONFIG": "local"}, cwd=tmp_path).source("TRACKER") == "defconfigs/local:2"
    assert resolve(environ={}, cwd=tmp_path)["TRACKER"] == "csv"


@pytest.mark.heavy
@given(text=PRINTABLE)
def test_any_string_survives_environment_flag_and_argument(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Printable text is the same whichever way it comes."""
    cwd = tmp_path_factory.getbasetemp()
    assert resolve({"TRACKER_NOTES": text}, environ={}, cwd=cwd)["TRACKER_NOTES"] == text
    assert resolve(environ={"TRACKER_NOTES": text}, cwd=cwd)["TRACKER_NOTES"] == text
    if text == "--":  # argparse itself takes it out of a flag's value before Python 3.13
        return
    flags, _ = flags_from_args(PARSER.parse_args([f"--tracker-notes={text}"]))
    assert resolve(flags=flags, environ={}, cwd=cwd)["TRACKER_NOTES"] == text


@pytest.mark.parametrize("spelling", ["online", "offline", "disabled"])
def test_mode_in_all_spellings(tmp_path: Path, spelling: str) -> None:
    """The mode can be written as one option or as Kconfig's choice, in a file, the environment and a flag."""
    symbol = f"TRACKER_MODE_{spelling.upper()}"
    for line in (f'CONFIG_TRACKER_MODE="{spelling}"\n', f"CONFIG_{symbol}=y\n"):
        write(tmp_path, line)
        options = resolve(environ={}, cwd=tmp_path)
        assert (options["TRACKER_MODE"], options.source("TRACKER_MODE")) == (spelling, ".config:1")
        assert symbol not in options
    write(tmp_path, "CONFIG_TRACKER_MODE_OFFLINE=y\n# CONFIG_TRACKER_MODE_ONLINE is not set\n")
    assert resolve(environ={"TRACKER_MODE": spelling}, cwd=tmp_path)["TRACKER_MODE"] == spelling
    assert resolve(environ={symbol: "y"}, cwd=tmp_path)["TRACKER_MODE"] == spelling
    assert resolve(flags={"TRACKER_MODE": spelling}, environ={}, cwd=tmp_path)["TRACKER_MODE"] == spelling
    for arguments in ({"TRACKER_MODE": spelling}, {symbol: True}, {symbol: "y"}):
        assert resolve(arguments, environ={}, cwd=tmp_path)["TRACKER_MODE"] == spelling


@pytest.mark.parametrize(("words", "value"), [("y Y yes 1 true True on", True), ("n no 0 false FALSE off", False)])
def test_bool_words_of_the_environment(tmp_path: Path, words: str, value: bool) -> None:
    """The environment says yes and no in the usual words; others are an error."""
    for word in words.split():
        assert resolve(environ={"TRACKER_RELAY": word, "WANDB_OFFLINE": word}, cwd=tmp_path)["TRACKER_RELAY"] is value
    with pytest.raises(ConfigError, match="environment variable TRACKER_RELAY: TRACKER_RELAY is y or n, not 'maybe'"):
        resolve(environ={"TRACKER_RELAY": "maybe"}, cwd=tmp_path)


def test_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    """`TRACKER_PROJECT= python train.py` doesn't hide what .config says."""
    write(tmp_path, 'CONFIG_TRACKER_PROJECT="x"\n')
    assert (
        resolve(environ={"TRACKER_PROJECT": "", "TRACKIO_PORT": "", "TRACKER_RELAY": ""}, cwd=tmp_path)[
            "TRACKER_PROJECT"
        ]
        == "x"
    )


@pytest.mark.parametrize(
    ("environ", "offline", "source"),
    [
        ({"WANDB_MODE": "offline"}, True, "environment WANDB_MODE"),
        ({"WANDB_MODE": "dryrun"}, True, "environment WANDB_MODE"),
        ({"WANDB_MODE": "offline", "WANDB_OFFLINE": "n"}, False, "environment"),
        ({"WANDB_MODE": "disabled"}, False, "default"),
        ({}, False, "default"),
    ],
)
def test_wandb_mode_is_respected(tmp_path: Path, environ: dict[str, str], offline: bool, source: str) -> None:
    """W&B's own variable sets its option, unless ours does."""
    options = resolve(environ=environ, cwd=tmp_path)
    assert (options["WANDB_OFFLINE"], options.source("WANDB_OFFLINE")) == (offline, source)


@pytest.mark.parametrize(
    ("variable", "text", "option", "value"),
    [
        ("WANDB_PROJECT", "p", "TRACKER_PROJECT", "p"),
        ("WANDB_NAME", "a {b}", "TRACKER_RUN_NAME", "a {{b}}"),
        ("WANDB_RUN_ID", "abc", "TRACKER_RUN_ID", "abc"),
        ("WANDB_RESUME", "must", "TRACKER_RESUME", "must"),
        ("WANDB_RESUME", "true", "TRACKER_RESUME", "auto"),
        ("WANDB_RUN_GROUP", "g", "TRACKER_GROUP", "g"),
        ("WANDB_JOB_TYPE", "eval", "TRACKER_JOB_TYPE", "eval"),
        ("WANDB_TAGS", "a,b", "TRACKER_TAGS", "a,b"),
        ("WANDB_NOTES", "n", "TRACKER_NOTES", "n"),
        ("WANDB_DIR", "/scratch", "TRACKER_DIR", "/scratch/runs"),
        ("WANDB_MODE", "disabled", "TRACKER_MODE", "disabled"),
        ("WANDB_DISABLED", "true", "TRACKER_MODE", "disabled"),
    ],
)
def test_wandb_variables_describe_the_run(tmp_path: Path, variable: str, text: str, option: str, value: str) -> None:
    """W&B's variable means to every tracker what it means to W&B; a file's default is none of our values, others are.

    Ours in the environment, a file's own value and an argument are stronger.
    """
    options = resolve(environ={variable: text}, cwd=tmp_path)
    assert (options[option], options.source(option)) == (value, f"environment {variable}")
    ours = {"TRACKER_MODE": "offline", "TRACKER_RESUME": "never", "TRACKER_RUN_ID": "other"}.get(option, "other")
    assert resolve(environ={variable: text, option: ours}, cwd=tmp_path).source(option) == "environment"
    assert resolve({option: ours}, environ={variable: text}, cwd=tmp_path)[option] == ours
    default = resolve(environ={}, cwd=tmp_path)[option]
    for written, found in ((default, value), (ours, ours)):
        mode = f"CONFIG_TRACKER_MODE_{written.upper()}=y\n"
        line = mode if option == "TRACKER_MODE" else f'CONFIG_{option}="{written}"\n'
        write(tmp_path, line)
        assert resolve(environ={variable: text}, cwd=tmp_path)[option] == found


def test_wandb_variables_that_say_nothing_change_nothing(tmp_path: Path) -> None:
    """Online, offline and false leave the run's mode as it is: WANDB_MODE=offline is W&B's own. Others are errors."""
    with pytest.raises(ConfigError, match=r"environment WANDB_MODE.*'offlien'"):
        resolve(environ={"WANDB_MODE": "offlien"}, cwd=tmp_path)
    for environ in ({"WANDB_MODE": "online"}, {"WANDB_MODE": "offline"}, {"WANDB_DISABLED": "false"}):
        assert resolve(environ=environ, cwd=tmp_path)["TRACKER_MODE"] == "online"
    assert resolve(environ={"WANDB_RESUME": "false"}, cwd=tmp_path)["TRACKER_RESUME"] == ""


def test_vendor_variables_beat_a_file(tmp_path: Path) -> None:
    """WANDB_MODE=online and MLFLOW_EXPERIMENT_NAME are environment, so they beat .config."""
    write(tmp_path, 'CONFIG_WANDB_OFFLINE=y\nCONFIG_MLFLOW_EXPERIMENT="a"\n')
    options = resolve(environ={"WANDB_MODE": "online", "MLFLOW_EXPERIMENT_NAME": "b"}, cwd=tmp_path)
    assert (options["WANDB_OFFLINE"], options["MLFLOW_EXPERIMENT"]) == (False, "b")


def test_unmet_dependency_names_both_sides(tmp_path: Path) -> None:
    """An option that needs another is an error where it is given, not where a later level makes it moot."""
    write(tmp_path, "CONFIG_TRACKER_NICE=5\n")
    options = resolve(environ={"TRACKER_RELAY": "n"}, cwd=tmp_path)
    assert (options["TRACKER_RELAY"], options["TRACKER_NICE"]) == (False, 10)
    with pytest.raises(ConfigError, match="argument: TRACKER_NICE needs TRACKER_RELAY, which isn't so"):
        resolve({"TRACKER_NICE": 5}, environ={"TRACKER_RELAY": "n"}, cwd=tmp_path)
    with pytest.raises(ConfigError, match="TRACKER_PYTHON needs !TRACKER_INLINE"):
        resolve({"TRACKER_PYTHON": "mlflow=/x", "TRACKER_INLINE": True}, environ={}, cwd=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"TRACKER_PROJET": "x"}, "argument: unknown option TRACKER_PROJET: did you mean TRACKER_PROJECT?"),
        ({"TRACKER_PROJECT": 5}, "argument: TRACKER_PROJECT is text, not int 5"),
        ({"TRACKER_NICE": 2.5}, "argument: TRACKER_NICE is a whole number, not 2.5"),
        ({"TRACKER_NICE": True}, "argument: TRACKER_NICE is a whole number, not True"),
        ({"TRACKER_NICE": 20}, "argument: TRACKER_NICE is 0 to 19, not 20"),
        ({"TRACKER_MODE": "on-line"}, "argument: TRACKER_MODE is online, offline or disabled, not 'on-line': did you"),
        ({"TRACKER_NOTES": "\udcff"}, "argument: TRACKER_NOTES isn't valid UTF-8"),
        ({"TRACKER_RELAY": 7}, "argument: TRACKER_RELAY is y or n, not 7"),
        ({"TRACKER": []}, 'argument: TRACKER names no tracker: write "none"'),
        ({"TRACKER": " , "}, 'argument: TRACKER names no tracker: write "none"'),
    ],
)
def test_wrong_argument(tmp_path: Path, arguments: dict[str, object], message: str) -> None:
    """An argument that an option can't take is an error that says what it takes."""
    with pytest.raises(ConfigError) as caught:
        resolve(arguments, environ={}, cwd=tmp_path)
    assert str(caught.value).startswith(message)


def test_arguments_in_python_types(tmp_path: Path) -> None:
    """Arguments may be what a caller has at hand: paths, lists of names, whole floats; None is "not given"."""
    arguments = {"TRACKER_DIR": tmp_path, "TRACKER": ["wandb", "csv"], "TRACKER_TAGS": ("a", "b")}
    options = resolve({**arguments, "TRACKER_FINISH_TIMEOUT": 5.0, "TRACKER_PROJECT": None}, environ={}, cwd=tmp_path)
    assert (options["TRACKER_DIR"], options["TRACKER"], options["TRACKER_TAGS"]) == (str(tmp_path), "wandb,csv", "a,b")
    assert options["TRACKER_FINISH_TIMEOUT"] == 5
    assert options.source("TRACKER_PROJECT") == "default"
    assert json.loads(json.dumps(options.to_dict())) == dict(options)
    with pytest.raises(KeyError):
        options.source("NOTHING")


def test_plugin_has_options_of_its_own(tmp_path: Path) -> None:
    """Arguments that begin with a chosen plug-in's name reach it; others, and odd types, are errors."""
    arguments = {"TRACKER": "json,my-sqlite", "MY_SQLITE_FILE": "x.db", "MY_SQLITE_SIZE": 5, "MY_SQLITE_MODE": None}
    options = resolve(arguments, environ={}, cwd=tmp_path)
    assert (options["MY_SQLITE_FILE"], options["MY_SQLITE_SIZE"]) == ("x.db", 5)
    assert options.source("MY_SQLITE_FILE") == "argument"
    assert "MY_SQLITE_MODE" not in options
    for trackers in ("json", "none"):
        with pytest.raises(ConfigError, match="argument: unknown option MY_SQLITE_FILE"):
            resolve({**arguments, "TRACKER": trackers}, environ={}, cwd=tmp_path)
    with pytest.raises(ConfigError, match="argument: MY_SQLITE_FILE is text, a number or a bool, not list"):
        resolve({**arguments, "MY_SQLITE_FILE": ["x"]}, environ={}, cwd=tmp_path)


def test_misspelt_variable_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A variable that looks like an option but isn't is named once per resolve; other programs' aren't."""
    with caplog.at_level(logging.WARNING, "trackers"):
        resolve(environ={"TRACKER_PROJCT": "x", "TRACKER_DEBUG": "1", "TRACKER_VERBOSITY": "3"}, cwd=tmp_path)
    assert [record.getMessage() for record in caplog.records] == [
        "environment variable TRACKER_PROJCT isn't an option and does nothing: did you mean TRACKER_PROJECT?"
    ]


def test_variables_of_commands_are_not_taken_for_misspelt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Those that commands read, which are no options of a training, have an effect."""
    names = ("TRACKER_LOG_FORMAT", plugins.VARIABLE, "TRACKER_DEFCONFIG", "TRACKER_KCONFIG")
    with caplog.at_level(logging.WARNING, "trackers"):
        resolve(environ=dict.fromkeys(names, ""), cwd=tmp_path)
    assert caplog.records == []


def test_import_is_cheap() -> None:
    """Importing the package loads neither kconfiglib nor a command line."""
    heavy = ("kconfiglib", "curses", "typer")
    code = f"import sys, trackers.configuration; print([m for m in {heavy} if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert output.strip() == "[]"


APP = typer.Typer()
commands.register(APP)


def invoke(*words: str) -> Any:
    return CliRunner().invoke(APP, list(words))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in DECLARATIONS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    return folder


def test_documentation_matches_the_kconfig_file() -> None:
    """docs/options.md holds the options exactly as declared."""
    text = (ROOT / "docs/options.md").read_text("utf-8")
    shown = invoke("show-config", "--markdown").stdout
    assert text.endswith(shown)
    assert r"{model}\_{optimizer}\_{variant}" in shown, "underscores between braces are emphasis in Markdown"


def test_show_config(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """show-config gives each option's value and origin, as lines and as JSON, and no password."""
    monkeypatch.setenv("TRACKIO_SERVER_URL", "http://h:7860/?write_token=secret")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:secret@host/x")
    lines, _, interpreters = invoke("show-config", "--defconfig", "gpt2-local").stdout.partition("\n\n")
    assert len(lines.splitlines()) == len(DECLARATIONS)
    delivers = f"delivered by {sys.executable} (this environment)"
    assert interpreters.splitlines() == [f"trackio: {delivers}", f"tensorboard: {delivers}"]
    assert lines.splitlines()[0].split() == ["TRACKER", '"trackio,tensorboard,json"', "defconfigs/gpt2-local:2"]
    shown = json.loads(invoke("show-config", "--json").stdout)
    assert shown["TRACKIO_PORT"] == {"value": 7860, "source": "default"}
    assert shown["TRACKIO_SERVER_URL"] == {"value": "http://h:7860/?write_token=***", "source": "environment"}
    assert shown["MLFLOW_TRACKING_URI"]["value"] == "https://me:***@host/x"
    assert "secret" not in lines


def test_list_defconfigs(here: Path) -> None:
    """list-defconfigs names ours and the directory's own, each with what it is for."""
    write(here, "# Mine alone.\n", "defconfigs/mine")
    shown = json.loads(invoke("list-defconfigs", "--json").stdout)
    listed = dict(line.split(None, 1) for line in invoke("list-defconfigs").stdout.splitlines())
    assert listed["mine"] == "Mine alone."
    assert "gpt2-wandb-trackio" in listed
    assert {entry["name"]: entry["about"] for entry in shown} == {name: about.strip() for name, about in listed.items()}
    assert all(Path(entry["path"]).is_file() for entry in shown)


def test_long_value_widens_no_other_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of a megabyte in .config is printed once, not as spaces in the line of each option."""
    monkeypatch.chdir(tmp_path)
    Path(".config").write_text(f'CONFIG_TRACKER_PROJECT="{"x" * 900_000}"\n')
    assert len(menu.as_text(resolve())) < 1_000_000


@pytest.mark.parametrize("command", ["show-config", "list-defconfigs"])
def test_texts_of_a_directorys_files_are_printed_without_escapes(command: str, here: Path) -> None:
    """Whoever cloned a repository reads its options and what its defconfigs are for; its terminal obeys neither."""
    write(here, 'CONFIG_TRACKER_NOTES="a\x1b]0;evil\x07b"\n', ".config")
    write(here, "# For\x1b[2J all.\n", "defconfigs/mine")
    shown = invoke(command).stdout
    assert "evil" in shown or "all." in shown
    assert all(line.isprintable() for line in shown.split("\n"))


@pytest.mark.parametrize(
    "words",
    [("defconfig", "nothing"), ("show-config", "--defconfig", "nothing"), ("menuconfig",), ("oldconfig",),
     ("savedefconfig", "/nowhere/x")],
)  # fmt: skip
def test_command_that_cannot_be_carried_out(
    here: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake is one line on stderr and exit code 2, without a traceback."""
    monkeypatch.setattr(sys, "argv", ["trackers", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("trackers: ")


def test_kconfig_prints_a_path(here: Path) -> None:
    """`trackers kconfig` names the file that another tree sources."""
    assert Path(invoke("kconfig").stdout.strip()).read_text("utf-8").count("config TRACKER\n") == 1


MAKEFILE = "PYTHON := {}/python\nENV :=\ninclude {}/config.mk\n"


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    write(folder, MAKEFILE.format(forked.commands(), ROOT), "Makefile")
    return subprocess.run(["make", *words], cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_make_targets_chain(here: Path) -> None:
    """The documented chain of targets works in one make."""
    done = make(here, "defconfig-gpt2-wandb-trackio", "savedefconfig", "list-defconfigs")
    assert done.returncode == 0, done.stderr
    saved = resolve(defconfig="defconfig", environ={}, cwd=here)
    assert (saved["TRACKER"], saved["TRACKER_PROJECT"]) == ("wandb,trackio", "gpt2")
    assert "hpc-offline" in done.stdout


def test_make_hands_on_what_it_is_given(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make TRACKER=… defconfig` writes that into .config; a variable of the shell stays out of the file."""
    monkeypatch.setenv("WANDB_ENTITY", "of-the-shell")
    odd = """it's "odd" #1 \\ x"""
    done = make(here, "TRACKER=wandb,trackio", f"TRACKER_NOTES={odd}", "defconfig", "DEFCONFIG=gpt2-local")
    assert done.returncode == 0, done.stderr
    options = resolve(environ={}, cwd=here)
    assert (options["TRACKER"], options["TRACKER_PROJECT"]) == ("wandb,trackio", "gpt2")
    assert (options["TRACKER_NOTES"], options["WANDB_ENTITY"]) == (odd, "")


def test_make_hands_on_every_option(here: Path) -> None:
    """Whatever option make is given stands in .config; make's own variables don't disturb, misspelt ones are named."""
    given = [f"{name}=x" for name in DECLARATIONS]
    shown = make(here, "--dry-run", *given, "defconfig-local").stdout.split()
    assert {name for word, name in itertools.pairwise(shown) if word == "--env"} >= set(DECLARATIONS)
    values = {"BENCHMARK_DIR": "b", "PROGRESS_DIR": "p", "TRACKER_LOG_INTERVAL": "7", "BASELINE_RUN_ID": "a/b/c"}
    done = make(here, "N=3", "WORKERS=2", "V=1", *(f"{name}={value}" for name, value in values.items()), "defconfig")
    assert done.returncode == 0, done.stderr
    options = resolve(environ={}, cwd=here)
    assert {name: str(options[name]) for name in values} == values
    done = make(here, "PROGRES_DIR=x", "defconfig")
    assert "PROGRES_DIR isn't an option: did you mean PROGRESS_DIR?" in done.stderr
    assert done.returncode != 0


def test_make_hands_on_what_the_surrounding_tree_declares(here: Path) -> None:
    """In a project with a Kconfig of its own, its variables and ours are told apart."""
    write(here, 'source "$(TRACKERS_KCONFIG)"\nconfig TRACKER_DIRS\n\tstring "of the project"\n', "Kconfig")
    done = make(here, "TRACKER_DIRS=x", "TRACKER_DIR=runs2", "defconfig")
    assert done.returncode == 0, done.stderr
    assert resolve(environ={}, cwd=here)["TRACKER_DIR"] == "runs2"


def test_unknown_tracker_is_named_by_the_commands(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """show-config refuses it with where it was named, doctor calls it a problem, defconfig warns of it."""
    write(here, 'CONFIG_TRACKER="wandbb,json"\n', ".config")
    monkeypatch.setenv("TRACKER_PYTHON", "mlfow=/opt/python")
    tracker = "trackers: TRACKER (.config:1): unknown tracker 'wandbb': did you mean 'wandb'? Known: aim, "
    done = invoke("show-config")
    assert done.exit_code == 2
    assert done.stdout.splitlines()[0].split() == ["TRACKER", '"wandbb,json"', ".config:1"]
    first, second = done.stderr.splitlines()
    assert first.startswith(tracker)
    assert second.startswith("trackers: TRACKER_PYTHON (environment): unknown tracker 'mlfow': did you mean 'mlflow'?")
    (configuration,) = [check for check in _doctor() if check["name"] == "configuration"]
    assert configuration["state"] == "problem"
    assert "did you mean 'wandb'?" in configuration["text"]
    done = make(here, "TRACKER=none,wandb", "TRACKER_PYTHON=", "defconfig-local", "show-config")
    assert "tracker 'none' can't be combined" in done.stderr
    write(here, 'CONFIG_TRACKER="sqlight"\n', "defconfigs/plug-in")
    done = invoke("defconfig", "plug-in")  # for a machine that has it
    assert (done.exit_code, "unknown tracker 'sqlight'" in done.stderr) == (0, True)


def test_doctor_says_what_a_chosen_tracker_lacks(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracker without its package is a problem where it is chosen, and absent where it isn't."""
    monkeypatch.setattr(registry, "_installed", lambda module: False)
    for text, states in (("json", ["absent", "absent"]), ("json,mlflow", ["problem", "absent"]),
                         ('trackio"\nCONFIG_TRACKER_MODE="offline', ["absent", "absent"])):  # fmt: skip
        write(here, f'CONFIG_TRACKER="{text}"\n', ".config")
        found = {check["name"]: check["state"] for check in _doctor()}
        assert [found["tracker mlflow"], found["tracker trackio"]] == states


def _doctor() -> list[dict[str, str]]:
    app = typer.Typer()
    app.command()(doctor.doctor)
    checks: list[dict[str, str]] = json.loads(CliRunner().invoke(app, ["--json"]).stdout)
    return checks


@pytest.mark.parametrize("target", ["olddefconfig", "allyesconfig", "allnoconfig"])
def test_make_target_writes_config(here: Path, target: str) -> None:
    """The targets that Kconfig users know write a .config that can be read."""
    done = make(here, target)
    assert done.returncode == 0, done.stderr
    assert resolve(environ={}, cwd=here).source("TRACKER").startswith(".config:")


def test_make_help_lists_the_targets() -> None:
    """Each configuration target has a line; in a checkout's own Makefile and in one that includes config.mk."""
    rules = (ROOT / "config.mk").read_text("utf-8")
    named = " ".join(re.findall(r"^(?:CONFIG_SIMPLE|CONFIG_READERS) := (.*)$", rules, re.MULTILINE)).split()
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    listed = {line.split()[0] for line in done.stdout.splitlines()}
    assert {*named, "nconfig", "defconfig"} <= listed


@pytest.mark.parametrize("target", ["menuconfig", "nconfig", "oldconfig"])
def test_make_target_without_a_terminal(here: Path, target: str) -> None:
    """The targets that ask need a terminal, and say what does without one."""
    done = make(here, target)
    assert done.returncode != 0
    assert "needs a terminal: " in done.stderr
    assert "Traceback" not in done.stderr


def test_make_fails_with_the_command(here: Path) -> None:
    """A mistake fails the target with the one line that explains it."""
    done = make(here, "defconfig-gpt2-locl")
    assert done.returncode != 0
    assert "no defconfig 'gpt2-locl': did you mean 'gpt2-local'?" in done.stderr
    assert "Traceback" not in done.stderr


def _read(terminal: int) -> bytes:
    if not readable([terminal], 30):
        return b""
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when the other end is closed
        return b""


def on_terminal(folder: Path, command: str, steps: list[tuple[str, str]], term: str = "xterm") -> tuple[int, str]:
    """Run a command on a terminal of 100 × 40; each step waits for a text, then types. Gives exit code and output."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    environ = {**os.environ, "TERM": term, "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}
    process = subprocess.Popen(
        [sys.executable, "-m", "trackers", command], cwd=folder, stdin=slave, stdout=slave, stderr=slave, env=environ
    )
    os.close(slave)
    output, waiting, unread = b"", list(steps), 0
    try:
        while block := _read(master):
            output += block
            while waiting and (place := output.find(waiting[0][0].encode(), unread)) >= 0:
                unread = place + len(waiting[0][0])
                os.write(master, waiting.pop(0)[1].encode())
    finally:
        os.close(master)  # hangs up: what still runs ends
        code = process.wait(60)
    assert not waiting, f"never showed {waiting[0][0]!r}: {output[-2000:]!r}"
    return code, output.decode(errors="replace")


def test_menuconfig_on_a_terminal(here: Path) -> None:
    """In the menu the trackers can be changed and saved; .config then holds them, and what was there before."""
    write(here, 'CONFIG_TRACKER_MODE="offline"\nCONFIG_TRACKIO_PORT=1234\n')
    steps = [
        ("Experiment tracking", "\n"),
        ("Trackers", "\n"),
        ("json", "\x7f" * 4 + "csv\n"),
        ("csv) Trackers", "q"),
        ("Save configuration?", "y"),
    ]
    code, output = on_terminal(here, "menuconfig", steps)
    assert code == 0, output
    options = resolve(environ={}, cwd=here)
    assert (options["TRACKER"], options["TRACKER_MODE"], options["TRACKIO_PORT"]) == ("csv", "offline", 1234)


def test_menuconfig_on_a_terminal_that_cannot_draw(here: Path) -> None:
    """An unknown terminal is one line, not a traceback."""
    code, output = on_terminal(here, "menuconfig", [], term="nonsense")
    assert code == 2
    assert "menuconfig can't draw on this terminal (TERM=nonsense)" in output
    assert "Traceback" not in output


def test_oldconfig_asks_for_what_is_new(here: Path) -> None:
    """oldconfig asks only for options that .config lacks, and keeps the rest."""
    assert invoke("defconfig", "local").exit_code == 0
    text = (here / ".config").read_text("utf-8")
    write(here, text.replace("CONFIG_TRACKIO_PORT=7860\n", ""))
    code, output = on_terminal(here, "oldconfig", [("TRACKIO_PORT", "8000\n")])
    assert code == 0, output
    assert resolve(environ={}, cwd=here)["TRACKIO_PORT"] == 8000


@pytest.mark.slow
def test_wheel_carries_kconfig_and_defconfigs(tmp_path: Path) -> None:
    """Installed from a wheel, away from the checkout, the options and the defconfigs are there."""
    import shutil
    import zipfile

    source = tmp_path / "source"
    shutil.copytree(ROOT / "trackers", source / "trackers", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "defconfigs", source / "defconfigs")
    shutil.copytree(ROOT / "scripts", source / "scripts")
    for name in ("pyproject.toml", "README.md", "LICENSE", "trackers_relay.py"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=source, check=True, capture_output=True, timeout=120)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = (
        "import trackers.configuration as c; o = c.resolve(defconfig='gpt2-local', environ={});"
        "print(o['TRACKER'], c.__file__);"
        "from trackers.configuration import files; import pathlib; print(*files.list_defconfigs(pathlib.Path.cwd()))"
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )
    first, second = done.stdout.splitlines()
    assert first == f"trackio,tensorboard,json {tmp_path}/site/trackers/configuration/__init__.py"
    assert second.split() == sorted(path.name for path in (ROOT / "defconfigs").iterdir())


def test_addresses_are_masked_only_where_they_hold_a_secret() -> None:
    """Masking hides tokens and passwords and nothing else."""
    assert menu.masked_value("http://host:5000/a?b=c") == "http://host:5000/a?b=c"
    assert menu.masked_value("http://h/?a=1&token=x&b=2#f") == "http://h/?a=1&token=***&b=2#f"
    assert menu.masked_value(5) == 5
