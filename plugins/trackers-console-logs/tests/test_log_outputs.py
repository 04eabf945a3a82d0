"""Files that ``benchmark extract`` and ``run`` write, and what they say of bad input, as other commands must."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from trackers_console_logs import benchmark as primus

from tests import again
from tests.cli import test_outputs as outputs
from tests.cli.test_bad_inputs import HOWS, _here, damage, said
from tests.cli.test_outputs import full, here, prepared, script

__all__ = ["_here", "full", "here", "prepared"]
NAME = "extract_primus_metrics"
EXTRACT = script(NAME, primus.extract)
outputs.COMMANDS[NAME] = outputs.Command(EXTRACT, ("--log-file", "a.log", "--output", "{}"), "x.json", "a.log")

test_output_is_replaced_by_its_own_kind_alone = again.with_values(
    outputs.test_output_is_replaced_by_its_own_kind_alone, [NAME]
)
test_output_is_never_an_input = again.with_values(outputs.test_output_is_never_an_input, [NAME], "name")
test_what_another_account_put_in_its_place_is_not_written_to = again.with_values(
    outputs.test_what_another_account_put_in_its_place_is_not_written_to,
    [(kind, NAME) for kind in ("link", "folder", "pipe")],
)
test_full_disk_leaves_what_was_there = again.with_values(outputs.test_full_disk_leaves_what_was_there, [NAME])
test_output_is_a_directory_or_below_a_file = again.with_values(
    outputs.test_output_is_a_directory_or_below_a_file, [NAME]
)


def test_every_output_is_tried_here() -> None:
    """One option names a file to write, another one a directory: below."""
    parsers = {"extract": primus._extract_parser(), "run": primus._run_parser()}
    words = ("output", "report", "plot")
    found = [(name, action.dest) for name, parser in parsers.items() for action in parser._actions
             if any(word in action.dest for word in words)]  # fmt: skip
    assert found == [("extract", "output"), ("run", "output_dir")]


def test_logs_of_one_second_have_a_result_each(here: Path) -> None:
    """Two logs of one name and time, from two directories or standard input, are two results; the same log is one."""
    program = script("extract_primus_metrics", primus.extract)
    for folder in ("x", "y"):
        Path(folder).mkdir()
        shutil.copy("a.log", Path(folder, "training.log"))
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            for _ in range(2):
                assert program(["--log-file", "training.log", "--output", "../out/"]) == 0
    assert len(list(Path("out").iterdir())) == 2


@pytest.mark.parametrize("how", HOWS)
def test_damaged_log_is_one_line(how: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What can't be read is named."""
    damage(Path("bad"), how)
    assert said(EXTRACT, ["--log-file", "bad"], capsys) == 1


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root, to become somebody else")
def test_unreadable_directory_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the operating system refuses is named with its reason."""
    Path("results/inner").mkdir(parents=True)
    Path("results").chmod(0)
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)
    os.seteuid(65534)
    try:
        said(EXTRACT, ["--log-file", "results/x.log"], capsys)
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    "words",
    [["--num-gpus", "0"], ["--num-gpus=x"], ["--global-batch-size", "-1"], ["--sequence-length", "1.5"],
     ["--no-such-option"], ["--output", "x"], ["--num-gpus", "9" * 5000]],
)  # fmt: skip
def test_wrapper_with_a_bad_option_fails_before_training(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is run, and the line names what is wrong."""
    assert script(primus.RUN, primus.run)([*words, "touch", "trained"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert not [path for path in Path().iterdir() if path.name != "home"]


@pytest.mark.parametrize("error", [SystemExit(2), KeyError("x"), OSError(28, "No space left"), KeyboardInterrupt()])
@pytest.mark.processes
def test_wrapper_keeps_the_commands_exit_code(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever goes wrong when the result is extracted, training's own code counts, and the log is kept."""

    def fail(words: Sequence[str]) -> int:
        raise error

    monkeypatch.setattr(primus, "extract", fail)
    with monkeypatch.context() as patch:
        patch.setattr(sys.stdout, "fileno", lambda: os.open(os.devnull, os.O_WRONLY), raising=False)
        assert primus.run(["bash", "-c", "exit 7"]) == 7
    assert "no result" in capsys.readouterr().err
    assert len(list(Path("benchmark_results").glob("*.log"))) == 1
