"""``trackers diff`` and ``trackers argv``: what differs, and a command line that a shell reads back word for word."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from tests.analysis.support import T0, write_run
from trackers.analysis.diff import quote
from trackers.cli.app import app
from trackers.errors import NotFound, UsageError
from trackers.records import Environment


def run_cli(*arguments: str) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(app, list(arguments))


def write(
    name: str, packages: dict[str, str] | None = None, machine: dict[str, Any] | None = None, **fields: Any
) -> None:
    """A run with a command, a commit and a machine."""
    values: dict[str, Any] = {
        "program": "/home/me/train.py", "argv": ["--lr", "0.1"], "cwd": "/home/me/my project", "python": sys.executable,
        "host": "node1", "git": {"commit": "a" * 40, "branch": "main", "root": "/home/me"}, **fields,
    }  # fmt: skip
    environment = {"packages": packages or {"torch": "2.4"}, "cpu_count": 8, **(machine or {})}
    write_run(name, [(1, 1, {"loss": 1.0})], more=[Environment(time=T0 + 1, values=environment)], **values)


def differences(*arguments: str) -> dict[tuple[str, str], tuple[Any, Any]]:
    """What ``trackers diff`` finds, by part and name."""
    done = run_cli("diff", *arguments, "--json")
    assert done.exit_code == 0, done.output or done.exception
    found = json.loads(done.stdout)["differences"]
    return {(entry["part"], entry["name"]): (entry["first"], entry["second"]) for entry in found}


def test_diff_finds_what_differs_in_each_part() -> None:
    """A setting, an option, the commit, a package, the machine; what is equal isn't named."""
    write("one", config={"lr": 0.1, "model": {"depth": 4}})
    write("two", {"torch": "2.5", "rich": "13"}, {"gpu": "H100"}, config={"lr": 0.2, "model": {"depth": 4}},
          argv=["--lr=0.2", "--fast", "-5", "data"], git={"commit": "b" * 40, "branch": "main"})  # fmt: skip
    assert differences("one", "two") == {
        ("config", "lr"): (0.1, 0.2),
        ("argv", "--lr"): ("0.1", "0.2"),
        ("argv", "--fast"): (None, "-5"),
        ("argv", "argument 0"): (None, "data"),
        ("git", "commit"): ("a" * 40, "b" * 40),
        ("packages", "torch"): ("2.4", "2.5"),
        ("packages", "rich"): (None, "13"),
        ("hardware", "gpu"): (None, "H100"),
    }
    text = run_cli("diff", "one", "two").stdout
    assert text.splitlines()[2:5] == ["config: 1 differs", "      -    +", "  lr  0.1  0.2"]
    assert f"  commit  {'a' * 40}  {'b' * 40}\n" in text


def test_what_one_run_does_not_say_is_not_compared() -> None:
    """Nobody looked at the machine of a run without a relay, and a source may have no packages and no commit."""
    write("one", machine={"os": "Linux", "host": "node1"})
    values: dict[str, Any] = {"program": "/home/me/train.py", "argv": ["--lr", "0.1"], "cwd": "/home/me/my project"}
    write_run("two", [(1, 1, {"loss": 1.0})], host="node2", python=sys.executable, **values)
    assert differences("one", "two") == {("hardware", "host"): ("node1", "node2")}
    lines = run_cli("diff", "one", "two").stdout.splitlines()
    assert {"git: only - says", "data: neither run says", "packages: only - says"} <= set(lines)


def test_diff_of_equal_runs_says_so() -> None:
    """Nothing differs: each part says that it is the same, or that no run says anything."""
    write("one")
    write("two")
    assert differences("one", "two") == {}
    lines = run_cli("diff", "one", "two").stdout.splitlines()
    assert lines[2:] == [
        "the same in all that was recorded",
        "config: neither run says",
        *(f"{part}: the same" for part in ("argv", "git")),
        *(f"{part}: neither run says" for part in ("code", "data")),
        *(f"{part}: the same" for part in ("packages", "hardware")),
    ]


def test_diff_of_uncommitted_changes_shows_their_lines() -> None:
    """Of two patches the lines that differ are shown, without what a terminal would obey."""
    for name, line in (("one", "+x = 1"), ("two", "+x = 2\x1b[31m\n+y = 3")):
        write(name, machine={"git": {"dirty": True, "patch": f"--- a\n+++ b\n{line}\n"}})
    assert differences("one", "two") == {("git", "patch"): ("+x = 1", "+x = 2\x1b[31m\n+y = 3")}
    shown = run_cli("diff", "one", "two").stdout
    assert "    - +x = 1\n" in shown
    assert "\x1b" not in shown


def test_diff_masks_secrets() -> None:
    """A secret that got into a configuration or a command line isn't shown."""
    write("one", config={"api_key": "secret-one"}, argv=["--token", "secret-one"])
    write("two", config={"api_key": "secret-two"}, argv=["--token", "other"])
    done = run_cli("diff", "one", "two")
    assert "secret-" not in done.output
    assert "config: the same" in done.output


def test_argv_is_a_command_that_a_shell_runs(tmp_path: Any) -> None:
    """The line starts the same program in the same place with the same words, whatever is in them."""
    words = ["--name", 'it\'s $HOME `x` "q" \\', "*", "a\nb", "\x1b[31m", "", "é", "#"]
    place = tmp_path / "my 'place'"
    place.mkdir()
    (place / "show.py").write_text("import json, os, sys; print(json.dumps([os.getcwd(), sys.argv[1:]]))")
    write("one", argv=words, cwd=str(place), program=str(place / "show.py"))
    line = run_cli("argv", "one").stdout
    assert "\x1b" not in line
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [str(place), words]


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12))
@pytest.mark.processes
def test_quote_survives_the_shell(word: str) -> None:
    """Any word comes out of a shell as it went in."""
    done = subprocess.run(["bash", "-c", f"printf %s {quote(word)}"], capture_output=True, check=True)
    assert done.stdout == word.encode()


def test_argv_masks_secrets_and_says_what_to_know() -> None:
    """A secret is ***; the commit, uncommitted changes and ranks are said beside the command."""
    write("one", argv=["--api-key", "abc", "--wandb_key=" + "0" * 40], world_size=8, machine={"git": {"dirty": True}})
    done = run_cli("argv", "one")
    assert "abc" not in done.output
    assert "0" * 40 not in done.output
    assert "'***'" in done.stdout
    for text in ("a" * 40 + ", with uncommitted changes", "8 ranks", "put it in again"):
        assert text in done.stderr


def test_argv_of_a_module() -> None:
    """``python -m package`` is started as such."""
    write("one", program="-m my.package", cwd="")
    assert run_cli("argv", "one").stdout == f"{quote(sys.executable)} -m my.package --lr 0.1\n"


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (["argv", "book"], NotFound, "started in a notebook"),
        (["argv", "json:a.json"], NotFound, "doesn't say how it was started"),
        (["argv", "nothing"], NotFound, "no run 'nothing'"),
        (["diff", "book", "digits"], UsageError, "'digits' names 2 runs"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], error: type[Exception], said: str, tmp_path: Any) -> None:
    """A run without a command, no run, several runs: one line each."""
    write("book", program="<notebook>", argv=[])
    write("other")
    (tmp_path / "a.json").write_text('{"run_name": "a", "training_iterations": []}')
    done = run_cli(*arguments)
    assert isinstance(done.exception, error), done.output
    assert said in str(done.exception)
