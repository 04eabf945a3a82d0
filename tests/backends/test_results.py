"""A result is the last that the records say, in their order, in every store and whatever the timing."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests import stores
from tests.helpers import T0, Driver, run_info, stream
from trackers.backends import registry
from trackers.records import Define, Finish, Metrics, Record, Start, Summary, plain_name
from trackers.testing import Stored
from trackers.tracker import RunInfo, Status

VALUES = st.integers(-9, 9).map(float)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("log"), st.booleans(), VALUES),  # whether at the next step
        st.tuples(st.just("set"), st.sampled_from(["loss", "best", "final/best"]), VALUES),
        st.tuples(st.just("define"), st.sampled_from(["min", "max", "none"]), st.booleans()),
    ),
    min_size=1,
    max_size=12,
)
BORDERS = st.lists(st.sampled_from(["", "", "batch", "killed", "paused"]), min_size=12, max_size=12)
"""What comes after each record: nothing, a batch's end, a kill before its commit, a delivery's end."""


def records_of(events: list[tuple[str, Any, Any]]) -> list[Record]:
    found: list[Record] = [Start(time=T0, rank=0)]
    step = 0
    for place, (kind, which, value) in enumerate(events):
        time = T0 + place // 3 / 1000  # results of one millisecond, too
        if kind == "log":
            step += which
            found.append(Metrics(step=step, time=time, values={"loss" if which else f"more{place}": value}))
        elif kind == "set":
            found.append(Summary(step=step, time=time, values={which: value}))
        else:
            found.append(Define(time=time, name="loss", summary=[which], overwrite=value))
    return stream([*found, Finish(time=T0 + 1, status="finished", exit_code=0)])


def deliver(make: Callable[[Mapping[str, Any], int], Driver], records: list[Record], borders: list[str]) -> None:
    """Deliver with the batches, kills and pauses that are asked for."""
    run = make({}, 0)
    run.open()
    for place, border in enumerate(borders[: len(records) - 1], 1):
        if border in ("batch", "paused"):
            run.write(records[:place])
        elif border == "killed":
            state, cursor = copy.deepcopy(run.state), run.cursor
            run.write(records[:place], commit=False)
            run = make(state, cursor)
            run.open()
        if border == "paused":
            run.close(Status("running", time=T0))
            run = make(run.state, run.cursor)
            run.open()
    run.write(records)
    run.close()


STORES: dict[str, Callable[[RunInfo], Stored]] = {
    "json": stores.read_json,
    "csv": stores.read_csv,
    "tensorboard": stores.read_tensorboard,
    "trackio": stores.read_trackio,
    "mlflow": stores.read_mlflow,
}


@pytest.mark.heavy
@pytest.mark.parametrize("name", STORES)
def test_last_result_of_a_name_is_the_one_that_is_stored(name: str, tmp_path: Path) -> None:
    """Whatever is logged and defined between, and wherever the delivery is cut or killed."""
    tracker = registry.load(name)
    slow = name in ("mlflow", "trackio", "tensorboard")
    options = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}

    @settings(max_examples=6 if slow else 30, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(EVENTS, BORDERS)
    def check(events: list[tuple[str, Any, Any]], borders: list[str]) -> None:
        place = Path(tempfile.mkdtemp(dir=tmp_path))
        info = run_info(place, id=place.name, options=options)
        records = records_of(events)
        deliver(lambda state, cursor: Driver(tracker, info, dict(state), cursor), records, borders)
        expected: dict[str, float] = {}
        for record in records:
            if isinstance(record, Summary):
                expected |= {plain_name(key): value for key, value in record.values.items()}
        stored = {plain_name(key): value for key, value in (STORES[name](info).summary or {}).items()}
        assert {key: stored.get(key) for key in expected} == expected

    check()
