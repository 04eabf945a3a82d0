"""The words of the command that trains a point: names in braces, and W&B's macros."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from trackers_sweeps.command import ALL_VALUES, MACROS, arguments, check, tree

from trackers.errors import UsageError


def test_words_of_a_command() -> None:
    """Values follow as flags, or stand where they are named."""
    point = {"lr": "0.1", "fast": True, "slow": False, "sizes": [1, 2]}
    assert arguments(["p"], point) == ["p", "--lr=0.1", "--fast=True", "--slow=False", "--sizes=[1, 2]"]
    assert arguments(["p", "--rate", "{lr}"], point) == ["p", "--rate", "0.1"]
    assert arguments(["p", "${args_no_hyphens}"], {"a": 1}) == ["p", "a=1"]
    assert arguments(["p", "${args_no_boolean_flags}"], point) == ["p", "--lr=0.1", "--fast", "--sizes=[1, 2]"]


def test_names_in_braces_and_braces_of_the_program() -> None:
    """A known name is replaced once, double braces are single ones, and the shell's variables stay."""
    point = {"lr": "{seed}", "seed": 3, "data/x": "é", "a b": "c d"}
    for word, expected in {
        "{lr}": "{seed}", "--lr={lr}:{seed}": "--lr={seed}:3", "{data/x}{a b}": "éc d",
        '{"optim":{"lr":{seed}}}': '{"optim":{"lr":3}}', "{{seed}: 1}": "{3: 1}",
        "{{seed}}": "{seed}", "{{other}}": "{other}", "${seed}": "${seed}",
        "{} {0} { seed } {x:.3f}": "{} {0} { seed } {x:.3f}",
    }.items():  # fmt: skip
        assert arguments([word, "{seed}"], point) == [expected, "3"]


def test_unknown_name_in_braces_is_one_line() -> None:
    """Before anything is trained: the nearest name, and how the program's own braces are written."""
    check(["p", "{lr}", "{{print}}", "${HOME}", "{}", "{0}", "{x:.3f}"], ["lr"])
    with pytest.raises(UsageError) as raised:
        check(["p", "--lr={lrr}"], ["seed", "lr", "seed"])
    assert str(raised.value) == (
        "{lrr} in the command is no parameter: did you mean 'lr'? Known: seed, lr; braces that the program itself "
        "needs: {{lrr}}"
    )
    check(["p", "{print}"], ["lr"], macros=True)  # a W&B file's own braces


MACRO_WORDS = {
    "${env}": ["/usr/bin/env"], "${interpreter}": [sys.executable],
    "${args}": ["--lr=0.1", "--on=True", "--off=False", "--none=None"],
    "${args_no_hyphens}": ["lr=0.1", "on=True", "off=False", "none=None"],
    "${args_no_equals}": ["--lr", "0.1", "--on", "True", "--off", "False", "--none", "None"],
    "${args_no_boolean_flags}": ["--lr=0.1", "--on", "--none=None"],
    "${args_append_hydra}": ["+lr=0.1", "+on=True", "+off=False", "+none=None"],
    "${args_override_hydra}": ["++lr=0.1", "++on=True", "++off=False", "++none=None"],
    "${args_json}": [json.dumps({"lr": 0.1, "on": True, "off": False, "none": None})],
    "${args_json_file}": ["there.json"],
}  # fmt: skip


@pytest.mark.heavy
def test_macros_are_those_of_wandb() -> None:
    """Each gives what W&B's agent makes of it; the interpreter is this one."""
    from wandb.sdk.launch.sweeps.utils import create_sweep_command_args

    point: dict[str, Any] = {"lr": 0.1, "on": True, "off": False, "none": None}
    theirs = create_sweep_command_args({"args": {name: {"value": value} for name, value in point.items()}})
    assert {name for name in theirs if isinstance(theirs[name], list)} <= {macro[2:-1] for macro in ALL_VALUES}
    for macro in MACROS:
        found = arguments(["p", macro, "${args}"], point, json_file=Path("there.json"))
        assert found == ["p", *MACRO_WORDS[macro], *MACRO_WORDS["${args}"]]
        assert theirs.get(macro[2:-1], MACRO_WORDS[macro]) == MACRO_WORDS[macro]
    assert arguments(["${args_no_boolean_flags}"], {"off": False}) == []
    with pytest.raises(UsageError, match=r"unknown macro \$\{argz\}: did you mean '\$\{args\}'\?"):
        check(["p", "${argz}"], [], macros=True)


def test_environment_in_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """``${envvar:NAME}`` is its value, and an error where there is none."""
    monkeypatch.setenv("DATA_ROOT", "/data")
    assert arguments(["--data=${envvar:DATA_ROOT}/x", "${args}"], {}) == ["--data=/data/x"]
    with pytest.raises(UsageError, match="there is no environment variable 'NOT_THERE'"):
        arguments(["${envvar:NOT_THERE}"], {})


def test_value_is_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file gives as a value expands nothing of the environment, wherever it stands."""
    monkeypatch.setenv("MY_SECRET", "s3cret")
    point = {"a": "${envvar:MY_SECRET}", "b": "{a}", "c": "$MY_SECRET"}
    for word in ("{a}", "x={a}{b}{c}", "${args}", "${args_json}", "p"):
        assert "s3cret" not in " ".join(arguments([word], point))
    assert arguments(["${envvar:MY_SECRET}{a}"], point) == ["s3cret${envvar:MY_SECRET}"]


def test_nested_parameters_are_nested_where_values_are() -> None:
    """In the configuration and in JSON; a name with a dot that nobody nested stays one."""
    point, nested = {"a.b": 1, "optimizer.deep.lr": 2, "optimizer.name": "adam"}, {
        "optimizer.deep.lr": ["optimizer", "deep", "lr"], "optimizer.name": ["optimizer", "name"],
    }  # fmt: skip
    expected = {"a.b": 1, "optimizer": {"deep": {"lr": 2}, "name": "adam"}}
    assert tree(point, nested) == expected
    assert [json.loads(word) for word in arguments(["${args_json}"], point, nested)] == [expected]
    assert arguments(["p"], point, nested) == ["p", "--a.b=1", "--optimizer.deep.lr=2", "--optimizer.name=adam"]
