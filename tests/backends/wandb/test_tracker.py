"""W&B as a tracker: the real client, online against the stand-in, and offline into files that are read back."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import sys
import time
import types
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.backends.wandb.support import (
    CLIENT,
    ID,
    assert_is_training,
    driver,
    metrics,
    offline_rows,
    picture,
    sync,
    user_row,
)
from tests.fakes.wandb_server import Fault, WandbServer
from tests.helpers import T0, Driver, run_info, stream, training, wait_for
from tests.stores import read_wandb_file, wandb_records
from trackers.backends.wandb import client, private_names
from trackers.backends.wandb import tracker as backend
from trackers.backends.wandb.tracker import WandbTracker
from trackers.errors import Rejected, Unavailable
from trackers.readers import registry
from trackers.records import (
    Alert,
    ArtifactFile,
    ArtifactRecord,
    Config,
    Console,
    Define,
    Environment,
    Finish,
    Info,
    Media,
    MediaFile,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
)
from trackers.support import run_requests
from trackers.support.machines import boot_id
from trackers.support.processes import process_start
from trackers.tracker import State, Status, Tracker

pytest_plugins = ["tests.backends.wandb.support"]


def test_launch_is_not_imported_to_look_for_what_cannot_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B looks for staged inputs where W&B Launch is loaded, and only there; its class is left as it was."""
    import wandb

    look = wandb.Run._detect_and_apply_job_inputs
    monkeypatch.delitem(sys.modules, "wandb.sdk.launch", raising=False)
    with private_names.without_launch():
        assert wandb.Run._detect_and_apply_job_inputs is not look
    assert wandb.Run._detect_and_apply_job_inputs is look
    monkeypatch.setitem(sys.modules, "wandb.sdk.launch", types.ModuleType("wandb.sdk.launch"))
    with private_names.without_launch():
        assert wandb.Run._detect_and_apply_job_inputs is look


def test_settings_that_a_client_does_not_know_are_left_out(
    server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with wandb 0.30, which refused ``x_transaction_log_flush_interval`` and with it the run: all values arrive."""
    import wandb

    class Older(wandb.Settings):  # a client's settings refuse what they don't know
        pass

    for name in ("x_transaction_log_flush_interval", "x_server_side_derived_summary", "x_save_requirements"):
        Older.model_fields.pop(name, None)
    Older.model_rebuild(force=True)
    with pytest.raises(ValueError, match="x_save_requirements"):
        Older(x_save_requirements=True)
    monkeypatch.setattr(wandb, "Settings", Older)
    run = driver(tmp_path)
    run.deliver(training(10))
    assert_is_training(server.runs[ID].history, 10)


@pytest.mark.slow
def test_online_holds_the_whole_run(server: WandbServer, tmp_path: Path) -> None:
    """1,000 steps of ten values arrive with steps, times, configuration, names, tags and results."""
    results = stream([Summary(time=T0, values={"final/best_val_loss": 0.25})], first_seq=2000)
    run = driver(tmp_path, group="ratio", notes="a note", job_type="train")
    run.deliver(training(1000) + results)

    held = server.runs[ID]
    assert_is_training(held.history, 1000)
    assert held.values == {"lr": 1e-3, "model": {"depth": 4}}
    assert (held.display_name, held.project, held.tags) == ("baseline", "digits", ["first"])
    assert (held.group, held.notes, held.job_type) == ("ratio", "a note", "train")
    assert held.summary["final/best_val_loss"] == 0.25
    assert not any("final/best_val_loss" in row for row in held.history)
    assert (held.state, held.exit_code) == ("finished", 0)
    assert run.state["url"] == f"{server.url}/someone/digits/runs/{ID}"
    assert run.state["native_id"] == ID


def test_results_that_nobody_asked_for_stand_beside_none_of_the_scripts(server: WandbServer, tmp_path: Path) -> None:
    """Energy and tokens lie where W&B shows nothing; readers have them, and going back takes them back."""
    begun = [Metrics(step=step, time=T0 + step, values={"loss": 1.0}) for step in range(3)]
    totals = {"energy/total_kwh": 1.0, "gen_ai.usage.input_tokens": 3, "accuracy": 0.5}
    run = driver(tmp_path)
    run.deliver(stream([*begun, Summary(time=T0 + 3, values=totals)]))
    held = server.runs[ID].summary
    assert held["_trackers"] == {"energy/total_kwh": 1.0, "gen_ai.usage.input_tokens": 3}
    assert held["accuracy"] == 0.5
    assert not totals.keys() - {"accuracy"} & held.keys()
    reader, (source,) = registry.open_source(f"wandb:someone/digits/{ID}")
    results = {name: value for record in reader.read(source) if isinstance(record, Summary)
               for name, value in record.values.items()}  # fmt: skip
    assert totals.items() <= results.items()
    gone = Summary(time=T0 + 4, values={}, removed=["energy/total_kwh"], derived=True)
    run.deliver(stream([*begun, Summary(time=T0 + 3, values=totals), gone]))
    assert server.runs[ID].summary["_trackers"] == {"gen_ai.usage.input_tokens": 3}


@pytest.mark.parametrize(("own", "asked", "stored"), [
    ({}, False, None), ({}, True, "renamed"), ({"run_name": "mine"}, True, "mine"),
    ({"run_name": "mine"}, False, "mine"),
])  # fmt: skip
def test_configuration_has_the_runs_name_where_it_is_asked_for(
    own: dict[str, Any], asked: bool, stored: str | None, server: WandbServer, tmp_path: Path
) -> None:
    """For queries by ``config.run_name``; a value of the script's own stays."""
    run = driver(tmp_path, options={"WANDB_CONFIG_RUN_NAME": asked}, config={"lr": 1.0, **own})
    run.deliver(stream([Metrics(step=0, time=T0, values={"a": 1.0}), Info(time=T0, name="renamed")]))
    assert server.runs[ID].values == {"lr": 1.0, **({} if stored is None else {"run_name": stored})}


@pytest.mark.slow
def test_offline_holds_the_whole_run_and_syncs(server: WandbServer, tmp_path: Path) -> None:
    """The offline file holds the same, and ``wandb sync`` of it gives the server the same run."""
    run = driver(tmp_path, options={"WANDB_OFFLINE": True}, group="ratio")
    results = stream([Summary(time=T0, values={"final/best": 0.25})], first_seq=2000)
    run.deliver(training(1000) + results)

    assert_is_training(offline_rows(tmp_path), 1000)
    assert server.requests == []
    assert "wandb sync" in run.state["url"]
    sync(tmp_path)
    held = server.runs[ID]
    assert_is_training(held.history, 1000)
    assert held.values == {"lr": 1e-3, "model": {"depth": 4}}
    assert (held.display_name, held.tags, held.group, held.state) == ("baseline", ["first"], "ratio", "finished")
    assert held.summary["final/best"] == 0.25


def test_metadata_is_that_of_training(server: WandbServer, tmp_path: Path) -> None:
    """W&B shows the training script, its arguments, interpreter, host, user and commit: not the deliverer's."""
    driver(
        tmp_path,
        program="/home/user/project/train.py",
        argv=["--lr", "0.1"],
        cwd="/home/user/project",
        python="/opt/python",
        host="node-7",
        user="somebody",
        git={"root": "/home/user", "commit": "c" * 40, "remote": "https://example.org/r.git"},
    ).deliver(training(3))
    shown = server.runs[ID].metadata
    assert (shown["program"], shown["codePath"]) == ("/home/user/project/train.py", "project/train.py")
    assert (shown["args"], shown["executable"]) == (["--lr", "0.1"], "/opt/python")
    assert (shown["host"], shown["username"]) == ("node-7", "somebody")
    assert shown["git"] == {"commit": "c" * 40, "remote": "https://example.org/r.git"}
    assert shown["startedAt"].startswith("2025-11-21T01:20:00")
    assert not server.runs[ID].events, "another machine's load was taken for the training's"


@pytest.mark.slow
def test_system_metrics_are_those_of_a_training_that_runs_here(server: WandbServer, tmp_path: Path) -> None:
    """Delivered while the training runs on this host, the run gets W&B's own system metrics, of that process."""
    machine = {"host": socket.gethostname(), "boot_id": boot_id()}
    here = {**machine, "pid": os.getpid(), "pid_start": process_start(os.getpid())}
    run, records = driver(tmp_path, program="train.py", **here), training(3)
    run.open()
    run.write(records[:-1])
    until = time.monotonic() + 60  # the client sends the first ones a while after its start
    while not any(name.startswith("system.proc.") for event in server.runs[ID].events for name in event):
        assert time.monotonic() < until
        time.sleep(0.02)
    run.write(records)
    run.close()
    assert server.runs[ID].metadata["program"] == "train.py"
    assert client.client_settings(run_info(tmp_path, **here), True)["x_stats_pid"] == os.getpid()
    gone = run_info(tmp_path, **{**here, "pid_start": here["pid_start"] - 1})
    assert client.client_settings(gone, True)["x_disable_stats"]


ODD = [
    (5, {"a": 1.0}),
    (5, {"b": 2.0}),
    (5, {"a": 3.0}),
    (3, {"a": 4.0}),
    (3, {"c": 5.0}),
    (9, {"a": math.nan, "b": math.inf, "c": -math.inf}),
    (None, {"late": 6.0}),
    (4, {"val": 7.0}),
    (20, {"a": True, "big": 2**53 + 1}),
]
ODD_ROWS = [
    (5, 5, {"a": 1.0, "b": 2.0}),
    (6, 5, {"a": 3.0}),
    (7, 3, {"a": 4.0, "c": 5.0}),
    (9, 9, {"a": math.nan, "b": math.inf, "c": -math.inf}),
    (10, 9, {"late": 6.0}),
    (11, 4, {"val": 7.0}),
    (20, 20, {"a": True, "big": 2**53 + 1}),
]


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_backward_repeated_and_late_steps_are_all_kept(mode: str, server: WandbServer, tmp_path: Path) -> None:
    """No value is dropped whatever its step; values of one step share a row; NaN and infinities stay themselves."""
    driver(tmp_path, options={"WANDB_MODE": mode}).deliver(metrics(*ODD))
    rows = server.runs[ID].history if mode == "online" else offline_rows(tmp_path)
    found = [(row["_step"], row["global_step"], user_row(row)) for row in rows]
    assert repr(sorted_rows(found)) == repr(sorted_rows(ODD_ROWS))


def sorted_rows(rows: list[tuple[int, int, dict[str, Any]]]) -> list[Any]:
    plain = (int, float, bool)
    return [
        (number, step, sorted((k, float(v) if isinstance(v, plain) else v) for k, v in row.items()))
        for number, step, row in rows
    ]


def test_names_of_every_kind_are_kept(server: WandbServer, tmp_path: Path) -> None:
    """Names with any printable character, dots and slashes stay, and so does the script's ``global_step``; W&B's own
    names get a prefix and lose nothing."""
    names = [f"a{character}b" for character in map(chr, range(32, 127))] + ["é/ü", ".", "/", "x.y.z", "final/x"]
    own = {"_step": 1.0, "_timestamp": 2.0, "_runtime": 3.0, "trackers/step": 4.0, "logged/_step": 4.5}
    values = {name: float(place) for place, name in enumerate([*names, "global_step", "logged/x"], 5)}
    driver(tmp_path).deliver(metrics((0, {**values, **own})))
    (row,) = server.runs[ID].history
    assert {name: row[name] for name in values} == values
    assert {name: row[f"logged/{name}"] for name in own} == own
    assert (row["_step"], row["_timestamp"], row["trackers/step"]) == (0, T0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("offline", [False, True])
def test_tag_that_wandb_refuses_costs_its_end(server: WandbServer, tmp_path: Path, offline: bool) -> None:
    """W&B takes tags of 1 to 64 characters: a longer one is cut, an empty one left out, at the start and later."""
    tags = ["short", "", "x" * 64, "y" * 65]
    kept = ["short", "x" * 64, "y" * 63 + "…"]
    changed = stream([Info(time=T0, tags=[*tags, "later"])], first_seq=2000)
    driver(tmp_path, tags=tags, options={"WANDB_OFFLINE": offline}).deliver(training(3) + changed)
    if offline:
        sync(tmp_path)
    assert server.runs[ID].tags == [*kept, "later"]
    driver(tmp_path / "other", id="other", tags=tags).deliver(training(3))
    assert server.runs["other"].tags == kept


def test_text_config_info_and_definitions(server: WandbServer, tmp_path: Path) -> None:
    """Text lies in rows; later configuration, names, tags and notes override; definitions hold over a pause."""
    losses = [0.5, 3.0, math.nan, 1.0, 2.0]
    records = stream(
        [
            Define(time=T0, name="val_*", summary=["min"]),
            Define(time=T0, name="v*_l?ss", summary=["min", "max"]),
            Define(time=T0, name="acc", step_metric="epoch", summary=["best"], goal="maximize", hidden=True),
            Config(time=T0, values={"model": {"width": 8}, "lr": 2.0}),
            Text(step=0, time=T0, values={"note": "héllo"}),
            Metrics(step=0, time=T0, values={"epoch": 0.0, "acc": 0.75}),
            *(Metrics(step=step, time=T0, values={"val_loss": value}) for step, value in enumerate(losses, 1)),
            Info(time=T0, name="renamed", tags=["x", "y"], notes="new"),
        ]
    )
    run = driver(tmp_path)
    run.deliver(records[:7], status=Status("running"))
    run.deliver(records)
    held = server.runs[ID]
    assert held.values == {"lr": 2.0, "model": {"depth": 4, "width": 8}}
    assert (held.display_name, held.tags, held.notes) == ("renamed", ["x", "y"], "new")
    assert held.history[0]["note"] == "héllo"
    assert held.summary["val_loss"] == {"min": 0.5, "max": 3.0}
    assert held.summary["acc"] == {"max": 0.75}
    axes = json.dumps(held.config["_wandb"]["value"]["m"])
    assert '"epoch"' in axes
    assert '"global_step"' in axes


def test_texts_and_lists_are_first_and_last_values(server: WandbServer, tmp_path: Path) -> None:
    """As with W&B's client, over a pause, too; numbers between them have their own extremes."""
    records = stream([
        Define(time=T0, name="note", summary=["first", "last"]),
        Define(time=T0, name="mixed", summary=["max", "last"]),
        Text(step=0, time=T0, values={"note": '["a", "NaN"]', "mixed": "b"}, lists=["note"]),
        Metrics(step=1, time=T0 + 1, values={"mixed": 3.0}),
        Text(step=2, time=T0 + 2, values={"note": "[c]", "mixed": "d"}),
    ])  # fmt: skip
    run = driver(tmp_path)
    run.deliver(records[:4], status=Status("running"))
    assert server.runs[ID].summary["mixed"] == {"max": 3.0, "last": 3.0}
    run.deliver(records)
    held = server.runs[ID]
    assert str(held.history[0]["note"]) in ("['a', nan]", "['a', 'NaN']")
    assert str(held.summary["note"]["first"]) == str(held.history[0]["note"])
    assert held.summary["note"]["last"] == "[c]"
    assert held.summary["mixed"] == {"max": 3.0, "last": "d"}


def test_media_are_results_whatever_their_definition_asks_for(server: WandbServer, tmp_path: Path) -> None:
    """A glob for losses covers pictures, lists of pictures and histograms, too: each result is the last one, also
    after a pause; numbers keep their extremes."""
    run = driver(tmp_path)
    items = [picture(tmp_path / "run")]
    spread = [MediaFile(format="json", data={"counts": [1, 2], "edges": [0, 1, 2]})]
    rows: list[Record] = []
    for step, loss in enumerate((3.0, 1.0, 2.0)):
        rows += [
            Media(step=step, time=T0 + step, name="val/one", type="image", items=items),
            Media(step=step, time=T0 + step, name="val/several", type="image", items=items * (step + 2)),
            Media(step=step, time=T0 + step, name="val/spread", type="histogram", items=spread),
            Metrics(step=step, time=T0 + step, values={"val/loss": loss, "val/mixed": loss}),
        ]
    mixed = Media(step=3, time=T0 + 3, name="val/mixed", type="image", items=items)
    exact = Define(time=T0, name="val/several", summary=["max"])
    records = stream([Define(time=T0, name="val/*", summary=["min", "last"]), exact, *rows, mixed])
    run.deliver(records[:6], status=Status("running"))
    run.deliver(records)
    held = server.runs[ID].summary
    assert held["val/loss"] == {"min": 1.0, "last": 2.0}
    kinds = {name: value["_type"] for name, value in held.items() if isinstance(value, dict) and "_type" in value}
    assert kinds == {
        "val/one": "image-file",
        "val/several": "images/separated",
        "val/spread": "histogram",
        "val/mixed": "image-file",
    }
    assert held["val/several"]["count"] == 4


def test_boxes_have_scores_that_are_no_numbers(server: WandbServer, tmp_path: Path) -> None:
    """NaN and infinities, which the journal names: the picture was refused. A box without scores has none. The same
    of its place; a caption stays the text that it is."""
    run = driver(tmp_path)
    place = {"minX": 0.25, "maxX": 0.5, "minY": 0.25, "maxY": "NaN"}
    found = [{"position": place, "class_id": 1, "scores": {"a": "NaN", "b": "Infinity", "c": 0.5}},
             {"position": place, "class_id": 1, "box_caption": "NaN"}]  # fmt: skip
    item = picture(tmp_path / "run")
    item.meta = {"boxes": {"predicted": {"box_data": found, "class_labels": {"1": "cat"}}}}
    run.deliver(stream([Media(step=0, time=T0, name="image", type="image", items=[item])]))
    (row,) = server.runs[ID].history
    assert row["image"]["boxes"]["predicted"]["_type"] == "boxes2D"


def media(directory: Path) -> list[Record]:
    import wave

    import numpy

    numpy.save(directory / "clip.npy", numpy.zeros((3, 8, 8, 3), dtype="uint8"))
    with wave.open(str(directory / "tone.wav"), "wb") as tone:
        tone.setnchannels(1)
        tone.setsampwidth(2)
        tone.setframerate(8000)
        tone.writeframes(bytes(1600))
    (directory / "page.html").write_text("<b>bold</b>")
    image = picture(directory)
    cell = {"_type": "image", "format": "npy", "file": "picture.npy"}
    table = {"columns": ["text", "score", "image"], "rows": [["a", 1.5, cell], ["b", "NaN", None]]}
    items: dict[str, tuple[str, MediaFile]] = {
        "image": ("image", image),
        "sound": ("audio", MediaFile(format="wav", file="tone.wav", sample_rate=8000)),
        "clip": ("video", MediaFile(format="npy", file="clip.npy", fps=4.0)),
        "page": ("html", MediaFile(format="html", file="page.html")),
        "spread": ("histogram", MediaFile(format="json", data={"counts": [1] * 600, "edges": list(range(601))})),
        "samples": ("table", MediaFile(format="json", data=table)),
    }
    sounds = [MediaFile(format="wav", file="tone.wav", sample_rate=8000, caption=caption) for caption in ("a", None)]
    found = [Media(step=1, time=T0, name=name, type=kind, items=[item]) for name, (kind, item) in items.items()]
    return [*found, Media(step=1, time=T0, name="sounds", type="audio", items=sounds)]


def test_media_are_shown_as_w_and_b_types(server: WandbServer, tmp_path: Path) -> None:
    """Images, sounds, videos, pages, histograms and tables arrive, each file uploaded, all in one row."""
    run = driver(tmp_path)
    run.deliver(stream(media(tmp_path / "run")))
    held = server.runs[ID]
    (row,) = held.history
    types = {name: row[name]["_type"] for name in ("image", "sound", "clip", "page", "spread", "samples")}
    assert types == {
        "image": "image-file",
        "sound": "audio-file",
        "clip": "video-file",
        "page": "html-file",
        "spread": "histogram",
        "samples": "table-file",
    }
    assert all(row[name]["path"] in held.files for name in ("image", "sound", "clip", "page", "samples"))
    assert sum(row["spread"]["values"]) == 600
    sounds = row["sounds"]  # described without soundfile, which W&B's client asks for and doesn't use
    words = ("_type", "count", "sampleRates", "durations", "captions")
    assert [sounds[word] for word in words] == ["audio", 2, [8000, 8000], [None, None], ["a", ""]]
    tone = (tmp_path / "run/tone.wav").read_bytes()
    assert [held.files[one["path"]] for one in sounds["audio"]] == [tone, tone]
    (artifact,) = server.store.artifacts  # W&B shows a table with media from the artifact that it makes of it
    first, second = json.loads(artifact.files["samples.table.json"])["data"]
    assert first[:2] == ["a", 1.5]
    assert first[2]["path"] in artifact.files
    assert second == ["b", None, None]  # W&B's tables have no NaN
    assert held.files[row["image"]["path"]].startswith(b"\x89PNG")


def test_media_that_are_encoded_arrive_at_each_step(server: WandbServer, tmp_path: Path) -> None:
    """Frames that become a GIF reach the row of their own step, though the row before them is sent meanwhile."""
    import numpy

    run = driver(tmp_path)
    records: list[Record] = []
    for step in (1, 2, 3):
        numpy.save(tmp_path / f"run/{step}.npy", numpy.full((3, 8, 8, 3), 50 * step, dtype="uint8"))
        items = [MediaFile(format="npy", file=f"{step}.npy", fps=4.0)]
        records.append(Media(step=step, time=T0, name="clip", type="video", items=items))
    run.deliver(stream(records))
    held = server.runs[ID]
    assert [row["_step"] for row in held.history] == [1, 2, 3]
    assert len({held.files[row["clip"]["path"]] for row in held.history}) == 3


def test_list_of_one_medium_is_described_as_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As W&B's client does it, of what it has lists of; a medium that is given alone is one."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    (tmp_path / "run").mkdir()
    one = [record for record in media(tmp_path / "run") if isinstance(record, Media) and record.name != "sounds"]
    listed = [msgspec.structs.replace(record, name=f"{record.name}s", listed=True) for record in one]
    driver(tmp_path).deliver(stream([*one, *listed]))
    (row,) = offline_rows(tmp_path)
    alone = {"image": "image-file", "sound": "audio-file", "clip": "video-file", "page": "html-file"}
    lists = {"images": "images/separated", "sounds": "audio", "clips": "videos", "pages": "html"}
    others = {"spread": "histogram", "samples": "table-file"}  # W&B's client has no type for lists of these
    others |= {f"{name}s": kind for name, kind in others.items()}
    assert {record.name: row[record.name]["_type"] for record in (*one, *listed)} == {**alone, **lists, **others}


def test_missing_media_file_is_rejected_alone(server: WandbServer, tmp_path: Path) -> None:
    """A record whose file is gone is refused; what comes after it is delivered."""
    run = driver(tmp_path)
    run.open()
    gone = Media(step=1, time=T0, name="x", type="image", items=[MediaFile(format="png", file="gone.png")])
    first, second = stream([gone, Metrics(step=2, time=T0, values={"a": 1.0})])
    with pytest.raises(Rejected, match=r"gone\.png"):
        run.write([first])
    run.cursor = first.seq
    run.write([second])
    run.close()
    assert [user_row(row) for row in server.runs[ID].history] == [{"a": 1.0}]


@pytest.mark.parametrize("last", [False, True])
def test_medium_that_is_refused_as_its_row_is_sent_is_set_aside_alone(
    server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    """The row's other values arrive, and those after it: the records after it were refused for it, and the end."""
    described = private_names.converted

    def refuse(run: Any, values: dict[str, Any], number: int) -> dict[str, Any]:
        if "bad" in values:
            raise TypeError("no such cell")
        return described(run, values, number)

    monkeypatch.setattr(private_names, "converted", refuse)
    run = driver(tmp_path)
    item = picture(tmp_path / "run")
    records: list[Record] = [Metrics(step=1, time=T0, values={"a": 1.0})]
    records += [Media(step=1, time=T0, name=name, type="image", items=[item]) for name in ("bad", "good")]
    after = [Metrics(step=step, time=T0 + step, values={"a": float(step)}) for step in (2, 3)]
    run.deliver(stream([*records, *([] if last else after)]))
    assert run.tracker is not None
    ((record, why),) = run.tracker.refused()
    assert isinstance(record, Media)
    assert (record.name, why) == ("bad", "no such cell")
    first, *others = map(user_row, server.runs[ID].history)
    assert (first["a"], "bad" in first, first["good"]["_type"]) == (1.0, False, "image-file")
    assert others == ([] if last else [{"a": 2.0}, {"a": 3.0}])


@pytest.mark.slow
def test_artifact_takes_no_file_from_elsewhere(server: WandbServer, tmp_path: Path) -> None:
    """A record that names a file outside of the run is refused; a path in the artifact doesn't lead out of it."""
    (tmp_path / "id_rsa").write_text("precious")
    driver = Driver(WandbTracker, run_info(tmp_path / "run"))
    driver.info.path("kept").write_bytes(b"12")
    (tmp_path / "run/link").symlink_to(tmp_path / "id_rsa")
    driver.open()
    for name in ("../id_rsa", str(tmp_path / "id_rsa"), "link"):
        record = ArtifactRecord(time=T0, name="keys", type="file", files=[ArtifactFile(path="a", file=name)])
        with pytest.raises(Rejected):
            driver.write(stream([record]))
    inside = ArtifactRecord(time=T0, name="kept", type="file", files=[ArtifactFile(path="../../kept", file="kept")])
    driver.write(stream([inside]))
    driver.close()
    assert [item.files for item in server.store.artifacts] == [{"kept": b"12"}]


def test_code_of_a_run_arrives(tmp_path: Path) -> None:
    """W&B's client keeps such names for itself: what ``log_code`` had kept was refused."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/train.py").write_bytes(b"1")
    files = [ArtifactFile(path="train.py", file="train.py")]
    names = ("source-p-train.py", "mine")
    driver(tmp_path, options={"WANDB_MODE": "offline"}).deliver(
        stream([ArtifactRecord(time=T0, name=name, type="code", files=files) for name in names])
    )
    (path,) = tmp_path.rglob("*.wandb")
    found = list(wandb_records(path))
    kept = [record.artifact for record in found if record.HasField("artifact")]
    assert [(one.name, one.type, [file.path for file in one.manifest.contents]) for one in kept] == [
        (name, "code", ["train.py"]) for name in names
    ]
    changes = [item for record in found if record.HasField("config") for item in record.config.update]
    own = [json.loads(item.value_json) for item in changes if item.key == "_wandb"]
    assert own == [{"code_path": "source-p-train.py"}]


def test_tags_and_addresses_of_artifacts_are_wandbs(tmp_path: Path) -> None:
    """Tags that W&B takes are the version's, none among its metadata; a file that is named has its digest and size."""
    files = [
        ArtifactFile(path="a", uri="file:///data/a", size=7, digest="md5:mgNkuembtEDdZJCK5qdYpg=="),
        ArtifactFile(path="b", uri="s3://bucket/b"),
    ]
    tags = ["good one", "bad/one"]
    records = [
        ArtifactRecord(time=T0, name="a", type="data", files=files, tags=tags, metadata={"tags": tags, "n": 1}),
        ArtifactRecord(time=T0, name="b", type="data", files=files, tags=tags, metadata={"tags": ["mine"]}),
    ]
    driver(tmp_path, options={"WANDB_MODE": "offline"}).deliver(stream(records))
    (path,) = tmp_path.rglob("*.wandb")
    kept = [record.artifact for record in wandb_records(path) if record.HasField("artifact")]
    assert [(list(one.tags), json.loads(one.metadata)) for one in kept] == [
        (["good one"], {"n": 1}),
        (["good one"], {"tags": ["mine"]}),
    ]
    assert [(entry.digest, entry.ref, entry.size) for entry in kept[0].manifest.contents] == [
        ("mgNkuembtEDdZJCK5qdYpg==", "file:///data/a", 7),
        ("s3://bucket/b", "s3://bucket/b", 0),
    ]


@pytest.mark.slow
def test_artifacts_and_alerts_arrive_once(server: WandbServer, tmp_path: Path) -> None:
    """Artifacts come with files, references, aliases and metadata; delivered twice they are still one, as alerts."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/weights.bin").write_bytes(b"weights")
    files = [
        ArtifactFile(path="model/weights.bin", file="weights.bin"),
        ArtifactFile(path="data", uri="s3://bucket/key"),
    ]
    artifact = ArtifactRecord(
        time=T0, name="check/point", type="model", files=files, aliases=["best"], metadata={"step": 3}, description="d"
    )
    records = stream([artifact, Alert(time=T0, title="diverged", text="at 3", level="WARN"), *training(3)])
    run = driver(tmp_path)
    run.deliver(records)
    state = run.state
    Driver(WandbTracker, run.info, state=state).deliver(records)

    (held,) = server.store.artifacts
    assert held.name.startswith("check-point-")
    assert (held.type, held.description, held.metadata) == ("model", "d", {"step": 3, "name": "check/point"})
    assert held.files == {"model/weights.bin": b"weights"}
    assert held.references == {"data": "s3://bucket/key"}
    assert {"best"} <= set(held.aliases)
    (alert,) = server.runs[ID].alerts
    assert (alert["title"], alert["text"], alert["severity"]) == ("diverged", "at 3", "WARN")


def linked(tmp_path: Path, link: str = "wandb-registry-model/zoo", **more: Any) -> list[Record]:
    """An artifact, its link to a registry, and training after it."""
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "run/weights.bin").write_bytes(b"weights")
    same: dict[str, Any] = {"type": "model", "files": [ArtifactFile(path="weights.bin", file="weights.bin")]}
    first = ArtifactRecord(time=T0, name="net", aliases=["best"], **same)
    link_of = ArtifactRecord(time=T0, name="zoo", link=link, source="net", **{**same, "aliases": ["prod"], **more})
    return stream([first, link_of, *training(3)])


@pytest.mark.slow
def test_link_is_one_in_the_registry_however_often_it_is_delivered(server: WandbServer, tmp_path: Path) -> None:
    """The version that was logged is linked, with the link's own aliases; no second artifact is made of it."""
    records, run = linked(tmp_path), driver(tmp_path)
    run.deliver(records)
    Driver(WandbTracker, run.info, state=run.state).deliver(records)
    run.state["artifacts"] = []  # killed after W&B had linked it, before that was written down
    Driver(WandbTracker, run.info, state=run.state).deliver(records)
    (held,) = server.store.artifacts
    assert (held.name, sorted(held.aliases)) == ("net", ["best", "latest"])
    (link,) = server.store.links
    assert (link.entity, link.project, link.collection) == ("lab-org", "wandb-registry-model", "zoo")
    assert (link.artifact, sorted(link.aliases)) == (held.id, ["latest", "prod"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "entity", "project"),
    [("model-registry/zoo", "team", "model-registry"), ("zoo", "team", "p"), ("other/pets/zoo", "other", "pets")],
)
def test_link_within_projects_is_of_the_runs_entity(
    server: WandbServer, tmp_path: Path, path: str, entity: str, project: str
) -> None:
    """A target that is no registry's is completed with the run's entity and project, as W&B's client does."""
    run = driver(tmp_path)
    run.deliver(linked(tmp_path, path))
    (link,) = server.store.links
    held = next(iter(server.runs.values()))
    expected = (held.entity if entity == "team" else entity, held.project if project == "p" else project, "zoo")
    assert (link.entity, link.project, link.collection) == expected


@pytest.mark.parametrize("refusal", ["no such registry", "404", "bad alias"])
def test_link_that_is_refused_holds_up_nothing(
    server: WandbServer, tmp_path: Path, refusal: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The files and all that follows arrive; a line says what wasn't linked, why, and how to do it later."""
    if refusal == "404":
        server.fault = Fault("status", match="LinkArtifact", status=404)
    server.store.registries = set()
    run = driver(tmp_path)
    run.deliver(linked(tmp_path, **({"aliases": ["a/b"]} if refusal == "bad alias" else {})))
    assert [held.files for held in server.store.artifacts] == [{"weights.bin": b"weights"}]
    assert server.store.links == []
    assert_is_training(server.runs[ID].history, 3)
    (line,) = [record.getMessage() for record in caplog.records if "didn't link" in record.getMessage()]
    assert "to wandb-registry-model/zoo (" in line
    assert "link('wandb-registry-model/zoo') links it" in line


@pytest.mark.slow
def test_link_is_tried_again_after_an_outage(
    server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer isn't a refusal: the record stays to be delivered, and is linked once."""
    from wandb.apis.public.service_api import ServiceApi

    patient = ServiceApi.send_api_request
    monkeypatch.setattr(
        ServiceApi, "send_api_request", lambda self, request, timeout: patient(self, request, timeout=2)
    )
    records, run = linked(tmp_path), driver(tmp_path)
    run.open()
    server.fault = Fault("status", match="LinkArtifact|FetchOrgInfo", status=503)
    with pytest.raises(Unavailable, match="wandb-registry-model/zoo can't be linked yet"):
        run.write(records)
    server.fault = None
    again = Driver(WandbTracker, run.info, state=run.state)
    again.deliver(records)
    assert [link.aliases for link in server.store.links] == [["prod", "latest"]]
    assert len(server.store.artifacts) == 1


@pytest.mark.heavy
def test_offline_link_is_said_and_delivered_online_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """W&B's client can't link offline: the files are kept, and a line says that they aren't linked."""
    run = driver(tmp_path)
    run.deliver(linked(tmp_path))
    assert_is_training(offline_rows(tmp_path), 3)
    (line,) = [record.getMessage() for record in caplog.records if "isn't linked" in record.getMessage()]
    assert line.startswith("wandb-registry-model/zoo isn't linked")


STATUSES = [
    (Status("finished", 0), "finished", 0),
    (Status("failed", 7), "failed", 7),
    (Status("failed"), "failed", 1),
    (Status("failed", 130, reason="KeyboardInterrupt: "), "failed", 255),  # as from W&B's client
    (Status("failed", 130, reason="exit code 130"), "failed", 130),
    (Status("crashed", -9), "failed", 255),
    (Status("preempted"), "preempted", 1),
    (Status("stopped", 0, reason="by alice"), "finished", 0),
]


@pytest.mark.parametrize(("status", "state", "code"), STATUSES)
def test_close_says_how_the_run_ended(
    status: Status, state: str, code: int, server: WandbServer, tmp_path: Path
) -> None:
    """Each way to end shows in W&B with its exit code."""
    driver(tmp_path).deliver(training(3), status=status)
    assert (server.runs[ID].state, server.runs[ID].exit_code) == (state, code)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["online", "offline"])
@pytest.mark.parametrize(("status", "state", "code"), STATUSES)
def test_run_that_goes_on_after_a_preemption_ends_as_its_last_attempt(
    status: Status, state: str, code: int, mode: str, server: WandbServer, tmp_path: Path
) -> None:
    """A preempted run that is resumed shows how the resumed one ended, offline files after ``wandb sync``, too."""
    needed = {"failed": (0, 31), "preempted": (0, 28)}.get(state, (0,))
    if mode == "offline" and needed > CLIENT:
        pytest.skip("needs wandb 0.31: the wandb sync of others leaves such a run preempted, or says that it finished")
    run = driver(tmp_path, options={"WANDB_MODE": mode})
    for end, last in ((10, Status("preempted")), (23, status)):
        run.deliver(training(20)[:end], status=last)
        if mode == "offline":
            sync(tmp_path)
            shutil.rmtree(tmp_path / "run/wandb")
    assert (server.runs[ID].state, server.runs[ID].exit_code) == (state, code)


@pytest.mark.slow
def test_pause_leaves_the_run_running_with_every_row(server: WandbServer, tmp_path: Path) -> None:
    """A delivery that ends while the run goes on uploads all and doesn't end the run; the next one goes on."""
    records = training(20)
    run = driver(tmp_path)
    run.deliver(records[:12], status=Status("running"))
    assert_is_training(server.runs[ID].history, 10)
    assert server.runs[ID].state == "running"
    run.deliver(records)
    assert_is_training(server.runs[ID].history, 20)
    assert server.runs[ID].state == "finished"


@pytest.mark.slow
def test_values_after_a_pause_within_a_step_are_kept(server: WandbServer, tmp_path: Path) -> None:
    """A value that comes after a pause to the last row's step waits as a second one does: the next step's row has its
    number, and it lies behind at the end, also when the state is lost."""
    rows = metrics((0, {"a": 1.0}), (1, {"a": 2.0}), (1, {"b": 3.0}), (2, {"a": 4.0}), (3, {"a": 5.0}))
    run = driver(tmp_path)
    run.deliver(rows[:2], status=Status("running"))
    run.deliver(rows[:4], status=Status("running"))
    expected = [{"a": 1.0}, {"a": 2.0}, {"a": 4.0}]
    assert [user_row(row) for row in server.runs[ID].history] == expected
    driver(tmp_path).deliver(rows)
    found = server.runs[ID].history
    assert [user_row(row) for row in found] == [*expected, {"a": 5.0}, {"b": 3.0}]
    assert [(row["_step"], row["global_step"]) for row in found] == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 1)]


def test_tick_sends_a_row_that_waits(server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest row doesn't wait for the next step for ever; what still comes to its step is kept too."""
    monkeypatch.setattr(backend, "IDLE_S", 0.0)
    run = driver(tmp_path)
    first, second = metrics((0, {"a": 1.0}), (0, {"b": 2.0}))
    run.open()
    run.write([first])
    assert isinstance(run.tracker, WandbTracker)
    run.tracker.tick()
    run.tracker._confirm(0)
    assert [user_row(row) for row in server.runs[ID].history] == [{"a": 1.0}]
    run.write([second])
    run.close()
    assert [user_row(row) for row in server.runs[ID].history] == [{"a": 1.0}, {"b": 2.0}]


@pytest.mark.slow
def test_project_and_entity_choose_the_place(server: WandbServer, tmp_path: Path) -> None:
    """By WANDB_PROJECT and WANDB_ENTITY."""
    driver(tmp_path, options={"WANDB_PROJECT": "other", "WANDB_ENTITY": "team"}).deliver(training(1))
    assert (server.runs[ID].project, server.runs[ID].entity) == ("other", "team")


@pytest.mark.parametrize("offline", [False, True])
def test_finished_run_is_edited(server: WandbServer, tmp_path: Path, offline: bool) -> None:
    """Name, tags, notes, group and results reach it; its rows stay as they are. Only online can they be emptied."""
    run = driver(tmp_path, group="old", notes="old", options={"WANDB_OFFLINE": offline})
    first = training(3)
    edit = [
        Info(time=T0 + 9, name="new", tags=["x"], notes="later", group="g2"),
        Summary(time=T0 + 9, values={"final/acc": 0.5}),
    ]
    for records in (first, [*first, *stream(edit, first_seq=2000)]):
        run.deliver(records)
        if offline:
            sync(tmp_path)
    held = server.runs[ID]
    assert (held.display_name, held.tags, held.notes, held.group, held.state) == (
        "new",
        ["x"],
        "later",
        "g2",
        "finished",
    )
    assert held.summary["final/acc"] == 0.5
    assert len([row for row in held.history if "global_step" in row]) == 3
    emptied = [*edit, Info(time=T0 + 10, tags=[], notes="", group="")]
    run.deliver([*first, *stream(emptied, first_seq=2000)])
    if not offline:
        held = server.runs[ID]
        assert (held.display_name, held.tags, held.notes, held.group) == ("new", [], "", "")


@pytest.mark.slow
def test_offline_run_with_nested_settings_is_uploaded_whole(server: WandbServer, tmp_path: Path) -> None:
    """A mapping that is set whole is there after ``wandb sync``, with the run's rows and its end: the old one, before
    0.28, ends at the removal of a setting that isn't there, and prints "done"."""
    run = driver(tmp_path, config={"model": {"depth": 4}}, options={"WANDB_MODE": "offline"})
    run.deliver(training(3))
    sync(tmp_path)
    held = server.runs[ID]
    assert held.config["model"]["value"] == {"depth": 4}
    assert (len([row for row in held.history if "global_step" in row]), held.state) == (3, "finished")


@pytest.mark.processes
def test_run_is_deleted_for_good(server: WandbServer, tmp_path: Path) -> None:
    """Online by W&B's API; what isn't there, or lies in offline files, is said."""
    run = driver(tmp_path)
    run.deliver(training(3))
    path = f"{server.runs[ID].entity}/digits/{ID}"
    assert WandbTracker.remove(run.info, State()) == f"{path} deleted in W&B for good; its artifacts stay there"
    assert ID not in server.runs
    assert WandbTracker.remove(run.info, State()).startswith("W&B has no run")  # type: ignore[union-attr]
    run.info.options = {"WANDB_OFFLINE": True}
    assert WandbTracker.remove(run.info, State()) is None


def test_tracker_follows_the_protocol() -> None:
    """The class is a tracker, needs wandb, and can be made without it."""
    assert isinstance(WandbTracker(), Tracker)
    assert WandbTracker.needs == ("wandb",)
    assert {
        Metrics,
        Text,
        Media,
        ArtifactRecord,
        Config,
        Summary,
        Define,
        Alert,
        Info,
        Start,
        Finish,
        Console,
        Environment,
    } == WandbTracker.accepts


@pytest.mark.slow
@pytest.mark.processes
def test_media_that_come_again_begin_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row's table and picture are found in the offline file, where they lie as their parts, though state is lost."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    import numpy

    (tmp_path / "run").mkdir()
    pixels = numpy.zeros((4, 4), "uint8")
    numpy.save(tmp_path / "run/a.npy", pixels)
    table = MediaFile(format="json", data={"columns": ["a"], "rows": [[1]]})
    records = stream(
        [
            Media(step=1, time=T0, name="samples", type="table", items=[table]),
            Metrics(step=1, time=T0, values={"loss": 1.0}),
            Media(step=1, time=T0, name="picture", type="image", items=[MediaFile(format="npy", file="a.npy")]),
        ]
    )
    for _ in range(2):
        driver(tmp_path).deliver(records)
    (row,) = offline_rows(tmp_path)
    assert {name.partition(".")[0] for name in user_row(row)} == {"samples", "loss", "picture"}


@pytest.mark.processes
def test_global_step_of_the_script_keeps_its_name(tmp_path: Path) -> None:
    """Also in rows that were sent again; the training step has another name from then on, and is read back as it."""
    own = {0: 0, 1: 64, 2: None, 3: 192}
    records = stream(
        Metrics(
            step=step, time=T0 + step, values={"loss": 1.0 / (step + 1), **({} if at is None else {"global_step": at})}
        )
        for step, at in own.items()
    )
    run = driver(tmp_path, options={"WANDB_MODE": "offline"})
    run.open()
    run.write(records[:2])
    run.write(records[:3], commit=False)
    client.abandon()
    again = driver(tmp_path, options={"WANDB_MODE": "offline"})
    again.state, again.cursor = run.state, run.cursor
    again.deliver(records)
    rows = offline_rows(tmp_path)
    assert [(row["_step"], row["trackers/step"], row.get("global_step")) for row in rows] == [
        (step, step, at) for step, at in own.items()
    ]


def test_row_of_several_calls_has_the_time_of_the_last(tmp_path: Path) -> None:
    """As W&B's client has it."""
    records = metrics((0, {"a": 1.0}), (0, {"b": 1.0}), (0, {"a": 1.0}), (1, {"a": 2.0}))
    driver(tmp_path, options={"WANDB_MODE": "offline"}).deliver(records)
    assert [(row["_step"], row["_timestamp"]) for row in offline_rows(tmp_path)] == [(0, T0 + 1), (1, T0 + 3)]


@pytest.mark.parametrize("kind", ["rewinds", "refuses", "offline"])
def test_values_above_the_step_that_training_went_back_to_are_no_results(
    kind: str, server: WandbServer, tmp_path: Path
) -> None:
    """Whether W&B drops their rows or keeps them; where it drops them, the next ones lie at their steps."""
    if kind == "refuses":
        server.fault = Fault("status", match="RewindRun", status=400)
    rows = metrics((0, {"a": 1.0}), (4, {"a": 2.0, "kept": 1.0}), (8, {"a": 3.0, "b": 1.0, "text": 1.0}))
    back = Start(time=T0 + 5, attempt=2, rank=0, from_step=6)
    after = metrics((6, {"c": 1.0}), (6, {"c": 2.0}), (9, {"c": 3.0}), (9, {"b": 2.0}))[:3]
    records = stream([*rows, back, *after])
    run = driver(tmp_path, options={"WANDB_MODE": "offline" if kind == "offline" else "online"})
    run.open()
    run.write(records[:3])
    run.close(Status("running", time=T0 + 3))
    run.open()
    run.write(records[:5])
    run.close(Status("running", time=T0 + 6))
    run.open()
    run.write(records)
    run.close()
    summary = read_wandb_file(run.info).summary if kind == "offline" else server.runs[ID].summary
    assert user_row(summary or {}) == {"a": 2.0, "kept": 1.0, "c": 3.0}
    if kind == "rewinds":
        assert [(row["_step"], row["global_step"]) for row in server.runs[ID].history] == [
            (0, 0), (4, 4), (6, 6), (7, 6), (9, 9),
        ]  # fmt: skip


def test_alerts_of_one_title_all_arrive(tmp_path: Path) -> None:
    """W&B's server drops none: it is told to wait for nothing."""
    records = stream(Alert(time=T0 + second, title="diverged", text=str(second)) for second in range(3))
    driver(tmp_path, options={"WANDB_MODE": "offline"}).deliver(records)
    (path,) = tmp_path.rglob("*.wandb")
    alerts = [record.alert for record in wandb_records(path) if record.WhichOneof("record_type") == "alert"]
    assert [(alert.title, alert.text, alert.wait_duration) for alert in alerts] == [
        ("diverged", str(second), 0) for second in range(3)
    ]


@pytest.mark.slow
def test_second_values_of_a_step_survive_a_rewind(server: WandbServer, tmp_path: Path) -> None:
    """Of the steps that are kept; those of later steps go with them."""
    records: list[Record] = [Start(time=T0, rank=0)]
    for step in range(6):
        records += [Metrics(step=step, time=T0 + step, values={"loss": float(step)})]
        records += [Metrics(step=step, time=T0 + step + 0.5, values={"loss": step + 0.5})]
    records.append(Start(time=T0 + 100, rank=0, attempt=2, from_step=3))
    records += [Metrics(step=step, time=T0 + 100 + step, values={"loss": -float(step)}) for step in (4, 5)]
    driver(tmp_path).deliver(stream(records), batch=3)
    rows = [(row["_step"], row["global_step"], row["loss"]) for row in server.runs[ID].history]
    assert rows[:6] == [(0, 0, 0.0), (1, 1, 1.0), (2, 2, 2.0), (3, 3, 3.0), (4, 4, -4.0), (5, 5, -5.0)]
    assert [row[1:] for row in rows[6:]] == [(step, step + 0.5) for step in range(4)]


@pytest.mark.heavy
@pytest.mark.skipif(CLIENT < (0, 31), reason="needs wandb 0.31: others interrupt the process")
def test_stop_button_asks_the_run_to_stop(server: WandbServer, tmp_path: Path) -> None:
    """The client hears of it from the server, and the run finds a request; the delivery goes on to its end."""
    run = driver(tmp_path)
    records = training(20)
    run.open()
    server.store.stopped.add(ID)
    run.write(records[:10])
    path = tmp_path / "run" / run_requests.FILE
    asks = "the client asks every 15 s"
    (asked,) = wait_for(lambda: path.exists() and run_requests.read(tmp_path / "run"), why=asks)
    assert (asked.stop, asked.by) == (True, "W&B's Stop button")
    run.write(records)
    run.close(Status("stopped", 0, reason=str(asked)))
    assert server.runs[ID].state == "finished"
    assert len(server.runs[ID].history) == 20
