"""``wandb.Api``: artifacts of the directory of runs; all else is refused with one line."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import wandb as real

import trackers as wandb
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
