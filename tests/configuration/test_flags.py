"""Flags on a script's own argparse parser."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from trackers.configuration import add_arguments, flags_from_args, resolve
from trackers.configuration.declaration import Declaration
from trackers.configuration.kconfig import Tree
from trackers.errors import ConfigError, UsageError

DECLARATIONS = Tree().declarations


def parser_with_flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="train.py")
    parser.add_argument("--lr", type=float, default=1e-3)
    add_arguments(parser)
    return parser


def example(declaration: Declaration) -> object:
    """A value that the option takes and that isn't its default."""
    special = {
        "BASELINE_RUN_ID": "me/gpt2/abc", "TRACKER_RESUME": "must", "TRACKER_RANK": "last", "TRACKER_ALERTS": "crashed",
        "TRACKER_ALERT_TO": "desktop", "TRACKER_GPU_DETAIL": "full", "TRACKER_ALERT_SMTP": "smtp://mail.example.org",
    }  # fmt: skip
    if declaration.kind == "bool":
        return not declaration.default
    if declaration.choices:
        return declaration.choices[-1]
    if declaration.limits:
        return declaration.limits[1]
    return special.get(
        declaration.symbol, "mlflow=/opt/python" if declaration.symbol == "TRACKER_PYTHON" else "some-text"
    )


def test_every_option_has_a_flag(tmp_path: Path) -> None:
    """Each option's flag reaches the resolved options and is named as their source."""
    parser = parser_with_flags()
    for symbol, declaration in DECLARATIONS.items():
        value = example(declaration)
        if declaration.kind == "bool":
            words = [declaration.flag if value else "--no-" + declaration.flag[2:]]
        else:
            words = [declaration.flag, str(value)]
        flags, defconfig = flags_from_args(parser.parse_args(words))
        assert defconfig is None
        assert set(flags) == {symbol}
        options = resolve(flags=flags, environ={}, cwd=tmp_path)
        assert options[symbol] == value != declaration.default, symbol
        assert options.source(symbol) == f"flag {declaration.flag}"


def test_help_of_a_script_is_short() -> None:
    """The usual flags are a group of their own in --help; the others are left to --tracker-help, which it names."""
    text = parser_with_flags().format_help()
    flags = "--tracker --tracker-project --tracker-run-name --tracker-tags --tracker-group --defconfig --tracker-help"
    for flag in (*flags.split(), "--tracker-mode {online,offline,disabled}"):
        assert flag in text
    own, ours = text.split("\nexperiment tracking:\n")
    assert "--lr" in own
    assert "--lr" not in ours
    assert "--tracker-nice" not in text
    assert len(text.splitlines()) < 80


def test_tracker_help_shows_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    """All flags with their help from the Kconfig file, by its menus, on standard output; exit code 0."""
    with pytest.raises(SystemExit) as caught:
        parser_with_flags().parse_args(["--tracker-help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "--lr" not in text
    assert "--tracker-wandb-offline, --no-tracker-wandb-offline" in text
    words = re.sub(r"-\s+", "-", " ".join(text.split()))
    for declaration in DECLARATIONS.values():
        assert declaration.flag in text
        assert re.sub(r"-\s+", "-", declaration.help) in words
        assert f"\n{declaration.menu}:\n" in text


def test_every_flag_begins_with_the_prefix() -> None:
    """No flag of ours can be one of a script's own: all begin with --tracker, and no two are the same."""
    flags = [declaration.flag for declaration in DECLARATIONS.values()]
    assert all(flag == "--tracker" or flag.startswith("--tracker-") for flag in flags)
    assert len(set(flags)) == len(flags)
    parser = argparse.ArgumentParser()
    for flag in ("--wandb-project", "--json-dir", "--mlflow-tags", "--defconfig"):
        parser.add_argument(flag)
    add_arguments(parser)
    given = parser.parse_args(["--wandb-project", "mine", "--defconfig", "theirs", "--tracker-defconfig", "ours"])
    assert (given.wandb_project, given.defconfig) == ("mine", "theirs")
    assert flags_from_args(given) == ({}, "ours")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tracker-projct", "x"], "--tracker-projct x: did you mean --tracker-project? --tracker-help lists all"),
        (["--tracker-tag=x"], None),  # short for --tracker-tags, as argparse has it
        (["--no-tracker-relays"], "did you mean --no-tracker-relay?"),
        (["--trackr", "json"], "--trackr json: did you mean --tracker?"),
        (["--traker-project", "x"], "did you mean --tracker-project?"),
        (["--wandb-entity", "me"], "did you mean --tracker-wandb-entity?"),
        (["--no-wandb-offline"], "did you mean --no-tracker-wandb-offline?"),
        (["--json-dir=out"], "did you mean --tracker-json-dir?"),
        (["--lrr", "1"], "unrecognized arguments: --lrr 1\n"),
    ],
)
def test_unknown_flag_is_answered_with_the_nearest(
    words: list[str], said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt flag of ours, and one without its prefix, names the one that was meant; a script's own doesn't."""
    if said is None:
        assert parser_with_flags().parse_args(words).tracker_tags == "x"
        return
    with pytest.raises(SystemExit) as caught:
        parser_with_flags().parse_args(words)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_flags_not_given_are_absent() -> None:
    """A parser's defaults don't beat a defconfig: what isn't on the command line isn't a flag."""
    arguments = parser_with_flags().parse_args(["--lr", "0.1", "--defconfig", "gpt2-local"])
    assert flags_from_args(arguments) == ({}, "gpt2-local")
    assert flags_from_args(argparse.Namespace(lr=1)) == ({}, None)


def test_documented_command_line(tmp_path: Path) -> None:
    """The example of flags in docs/choosing-trackers.md works as written: tags and group arrive."""
    words = ["--tracker", "wandb", "--tracker-project", "gpt2-ablation", "--tracker-run-name", "step-05",
             "--tracker-tags", "ablation,ra-ct,step-05", "--tracker-group", "ratio-ablation"]  # fmt: skip
    options = resolve(flags=flags_from_args(parser_with_flags().parse_args(words))[0], environ={}, cwd=tmp_path)
    assert options["TRACKER_TAGS"] == "ablation,ra-ct,step-05"
    assert options["TRACKER_GROUP"] == "ratio-ablation"


@pytest.mark.parametrize(
    "taken", ["--tracker", "--tracker-project", "--no-tracker-wandb-offline", "--tracker-defconfig", "--tracker_dir"]
)
def test_parser_with_the_same_flag(taken: str) -> None:
    """A flag that the script has already is an error that names it, and leaves the parser as it was."""
    parser = argparse.ArgumentParser()
    parser.add_argument(taken)
    before = parser.format_help()
    flag = taken.replace("_", "-")
    with pytest.raises(UsageError, match=f"the parser already has {flag}: remove it there"):
        add_arguments(parser)
    assert parser.format_help() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tracker-nice", "99"], "flag --tracker-nice: TRACKER_NICE is 0 to 19, not 99"),
        (
            ["--tracker-baseline-run-id", "abc"],
            "flag --tracker-baseline-run-id: BASELINE_RUN_ID is entity/project/run_id",
        ),
        (["--no-tracker-relay", "--tracker-nice", "5"], "flag --tracker-nice: TRACKER_NICE needs TRACKER_RELAY"),
    ],
)
def test_flag_with_a_wrong_value(tmp_path: Path, words: list[str], message: str) -> None:
    """A value that an option can't take is an error that names the flag."""
    with pytest.raises(ConfigError, match=message):
        resolve(flags=flags_from_args(parser_with_flags().parse_args(words))[0], environ={}, cwd=tmp_path)


def test_flag_of_the_wrong_type(capsys: pytest.CaptureFixture[str]) -> None:
    """argparse itself refuses what isn't a number or a known word, with exit code 2."""
    for words in (["--tracker-trackio-port", "x"], ["--tracker-mode", "offlin"]):
        with pytest.raises(SystemExit) as caught:
            parser_with_flags().parse_args(words)
        assert caught.value.code == 2
        assert words[0] in capsys.readouterr().err
