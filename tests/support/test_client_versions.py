"""The installed client's version compared with those that were tested."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import trackers
from tests import ROOT
from trackers.backends import registry
from trackers.backends.wandb import precheck
from trackers.cli import sync
from trackers.cli.app import app
from trackers.support import client_versions
from trackers.support.client_versions import ClientVersions, Lesser, TooOld, number

CLIENT = ClientVersions(
    "some-client", "someclient", "1.2", "it has no rows", ("1.2", "1.4.1", "1.10.0"),
    (Lesser("1.4", "it forgets names"), Lesser("1.10", "files come late", True)),
)  # fmt: skip


class SomeTracker:
    name = "some"
    versions = CLIENT


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a client of a given version importable."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(version: str) -> None:
        (tmp_path / "someclient").mkdir(exist_ok=True)
        (tmp_path / "someclient/__init__.py").touch()
        for old in tmp_path.glob("*.dist-info"):
            old.rmdir()
        (tmp_path / f"some_client-{version}.dist-info").mkdir()
        client_versions.installed.cache_clear()

    yield make
    sys.modules.pop("someclient", None)
    client_versions.installed.cache_clear()


@pytest.mark.parametrize(("version", "said"), [
    ("1.10.0", []),
    ("1.11.0rc1", ["some-client 1.11.0rc1 is newer than the newest that was tested, 1.10.0"]),
    ("2.0", ["some-client 2.0 is newer than the newest that was tested, 1.10.0"]),
    ("1.5", ["some-client 1.5: files come late (not with 1.10 or newer)"]),
    ("1.2", ["some-client 1.2: it forgets names (not with 1.4 or newer)",
             "some-client 1.2: files come late (not with 1.10 or newer)"]),
])  # fmt: skip
def test_version_says_what_it_cannot_do(version: str, said: list[str], put: Any) -> None:
    """Tested: nothing. Newer: one note. Older: what is less, each by name."""
    put(version)
    client_versions.check(SomeTracker)
    assert client_versions.notes(SomeTracker) == said


def test_promise_of_offline_files_matters_offline_only(put: Any) -> None:
    """A run that is delivered online is told nothing about offline files."""
    put("1.4.1")
    assert client_versions.notes(SomeTracker, offline=False) == []
    assert len(client_versions.notes(SomeTracker, offline=True)) == 1


@pytest.mark.parametrize("version", ["1.1.9", "1.1", "0.99.0", "1"])
def test_too_old_names_the_ways_out(version: str, put: Any) -> None:
    """An older client is refused, with why, and with three commands."""
    put(version)
    with pytest.raises(TooOld) as caught:
        client_versions.check(SomeTracker)
    for part in (version, "1.2 or newer", "it has no rows", "trackers setup some", "pip install -U some-client",
                 "TRACKER_PYTHON=some=", "TRACKER_MODE=offline"):  # fmt: skip
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_client_without_metadata_is_taken(put: Any, tmp_path: Path) -> None:
    """A client that nothing tells the version of is used as it is."""
    put("1.1")
    next(tmp_path.glob("*.dist-info")).rmdir()
    client_versions.installed.cache_clear()
    client_versions.check(SomeTracker)
    assert client_versions.notes(SomeTracker) == []


def test_numbers_order_as_versions_do() -> None:
    """By number, not by text; what isn't one ends it."""
    order = ["0.9", "0.26.1", "0.26.1rc1", "0.27", "0.31.0", "1.0.dev3"]
    assert sorted(order, key=number) == order
    assert number("") == ()


def doctor() -> str:
    return CliRunner().invoke(app, ["doctor"]).output


@pytest.mark.parametrize("version", ["0.25.1", "0.22.3", "0.19.11", "0.18.7"])
def test_init_and_doctor_refuse_an_old_wandb(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first step, in one line; a run that is delivered elsewhere or later isn't refused."""
    monkeypatch.setattr(client_versions, "installed", lambda versions: version)
    monkeypatch.setenv("WANDB_MODE", "offline")
    with pytest.raises(TooOld, match=f"wandb {precheck.VERSIONS.oldest} or newer, and {version} is installed"):
        trackers.init("wandb", project="p")
    registry.check("wandb", {"WANDB_MODE": "offline"}, elsewhere=True)
    assert f"– tracker wandb            tracker 'wandb' needs wandb {precheck.VERSIONS.oldest} or newer" in doctor()
    monkeypatch.setenv("TRACKER", "wandb")
    assert f"✗ tracker wandb            tracker 'wandb' needs wandb {precheck.VERSIONS.oldest} or newer" in doctor()
    monkeypatch.setenv("TRACKER_PYTHON", f"wandb={sys.executable}")
    assert f"✓ tracker wandb            delivered by {sys.executable} (TRACKER_PYTHON)" in doctor()
    monkeypatch.setenv("TRACKER_PYTHON", "wandb=/no/such/python")
    assert "✗ tracker wandb            delivered by /no/such/python (TRACKER_PYTHON): no such program" in doctor()


def test_init_goes_on_with_a_newer_wandb(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One note, and the run begins."""
    monkeypatch.setattr(client_versions, "installed", lambda versions: "9.9.9")
    options = {"TRACKER_RELAY": False}
    trackers.init("wandb,json", project="p", mode="offline", options=options).finish()
    assert "newer than" not in capsys.readouterr().err, "it is delivered elsewhere"
    assert registry.notes("wandb", {"WANDB_MODE": "online"}) == [
        f"wandb 9.9.9 is newer than the newest that was tested, {precheck.VERSIONS.tested[-1]}"
    ]


def test_sync_says_what_this_version_of_the_client_shows_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """After what any version shows of a run that is delivered late; offline, what matters there, too."""
    monkeypatch.setattr(registry, "works_here", lambda name: True)
    monkeypatch.setattr(client_versions, "installed", lambda versions: "0.26.1")
    created, *older = sync._late_notes("wandb", {"WANDB_MODE": "online"})
    assert created.startswith("W&B's Created is the time of the upload")
    assert older == [
        "wandb 0.26.1: the system tab of a run that goes on loses the samples from before (not with 0.28 or newer)"
    ]
    assert len(sync._late_notes("wandb", {"WANDB_MODE": "offline"})) == 6
    assert sync._late_notes("csv", {}) == []
    assert sync._late_notes("no such tracker", {}) == []


def test_page_has_the_table() -> None:
    """docs/choosing-trackers.md shows what the code compares with."""
    assert client_versions.table(precheck.VERSIONS) in (ROOT / "docs/choosing-trackers.md").read_text("utf-8")


@pytest.mark.parametrize("name", ["wandb", "trackio", "tensorboard", "mlflow"])
def test_project_allows_what_the_tracker_takes(name: str) -> None:
    """pyproject.toml has the oldest version as its bound, and no upper one."""
    versions = registry.precheck(name).versions
    assert versions is not None
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert f'{name} = ["{name}>={versions.oldest.removesuffix(".0")}", ' in text
    assert f"\n{name}=={versions.oldest}\n" in (ROOT / "constraints/oldest.txt").read_text() or name == "wandb"


@pytest.mark.parametrize(("name", "title"), [
    ("trackio", "trackio"), ("tensorboard", "TensorBoard"), ("mlflow", "MLflow, client and server"),
])  # fmt: skip
def test_page_has_what_the_other_clients_are_compared_with(name: str, title: str) -> None:
    """The row of docs/choosing-trackers.md is what the code compares with; the newest is what the tests run with."""
    versions = registry.precheck(name).versions
    assert versions is not None
    row = f"| {title} | {versions.oldest} | {versions.tested[-1]} | {versions.why} |"
    assert row in (ROOT / "docs/choosing-trackers.md").read_text("utf-8")
    assert f"{name}=={versions.tested[-1]}\n" in (ROOT / "trackers/tested-versions.txt").read_text()
