"""The plug-in for NeMo-Run: credentials reach the job, the logger's fields reach the task."""

from __future__ import annotations

import logging
import subprocess
import sys
from types import SimpleNamespace

import pytest

from trackers.frameworks.megatron import LoggerConfig
from trackers.frameworks.nemo import ScriptArgs, TrackersPlugin


@pytest.fixture
def executor() -> SimpleNamespace:
    """As far as plug-ins see NeMo-Run's executors: variables of the job."""
    return SimpleNamespace(env_vars={"OWN": "1"})


def test_script_gets_the_overrides(executor: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script's arguments get the four overrides of the document, others that were given, and nothing twice."""
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    task = SimpleNamespace(args=["train.iters=10"])
    fields = {"tensorboard_dir": "/tb"}
    TrackersPlugin(project="p", name="e", entity="team", save_dir="/wandb", fields=fields).setup(task, executor)
    assert task.args == [
        "train.iters=10", "logger.wandb_project=p", "logger.wandb_entity=team", "logger.wandb_exp_name=e",
        "logger.wandb_save_dir=/wandb", "logger.tensorboard_dir=/tb",
    ]  # fmt: skip
    task.args.clear()
    TrackersPlugin(project="p").setup(task, executor)
    assert task.args == ["logger.wandb_project=p", "logger.wandb_save_dir=/nemo_run/wandb"]


def test_partial_gets_the_fields(executor: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configured task has its logger set; what isn't given stays as it was."""
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    task = SimpleNamespace(config=SimpleNamespace(logger=LoggerConfig(wandb_exp_name="theirs", wandb_entity="team")))
    TrackersPlugin(project="p", fields={"log_interval": 5}).setup(task, executor)
    expected = LoggerConfig(wandb_project="p", wandb_exp_name="theirs", wandb_entity="team",
                            wandb_save_dir="/nemo_run/wandb", log_interval=5)  # fmt: skip
    assert task.config.logger == expected


def test_credentials_and_options_are_forwarded(executor: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """What trackers log in with, our options and the variables that were named reach the job; no others."""
    given = {"WANDB_API_KEY": "key", "MLFLOW_TRACKING_TOKEN": "token", "TRACKER": "wandb", "TRACKER_PROJECT": "p",
             "MINE": "2", "OTHER": "3", "TRACKERS_TEST_X": "4"}  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    for name in ("TRACKER_SAMPLE", "TRACKER_AGENT", "TRACKER_CONSOLE_CAPTURE", "TRACKER_CODE"):  # of these
        monkeypatch.delenv(name)
    TrackersPlugin(project="p", env=["MINE", "UNSET"]).setup(SimpleNamespace(args=[]), executor)
    assert executor.env_vars == {"OWN": "1", "WANDB_API_KEY": "key", "MLFLOW_TRACKING_TOKEN": "token",
                                 "TRACKER": "wandb", "TRACKER_PROJECT": "p", "MINE": "2"}  # fmt: skip


@pytest.mark.parametrize(
    ("address", "env", "goes"),
    [("https://mlflow.example:5000", [], True), ("sqlite:////home/me/mlflow.db", [], False),
     ("./mlruns", [], False), ("/shared/mlruns", ["MLFLOW_TRACKING_URI"], True)],
)  # fmt: skip
def test_servers_address_is_forwarded(
    address: str, env: list[str], goes: bool, executor: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With MLflow's credentials goes where they count; a store on this machine goes along only if it is named."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    TrackersPlugin(project="p", env=env).setup(SimpleNamespace(args=[]), executor)
    assert executor.env_vars.get("MLFLOW_TRACKING_URI") == (address if goes else None)


def test_missing_key_is_said_and_the_rest_is_done(executor: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    """Without a key here the job may still have one: the logger is set, and it is said."""
    task = SimpleNamespace(args=[])
    with caplog.at_level(logging.WARNING, "trackers"):
        TrackersPlugin(project="p").setup(task, executor)
    assert "logger.wandb_project=p" in task.args
    assert "WANDB_API_KEY isn't set here" in caplog.text


def test_converter_of_ones_own(executor: SimpleNamespace) -> None:
    """Scripts that don't speak hydra get what a converter makes of the values."""

    def flags(args: ScriptArgs) -> list[str]:
        return ["--wandb-project", args.project, "--wandb-exp-name", str(args.name)]

    task = SimpleNamespace(args=[])
    plugin = TrackersPlugin(project="p", name="e", script_args_converter_fn=flags)
    plugin.assign("experiment-1")
    plugin.setup(task, executor)
    assert task.args == ["--wandb-project", "p", "--wandb-exp-name", "e"]
    assert plugin.experiment_id == "experiment-1"
    with pytest.raises(TypeError, match=r"neither args .* nor config"):
        plugin.setup(object(), executor)


@pytest.mark.slow
def test_imports_without_nemo_run() -> None:
    """The plug-in's module needs neither NeMo-Run nor torch."""
    code = "import sys; import trackers.frameworks.nemo; print('nemo_run' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
