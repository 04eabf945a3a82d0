"""A table that is logged in parts costs each store its rows, not all rows so far at each call."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.helpers import T0, Driver, run_info, stream
from trackers.backends import registry
from trackers.media import RunMedia, Table
from trackers.records import Media, encode
from trackers.tracker import Status

ROWS, WIDTH = 20, 400
PART_BYTES = ROWS * WIDTH


def stored_bytes(name: str, parts: int, place: Path) -> tuple[int, int]:
    """Bytes in the journal, and those that are added below a directory, by so many parts of one table."""
    before = bytes_below(place)
    options = {"MLFLOW_TRACKING_URI": f"sqlite:///{place}/mlflow.db", "WANDB_MODE": "offline"}
    info = run_info(place / f"run-{parts}", id=f"table{parts}", options=options)
    table, media, text = Table(["a"], log_mode="INCREMENTAL"), RunMedia(Path(info.directory)), random.Random(7)
    records = []
    for step in range(parts):
        for _ in range(ROWS):
            table.add_data(text.randbytes(WIDTH // 2).hex())
        records.append(Media(step=step, time=T0 + step, name="t", type="table", items=table.items(media)))
    journal = bytes_below(place) - before + sum(len(encode(record)) for record in records)
    Driver(registry.load(name), info).deliver(stream(records), batch=7, status=Status("finished", 0, T0 + parts))
    return journal, bytes_below(place) - before


def bytes_below(place: Path) -> int:
    """Of all files but W&B's records, in which each part names those before it, as by its own client."""
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file() and path.suffix != ".wandb")


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["json", "tensorboard", "trackio", "mlflow", "wandb"])
def test_parts_of_a_table_cost_what_their_rows_cost(name: str, tmp_path: Path) -> None:
    """In the journal and in each store that has tables: whole tables at each call would cost 20 times as much."""
    stored_bytes(name, 1, tmp_path)  # empty tables of a database, and the like
    journal, store = stored_bytes(name, 40, tmp_path)
    assert 40 * PART_BYTES < journal < 1.5 * 40 * PART_BYTES
    assert 40 * PART_BYTES < store < 5 * 40 * PART_BYTES
