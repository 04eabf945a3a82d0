"""Copies to Aim's stores, from other sources and from Aim's."""

from __future__ import annotations

from pathlib import Path

import pytest

import trackers
from trackers.copying import copy
from trackers.readers import registry
from trackers.records import Config, Finish, Metrics, Summary


@pytest.mark.processes
def test_copy_agrees_and_is_idempotent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run goes from a journal to Aim and from there to Aim, agrees each time, and is there once."""
    monkeypatch.chdir(tmp_path)
    run = trackers.init(
        "json", project="digits", name="baseline", group="ablation", tags=["first", "größer"], notes="why",
        config={"lr": 0.1, "model": {"depth": 4}}, mode="offline", options={"TRACKER_SAMPLE": False},
    )  # fmt: skip
    for step in range(30):
        run.log({"train/loss": 1 / (step + 1), "count": step}, step=step)
        run.log({"count": -step}, step=step // 2)
    run.log({"note": "größer"}, step=31)
    run.summary["best"] = 0.5
    run.finish(1)
    for source, destination in ((run.id, "aim:one"), ("aim:one", "aim:two"), ("aim:one", "aim:two")):
        (report,) = copy(source, destination)
        assert report.agrees, str(report)
        reader, (made,) = registry.open_source(report.destination)
        found = list(reader.read(made))
        assert (made.name, made.group, made.notes, made.tags) == ("baseline", "ablation", "why", ["first", "größer"])
        assert [one.values for one in found if isinstance(one, Config)] == [{"lr": 0.1, "model": {"depth": 4}}]
        assert [one.values for one in found if isinstance(one, Summary)] == [{"best": 0.5}]
        assert [one.status for one in found if isinstance(one, Finish)] == ["failed"]
        counts = {one.step: one.values["count"] for one in found if isinstance(one, Metrics) and "count" in one.values}
        assert counts == {**{step: -(2 * step + 1) for step in range(15)}, **{step: step for step in range(15, 30)}}
    assert len(list((tmp_path / "two/.aim/meta/chunks").iterdir())) == 1
