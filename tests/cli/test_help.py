"""The program's help: one screen of commands, usage lines as one types them, and the page of all commands."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from tests import ROOT
from trackers.cli.app import app, commands
from trackers.cli.config import _COMMANDS as KCONFIG
from trackers.support import plugins


def shown(*words: str, columns: int = 80) -> str:
    done = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": str(columns), "TERMINAL_WIDTH": str(columns)})
    assert done.exit_code == 0, done.output
    return done.output


def every_command() -> Iterator[tuple[str, ...]]:
    for name in commands:
        yield (name,)
        for inner in getattr(commands[name], "commands", {}):
            yield name, inner


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_overview_fits_a_screen(columns: int) -> None:
    """A line for each command that isn't hidden, none longer than the terminal, forty at most with all around them."""
    lines = shown(columns=columns).splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= columns
    listed = [line[10:].split()[0] for line in lines[2:-2]]
    assert sorted(listed) == sorted(set(commands) - set(KCONFIG))
    assert not any(line.endswith((",", "(")) or "``" in line for line in lines)


@pytest.mark.heavy
@pytest.mark.parametrize("words", [*every_command()], ids=" ".join)
def test_usage_is_what_one_types(words: tuple[str, ...]) -> None:
    """No doubled dots, no braces around arguments, no type beside a flag."""
    text = shown(*words, columns=120)
    usage = next(line for line in text.splitlines() if "usage:" in line.lower())
    assert not re.search(r"…\.|\.\.\.\.|[{}]", usage)
    assert "<bool>" not in text


def test_choices_are_shown() -> None:
    """An option that takes some words only names them where its value stands."""
    for words, choices in {
        ("plot",): "step|time|tokens", ("sql",): "duckdb|spark",
        ("compare",): "table|markdown|csv|latex|json",
    }.items():  # fmt: skip
        assert choices in shown(*words, columns=160)


@pytest.mark.parametrize("name", KCONFIG)
def test_kconfig_commands_have_both_names(name: str) -> None:
    """``trackers config NAME`` is ``trackers NAME``, which goes on working."""
    old, new = shown(name), shown("config", name)
    assert old.split("Usage:")[1].replace(f" {name} ", f" config {name} ").split() == new.split("Usage:")[1].split()
    assert re.search(rf"^\W*{name}\b", shown("config"), re.M)


@pytest.mark.processes
def test_page_of_commands_is_current() -> None:
    """docs/commands.md is what scripts/command_reference.py writes."""
    spec = importlib.util.spec_from_file_location("command_reference", ROOT / "scripts/command_reference.py")
    assert spec is not None
    assert spec.loader is not None
    reference: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    assert reference.PAGE.read_text("utf-8") == reference.page(), "python scripts/command_reference.py writes it anew"


@pytest.mark.parametrize("name", [name for own in plugins.OURS.values() for name in own.commands])
def test_command_of_a_distribution_that_isnt_installed_says_what_to_install(name: str) -> None:
    """One line with its command, whatever follows the name."""
    words = name.split(".")
    done = CliRunner().invoke(app, [*words, "some", "--words"])
    extra = next(extra for extra, own in plugins.OURS.items() if name in own.commands)
    install = f"pip install 'trackers-relay[{extra}]'"
    assert str(done.exception) == f"command '{' '.join(words)}' is of another distribution: {install}"
    assert f"'trackers-relay[{extra}]'" in "".join(shown(*words).split())


@pytest.mark.parametrize("name", plugins.ours("flag"))
def test_flag_of_a_distribution_that_isnt_installed_says_what_to_install(name: str) -> None:
    """One line with its command, of each command that takes sources; help doesn't have it."""
    extra = next(extra for extra, own in plugins.OURS.items() if name in own.flags)
    for command in ("show", "compare"):
        done = CliRunner().invoke(app, [command, "latest", f"--{name}", "value"])
        install = f"pip install 'trackers-relay[{extra}]'"
        assert str(done.exception) == f"flag '--{name}' is of another distribution: {install}"
        assert f"--{name}" not in shown(command)
