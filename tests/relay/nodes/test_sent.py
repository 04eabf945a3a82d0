"""What a node sent goes from its own disk a day later, and nothing else does."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.relay.nodes.test_nodes import Node, Quiet, carry, fetch, main, other, reduce, run_of, streams, where
from trackers.hardware.plan import SamplingPlan
from trackers.relay.nodes import carrier, sent
from trackers.relay.nodes.carrier import CarryTask

__all__ = ["main", "other", "where"]
DAY_S = 86400.0


def aged(root: Path) -> None:
    """As if all had been written two days ago."""
    old = time.time() - 2 * DAY_S
    for path in root.rglob("*"):
        os.utime(path, (old, old), follow_symlinks=False)


def test_launch_that_the_store_has_goes_a_day_later(main: Node, other: Node, where: str) -> None:
    """With the node's own streams of the run; what the main node has of it stays."""
    for number in (2, 3):
        other.log(number, 0, number)
    work, fetching = carry(other, where), fetch(main, where)
    fetching.poll()
    work.send()
    own = other.root / "p/one/streams"
    (own / "sampler-1.1.jsonl").write_text('{"kind":"system"}\n')
    (own / "rank-0.9.jsonl").write_text("not this node's\n")
    main.log(0, 0, 0.0)
    main.log(1, 0, 1.0)
    main.close()
    other.close()
    assert carrier._carry_rest(work, other.folder, lambda: 5.0) == 0
    fetching.poll()
    assert sent.forget(other.folder.parent, other.folder.with_name("next")) == 0
    aged(other.root)
    assert sent.forget(other.folder.parent, other.folder) == 0
    assert sent.forget(other.folder.parent, other.folder.with_name("next")) == 1
    assert not other.folder.exists()
    assert sorted(path.name for path in own.iterdir()) == ["rank-0.9.jsonl"]
    assert reduce(main) == [1.5]
    assert run_of(main).identity.exists()


def test_launch_that_was_not_sent_whole_stays(other: Node, where: str) -> None:
    """Nor does one that went on after the note."""
    other.log(2, 0, 1.0)
    other.close()
    aged(other.root)
    assert sent.forget(other.folder.parent, Path("next")) == 0
    sent.note(other.folder, [])
    aged(other.root)
    (other.folder / "rank-2.7.jsonl").write_text("later\n")
    assert sent.forget(other.folder.parent, Path("next")) == 0
    assert len(streams(other.folder)) == 2


@pytest.mark.parametrize("path", ["../kept/streams/sampler-1.1.jsonl", "p/one/streams/rank-0.1.jsonl", "/etc/passwd"])
def test_note_names_nothing_else(tmp_path: Path, path: str) -> None:
    """A note may say anything: outside of the directory of runs, and other streams, nothing goes."""
    root = tmp_path / "b"
    for kept in (tmp_path / "kept/streams/sampler-1.1.jsonl", root / "p/one/streams/rank-0.1.jsonl"):
        kept.parent.mkdir(parents=True)
        kept.write_text("kept\n")
    folder = root / ".ranks/old"
    folder.mkdir(parents=True)
    (folder / sent.NOTE).write_text(json.dumps([path]))
    aged(tmp_path)
    assert sent.forget(folder.parent, Path("next")) == 1
    assert len([found for found in tmp_path.rglob("*.jsonl") if found.read_text() == "kept\n"]) == 2


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="gives a file to another account")
def test_note_of_another_account_removes_nothing(tmp_path: Path) -> None:
    """In a directory of runs that others can write to, who puts a launch's folder there has no run's files deleted."""
    stream = tmp_path / "p/one/streams/sampler-1.1.jsonl"
    folder = tmp_path / ".ranks/planted"
    stream.parent.mkdir(parents=True)
    folder.mkdir(parents=True)
    stream.write_text("kept\n")
    (folder / sent.NOTE).write_text(json.dumps(["p/one/streams/sampler-1.1.jsonl"]))
    for path in (folder, folder / sent.NOTE):
        os.chown(path, 65534, -1)
    aged(tmp_path)
    assert sent.forget(folder.parent, Path("next")) == 0
    assert stream.read_text() == "kept\n"


def test_next_launch_on_the_node_deletes_it(
    main: Node, other: Node, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its carrier begins; its own files stay."""
    before = other.folder.with_name("before")
    before.mkdir()
    sent.note(before, [])
    aged(before.parent)
    other.log(2, 0, 1.0)
    other.close()
    fetching = fetch(main, where)
    monkeypatch.setattr(carrier.signal, "signal", lambda *_: None)
    monkeypatch.setattr(carrier.time, "sleep", lambda seconds: fetching.poll())
    task = CarryTask(store=where, every_s=0.0, main=0, ranks=4, plan=SamplingPlan(node=1, nodes=2), sample=False)
    assert carrier.carry(other.folder, task, lambda run, attempt: Quiet()) == 0
    assert sorted(path.name for path in before.parent.iterdir()) == [other.folder.name]
    assert (other.folder / sent.NOTE).exists()
