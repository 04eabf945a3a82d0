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
    special = {"BASELINE_RUN_ID": "me/gpt2/abc", "TRACKER_RESUME": "must", "TRACKER_RANK": "last"}
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


def test_flags_have_the_documented_spelling() -> None:
    """The flags that users know are there, with help from the Kconfig file."""
    text = parser_with_flags().format_help()
    flags = "--tracker --tracker-project --tracker-run-name --tracker-tags --tracker-group --defconfig --wandb-entity"
    for flag in (*flags.split(), "--wandb-offline, --no-wandb-offline", "--tracker-mode {online,offline,disabled}"):
        assert flag in text
    words = re.sub(r"-\s+", "-", " ".join(text.split()))
    for declaration in DECLARATIONS.values():
        assert re.sub(r"-\s+", "-", declaration.help) in words


def test_flags_not_given_are_absent() -> None:
    """A parser's defaults don't beat a defconfig: what isn't on the command line isn't a flag."""
    arguments = parser_with_flags().parse_args(["--lr", "0.1", "--defconfig", "gpt2-local"])
    assert flags_from_args(arguments) == ({}, "gpt2-local")
    assert flags_from_args(argparse.Namespace(lr=1)) == ({}, None)


def test_documented_command_line(tmp_path: Path) -> None:
    """The README's example of flags works as written: tags and group arrive."""
    words = ["--tracker", "wandb", "--tracker-project", "gpt2-ablation", "--tracker-run-name", "step-05",
             "--tracker-tags", "ablation,ra-ct,step-05", "--tracker-group", "ratio-ablation"]  # fmt: skip
    options = resolve(flags=flags_from_args(parser_with_flags().parse_args(words))[0], environ={}, cwd=tmp_path)
    assert options["TRACKER_TAGS"] == "ablation,ra-ct,step-05"
    assert options["TRACKER_GROUP"] == "ratio-ablation"


@pytest.mark.parametrize(
    "taken", ["--tracker", "--tracker-project", "--no-wandb-offline", "--defconfig", "--tracker_dir"]
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
        (["--baseline-run-id", "abc"], "flag --baseline-run-id: BASELINE_RUN_ID is entity/project/run_id"),
        (["--no-tracker-relay", "--tracker-nice", "5"], "flag --tracker-nice: TRACKER_NICE needs TRACKER_RELAY"),
    ],
)
def test_flag_with_a_wrong_value(tmp_path: Path, words: list[str], message: str) -> None:
    """A value that an option can't take is an error that names the flag."""
    with pytest.raises(ConfigError, match=message):
        resolve(flags=flags_from_args(parser_with_flags().parse_args(words))[0], environ={}, cwd=tmp_path)


def test_flag_of_the_wrong_type(capsys: pytest.CaptureFixture[str]) -> None:
    """argparse itself refuses what isn't a number or a known word, with exit code 2."""
    for words in (["--trackio-port", "x"], ["--tracker-mode", "offlin"]):
        with pytest.raises(SystemExit) as caught:
            parser_with_flags().parse_args(words)
        assert caught.value.code == 2
        assert words[0] in capsys.readouterr().err
