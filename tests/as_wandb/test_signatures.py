"""Calls that W&B takes are taken here: names, order and kinds of parameters, compared with the installed wandb."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import wandb

import trackers
from tests.as_wandb import versions
from tests.as_wandb.versions import before
from trackers.artifacts.stored import StoredArtifact
from trackers.as_wandb import names
from trackers.as_wandb.names import lookup
from trackers.training.disabled import NullRun
from trackers.training.rank_run import RankRun
from trackers.training.wandb_arguments import NotProvided, RefusedName

SERVICE = {
    "Artifact": {
        "checkout", "delete", "download", "file", "files", "get", "get_added_local_path_name", "get_entry", "get_path",
        "json_encode", "link", "logged_by", "new_draft", "unlink", "used_by", "verify",
    },
    "Table": {"from_json", "init_from_json", "index_ref"},
}  # fmt: skip
"""Methods that ask W&B's server, or take part in its storage."""

INTERNAL = {
    "bind_to_run", "captions", "file_is_set", "from_json", "get_media_subdir", "init_from_json", "is_bound",
    "path_is_reference", "seq_to_json", "to_data_array", "to_json", "type_mapping", "with_suffix", "all_boxes",
    "all_captions", "all_masks", "guess_mode", "durations", "resolve_ref", "sample_rates", "encode", "inject_head",
    "has_been_logged",
}  # fmt: skip
"""Methods with which wandb's own client writes media."""

CLASSES = ("Artifact", "Table", "Image", "Audio", "Video", "Html", "Histogram", "Config")
OTHER = ("Object3D", "Molecule", "Plotly", "Graph")
FUNCTIONS = (
    "init", "login", "setup", "teardown", "finish", "join", "termlog", "termwarn", "termerror", "require", "sweep",
    "agent", "controller", "restore", "plot_table", "attach",
)  # fmt: skip
METHODS_AS_FUNCTIONS = (
    "log", "save", "watch", "unwatch", "define_metric", "log_artifact", "use_artifact", "log_model", "alert",
    "mark_preempting", "link_model", "use_model", "pin_config_keys",
)  # fmt: skip


def differences(theirs: Callable[..., Any], ours: Callable[..., Any]) -> Iterator[str]:
    """What a call to theirs could say that ours doesn't take."""
    wanted = [one for one in inspect.signature(theirs).parameters.values() if one.name != "self"]
    found = {one.name: one for one in inspect.signature(ours).parameters.values() if one.name != "self"}
    order = [one.name for one in found.values() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.POSITIONAL_ONLY)]
    open_to_all = any(one.kind is one.VAR_KEYWORD for one in found.values())
    number = 0
    for one in wanted:
        if one.kind is one.VAR_KEYWORD:
            if not open_to_all:
                yield f"**{one.name}"
            continue
        if one.kind is one.VAR_POSITIONAL:
            if not any(other.kind is one.VAR_POSITIONAL for other in found.values()):
                yield f"*{one.name}"
            continue
        mine = found.get(one.name)
        if mine is None:
            yield f"{one.name} is missing"
            continue
        if one.kind is one.POSITIONAL_OR_KEYWORD:
            if number >= len(order) or order[number] != one.name:
                yield f"{one.name} isn't parameter {number}"
            number += 1
        if one.default is not one.empty and mine.default is mine.empty:
            yield f"{one.name} must be given"
    names = {one.name for one in wanted}
    yield from (
        f"{one.name} must be given, too"
        for one in found.values()
        if one.name not in names and one.default is one.empty and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    )


def moved(name: str) -> dict[str, list[str]]:
    """A function's parameters that stand elsewhere in the installed client, for which newer ones are the measure."""
    found = [words for of, words in versions.PARAMETERS if of == name and before(versions.PARAMETERS[of, words])]
    return {name: found} if found else {}


def methods(kind: type) -> dict[str, Callable[..., Any]]:
    """The public methods of a class of wandb's."""
    found = inspect.getmembers(kind, callable)
    return {name: value for name, value in found if not name.startswith("_") and not inspect.isclass(value)}


def test_a_difference_would_be_seen() -> None:
    """The comparison names what is missing, out of order, or demanded."""

    def theirs(a: int, b: int = 1, *, c: int = 2) -> None: ...

    def ours(b: int, a: int, d: int) -> None: ...

    assert list(differences(theirs, theirs)) == []
    assert list(differences(theirs, ours)) == [
        "a isn't parameter 0", "b isn't parameter 1", "b must be given", "c is missing", "d must be given, too",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [trackers.Run, NullRun, RankRun])
def test_methods_of_a_run_take_what_wandbs_take(kind: type) -> None:
    """Each public method of wandb's Run is a method of ours with its parameters, or refuses in words."""
    wrong = {}
    for name, theirs in methods(wandb.Run).items():
        ours = inspect.getattr_static(kind, name, None)
        if ours is None:
            run = kind.__new__(kind)
            assert isinstance(getattr(run, name, None), RefusedName), name
        elif found := list(differences(theirs, getattr(kind, name))):
            wrong[name] = found
    assert wrong == moved("define_metric")


@pytest.mark.parametrize("name", [*CLASSES, *OTHER])
def test_types_take_what_wandbs_take(name: str) -> None:
    """Constructors and methods of data types and artifacts; the storage of wandb's own client isn't compared."""
    theirs, ours = getattr(wandb, name), getattr(lookup("data_types"), name, None) or lookup(name)
    if name in OTHER and ours in names._CLASSES.values():
        with pytest.raises(NotProvided):
            ours()
        return
    wrong = {"()": list(differences(theirs.__init__, ours.__init__))} if name != "Config" else {}
    for method, function in methods(theirs).items():
        if name in OTHER or method in INTERNAL | SERVICE.get(name, set()):
            continue
        own = getattr(ours, method, None)
        wrong[method] = ["is missing"] if own is None else list(differences(function, own))
    assert {key: found for key, found in wrong.items() if found} == {}


def test_versions_take_what_wandbs_take() -> None:
    """A version that a run uses has the methods and attributes of wandb's Artifact, but for those of its storage."""
    own = {"get_added_local_path_name", "json_encode"}
    wrong = {
        name: list(differences(function, getattr(StoredArtifact, name)))
        for name, function in methods(wandb.Artifact).items()
        if name not in own
    }
    assert {key: found for key, found in wrong.items() if found} == {}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_what_wandbs_take(name: str) -> None:
    """Functions of the module; W&B's service refuses in words."""
    from trackers.as_wandb import modules

    ours = getattr(modules.module("wandb"), name)
    if isinstance(ours, RefusedName):
        with pytest.raises(NotProvided):
            ours()
    else:
        assert list(differences(getattr(wandb, name), ours)) == moved(name).get(name, [])


@pytest.mark.parametrize("name", METHODS_AS_FUNCTIONS)
def test_functions_of_the_current_run_take_what_its_methods_take(name: str) -> None:
    """``wandb.log`` is ``run.log``."""
    ours = lookup(name)
    if not isinstance(ours, RefusedName):
        assert list(differences(getattr(wandb.Run, name), ours)) == moved(name).get(name, [])
