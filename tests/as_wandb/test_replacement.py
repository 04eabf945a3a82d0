"""``import wandb`` answered by this package: in this process, in a program and its children, never in deliveries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trackers
from trackers.as_wandb import lasting, replacement
from trackers.journal import helper_process

ROOT = Path(trackers.__file__).parent.parent
INSTALLED = "import trackers; trackers.install_as_wandb()\n"
OFFLINE: dict[str, str] = {"TRACKER_RELAY": "n"}


def python(code: str, *arguments: str, options: tuple[str, ...] = (), **environment: str) -> str:
    """What a program prints."""
    command = [sys.executable, *options, "-c", code, *arguments]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **OFFLINE, **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_way_to_import_gives_this_package() -> None:
    """The package, its submodules, and names from them are ours; the classes that are caught are those we raise."""
    code = """
import importlib
import wandb, wandb.errors, wandb.util, wandb.data_types, wandb.plot, wandb.sdk.lib.telemetry
from wandb.sdk.wandb_run import Run
from wandb.wandb_run import Run as Again
from wandb.sdk.lib import RunDisabled, config_util, printer, telemetry
from wandb.sdk.lib.config_util import ConfigError
from wandb.apis.public import Api
from wandb.sdk.data_types.base_types.wb_value import WBValue
from wandb.proto.wandb_telemetry_pb2 import TelemetryRecord
from wandb import Image, Settings, init
assert Run is Again is wandb.Run is trackers.Run
assert wandb.errors.UsageError is trackers.UsageError is wandb.UsageError
assert issubclass(wandb.errors.CommError, wandb.Error)
assert isinstance(trackers.NullRun(), RunDisabled)
assert issubclass(wandb.Image, WBValue) and wandb.data_types.Image is Image
with telemetry.context() as tel:
    tel.feature.lightning = True
try:
    wandb.init(project="p", name={}, trackers="nothing_like_it")
except wandb.errors.UsageError as error:
    print("caught")
try:
    Api().runs("x")
except wandb.Error as error:
    print(error)
try:
    importlib.import_module("wandb.no_such_module")
except ModuleNotFoundError as error:
    print(error)
assert importlib.reload(wandb) is wandb
"""
    lines = python(INSTALLED + code).splitlines()
    assert lines[0] == "caught"
    assert "W&B's own; call wandb.Api.runs(...) in a script that runs without trackers.as_wandb" in lines[1]
    assert "wandb.no_such_module" in lines[2]


def test_names_of_variables_are_wandbs() -> None:
    """``wandb.env``: each public name of the installed one, and what is asked for most."""
    code = """
from wandb import env
import wandb.env
names = %r
assert {name: getattr(env, name) for name in names} == names
os.environ.update(WANDB_PROJECT="p", WANDB_MODE="offline", WANDB_DEBUG="true", WANDB_QUIET="0")
assert (env.get_project(), wandb.env.get_docker("x"), env.is_offline(), env.is_debug(), env.is_quiet()) == (
    "p", "x", True, True, False)
env.set_entity("me")
assert (env.get_entity(), env.get_config_paths("."), hasattr(env, "nothing")) == ("me", ".", False)
"""
    from wandb import env as theirs

    names = {name: value for name, value in vars(theirs).items() if name.isupper() and name[0] != "_"}
    assert len(names) > 40
    python("import os\n" + INSTALLED + code % names)


def test_settings_of_setup_are_those_of_each_init() -> None:
    """``wandb.setup(Settings(…))``, until ``teardown``; what ``init`` is told is stronger."""
    code = """
import wandb
wandb.sdk.wandb_setup._setup(_reset=True)
wandb.setup(wandb.Settings(project="from-setup", run_group="g"))
run = wandb.init(name="a")
assert (run.project, run.group, run._settings.project, run._is_finished) == ("from-setup", "g", "from-setup", False)
assert run._settings._sync_dir == run._settings.sync_dir
run.finish()
assert run._is_finished
assert wandb.init(name="b", project="own", settings={"run_group": "h"}).group == "h"
assert wandb.run.project == "own"
wandb.teardown()
assert wandb.init().project != "from-setup"
try:
    raise wandb.errors.CommError("no answer")
except wandb.Error as error:
    assert error.message == "no answer"
"""
    python(INSTALLED + code)


@pytest.mark.slow
def test_files_and_parameters_of_a_sweep_are_configuration(tmp_path: Path) -> None:
    """Defaults of the working directory, then files of the environment, what ``init`` is given, and an agent's."""
    (tmp_path / "config-defaults.yaml").write_text("a: {value: 1}\nb: {value: 1}\nc: {value: 1}\nd: {value: 1}\n")
    (tmp_path / "more.yaml").write_text("b: {value: 2}\nc: {value: 2}\nd: {value: 2}\n")
    (tmp_path / "sweep.yaml").write_text("wandb_version: 1\nd: {value: 4}\n")
    code = """
import os, sys, wandb
os.chdir(sys.argv[1])
run = wandb.init(project="p", config={"c": 3, "d": 3})
assert dict(run.config) == {"a": 1, "b": 2, "c": 3, "d": 4}, run.config
assert run.sweep_id == "sweep1"
run.config.update({"c": 5, "d": 5}, allow_val_change=True)
assert dict(run.config) == {"a": 1, "b": 2, "c": 5, "d": 4}, "what the sweep set stays"
run.finish()
del os.environ["WANDB_SWEEP_ID"], os.environ["WANDB_SWEEP_PARAM_PATH"], os.environ["WANDB_CONFIG_PATHS"]
run = wandb.init(project="p")
assert (dict(run.config), run.sweep_id) == ({"a": 1, "b": 1, "c": 1, "d": 1}, None), run.config
run.finish()
settings = wandb.Settings(sweep_param_path="sweep.yaml", config_paths=["more.yaml", "missing.yaml"])
assert wandb.init(project="p", settings=settings).config["d"] == 4
"""
    more = {
        "WANDB_SWEEP_ID": "sweep1",
        "WANDB_SWEEP_PARAM_PATH": "sweep.yaml",
        "WANDB_CONFIG_PATHS": "more.yaml,none.yaml",
    }
    python(INSTALLED + code, str(tmp_path), **more)


@pytest.mark.parametrize(
    ("command", "theirs"),
    [
        *((one, True) for one in (
            "/venv/bin/wandb sync --sync-all", "-X utf8 -I /venv/bin/wb login", "-m wandb login", "-mwandb.cli.cli x",
            "C:/Scripts/wandb.exe sync",
        )),
        *((one, False) for one in ("train.py wandb", "wandb.py", "-c pass wandb", "-m train wandb", "", "-m")),
    ],
)  # fmt: skip
def test_commands_of_wandb_have_the_real_one(command: str, theirs: bool) -> None:
    """``wandb sync`` sends what lies offline, whatever the variable says; a script of such a name is a script."""
    assert replacement.is_wandbs_program(command.split()) is theirs


@pytest.mark.slow
def test_command_of_wandb_runs_while_the_variable_is_set(tmp_path: Path) -> None:
    """A program named as W&B's, started by Python with the directory that answers imports."""
    (tmp_path / "wandb").write_text("import wandb; print(wandb.sdk.__name__, wandb.sdk.wandb_setup.__file__)")
    (tmp_path / "other").write_text("import wandb; print(wandb.__file__)")
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([lasting.STARTUP, str(ROOT)]), "TRACKERS_AS_WANDB": "1"}
    printed = [
        subprocess.run(
            [sys.executable, str(tmp_path / name)], capture_output=True, text=True, check=True, env=variables
        )
        for name in ("wandb", "other")
    ]
    assert "site-packages" in printed[0].stdout
    assert "as_wandb" in printed[1].stdout


def test_end_of_the_interpreter_is_quiet() -> None:
    """``finish`` registered to be called at the end, before and after ``init``, and in a destructor, as verl has it."""
    code = """
import atexit, wandb
atexit.register(wandb.finish)
class Logger:
    def __init__(self, module):
        self.module = module
    def __del__(self):
        print(self.module.run, self.module.finish(exit_code=0))
ours = Logger(trackers)
theirs = Logger(wandb)
wandb.init(project="p", mode="disabled")
atexit.register(wandb.finish)
"""
    command = [sys.executable, "-c", INSTALLED + code]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **OFFLINE}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables)
    assert (done.stdout, done.stderr) == ("None None\nNone None\n", "")


def test_real_package_may_be_imported_before() -> None:
    """Who imported the real one keeps it; the next import gives ours, until it is uninstalled."""
    code = """
import wandb as real
from wandb.sdk import wandb_settings
import trackers
trackers.install_as_wandb()
trackers.install_as_wandb()
import wandb
assert wandb is not real and wandb.Run is trackers.Run
assert real.Settings is wandb_settings.Settings and real.Run is not trackers.Run
from trackers.as_wandb import uninstall
uninstall()
import wandb
assert wandb is real
print("done")
"""
    assert python(code) == "done\n"


@pytest.mark.slow
def test_checks_for_wandb_say_yes_with_and_without_it(tmp_path: Path) -> None:
    """find_spec, the distribution's version, and what Lightning asks, also where wandb isn't installed."""
    for folder in map(Path, dict.fromkeys(path for path in sys.path if "-packages" in path)):
        for entry in folder.iterdir():
            if not entry.name.startswith("wandb") and not (tmp_path / entry.name).exists():
                (tmp_path / entry.name).symlink_to(entry)
    code = """
import sys
if sys.argv[1]:
    sys.path[:] = [path for path in sys.path if "-packages" not in path] + [sys.argv[1]]
import importlib.metadata, importlib.util
if sys.argv[1]:
    assert importlib.util.find_spec("wandb") is None
import trackers
trackers.install_as_wandb()
from lightning_utilities.core.imports import RequirementCache
assert importlib.util.find_spec("wandb") is not None
import wandb
assert importlib.metadata.version("wandb") == wandb.__version__
assert RequirementCache("wandb>=0.12.10")
from trackers.backends import registry
try:
    registry.check("wandb", {"WANDB_OFFLINE": True})
except trackers.UsageError as error:
    print(type(error).__name__)
run = wandb.init(project="p", mode="offline", dir=".")
run.log({"a": 1})
run.finish()
import wandb.integration
try:
    import wandb.integration.xgboost
except ImportError:
    print("no integration")
"""
    assert python(code, str(tmp_path), options=("-S",), PYTHONPATH=str(ROOT)) == "MissingPackage\nno integration\n"
    assert python(code, "") == ""


@pytest.mark.slow
def test_wandbs_own_integrations_run_against_this_package() -> None:
    """Code of the installed wandb that only calls wandb is executed here; ours is what it imports."""
    code = """
import wandb.integration.sb3, wandb.sdk.integration_utils.auto_logging as auto
from wandb.integration.lightning.fabric import logger
assert wandb.integration.sb3.sb3.wandb is wandb and logger.wandb is wandb
print(wandb.integration.sb3.__file__.replace("\\\\", "/").endswith("wandb/integration/sb3/__init__.py"))
"""
    pytest.importorskip("lightning")
    script = INSTALLED + "import sys, types\n"
    script += "sys.modules['stable_baselines3'] = types.ModuleType('stable_baselines3')\n"
    script += "common = types.ModuleType('stable_baselines3.common'); sys.modules[common.__name__] = common\n"
    script += "calls = types.ModuleType(common.__name__ + '.callbacks'); calls.BaseCallback = object\n"
    script += "sys.modules[calls.__name__] = calls\n"
    assert python(script + code) == "True\n"


@pytest.mark.slow
def test_delivery_inside_the_process_has_the_real_one(tmp_path: Path) -> None:
    """The tracker wandb, inside a training that imports us as wandb, writes W&B's offline files."""
    code = """
import wandb
run = wandb.init(project="p", trackers="wandb,json", inline=True, id="inside")
run.log({"loss": 1.5, "image": wandb.Image([[0, 255]])}, step=3)
assert wandb.Run is trackers.Run
run.finish()
assert wandb.Run is trackers.Run
from pathlib import Path
(file,) = Path("runs/p/inside").rglob("*.wandb")
print(sum(1 for record in trackers.load(str(file)).metrics("loss").to_polars().rows()))
"""
    assert python(INSTALLED + code) == "1\n"


def test_helpers_never_import_us_as_wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A delivery's environment has neither the switch nor the directory that acts by it."""
    monkeypatch.setenv("TRACKERS_AS_WANDB", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([lasting.STARTUP, str(tmp_path)]))
    found = helper_process.environment()
    assert "TRACKERS_AS_WANDB" not in found
    assert found["PYTHONPATH"] == str(tmp_path)


SCRIPT = """
import multiprocessing, os, subprocess, sys
def child(run):
    import wandb, trackers
    assert wandb.Run is trackers.Run
    run.log({"from_child": 1.0}, step=7)
if __name__ == "__main__":
    import wandb
    assert sys.argv[1:] == ["--lr", "0.1"] and sys.path[0] == os.path.dirname(os.path.abspath(__file__))
    run = wandb.init(project="p", id="script", dir=".")
    run.log({"a": 1.0}, step=1)
    process = multiprocessing.get_context("spawn").Process(target=child, args=(run,))
    process.start()
    process.join()
    assert process.exitcode == 0
    code = "import wandb, trackers; assert wandb.Run is trackers.Run"
    subprocess.run([sys.executable, "-c", code], check=True)
    sys.exit(3)
"""


def run_module(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``python -m trackers.as_wandb …``."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **OFFLINE, **environment}
    command = [sys.executable, "-m", "trackers.as_wandb", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables)


@pytest.mark.slow
def test_script_runs_unchanged_with_its_children(tmp_path: Path) -> None:
    """Arguments, import path and exit code are the script's; spawned workers and subprocesses import us, too."""
    (tmp_path / "train.py").write_text(SCRIPT)
    done = run_module("train.py", "--lr", "0.1")
    assert done.returncode == 3, done.stderr
    journal = (tmp_path / "runs/p/script/streams/rank-0.1.jsonl").read_text()
    assert '"a":1.0' in journal
    assert '"from_child":1.0' in journal
    assert '"exit_code":3' in journal


def test_module_and_program_run_too(tmp_path: Path) -> None:
    """``-m module`` and a program on PATH; a sitecustomize of the environment still runs."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text("import builtins; builtins.MINE = 1\n")
    (tmp_path / "job.py").write_text("import wandb, sys; print(wandb.Run.__module__, MINE, sys.argv[1:])\n")
    path = os.pathsep.join([str(ROOT), str(tmp_path / "mine")])
    assert run_module("-m", "job", "x", PYTHONPATH=path).stdout == "trackers.training.run 1 ['x']\n"
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "launch"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} job.py launched\n")
    program.chmod(0o755)
    done = run_module("launch", PYTHONPATH=path, PATH=f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert done.stdout == "trackers.training.run 1 ['launched']\n"
    assert run_module().returncode == 2
    assert "usage:" in run_module("--help").stdout


def test_line_for_all_programs_is_written_on_request_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--install`` says what it wrote; the line acts while the variable is set; ``--uninstall`` removes it."""
    monkeypatch.setattr(lasting, "path", lambda: tmp_path / "site" / "zz.pth")
    assert lasting.install() == 1
    assert "can't be written" in capsys.readouterr().out
    (tmp_path / "site").mkdir()
    assert lasting.install() == 0
    assert str(tmp_path / "site" / "zz.pth") in capsys.readouterr().out
    code = f"import site; site.addsitedir({str(tmp_path / 'site')!r}); import wandb; print(wandb.Run.__module__)"
    assert python(code, TRACKERS_AS_WANDB="1") == "trackers.training.run\n"
    assert python(code, TRACKERS_AS_WANDB="") == "wandb.sdk.wandb_run\n"
    assert lasting.uninstall() == lasting.uninstall() == 0
    assert not list((tmp_path / "site").iterdir())


@pytest.mark.slow
def test_commands_have_the_real_one(tmp_path: Path) -> None:
    """``trackers`` itself reads W&B's files with W&B's package, whatever the variable says."""
    made = "import wandb; run = wandb.init(project='p', id='x', trackers='wandb', inline=True)"
    made += "; run.log({'a': 1}); run.finish()"
    python(INSTALLED + made)
    code = "from trackers.as_wandb import install_as_wandb; install_as_wandb(); from trackers.cli import main; main()"
    (file,) = tmp_path.rglob("*.wandb")
    assert "a" in python(code, "keys", str(file), TRACKERS_AS_WANDB="1").split()


PLACES: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({"dir": "."}, {}, "runs"),
    ({"dir": "logs/wandb"}, {}, "runs"),
    ({"dir": "{outside}"}, {}, "{outside}/runs"),
    ({"dir": "{outside}"}, {"TRACKER_DIR": "mine"}, "mine"),
    ({}, {"WANDB_DIR": "{outside}"}, "{outside}/runs"),
    ({"dir": "."}, {"WANDB_DIR": "{outside}"}, "{outside}/runs"),
    ({"settings": {"root_dir": "."}}, {}, "runs"),
]


@pytest.mark.parametrize(("arguments", "environment", "place"), PLACES)
def test_runs_lie_where_ls_looks(
    arguments: dict[str, Any],
    environment: dict[str, str],
    place: str,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """W&B's dir in the working directory changes nothing; one outside of it is taken, unless TRACKER_DIR says where."""
    from trackers.as_wandb.init import init

    outside = str(tmp_path_factory.mktemp("outside"))
    monkeypatch.setenv("TRACKER_RELAY", "n")
    for name, value in environment.items():
        monkeypatch.setenv(name, value.replace("{outside}", outside))
    given = {key: outside if value == "{outside}" else value for key, value in arguments.items()}
    run = init(project="p", id="x", **given)
    run.finish()
    assert (tmp_path / place.replace("{outside}", outside) / "p/x/run.json").is_file()
