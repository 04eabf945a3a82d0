"""The records that the checks deliver."""

from __future__ import annotations

import math
import string
from pathlib import Path
from typing import Any

from trackers.records import (
    Alert,
    ArtifactFile,
    ArtifactRecord,
    Config,
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
from trackers.testing.driver import number
from trackers.tracker import Status

T0 = 1_763_688_000.125
"""When the runs of the checks began: long ago, so that a tracker's own clock is seen in its times."""

LONG_CONFIG: dict[str, Any] = {
    "short": 1,
    "layers": "x" * 20_000,
    "k" * 300: "a long name",
    "model": {"block": {"attention": {"heads": 8, "window": [1, 2, 3]}}, "note": None},
    "flag": True,
    "seed": 2**62 + 1,
    "limit": math.inf,
    "dropout.p": 0.1,
    "text": 'two\nlines, "quotes", größer, 損失',
    "many": {f"option_{place}": place for place in range(150)},
}
"""Configuration that some vendor refuses or shortens somewhere."""

AWKWARD_NAMES = (
    "timing(s)/gen",
    "mean@1",
    "AR@100",
    "a//b",
    "/leading",
    "trailing/",
    "../up",
    "a/./b",
    "a/../b",
    ".",
    "..",
    " spaces  around ",
    "per cent %41",
    "Loss",
    "loss",
    "LOSS",
    "a_b",
    "größe/損失/🙂",
    "step",
    "_step",
    "global_step",
    "time",
    "timestamp",
    "_timestamp",
    "_runtime",
    "run",
    "project",
    "metrics",
    "epoch",
    "NaN",
    "n" * 400,
    "n" * 399 + "m",
    "deep/" * 30 + "leaf",
)
"""Names that some vendor refuses, reserves or runs together."""


def names() -> list[str]:
    """Metric names: one for each printable ASCII character, and those that vendors are known to trip over."""
    printable = [f"x{character}y" for character in string.printable if character >= " " and character != "\x7f"]
    return list(dict.fromkeys([*printable, *AWKWARD_NAMES]))


def rows(count: int, first: int = 0) -> list[Record]:
    """Metrics of ``count`` steps, a quarter of a second apart, with three values each."""
    return [
        Metrics(
            step=step,
            time=T0 + step / 4,
            values={"loss": 2.5 - step / 1024, "perf/tokens_per_sec": 1000.0 + step, "count": step},
        )
        for step in range(first, first + count)
    ]


def training(steps: int, status: Status | None = None) -> list[Record]:
    """An ordinary run, numbered: start, configuration, rows, and at the end results and finish.

    A run that still goes on has neither: a destination may keep results for the end.
    """
    status = status or Status("finished", 0)
    end = T0 + steps / 4
    records: list[Record] = [
        Start(time=T0, pid=1),
        Config(time=T0, values={"lr": 0.001, "model": {"depth": 4}}),
        *rows(steps),
    ]
    if status.name != "running":
        records.append(Summary(time=end, values={"best_loss": 1.5}))
        records.append(Finish(time=end, status=status.name, exit_code=status.exit_code))
    return number(records)


def one_of_each(directory: Path) -> list[Record]:
    """A record of every kind, with small real files below ``directory`` where a kind needs them."""
    media = directory / "media"
    media.mkdir(exist_ok=True)
    (media / "weights.bin").write_bytes(bytes(range(256)))
    (media / "dot.png").write_bytes(_PNG)
    histogram = MediaFile(format="json", data={"counts": [1, 2, 1], "edges": [0.0, 0.5, 1.0, 1.5]})
    table = MediaFile(format="json", data={"columns": ["prompt", "text"], "rows": [["a", "b"], ["c", "d"]]})
    image = MediaFile(format="png", file="media/dot.png", width=1, height=1, caption="a dot")
    file = ArtifactFile(path="weights.bin", file="media/weights.bin", size=256, digest="")
    at: dict[str, Any] = {"step": 9, "time": T0 + 9 / 4}
    return [
        Start(time=T0, pid=1),
        Config(time=T0, values={"lr": 0.001}),
        Text(values={"note": "größer\nas two lines"}, **at),
        Media(name="weights", type="histogram", items=[histogram], **at),
        Media(name="samples", type="table", items=[table], **at),
        Media(name="images", type="image", items=[image, image], **at),
        ArtifactRecord(name="checkpoint", type="model", files=[file], aliases=["latest"], metadata={"loss": 0.5}, **at),
        Summary(time=T0 + 3, values={"best_loss": 0.5}),
        Define(time=T0 + 3, name="val_*", summary=["min"]),
        Alert(time=T0 + 3, title="slow", text="half the usual rate", level="WARN"),
        Info(time=T0 + 3, tags=["first", "third"]),
        Environment(time=T0 + 3, values={"packages": {"trackers-relay": "0.1.0"}, "gpu": None}),
    ]


_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100c9fe92ef"
    "0000000049454e44ae426082"
)
