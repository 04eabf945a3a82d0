"""What W&B's delivery keeps between its processes is declared, typed and explained."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from tests.backends.wandb.support import driver, metrics
from tests.helpers import T0, stream
from trackers.backends.wandb import state as state_module
from trackers.backends.wandb.state import Kept, WandbState
from trackers.records import Config, Define, Info, Summary
from trackers.tracker import State

DECLARED = {name for name, value in vars(WandbState).items() if isinstance(value, Kept)}


def test_each_value_is_explained() -> None:
    """Below each declaration stands what the value is."""
    (declared,) = (
        node for node in ast.parse(inspect.getsource(state_module)).body
        if isinstance(node, ast.ClassDef) and node.name == "WandbState"
    )  # fmt: skip
    explained = {
        first.targets[0].id
        for first, second in zip(declared.body, declared.body[1:], strict=False)
        if isinstance(first, ast.Assign) and isinstance(first.targets[0], ast.Name)
        and isinstance(second, ast.Expr) and isinstance(second.value, ast.Constant)
    }  # fmt: skip
    assert explained == DECLARED


def test_value_is_stored_under_its_name_and_its_default_is_not() -> None:
    """A default is read and stored nowhere; what is assigned is the stored value, until it is deleted."""
    stored = State()
    state = WandbState(stored)
    assert (state.careful, state.marks, state.files, bool(state)) == (-1, [], None, False)
    assert dict(stored) == {}
    state.careful = 3
    assert dict(stored) == {"careful": 3}
    assert WandbState(State({"careful": 4})).careful == 4
    del state.careful
    del state.careful
    assert dict(stored) == {}


def test_defaults_are_no_shared_values() -> None:
    """What one run adds to a default list isn't another's."""
    WandbState(State()).marks.append([1, 2, 3])
    assert WandbState(State()).marks == []


def test_delivery_stores_declared_names_alone(tmp_path: Path) -> None:
    """What a run of all kinds of values leaves in its state is declared, to the last name."""
    run = driver(tmp_path, options={"WANDB_OFFLINE": True})
    more = [
        Config(time=T0, values={"depth": 3}), Define(time=T0, name="loss", summary=["min"]),
        Info(time=T0, tags=["one"], notes=""), Summary(time=T0, values={"final/best": 0.5}, removed=["final/worst"]),
    ]  # fmt: skip
    run.deliver(metrics((0, {"loss": 1.0}), (1, {"loss": 0.5, "global_step": 7.0})) + stream(more, first_seq=10))
    assert {"native_id", "marks", "summary", "own_step", "info"} <= run.state.keys() <= DECLARED
