"""``import trackers as wandb``: each of W&B's names works or says what to call instead."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import types
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import trackers
from tests import forked
from tests.as_wandb import versions
from trackers.as_wandb import names, util
from trackers.as_wandb.init import init
from trackers.as_wandb.names import NotProvided, init_arguments, lookup
from trackers.errors import TrackersError, UsageError
from trackers.journal.run_directory import RunDirectory
from trackers.training import wandb_arguments
from trackers.training.wandb_arguments import read_config

OF_PYTHON = ("annotations", "set_trace")
"""Names of Python's own modules that wandb's has, too."""


@pytest.fixture(autouse=True)
def _nothing_said() -> None:
    wandb_arguments.printed_messages.clear()


def test_the_list_of_names_is_wandbs() -> None:
    """The names we answer to are all that the installed wandb exports."""
    import wandb

    assert set(names.WANDB_NAMES) - versions.otherwise(versions.NAMES) == set(wandb.__all__)


def test_dir_has_wandbs_names_and_no_internals() -> None:
    """What a shell offers behind ``trackers.``: our public names, all of W&B's, and nothing that can't be had."""
    shown = dir(trackers)
    assert set(trackers.__all__) | set(names.WANDB_NAMES) | {"run", "log", "alert", "plot"} <= set(shown)
    assert not [name for name in shown if not hasattr(trackers, name)]
    assert not {"backends", "relay", "journal", "importlib", "TYPE_CHECKING", "_MODULE_OF"} & set(shown)


@pytest.mark.parametrize("name", [*names.WANDB_NAMES, "Artifact", "run", "alert", "login", "Settings", "AlertLevel"])
def test_each_name_of_wandb_is_ours_or_refuses(name: str) -> None:
    """Every exported name is there; what isn't ours raises, when it is called, an error that names the real call."""
    value = getattr(trackers, name)
    if name in (*names.FUNCTIONS, *names.CLASSES):
        with pytest.raises(NotProvided, match=rf"import wandb; wandb\.{name}\(\.\.\.\)"):
            value()
    elif name not in ("run", "__version__", "config", "summary"):
        assert callable(value)


def test_everything_wandb_offers_is_known_or_private() -> None:
    """Public attributes of the wandb module that aren't submodules are answered, also those outside its list."""
    import wandb

    public = {
        name
        for name, value in vars(wandb).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name not in OF_PYTHON
    }
    assert sorted(name for name in public if not hasattr(trackers, name)) == []


def test_classes_can_be_compared_with() -> None:
    """isinstance and except clauses work with every class, ours or not."""
    for name in ("Image", "Table", "Artifact", "Run", *names.CLASSES):
        assert not isinstance(3, getattr(trackers, name))
    with pytest.raises(lookup("Error")):
        raise UsageError("x")
    assert issubclass(lookup("CommError"), TrackersError)
    assert lookup("AlertLevel").WARN.value == "WARN"
    for name in ("Error", "CommError", "AuthenticationError", "UsageError"):
        assert issubclass(getattr(trackers.errors, name), TrackersError)


def test_parts_of_wandb_name_the_real_call() -> None:
    """Submodules such as wandb.keras refuse when something in them is used."""
    with pytest.raises(NotProvided, match=r"wandb\.keras\.WandbCallback"):
        _ = lookup("keras").WandbCallback
    assert len(lookup("util").generate_id()) == 8


def test_unknown_name_is_an_attribute_error_with_the_nearest() -> None:
    """A misspelt name isn't there, for hasattr too, and the message has the right one."""
    assert not hasattr(trackers, "nonsense")
    with pytest.raises(AttributeError, match="did you mean 'log_artifact'"):
        _ = trackers.log_artefact


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("LoggerConfig", "from trackers.frameworks.megatron import LoggerConfig$"),
        ("TrackersWriter", "from trackers.frameworks.jax import TrackersWriter$"),
        ("TrackersLogger", "from trackers.frameworks.NAME import TrackersLogger; NAME is one of composer, lightning, "),
        ("Losses", "did you mean 'Classes'"),
    ],
)
def test_class_of_a_framework_is_named_with_its_module(name: str, answer: str) -> None:
    """What a framework's module has is answered with its import."""
    with pytest.raises(AttributeError, match=f"'trackers' has no attribute '{name}': {answer}"):
        getattr(trackers, name)


def test_calls_before_init_are_errors() -> None:
    """In a fresh process ``log`` and ``config`` say that init comes first; ``run`` is None and finish is no error."""
    code = """
import trackers as wandb
assert wandb.run is None
assert wandb.config and wandb.summary
wandb.finish()
for use in (lambda: wandb.log({"a": 1}), lambda: wandb.config["a"], lambda: wandb.config.update({}),
            lambda: wandb.summary.update({}), lambda: setattr(wandb.config, "a", 1)):
    try:
        use()
    except wandb.UsageError as error:
        assert "trackers.init()" in str(error), error
    else:
        raise SystemExit("no error")
print("done")
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("done\n", "")


@pytest.mark.slow
def test_ordinary_wandb_script_runs(tmp_path: Path) -> None:
    """A script written for W&B runs unchanged but for its import, and its journal holds what it logged."""
    code = """
import sys
import trackers as wandb
wandb.login()
run = wandb.init(project="p", entity="me", id="x1", dir=sys.argv[1], mode="offline", config={"lr": 1, "drop": 2},
                 config_exclude_keys=["drop"], save_code=True, settings=wandb.Settings(console="off"),
                 trackers="tensorboard")
assert wandb.run is run
wandb.config.update({"depth": 4})
assert dict(wandb.config) == {"lr": 1, "depth": 4}, wandb.config
wandb.define_metric("loss", summary="min")
wandb.watch(object())
for step in range(3):
    wandb.log({"loss": 3 - step, "h": wandb.Histogram([1, 2])}, step=step)
table = wandb.Table(columns=["a"], data=[[wandb.Image([[0, 255]])]])
wandb.log({"table": table})
artifact = wandb.Artifact("script", type="code")
artifact.add_file(sys.argv[2])
wandb.log_artifact(artifact)
wandb.log_model(sys.argv[2], name="m")
wandb.alert("title", "text", level=wandb.AlertLevel.WARN)
wandb.summary["best"] = 1
wandb.finish()
wandb.log({"late": 1})
assert wandb.run is None
"""
    script = tmp_path / "script.py"
    script.write_text(code)
    command = [sys.executable, str(script), str(tmp_path / "runs"), str(script)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, env={**_env(), "TRACKER_RELAY": "n"})
    assert found.returncode == 0, found.stderr
    for text in ("save_code", "watch:", "no run"):
        assert found.stderr.count(text) >= 1, found.stderr
    journal = (tmp_path / "runs/p/x1/streams/rank-0.1.jsonl").read_text()
    for text in ('"loss":1', '"type":"table"', '"type":"histogram"', '"name":"script"', '"type":"model"', '"alert"'):
        assert text in journal, text
    assert "late" not in journal
    assert "drop" not in journal


def _env() -> dict[str, str]:
    import os

    return dict(os.environ)


def test_init_arguments_become_options() -> None:
    """wandb.init's arguments are options here; an argument beats the same setting, tags become one text."""
    found = init_arguments(
        {
            "entity": "me",
            "project": "p",
            "tags": ("a", "b"),
            "dir": Path("/x"),
            "resume": True,
            "config": {"a": 1},
            "config_include_keys": ["a"],
            "notes": None,
            "settings": {"project": "weaker", "run_name": "n"},
        }
    )
    assert found == {
        "WANDB_ENTITY": "me",
        "TRACKER_PROJECT": "p",
        "TRACKER_TAGS": "a,b",
        "TRACKER_DIR": "/x",
        "TRACKER_RESUME": "auto",
        "TRACKER_RUN_NAME": "n",
        "config": {"a": 1},
        "config_include_keys": ["a"],
    }


def test_init_arguments_answer_to_all_of_wandbs() -> None:
    """No argument of the installed wandb.init is unknown."""
    import inspect

    import wandb

    for name in inspect.signature(wandb.init).parameters:
        try:
            init_arguments({name: None})
        except NotProvided:
            pytest.fail(f"{name}=None has no effect and must not be refused")


def test_init_arguments_without_effect_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """What does nothing here is said, once, and only where it was asked for."""
    for _ in range(2):
        init_arguments(
            {
                "monitor_gym": True,
                "save_code": False,
                "settings": {"console": "off", "sweep_param_path": "x", "quiet": None},
            }
        )
    assert [record.message.split(" ")[1] for record in caplog.records] == ["these", "monitor_gym"]
    assert "sweep_param_path" in caplog.text
    assert "console" not in caplog.text


def test_init_arguments_that_would_mean_another_run_are_errors() -> None:
    """A misspelt argument gets the nearest name."""
    with pytest.raises(TypeError, match="did you mean 'project'"):
        init_arguments({"projet": "p"})


def test_resume_from_is_our_rewind() -> None:
    """W&B's word for going back to a step of a run names run and step; another form is an error."""
    found = init_arguments({"resume_from": "abc?_step=10"})
    assert found == {"TRACKER_RUN_ID": "abc", "TRACKER_RESUME": "must", "step": 10}
    for wrong in ("abc", "abc?_step=", "?_step=3", "abc?loss=3"):
        with pytest.raises(UsageError, match="W&B's form"):
            init_arguments({"resume_from": wrong})


@pytest.mark.processes  # W&B's settings ask git
def test_init_arguments_take_settings_in_every_form() -> None:
    """Our Settings, wandb's own, a dict and a namespace say the same."""
    import wandb

    forms: list[Any] = [
        names.Settings(run_name="n"), wandb.Settings(run_name="n"), {"run_name": "n"},
        argparse.Namespace(run_name="n"),
    ]  # fmt: skip
    for settings in forms:
        assert init_arguments({"settings": settings}) == {"TRACKER_RUN_NAME": "n"}


def test_term_functions_print_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """The lines that scripts print through wandb reach stderr; repeat=False says a thing once."""
    for _ in range(2):
        lookup("termwarn")("careful", repeat=False)
    lookup("termlog")("x", prefix=False)
    assert capsys.readouterr().err == "trackers: WARNING careful\nx\n"


def test_config_may_be_a_file(tmp_path: Path) -> None:
    """A YAML or JSON file gives the values in it, without W&B's wrapping; anything else says what is wrong."""
    (tmp_path / "a.json").write_text('{"lr": 0.1, "model": {"depth": 4}}')
    (tmp_path / "b.yaml").write_text("wandb_version: 1\nlr:\n  desc: rate\n  value: 0.1\nmodel:\n  depth: 4\n")
    for name in ("a.json", "b.yaml"):
        assert read_config(tmp_path / name) == {"lr": 0.1, "model": {"depth": 4}}
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "bad.yaml").write_text("a: [")
    said = {"missing": "can't be read", "list.json": "must hold a mapping", "bad.yaml": "isn't valid YAML"}
    for name, text in said.items():
        with pytest.raises(UsageError, match=text):
            read_config(tmp_path / name)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ({"config_exclude_keys": ["lr"]}, {"epochs": 3, "seed": 1}),
        ({"config_include_keys": ("lr", "other")}, {"lr": 0.5}),
        ({"config_include_keys": []}, {"lr": 0.5, "epochs": 3, "seed": 1}),
    ],
    ids=str,
)
def test_keys_of_the_configuration_may_be_chosen(words: dict[str, Any], kept: dict[str, Any], tmp_path: Path) -> None:
    """Of a mapping as of a file; what is left out is recorded nowhere."""
    values = {"lr": 0.5, "epochs": 3, "seed": 1}
    file = tmp_path / "own.yaml"
    file.write_text("".join(f"{name}: {{value: {value}}}\n" for name, value in values.items()))
    for config in (values, str(file)):
        with trackers.init("json", project="p", mode="offline", config=config, **words) as run:
            assert dict(run.config) == kept
        assert RunDirectory(Path(str(run.path))).read_info().config == kept


def test_run_methods_of_w_and_b_never_surprise(monkeypatch: pytest.MonkeyPatch) -> None:
    """What W&B's run has and ours hasn't is an error with the real call; typos get a hint; a wrong value is named."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    for run in (trackers.init("json", mode="offline"), trackers.init("json", mode="disabled")):
        run.watch(object())
        run.watch(object())
        run.log_code(".")
        with nullcontext() if run.disabled else pytest.raises(names.NotProvided, match=r"run.restore"):
            assert run.restore("x") is None
        with pytest.raises(AttributeError, match=r"did you mean 'log'"):
            run.lgo({"a": 1})
        assert not hasattr(run, "nothing_like_it")
        run.finish()


DISABLED = """
import os, trackers
trackers.install_as_wandb()
import wandb
with wandb.init(project="p", mode="disabled") as run:
    used = run.use_artifact("data:latest", type="dataset")
    for artifact in (used, wandb.use_artifact("x/y/z:v3"), run.use_artifact(3)):
        assert not artifact
        assert os.path.isdir(artifact.download()) and os.path.isdir(artifact.download(root="here"))
        artifact.file(), artifact.get_entry("a").download(), artifact.get_path("a").download(), artifact.get("t")
        artifact.wait().checkout(), artifact.verify(), artifact.logged_by(), artifact.used_by(), artifact.delete()
        assert isinstance(artifact.version, str) and not hasattr(artifact, "nothing_like_it")
        run.use_artifact(artifact.new_draft())
        assert (list(artifact.files()), sorted(artifact.tags), artifact.manifest.entries) == ([], [], {})
        assert artifact.qualified_name.split("/")[-1].endswith(":v0")
        assert {type(getattr(artifact, name)) for name in ("state", "id", "url", "entity", "created_at")} == {str}
    assert isinstance(run.use_model("m:latest"), str)
    assert run.restore("x.pt") is None and wandb.restore("x.pt") is None
    run.watch(), wandb.watch(), run.unwatch(), wandb.unwatch()
    run.link_model("nowhere", "zoo"), wandb.link_model(path="nowhere", registered_model_name="zoo")
    run.link_artifact(wandb.Artifact("a", "b"), "zoo/a"), run.log_model("nowhere", "m"), run.save("nowhere*")
    wandb.log_artifact("nowhere").wait(), run.log_code(), run.alert("a"), run.mark_preempting(), run.status()
assert wandb.run is None
"""


def test_disabled_run_goes_through_whatever_a_script_calls(tmp_path: Path) -> None:
    """What isn't there is an artifact without files, and nothing raises."""
    found = forked.run([sys.executable, "-c", DISABLED], cwd=tmp_path, env={**_env(), "TRACKER_RELAY": "n"})
    assert (found.returncode, found.stderr) == (0, "")


ASSIGNED = """
import argparse, sys, types
from unittest import mock
if sys.argv[1] == "wandb":
    import trackers
    trackers.install_as_wandb()
    import wandb
else:
    import trackers as wandb
options = {"project": "p", "reinit": True}
wandb.config = {"lr": 0.1, "assigned": 1}
run = wandb.init(config={"lr": 0.2}, **options)
assert dict(run.config) == {"lr": 0.2, "assigned": 1}, run.config
assert wandb.config is run.config
wandb.config = argparse.Namespace(depth=4)
assert wandb.config.depth == run.config["depth"] == 4
wandb.log = wandb.summary = None
if sys.argv[1] == "wandb":
    second = wandb.init(project="p", reinit="create_new")
    assert (dict(second.config), wandb.config.depth, wandb.log) == ({}, 4, None)
    second.finish()
run = wandb.init(config={"lr": 0.3}, **options)
assert (dict(run.config), wandb.config["lr"]) == ({"lr": 0.3}, 0.3)
assert wandb.run is run and wandb.summary is run.summary and callable(wandb.log)
with mock.patch("wandb.log" if sys.argv[1] == "wandb" else "trackers.log") as log:
    wandb.log({"a": 1})
assert log.call_count == 1 and "a" not in run.summary
with mock.patch.object(wandb, "config", {"lr": 9}), mock.patch.object(wandb, "run", 3):
    assert (wandb.config["lr"], wandb.run) == (9, 3)
assert wandb.run is run and wandb.config is run.config
wandb.config = {"late": 1}
wandb.finish()
assert wandb.run is None and not isinstance(wandb.config, dict)
run = wandb.init(mode="disabled", **options)
wandb.config = {"late": 1}
run.finish()
assert wandb.run is None
assert dict(wandb.init(**options).config) == {}
wandb.finish()
wandb.config = 3
wandb.init(**options)
wandb.something_else = 5
assert wandb.something_else == vars(wandb)["something_else"]
"""


@pytest.mark.parametrize("module", ["wandb", "trackers"])
def test_what_is_assigned_on_the_module_lasts_until_the_next_init(module: str, tmp_path: Path) -> None:
    """``wandb.config = {…}`` is part of its run's configuration, or of the next run's, and of no other."""
    environment = {**_env(), "TRACKER_RELAY": "n", "WANDB_MODE": "offline", "TRACKER": "json"}
    command = [sys.executable, "-c", ASSIGNED, module]
    found = forked.run(command, cwd=tmp_path, env=environment)
    assert found.returncode == 0, found.stderr
    assert "assigned to config before init isn't recorded: TypeError: config of type int" in found.stderr


@pytest.mark.parametrize("units", ["POW_10_BYTES", "POW_2_BYTES"])
def test_sizes_for_people_are_those_of_wandb(units: str) -> None:
    """``to_human_size`` and ``from_human_size`` give what the installed wandb's give, and refuse what they refuse."""
    theirs = importlib.import_module("wandb.util")
    assert getattr(util, units) == getattr(theirs, units)
    chosen = getattr(util, units)
    for size in (0, 1, 1023, 1024, 1024 * 1000, 999_950, 10**9 + 1, 3 * 2**40, 2**60, 10**23):
        assert util.to_human_size(size, chosen) == theirs.to_human_size(size, chosen)
        assert util.to_human_size(size) == theirs.to_human_size(size)
    for text in ("10", "1.5MB", "10 kib", "2.GB of it", "7 b", "3x"):
        assert util.from_human_size(text, chosen) == theirs.from_human_size(text, chosen)
    with pytest.raises(ValueError, match="give a number"):
        util.from_human_size("MB")


@pytest.mark.parametrize("given", ["bogus", "create-new", 3, 2.0, ["default"]])
def test_reinit_that_wandb_refuses_is_refused(given: Any) -> None:
    """In one line, though no run is open; what W&B's client reads as a truth value is one."""
    for call in (lambda: init(project="p", reinit=given), lambda: init(project="p", settings={"reinit": given})):
        with pytest.raises(UsageError, match="known are default, return_previous") as caught:
            call()
        assert "\n" not in str(caught.value)
    run = init(project="p", mode="offline", options={"TRACKER_RELAY": False})
    assert init(project="p", reinit="no") is run
    other = init(project="p", reinit=1, mode="offline", options={"TRACKER_RELAY": False})
    assert (run.finished, other is run) == (True, False)
    other.finish()
