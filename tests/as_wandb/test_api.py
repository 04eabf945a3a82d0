"""``wandb.Api``: artifacts of the directory of runs; all else is refused with one line."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest
import wandb as real

import trackers as wandb
from tests import forked
from tests.artifacts.conftest import Begin, begin, log
from trackers.errors import NotFound, UsageError
from trackers.training.wandb_arguments import NotProvided

__all__ = ["begin"]


def test_api_finds_artifacts(begin: Begin) -> None:
    """Versions by name, all of a name, and whether there is one; nobody is recorded as their user."""
    run = begin()
    for content in "ab":
        log(run, content, aliases=[content])
    run.finish()
    api = wandb.Api(overrides={"project": "digits"}, timeout=19)
    found = api.artifact("dataset:a", type="dataset")
    assert Path(found.download("out"), "rows.csv").read_text() == "a"
    assert found.used_by() == []
    assert [one.version for one in api.artifacts("dataset", "team/digits/dataset")] == ["v1", "v0"]
    assert [one.aliases for one in api.artifact_versions("dataset", "dataset")] == [["b", "latest"], ["a"]]
    assert api.artifacts("model", "digits/dataset") == []
    assert api.artifact_exists("digits/dataset:v0")
    assert not api.artifact_exists("digits/dataset:v7")
    assert not api.artifact_exists("digits/dataset:v0", type="model")
    assert api.artifact_collection_exists("digits/dataset", "dataset")
    assert not api.artifact_collection_exists("digits/other", "dataset")
    other = begin("user", project="letters")
    assert [one.name for one in other.use_artifact(found).used_by()] == ["user"]


def test_version_has_what_wandbs_has(begin: Begin) -> None:
    """Each property of wandb's Artifact but those of its client's storage."""
    own = {"collection", "digest_algorithm", "distributed_id", "incremental", "linked_at"}
    log(begin(), "a", tags=["clean"])
    found = wandb.Api().artifact("digits/dataset")
    theirs = {name for name, value in inspect.getmembers(real.Artifact) if isinstance(value, property)}
    assert {name for name in theirs - own if not hasattr(found, name)} == set()
    assert found.tags == ["clean"]
    assert found.source_artifact is found


def test_what_is_not_there_is_an_error_that_scripts_catch() -> None:
    """W&B's own errors, in one line."""
    for name, error in (("digits/dataset:v0", NotFound), ("digits/dataset:v0", wandb.CommError), ("a//b", UsageError)):
        with pytest.raises(error) as caught:
            wandb.Api().artifact(name)
        assert "\n" not in str(caught.value)


def test_queries_are_refused() -> None:
    """Runs, sweeps and reports are W&B's service: the line names the real call and the command here."""
    for name in ("runs", "run", "sweep", "projects", "create_project", "default_entity"):
        with pytest.raises(NotProvided, match=rf"import wandb; wandb\.Api\.{name}\(.*or `trackers show`"):
            getattr(wandb.Api(), name)("x")


SCRIPTS = {
    "prepare.py": """
import pathlib
import wandb

run = wandb.init(project="wandb-examples", job_type="prepare")
pathlib.Path("raw.csv").write_text("1")
artifact = wandb.Artifact(name="raw_data", type="dataset", metadata={"rows": 1})
artifact.add_file("raw.csv")
with artifact.new_file("notes.txt") as file:
    file.write("notes")
artifact.add(wandb.Table(columns=["a"], data=[[1], [2]]), "rows")
run.log_artifact(artifact, aliases=["baseline"]).wait()
artifact.aliases.append("checked")
artifact.save()
print(artifact.version, artifact.type)
wandb.finish()
""",
    "train.py": """
import os
import pathlib
import wandb

wandb.init(project="wandb-examples", job_type="train")
artifact = wandb.use_artifact("team/wandb-examples/raw_data:checked", type="dataset")
folder = pathlib.Path(artifact.download())
path = artifact.get_path("raw.csv").download(root="one")
table = artifact.get("rows")
print(sorted(os.listdir(folder)), open(path).read(), table.data, artifact.metadata["rows"])
wandb.log({"loss": 0.5})
pathlib.Path("model.pt").write_text("weights")
wandb.log_model("model.pt", name="net", aliases=["best"])
wandb.run.link_artifact(artifact, "model-registry/data", aliases=["prod"])
print(open(wandb.use_model("net:best")).read())
try:
    wandb.use_artifact("raw_data:v9")
except wandb.errors.CommError as error:
    print("none:", error)
""",
    "look.py": """
import wandb

api = wandb.Api()
for artifact in api.artifacts("dataset", "wandb-examples/raw_data"):
    print(artifact.name, sorted(artifact.aliases), artifact.logged_by().project, len(artifact.used_by()))
print(api.artifact("wandb-examples/data:prod").size)
""",
}


@pytest.mark.slow
def test_script_written_for_wandb_runs_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """As W&B's courses have it: a script logs data, another one uses it and logs a model, a third one looks."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    monkeypatch.delenv("WANDB_ARTIFACT_DIR")
    printed = []
    for name, text in SCRIPTS.items():
        Path(name).write_text(text)
        command = [sys.executable, "-m", "trackers.as_wandb", name]
        done = forked.run(command, preload=forked.PACKAGE)
        assert done.returncode == 0, done.stderr
        printed += done.stdout.splitlines()
    assert printed == [
        "v0 dataset",
        "['notes.txt', 'raw.csv', 'rows.table.json'] 1 [[1], [2]] 1",
        "weights",
        "none: 'raw_data' has no version 'v9': there is v0 (baseline, checked, latest)",
        "raw_data:v0 ['baseline', 'checked', 'latest'] wandb-examples 1",
        printed[-1],
    ]
    assert int(printed[-1]) > 6
