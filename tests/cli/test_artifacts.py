"""``trackers artifacts``: what is listed, fetched, named and removed, and what is said of what isn't there."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import trackers
from tests.artifacts.conftest import Begin, begin, log
from trackers.cli.app import app
from trackers.errors import NotFound, UsageError

__all__ = ["begin"]


def run_cli(*words: str) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(app, ["artifacts", *words], catch_exceptions=True)


def lines(*words: str) -> list[str]:
    """What it prints, spaces apart."""
    result = run_cli(*words)
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


@pytest.fixture
def made(begin: Begin) -> None:
    """Two versions of a data set, one of a model in another project; a run that used the first."""
    run = begin("maker")
    log(run, "a", aliases=["raw"], metadata={"rows": 1})
    log(run, "bb")
    run.finish()
    user = begin("user", project="letters")
    user.use_artifact("digits/dataset:raw")
    Path("net.pt").write_text("weights")
    user.log_model("net.pt", name="net")
    user.finish()


@pytest.mark.heavy
def test_artifacts_are_listed(made: None) -> None:
    """A line for each name; --project and --type choose; of a name its versions, of a version its files."""
    heads = "artifact type versions newest aliases size made by used by"
    assert lines() == [
        heads,
        "digits/dataset dataset 2 v1 latest 3 B maker user",
        "letters/net model 1 v0 latest 7 B user",
    ]
    assert lines("--project", "letters") == [heads, "letters/net model 1 v0 latest 7 B user"]
    assert lines("--type", "model") == lines("--project", "letters") == lines("ls", "--type", "model")
    assert [line.split()[:2] for line in lines("digits/dataset")[1:]] == [
        ["digits/dataset:v1", "latest"],
        ["digits/dataset:v0", "raw"],
    ]
    found = lines("dataset:raw")
    assert found[0] == "digits/dataset:v0 (raw): dataset, 1 file, 1 B"
    assert "used by user (" in found[2]
    assert found[3:5] == [f"path: {Path('rows.csv').absolute()}", "rows: 1"]
    assert found[5] == "rows.csv 1 B"


def test_link_is_shown(begin: Begin) -> None:
    """Of a version that is linked to a registry's collection, that is said."""
    Path("net.pt").write_text("weights")
    run = begin()
    for _ in range(2):
        run.link_model("net.pt", "zoo", name="net")
    run.finish()
    assert lines("zoo:v0")[2] == "linked to model-registry/zoo"
    assert not any("linked" in line for line in lines("net:v0"))
    assert json.loads(run_cli("zoo:v0", "--json").stdout)["links"] == ["model-registry/zoo"]


def test_json_has_everything(made: None) -> None:
    """All versions with their lineage; of one version its files, too."""
    found = json.loads(run_cli("--json").stdout)
    assert [(one["name"], one["version"], one["aliases"]) for one in found] == [
        ("dataset", "v0", ["raw"]), ("dataset", "v1", ["latest"]), ("net", "v0", ["latest"]),
    ]  # fmt: skip
    assert len(found[0]["used_by"]) == 1
    assert found[0]["removed"] is None
    assert json.loads(run_cli("dataset:raw", "--json").stdout)["paths"] == [
        {"path": "rows.csv", "size": 1, "uri": None}
    ]


def test_nothing_is_said(begin: Begin) -> None:
    """A directory without artifacts; names that aren't there, with what is near."""
    assert "no artifacts in runs" in run_cli().stderr
    log(begin(), "a")
    with pytest.raises(NotFound, match=r"no artifact 'datset' in runs: did you mean 'dataset'\?"):
        raise run_cli("datset").exception  # type: ignore[misc]
    with pytest.raises(NotFound, match="did you mean 'digits/dataset'"):
        raise run_cli("get", "digits/datset:v0").exception  # type: ignore[misc]


def test_get_writes_files(made: None) -> None:
    """Into the directory that is named, by default artifacts/NAME:vN."""
    assert lines("get", "dataset:raw", "--project", "digits", "--to", "out") == [
        "Saved digits/dataset:v0 to out (1 file, 1 B)"
    ]
    assert Path("out/rows.csv").read_text() == "a"
    assert lines("get", "digits/dataset") == ["Saved digits/dataset:v1 to artifacts/dataset:v1 (1 file, 2 B)"]


@pytest.mark.heavy
def test_alias_moves(made: None) -> None:
    """To another version, and away; what can be no alias, or isn't there, is refused."""
    assert lines("alias", "dataset:v1", "prod") == ["digits/dataset:v1 has the alias prod"]
    assert lines("alias", "dataset:v0", "prod") == ["digits/dataset:v0 has the alias prod"]
    assert lines("dataset:prod")[0] == "digits/dataset:v0 (prod, raw): dataset, 1 file, 1 B"
    assert lines("alias", "dataset:v0", "prod", "--remove") == ["digits/dataset:v0 has no longer the alias prod"]
    for words, error in ((("prod", "--remove"), NotFound), (("latest",), UsageError), (("v1",), UsageError)):
        assert type(run_cli("alias", "dataset:v0", *words).exception) is error


@pytest.mark.heavy
def test_rm_previews_and_removes(made: None) -> None:
    """Nothing without --yes; a name needs --keep, a version must not have it."""
    assert lines("rm", "dataset:v1", "--force") == [
        "digits/dataset:v1 2 B remove",
        "1 to remove; nothing was changed; add --yes to do it",
    ]
    assert "json lacks some of it" in lines("rm", "dataset:v1", "--yes")[0]
    assert lines("rm", "dataset", "--keep", "1") == ["digits/dataset:v0 1 B keep: it has the alias raw"]
    assert lines("rm", "dataset", "--keep", "2") == ["nothing to remove"]
    assert lines("rm", "dataset:v1", "--force", "--yes") == ["digits/dataset:v1 2 B removed, 2 B freed"]
    assert [line.split()[:2] for line in lines("dataset")[1:]] == [
        ["digits/dataset:v1", "removed"],
        ["digits/dataset:v0", "latest,"],
    ]
    assert lines("rm", "dataset:v1") == ["digits/dataset:v1 2 B keep: it is removed already"]
    with pytest.raises(NotFound, match="no version 'v9'"):
        raise run_cli("rm", "dataset:v9").exception  # type: ignore[misc]
    for words in (("dataset",), ("dataset:v0", "--keep", "1")):
        assert type(run_cli("rm", *words).exception) is UsageError
    found = json.loads(run_cli("rm", "dataset:v0", "--json", "--force").stdout)
    assert [(one["version"], one["action"]) for one in found] == [("digits/dataset:v0", "remove")]


def test_names_from_outside_are_one_line(begin: Begin) -> None:
    """Escapes and line breaks in what a run says never reach the terminal."""
    artifact = trackers.Artifact("evil", "data\x1b[31mset", "two\nlines", {"key\n": "\x1b]0;x\x07"})
    artifact.add_reference("s3://bucket/\x1b[31m")
    begin("na\nme\x1b[31m").log_artifact(artifact)
    for words in ((), ("digits/evil",), ("digits/evil:v0",)):
        assert "\x1b" not in run_cli(*words).stdout
        assert "\x07" not in run_cli(*words).stdout


def test_help_names_the_commands() -> None:
    """The group's help and that of each command."""
    shown = run_cli("--help").stdout
    assert all(word in shown for word in ("ls", "get", "alias", "rm"))
    assert "--keep" in run_cli("rm", "-h").stdout


def test_gc_removes_strays(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing without --yes; a run without strays isn't named."""
    run = begin()
    log(run, "a")
    run.finish()
    assert lines("gc") == ["nothing to remove: records name every file"]
    stray = Path(run.path, "media/ab/abcdef.pt")
    stray.parent.mkdir(parents=True)
    stray.write_text("stray")
    tomorrow = time.time() + 2 * 86400
    monkeypatch.setattr(time, "time", lambda: tomorrow)
    where = f"runs/digits/{run.id}"
    assert lines("gc") == [f"{where} 1 files 5 B remove", "nothing was changed; add --yes to do it"]
    assert json.loads(run_cli("gc", "--json").stdout)[0]["files"] == 1
    assert lines("gc", run.id, "--yes") == [f"{where} 1 files 5 B removed"]
    assert not stray.exists()
