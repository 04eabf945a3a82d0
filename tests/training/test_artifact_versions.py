"""Runs that use artifacts: what a script asks for is found, and the use is recorded."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

import trackers
from tests.artifacts.conftest import Begin, begin, log
from trackers.artifacts import versions
from trackers.errors import CommError, NotFound, UsageError
from trackers.training.disabled import NullRun

__all__ = ["begin"]
RUNS = Path("runs")


def config(path: str) -> dict[str, object]:
    """What a run's journal says of its configuration."""
    lines = map(json.loads, Path(path, "streams/rank-0.1.jsonl").read_text().splitlines())
    found: dict[str, object] = {}
    for line in lines:
        if line["kind"] == "config":
            found.update(line["values"])
    return found


def test_use_is_recorded(begin: Begin) -> None:
    """The version stands in the run's configuration for its trackers, and the run among the version's users."""
    log(begin("maker"), "a")
    run = begin("user")
    found = run.use_artifact("dataset:latest", type="dataset")
    assert found.version == "v0"
    assert config(run.path) == {"used_artifacts": {"dataset": "digits/dataset:v0"}}
    assert "used_artifacts" not in run.config
    assert [one.name for one in found.used_by()] == ["user"]
    other = begin("other", project="letters")
    other.use_artifact("digits/dataset:v0", use_as="train")
    assert config(other.path) == {"used_artifacts": {"train": "digits/dataset:v0"}}
    assert {one.name for one in found.used_by()} == {"user", "other"}


def test_artifact_itself_can_be_used(begin: Begin) -> None:
    """One that is logged is used as it is; a new one is logged first, as in W&B."""
    Path("rows.csv").write_text("a")
    made = [trackers.Artifact("dataset", "dataset") for _ in range(2)]
    run = begin()
    for one in made:
        one.add_file("rows.csv", name=f"{made.index(one)}.csv")
    assert run.use_artifact(made[0]).version == "v0"
    run.log_artifact(made[1])
    assert run.use_artifact(made[1]).version == "v1"
    assert config(run.path) == {"used_artifacts": {"dataset": "digits/dataset:v1"}}
    assert [one.number for one in versions.catalogs(RUNS.absolute())[0].names["dataset"]] == [0, 1]


def test_logged_artifact_can_be_pickled(begin: Begin) -> None:
    """Other processes find it, too."""
    Path("rows.csv").write_text("a")
    found = pickle.loads(pickle.dumps(begin().log_artifact("rows.csv", name="dataset")))
    assert Path(found.download("out"), "rows.csv").read_text() == "a"
    assert pickle.loads(pickle.dumps(found.wait())).version == "v0"


def test_wrong_type_and_name_raise(begin: Begin) -> None:
    """A script that needs data can't go on without it: what isn't there is an exception, one that scripts catch."""
    log(begin(), "a")
    run = begin("user")
    with pytest.raises(ValueError, match="digits/dataset:v0 is of type 'dataset', not 'model'"):
        run.use_artifact("dataset:v0", type="model")
    for caught in (NotFound, LookupError, CommError):
        with pytest.raises(caught, match="no version 'v1'"):
            run.use_artifact("dataset:v1")
    with pytest.raises(UsageError, match="can't name an artifact"):
        run.use_artifact("a/../b")
    with pytest.raises(UsageError, match="no model"):
        run.use_model("dataset:latest")
    assert "used_artifacts" not in config(run.path)


def test_model_is_a_path(begin: Begin) -> None:
    """``use_model`` gives the path of the file, or the directory of several."""
    Path("net").mkdir()
    Path("net/a.pt").write_text("weights")
    run = begin()
    run.log_model("net/a.pt", name="net", aliases=["best"])
    assert Path(run.use_model("net:best")).read_text() == "weights"
    Path("net/b.pt").write_text("weights")
    run.log_model("net", name="net")
    assert run.use_model("net") == "artifacts/net:v1"


def test_run_that_records_nothing_finds_artifacts(begin: Begin) -> None:
    """Other ranks, and runs in disabled mode, get the files; nothing is recorded."""
    log(begin(), "a")
    run = trackers.init(project="digits", mode="disabled", reinit="create_new")
    assert isinstance(run, NullRun)
    assert Path(run.use_artifact("dataset:v0").download("out"), "rows.csv").read_text() == "a"
    assert run.use_artifact("digits/dataset").used_by() == []
    artifact = trackers.Artifact("new", "dataset")
    assert run.use_artifact(artifact) is artifact
    assert run.log_artifact(artifact) is artifact
    for given in ("rows.csv", Path("rows.csv"), "nowhere", None, 5):
        assert run.log_artifact(given).wait().version is None
    assert run.log_artifact("data/rows.csv", type="dataset").name == "rows.csv"


def test_link_is_a_version_under_the_registrys_name(begin: Begin) -> None:
    """``link_artifact`` and ``link_model`` keep the files under the target's name, which ``use_artifact`` finds."""
    run = begin()
    log(run, "a")
    found = run.use_artifact("dataset:v0")
    linked = run.link_artifact(found, "wandb-registry-dataset/rows", aliases=["prod"])
    assert (linked.version, linked.name, found.qualified_name) == ("v0", "rows", "digits/dataset:v0")
    other = begin("other", project="letters").use_artifact("wandb-registry-dataset/rows:prod")
    assert other.qualified_name == "digits/rows:v0"
    assert Path(other.download("out"), "rows.csv").read_text() == "a"
    Path("net.pt").write_text("weights")
    run.link_model("net.pt", "model-registry/zoo", name="net", aliases="best")
    third = begin("third", project="letters")
    assert third.use_artifact("model-registry/zoo:best").type == "model"
    assert third.use_artifact("digits/net:v0").type == "model", "the model itself, too"
    assert links(run.path) == [("rows", "wandb-registry-dataset/rows", "dataset"), ("zoo", "model-registry/zoo", "net")]


def links(path: str) -> list[tuple[str, str, str]]:
    """Name, target and the linked artifact's name of a run's links."""
    lines = map(json.loads, Path(path, "streams/rank-0.1.jsonl").read_text().splitlines())
    return [(line["name"], line["link"], line["source"]) for line in lines if line.get("link")]


def test_draft_is_logged_before_it_is_linked(begin: Begin) -> None:
    """As in W&B: an artifact that isn't logged is, under its own name; a change of its files later changes no link."""
    Path("rows.csv").write_text("a")
    artifact = trackers.Artifact("dataset", "dataset", metadata={"rows": 1})
    artifact.add_file("rows.csv")
    run = begin()
    linked = run.link_artifact(artifact, "wandb-registry-dataset/rows")
    assert (artifact.name, artifact.version, linked.name, linked.version) == ("dataset", "v0", "rows", "v0")
    Path("rows.csv").write_text("changed")
    run.link_artifact(artifact, "lab/pets/cats", aliases=["x"])
    assert Path(run.use_artifact("cats:x").download("out"), "rows.csv").read_text() == "a"
    assert run.use_artifact("cats").metadata == {"rows": 1}
    assert [target for _, target, _ in links(run.path)] == ["wandb-registry-dataset/rows", "lab/pets/cats"]
    assert run.link_artifact("rows.csv", "files/rows:today").version == "v1", "a path is logged, too"
    assert run.use_artifact("rows:today").version == "v1"


@pytest.mark.parametrize("target", ["", "a/b/c/d", "wandb-registry-model/", "/zoo", None])
def test_odd_target_is_one_line_and_loses_nothing(begin: Begin, target: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """The artifact is kept under its own name; a line says what a target looks like."""
    Path("rows.csv").write_text("a")
    artifact = trackers.Artifact("dataset", "dataset")
    artifact.add_file("rows.csv")
    run = begin()
    kept = run.link_artifact(artifact, target)
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "link_artifact" in line]
    assert "is no collection: give 'wandb-registry-NAME/COLLECTION'" in line
    assert line.endswith("the artifact is kept as digits/dataset:v0")
    assert kept.qualified_name == "digits/dataset:v0"
    assert links(run.path) == []


def test_link_never_raises(begin: Begin, capfd: pytest.CaptureFixture[str]) -> None:
    """Aliases that are none, and a version whose files are gone, are a line; training goes on."""
    Path("rows.csv").write_text("a")
    artifact = trackers.Artifact("dataset", "dataset")
    artifact.add_file("rows.csv")
    run = begin()
    assert run.link_artifact(artifact, "zoo", aliases=5) is artifact
    shutil.rmtree(Path(run.path, "media"))
    assert run.link_artifact(artifact, "other") is artifact
    assert sum("link_artifact" in line for line in capfd.readouterr().err.splitlines()) == 2
    assert links(run.path) == []


def test_runs_that_record_nothing_link_nothing(begin: Begin) -> None:
    """Other ranks and disabled runs go on."""
    Path("net.pt").write_text("weights")
    run = trackers.init(project="digits", mode="disabled", reinit="create_new")
    artifact = trackers.Artifact("new", "dataset")
    assert run.link_artifact(artifact, "wandb-registry-dataset/rows") is artifact
    assert run.link_model("net.pt", "zoo", name="net").name == "net"
    assert run.link_model("missing.pt", "zoo").version is None
    assert begin().link_model("missing.pt", "zoo").version is None


@pytest.mark.parametrize(("mode", "says"), [("online", False), ("offline", True)])
def test_offline_link_is_said(
    begin: Begin, mode: str, says: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who gives W&B its files offline is told once that the registry isn't linked by them."""
    monkeypatch.setenv("WANDB_MODE", mode)
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    Path("net.pt").write_text("weights")
    run = trackers.init("json,wandb", project="digits", mode="offline", reinit="create_new")
    for name in ("a", "b"):
        run.link_model("net.pt", "zoo", name=name)
    run.finish()
    assert sum("W&B links online only" in record.getMessage() for record in caplog.records) == says


def test_path_gives_an_artifact_back(begin: Begin) -> None:
    """As in W&B: who logs a path can wait for the artifact and ask for its version."""
    Path("a.txt").write_text("a")
    found = begin().log_artifact("a.txt", type="text")
    assert (found.wait().version, found.name, found.type) == ("v0", "a.txt", "text")


def test_artifact_that_cannot_be_kept_is_one_without_version(begin: Begin, capfd: pytest.CaptureFixture[str]) -> None:
    """``run.log_artifact(path).wait()`` raises nothing where the file is missing, nor where no path was given."""
    run = begin()
    for given, name in (("nowhere.txt", "nowhere.txt"), (5, "files"), (None, "files")):
        found = run.log_artifact(given).wait()
        assert (found.name, found.version, found.aliases) == (name, None, [])
    assert run.log_artifact("nowhere", name="model", type="model").type == "model"
    assert "nowhere.txt" in capfd.readouterr().err


def test_bad_aliases_are_left_out_and_said(begin: Begin, capfd: pytest.CaptureFixture[str]) -> None:
    """As ``trackers artifacts alias`` refuses them; the artifact is kept with the others."""
    Path("a.txt").write_text("a")
    found = begin().log_artifact("a.txt", name="a", aliases=["v3", "a:b", "x y", "", "latest", "best"])
    assert found.aliases == ["latest", "best"]
    said = capfd.readouterr().err
    assert said.count("; it is left out\n") == 3
    assert "'a:b' can't be an alias" in said
    assert versions.find(RUNS.absolute(), "digits/a:best").aliases == ["best", "latest"]


@pytest.mark.parametrize("name", ["checkpoints/step", "a/b/c/d", "a:b", "x y:c/d", "v3", "latest", "*", "-dash"])
def test_any_name_is_found_again(begin: Begin, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """By itself, with an alias and with the project, also where it has "/" and ":" itself."""
    Path("a.txt").write_text("a")
    run = begin()
    assert run.log_artifact("a.txt", name=name).version == "v0"
    assert "can't name" not in capfd.readouterr().err
    for reference in (name, f"{name}:v0", f"{name}:latest", f"digits/{name}:v0"):
        assert run.use_artifact(reference).qualified_name == f"digits/{name}:v0"


@pytest.mark.parametrize("name", ["..", "a/../b", "new\nline", "/a"])
def test_name_that_cannot_be_asked_for_is_said(begin: Begin, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The files are kept; one line says that no reference can name them."""
    Path("a.txt").write_text("a")
    run = begin()
    assert run.log_artifact("a.txt", name=name).version == "v0"
    assert f"{name!r} is kept, but use_artifact can't name it" in capfd.readouterr().err
    with pytest.raises(UsageError, match="can't name an artifact"):
        run.use_artifact(name)


@pytest.mark.parametrize("given", [5, None, b"dataset"])
def test_what_is_no_name_is_one_line(begin: Begin, given: object) -> None:
    """An error of use, which says what can be given."""
    with pytest.raises(UsageError, match="can't name an artifact: give a text"):
        begin().use_artifact(given)
