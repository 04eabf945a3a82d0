"""Aim's stores, with a stand-in for RocksDB: names, contexts, objects, what is refused; nothing is left in a store."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aim_stand_in as stand_in
import PIL.Image
import pytest
from aim_stand_in import T0
from trackers_aim import store, tree
from trackers_aim.reader import AimReader
from typer.testing import CliRunner

import trackers
from trackers.cli.app import app
from trackers.errors import Damaged, MissingPackage, NotFound, TrackersError, Unavailable
from trackers.readers import registry
from trackers.records import Config, Environment, Finish, Media, Metrics, Start, Summary, Text
from trackers.testing import check_reader
from trackers.tracker import RunInfo


@pytest.fixture(autouse=True)
def aimrocks() -> Iterator[None]:
    """RocksDB's stand-in."""
    with stand_in.installed():
        yield


def points(values: list[Any], **more: Any) -> list[tuple[Any, ...]]:
    """A value a second; steps, times, values and epochs."""
    return [(step, T0 + step, value, *more.values()) for step, value in enumerate(values)]


def test_run_is_read_as_it_is(tmp_path: Path) -> None:
    """Settings, points in the order of their times though their keys are hashes, and what SQLite says of the run."""
    tmp_path = tmp_path / "project"
    tmp_path.mkdir()
    losses, scores = [1 / (step + 1) for step in range(20)], [math.inf, -0.0, math.nan]
    params = {"hparams": {"lr": 0.1, "layers": [1, [2, {"a": None}]], "big": 2**62}, "amp": True}
    stand_in.run(tmp_path, params=params, series={("loss", 0): points(losses), ("score", 0): points(scores)})
    stand_in.properties(tmp_path, tags=("a", "b"))
    rows = [
        Metrics(step=step, time=T0 + step, values={"loss": loss, **({"score": scores[step]} if step < 3 else {})})
        for step, loss in enumerate(losses)
    ]
    info = RunInfo(id="a1b2", name="base", project="digits", tags=["a", "b"], notes="why")
    records = [Config(time=T0, values=params), *rows, Finish(time=T0 + 100, status="finished")]
    run = check_reader(AimReader, str(tmp_path), info, records)
    assert (run.project, run.notes, run.created, run.note) == ("digits", "why", T0, "")
    for source in (f"aim:{tmp_path}/.aim", f"aim:{tmp_path}/a1b2", f"aim:{tmp_path.parent}", run.source):
        assert [one.id for one in registry.open_source(source)[1]] == ["a1b2"], source


def test_run_of_our_own_tracker_has_its_results_and_status(tmp_path: Path) -> None:
    """What Aim has no field for, the tracker keeps among the parameters; another's parameter of that name is one."""
    ours = {"id": "k3", "group": "ablation", "status": "failed", "exit_code": 3, "reason": "out of memory"}
    params = {"lr": 0.1, "trackers": ours, "final": {"best": 0.5}}
    stand_in.run(tmp_path, params=params, series={("loss", 0): points([1.0])})
    stand_in.run(tmp_path, "c3d4", params={"trackers": {"id": 3}, "final": 1})
    stand_in.properties(tmp_path)
    reader, runs = registry.open_source(f"aim:{tmp_path}")
    (run,) = [one for one in runs if one.id == "a1b2"]
    assert (run.group, run.status) == ("ablation", "failed")
    assert [one for one in reader.read(run) if not isinstance(one, (Start, Metrics))] == [
        Config(time=T0, values={"lr": 0.1}),
        Summary(time=T0 + 100, values={"best": 0.5}),
        Finish(time=T0 + 100, status="failed", exit_code=3, reason="out of memory"),
    ]
    (other,) = [one for one in runs if one.id == "c3d4"]
    (config,) = [one for one in reader.read(other) if isinstance(one, Config)]
    assert (config.values, other.status) == ({"trackers": {"id": 3}, "final": 1}, "finished")


def test_reading_leaves_no_trace(tmp_path: Path) -> None:
    """No file of a store is made, changed or deleted, and no copy stays."""
    stand_in.run(tmp_path / "it", series={("loss", 0): points([1.0])})
    stand_in.properties(tmp_path / "it")
    before = stand_in.states(tmp_path / "it")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.tempfile, "tempdir", str(temporary))
        reader, (run,) = registry.open_source(f"aim:{tmp_path / 'it'}")
        assert len([*reader.read(run)]) == 3
    assert stand_in.states(tmp_path / "it") == before
    assert not list(temporary.iterdir())


def test_contexts_become_names(tmp_path: Path) -> None:
    """A subset stands before the name, others behind; two metrics never share a name; an epoch is a metric."""
    contexts = {1: {"subset": "train"}, -2: {"subset": "val", "fold": 1}, 3: {"subset": 4}}
    series: dict[tuple[str, int], list[tuple[Any, ...]]] = {
        ("loss", 0): points([1.0]), ("loss", 1): points([2.0], epoch=7), ("loss", -2): points([3.0]),
        ("loss", 3): points([4]), ("train/loss", 0): points([5.0]),
    }  # fmt: skip
    stand_in.run(tmp_path, series=series, contexts=contexts)
    reader, (run,) = registry.open_source(f"aim:{tmp_path}")
    (row,) = (record for record in reader.read(run) if isinstance(record, Metrics))
    assert row.values == {
        "loss": 1.0, "train/loss": 5.0, "loss/context=1": 2.0, "val/loss/fold=1": 3.0, "loss/subset=4": 4, "epoch": 7
    }  # fmt: skip
    assert (row.step, row.time) == (0, T0)


def test_machine_and_environment(tmp_path: Path) -> None:
    """Samples have no step and the names of gpu-report; variables of the environment stay where they are."""
    series = {
        ("__system__cpu", 0): points([50.0]), ("__system__gpu", 5): points([90.0]),
        ("__system__gpu_power_watts", 5): points([300.0]),
    }  # fmt: skip
    params = {"__system_params": {"executable": "python", "env_variables": {"KEY": "secret"}}}
    stand_in.run(tmp_path, series=series, contexts={5: {"gpu": "0"}}, params=params, end=None)
    reader, (run,) = registry.open_source(f"aim:{tmp_path}")
    found = list(reader.read(run))
    assert [(record.step, record.values) for record in found if isinstance(record, Metrics)] == [
        (None, {"system.cpu": 50.0, "system.gpu.0.gpu": 90.0, "system.gpu.0.powerWatts": 300.0})
    ]
    assert [record.values for record in found if isinstance(record, Environment)] == [{"executable": "python"}]
    assert run.status == "running"
    assert isinstance(found[0], Start)
    assert not any(isinstance(record, (Finish, Config)) for record in found)


def test_metrics_of_old_stores(tmp_path: Path) -> None:
    """Before 3.11 a point's key was its step."""
    stand_in.run(tmp_path, objects={("loss", 0): {3: 0.5, 4: 0.25}})
    path = tmp_path / ".aim/meta/chunks/a1b2/000003.log"
    table = tmp_path / ".aim/meta/chunks/a1b2/000002.sst"
    for one in (path, table):
        items = stand_in.unpacked(one.read_bytes())
        kept = {name: data for name, data in items.items() if b"\xfedtype\xfe" not in name}
        one.write_bytes(stand_in.packed(kept))
    reader, (run,) = registry.open_source(f"aim:{tmp_path}")
    found = [(one.step, one.time, one.values) for one in reader.read(run) if isinstance(one, Metrics)]
    assert found == [(3, T0 + 3, {"loss": 0.5}), (4, T0 + 4, {"loss": 0.25})]


def test_objects_are_read(tmp_path: Path) -> None:
    """Texts, histograms, and with a directory for them pictures and sounds; what isn't read is named."""
    stand_in.with_objects(tmp_path)
    reader, (run,) = registry.open_source(f"aim:{tmp_path}")
    found = list(reader.read(run))
    texts = [(record.step, record.time, record.values) for record in found if isinstance(record, Text)]
    assert texts == [(0, T0, {"words": "größer\nas two lines"}), (1, T0 + 1, {"words": "x"})]
    (spread,) = [record for record in found if isinstance(record, Media)]
    assert (spread.type, spread.items[0].data) == ("histogram", {"counts": [3, 4], "edges": [0.0, 0.5, 1.0]})
    assert "1 records are left out, the first: odd: a distribution of type '<U3'" in run.note
    assert run.note.endswith("not read: 2 of aim.figure")
    files = tmp_path / "files"
    files.mkdir()
    fetched = [record for record in reader.read(run, files=files) if isinstance(record, Media)]
    shown = [(one.name, one.type, one.step, [item.caption for item in one.items]) for one in fetched]
    assert shown == [
        ("samples", "image", 2, ["red", "blue"]), ("samples", "image", 3, ["red"]), ("sound", "audio", 1, [None]),
        ("spread", "histogram", 1, [None]),
    ]  # fmt: skip
    assert PIL.Image.open(files / fetched[0].items[1].file).getpixel((0, 0)) == (0, 0, 255)


def test_copy_moves_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a directory of runs, with all that the destination keeps, and the copy agrees."""
    monkeypatch.chdir(tmp_path)
    stand_in.with_objects(tmp_path)
    stand_in.run(tmp_path, "c3d4", series={("loss", 0): points([1.0, 0.5])})
    stand_in.properties(tmp_path, "a1b2")
    stand_in.properties(tmp_path, "c3d4", "second")
    result = CliRunner().invoke(app, ["copy", "aim:.", "copies"])
    assert result.exit_code == 0, result.output
    assert result.output.count("agrees") == 2
    again = {one.run.name: one for one in trackers.load_all("copies/*/*")}
    assert set(again) == {"base", "second"}
    assert len(again["base"].media()) == 4
    assert again["second"].series()["loss"].count == 2


def test_version_changes_with_the_data(tmp_path: Path) -> None:
    """What was read once isn't taken from the cache after more was written."""
    place = stand_in.run(tmp_path, series={("loss", 0): points([1.0])})
    reader, (run,) = registry.open_source(f"aim:{tmp_path}")
    assert isinstance(reader, AimReader)
    first = reader.version(run)
    assert reader.version(run) == first
    os.utime(place.parents[2] / "seqs/chunks/a1b2/000003.log", ns=(1, 1))
    assert reader.version(run) != first


def test_other_directories_are_refused_in_one_line(tmp_path: Path) -> None:
    """None of Aim's, one without data, one with another's SQLite, one of text; good runs beside it are read."""
    with pytest.raises(NotFound, match="nothing to read"):
        registry.open_source(f"aim:{tmp_path}")
    (tmp_path / ".aim/meta/chunks/empty").mkdir(parents=True)
    with pytest.raises(Damaged, match="empty is no database of Aim's"):
        registry.open_source(f"aim:{tmp_path}")
    with pytest.raises(NotFound, match="is no run of Aim's"):
        registry.open_source(f"aim:{__file__}")
    (tmp_path / ".aim/run_metadata.sqlite").write_text("nothing")
    stand_in.run(tmp_path)
    with pytest.raises(Damaged, match=r"run_metadata.sqlite is damaged|not a database"):
        registry.open_source(f"aim:{tmp_path}")
    (tmp_path / ".aim/run_metadata.sqlite").write_bytes(b"")
    with pytest.raises(Damaged, match="is no database of Aim's: it has no table experiment"):
        registry.open_source(f"aim:{tmp_path}")
    (tmp_path / ".aim/run_metadata.sqlite").unlink()
    assert [run.id for run in registry.open_source(f"aim:{tmp_path}")[1]] == ["a1b2"]


def test_damaged_databases_end_in_one_line(tmp_path: Path) -> None:
    """A database that can't be opened, and values that are none: others are read."""
    place = stand_in.run(tmp_path, series={("loss", 0): points([1.0]), ("bad", 0): points([1.0])})
    log = tmp_path / ".aim/seqs/chunks/a1b2/000003.log"
    items = stand_in.unpacked(log.read_bytes())
    bad = stand_in.key("bad", "val")
    log.write_bytes(stand_in.packed({name: b"\x63" if bad in name else data for name, data in items.items()}))
    reader, (run,) = registry.open_source(f"aim:{tmp_path}")
    assert [record.values for record in reader.read(run) if isinstance(record, Metrics)] == [{"loss": 1.0}]
    assert "left out, the first: bad: no value of Aim's: b'c'" in run.note
    os.truncate(place / "000002.sst", 1 << 42)
    with pytest.raises(Damaged, match=r"000002\.sst is damaged: it claims"):
        registry.open_source(f"aim:{tmp_path}")
    os.truncate(place / "000002.sst", 0)
    (place / "000003.log").write_bytes(b"\xff" * 20)
    with pytest.raises(Damaged, match="a1b2 is damaged: Corruption: an item is cut"):
        registry.open_source(f"aim:{tmp_path}")
    (place / "CURRENT").unlink()
    os.mkfifo(place / "CURRENT")
    with pytest.raises(Damaged, match="a1b2 is no database of Aim's"):
        registry.open_source(f"aim:{tmp_path}")


def test_no_link_leads_out(tmp_path: Path) -> None:
    """A link in the place of a database's file isn't followed."""
    stand_in.run(tmp_path / "secret")
    place = stand_in.run(tmp_path / "it")
    (place / "000003.log").unlink()
    (place / "000003.log").symlink_to(tmp_path / "secret/.aim/meta/chunks/a1b2/000003.log")
    with pytest.raises(TrackersError):
        registry.open_source(f"aim:{tmp_path}/it")


def test_store_that_changes_all_the_time_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of files that change meanwhile aren't read; those of a quiet moment are."""
    place = stand_in.run(tmp_path)
    real, writes = store._copy_file, iter(range(100))

    def changing(path: Path, copy: Path, root: Path) -> None:
        real(path, copy, root)
        if next(writes) < most:
            with (place / "000003.log").open("ab") as file:
                file.write(stand_in.packed({b"x\xfe": b"\x00"}))

    monkeypatch.setattr(store, "_copy_file", changing)
    most = 3
    assert registry.open_source(f"aim:{tmp_path}")[1][0].id == "a1b2"
    most, writes = 100, iter(range(100))
    with pytest.raises(Unavailable, match="is written to all the time"):
        registry.open_source(f"aim:{tmp_path}")


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra that brings it."""
    monkeypatch.setattr(registry, "found_package", lambda name: name != "aimrocks")
    with pytest.raises(MissingPackage, match=r"needs the aimrocks package: pip install 'trackers-relay\[aim\]'"):
        registry.open_source("aim:x")


def test_keys_are_paths() -> None:
    """Every path comes back, and what is none is refused."""
    for one in (["a"], ["meta", -1, "ä", 2**63 - 1, -(2**63)], [0], []):
        assert tree.path(tree.key(*one)) == one
        assert tree.key(*one) == stand_in.key(*one)
    for bad in (b"a", b"\xfe", b"\xfe12345678", b"\xfe12345678x", b"\xff\xfe", b"a\xfe" * 300):
        with pytest.raises(ValueError, match=r"no key|nested|decode"):
            tree.path(bad)


def test_values_are_of_their_types() -> None:
    """Nothing is taken for a value that is too short, too long or of no type."""
    for bad in (b"", b"\x01", b"\x01\x00\x00", b"\x02123", b"\x03123456789", b"\x04\xff", b"\x63"):
        with pytest.raises(ValueError, match=r"no value|decode"):
            tree.value(bad)
