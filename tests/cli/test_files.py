"""``trackers files`` and ``trackers get``, and what ``show`` and ``keys`` say of media and artifacts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import trackers
from trackers.cli.app import app
from trackers.errors import NotFound, UsageError


def run_cli(*arguments: str) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(app, list(arguments))


def log(run: object) -> None:
    """Two images under one name at two steps, a text, a model of two files."""
    import numpy

    for step in (1, 2):
        run.log({"samples/x": trackers.Image(numpy.full((4, 6), step, "uint8")), "loss": 1.0}, step=step)  # type: ignore[attr-defined]


@pytest.fixture
def made() -> str:
    """The id of a run with media and artifacts."""
    run = trackers.init("json", mode="offline", project="digits", name="one", options={"TRACKER_RELAY": False})
    log(run)
    run.log({"note": "hello"}, step=3)
    Path("folder/sub").mkdir(parents=True)
    Path("folder/best.pt").write_bytes(b"weights")
    Path("folder/sub/config.json").write_text("{}")
    artifact = trackers.Artifact("model", "model")
    artifact.add_dir("folder")
    run.log_artifact(artifact)
    run.finish()
    return str(run.id)


def test_files_lists_kind_name_step_and_size(made: str) -> None:
    """A line for each; --kind, --name and --step choose; JSON has the files of artifacts."""
    lines = run_cli("files", made).stdout.splitlines()
    assert lines[0].split() == ["kind", "name", "step", "files", "size"]
    assert [line.split()[:2] for line in lines[1:]] == [
        ["image", "samples/x"], ["image", "samples/x"], ["text", "note"], ["model", "model"],
    ]  # fmt: skip
    assert len(run_cli("files", made, "--kind", "image,model").stdout.splitlines()) == 4
    assert len(run_cli("files", made, "--name", "samp*", "--step", "2").stdout.splitlines()) == 2
    found = json.loads(run_cli("files", made, "--kind", "model", "--json").stdout)
    assert sorted(found[0]["paths"]) == ["best.pt", "sub/config.json"]
    assert found[0]["version"] == "v0"
    nothing = run_cli("files", made, "--kind", "audio")
    assert (nothing.stdout, nothing.exit_code) == ("", 0)
    assert "keeps nothing of this kind; 4 others" in nothing.stderr
    assert "did you mean 'image'" in run_cli("files", made, "--kind", "imgae").stderr
    assert "did you mean 'samples/x'" in run_cli("files", made, "--name", "sample/x").stderr


def test_get_fetches_media_texts_and_artifacts(made: str) -> None:
    """Each by its name, one file by its path; the last unless told otherwise; a second time nothing is written."""
    assert run_cli("get", made, "samples/x", "note", "-o", "out").exit_code == 0
    assert run_cli("get", made, "model", "-o", "out").exit_code == 0
    found = sorted(str(path.relative_to("out")) for path in Path("out").rglob("*") if path.is_file())
    assert found == ["model/best.pt", "model/sub/config.json", "note-3.txt", "samples/x-2.png"]
    assert Path("out/note-3.txt").read_text() == "hello"
    again = run_cli("get", made, "model/best.pt", "-o", "out")
    assert again.stdout == "out/model/best.pt is there\n"
    every = json.loads(run_cli("get", made, "samples/*", "--all", "--json", "-o", "all").stdout)
    assert [(entry["step"], entry["written"]) for entry in every] == [(1, True), (2, True)]


def test_get_of_what_is_not_there_is_one_line(made: str) -> None:
    """A wrong name has the nearest one beside it; several runs, and a file that differs, are refused."""
    wrong = run_cli("get", made, "modell")
    assert isinstance(wrong.exception, NotFound)
    assert "did you mean 'model'" in str(wrong.exception)
    Path("out/model").mkdir(parents=True)
    Path("out/model/best.pt").write_text("mine")
    refused = run_cli("get", made, "model", "-o", "out")
    assert isinstance(refused.exception, UsageError)
    assert Path("out/model/best.pt").read_text() == "mine"
    assert run_cli("get", made, "model", "-o", "out", "--force").exit_code == 0
    assert Path("out/model/best.pt").read_bytes() == b"weights"


def test_get_from_another_source(tmp_path: Path) -> None:
    """Media inside TensorBoard's files are listed and fetched, and nothing else is left behind."""
    run = trackers.init(
        "tensorboard", project="digits", name="one", inline=True, options={"TENSORBOARD_DIR": str(tmp_path / "tb")}
    )
    log(run)
    run.finish()
    source = f"tb:{tmp_path / 'tb'}"
    assert [line.split()[:3] for line in run_cli("files", source, "--kind", "image").stdout.splitlines()[1:]] == [
        ["image", "samples/x", "1"], ["image", "samples/x", "2"],
    ]  # fmt: skip
    assert "samples/x  image, 2 logged, steps 1 to 2, " in run_cli("keys", source).stdout
    done = run_cli("get", source, "samples/x", "-o", "out")
    assert done.exit_code == 0, (done.output, done.exception)
    assert [path.name for path in Path("out").rglob("*") if path.is_file()] == ["x-2.png"]


def test_show_and_keys_list_media_and_artifacts(made: str) -> None:
    """A line for each name: how many, how many files, which steps, how large; JSON the same."""
    for command in ("show", "keys"):
        out = run_cli(command, made).stdout
        line = next(line for line in out.splitlines() if line.startswith("  samples/x"))
        assert "image, 2 logged, steps 1 to 2, " in line
        assert "model, 1 logged, 2 files, " in out
    shown = json.loads(run_cli("show", made, "--json").stdout)
    (listed,) = json.loads(run_cli("keys", made, "--json").stdout)
    assert shown["media"][0]["name"] == listed["media"][0]["name"] == "samples/x"
    assert shown["artifacts"] == listed["artifacts"]
    assert shown["artifacts"][0]["files"] == 2
