"""Kinds of configuration values: W&B's client beside this package, and each store beside the journal."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.as_wandb import config_kinds, versions
from tests.as_wandb.test_same_as_wandb import same
from tests.conftest import redirect_trackio
from trackers.backends.wandb import precheck
from trackers.readers import registry
from trackers.records import Config, Start, unname_floats

PAGE = Path(__file__).parents[2] / "docs" / "wandb-scripts.md"
Found = list[tuple[config_kinds.Kind, config_kinds.Kept, config_kinds.Kept]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs are."""
    return tmp_path_factory.mktemp("kinds")


@pytest.fixture(scope="module")
def found(place: Path) -> Found:
    """Each kind, as it was kept by W&B's client and here."""
    return config_kinds.compared(place, forked.run)


@pytest.mark.slow
def test_kinds_differ_for_a_reason_alone(found: Found) -> None:
    """What is stored and what the script reads back are W&B's, unless a reason says why not."""
    odd = {kind.written: (theirs, ours) for kind, theirs, ours in found if bool(kind.why) == (theirs == ours)}
    if sys.version_info >= (3, 14):  # the same as int | None there, also for W&B's client
        del odd["typing.Optional[int]"]
    older = versions.otherwise(versions.KINDS)
    assert {written: both for written, both in odd.items() if written not in older} == {}
    assert older == odd.keys()


@pytest.mark.slow
def test_page_has_the_table_of_kinds(found: Found) -> None:
    """docs/wandb-scripts.md shows what the tool prints."""
    page = PAGE.read_text("utf-8")
    assert f"\n{len(found)} kinds of values" in page
    shown, made = page.partition("<!-- kinds -->\n")[2].partition("<!-- end of kinds -->")[0], config_kinds.table(found)
    if versions.before(precheck.VERSIONS.tested[-1]):  # the page has the newest client's words
        shown, made = [re.sub(r" \| .*", "", table) for table in (shown, made)]
    if sys.version_info[:2] != (3, 11):  # W&B's client stores the attributes that a class has there
        shown, made = [re.sub(r" \| .* \| ", " | ", table) for table in (shown, made)]
    if sys.version_info >= (3, 14):
        shown, made = [re.sub(r".*typing\.Optional.*\n", "", table) for table in (shown, made)]
    assert shown.strip() == made.strip()


@pytest.mark.slow
def test_each_store_has_every_kind(found: Found, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorBoard, MLflow, trackio and W&B give back the configuration that the journal has."""
    here = place / "ours"
    monkeypatch.setenv("TRACKIO_DIR", str(here / "trackio"))
    redirect_trackio(monkeypatch, here / "trackio")
    (described,) = here.glob("runs/values/*/run.json")
    run = described.parent
    (events,) = run.rglob("*tfevents*")
    (offline,) = here.rglob("offline-run-*/*.wandb")
    kept = configuration(str(run))
    missing = {
        f"k{number}": kind for number, (kind, _, _) in enumerate(found) if not kind.whole and f"k{number}" not in kept
    }
    assert (missing, len(kept)) == ({}, len([kind for kind, _, _ in found if not kind.whole]))
    mlflow = f"mlflow:sqlite:///{here}/mlflow.db#values"
    for source in (f"tb:{events.parent}", mlflow, f"wandb-file:{offline}"):
        assert same(kept, configuration(source)), source
    long = {name: str(value) for name, value in kept.items() if type(value) is int and value >= 2**64}
    assert same(kept | long, configuration("trackio:values"))  # its JSON has no longer ones


def configuration(source: str) -> dict[str, Any]:
    """The configuration of the one run of a source."""
    reader, (run,) = registry.open_source(source)
    values: dict[str, Any] = {}
    for record in reader.read(run):
        if isinstance(record, Start):
            values.update(record.run.get("config") or {})
        elif isinstance(record, Config):
            values.update(record.values)
    return dict(unname_floats(values))
