"""Every test runs as on a machine of its own: no settings, no accounts, no leftovers, and no silent skips.

The environment is set twice: once for the whole session, so that fixtures of wider scope (servers) are isolated
too, and for each test, in its own ``tmp_path``, which is also its working directory.
"""

from __future__ import annotations

import compileall
import contextlib
import faulthandler
import functools
import gc
import importlib.metadata
import logging
import os
import re
import resource
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest
import pytest_timeout
from _pytest import logging as pytest_logging
from _pytest.assertion import rewrite
from _pytest.faulthandler import fault_handler_stderr_fd_key
from execnet import gateway_io
from xdist.scheduler import LoadFileScheduling

import trackers
from tests import accounts, forked, mlflow_tables
from tests.fakes.gpu_drivers.standin import Drivers, build, compiler
from tests.marks import FOLDERS, Marks
from trackers.journal import detached_helper, helper_process
from trackers.training.run import Run

MARK = "TRACKERS_TEST"
"""Environment variable with an id for each test: names the processes it started, also those it is no parent of."""

GRACE_S = 10.0
"""How long processes that a test started may go on after it: a relay ends by itself once all is delivered."""

AGAIN_S = 15.0
"""A test that was interrupted at its limit is interrupted again after so long: while it cleans up, it often waits for
what hadn't ended before."""

LAST_S = 90.0
"""How long after its limit a test that nothing interrupts loses its process."""

LASTING = (
    "multiprocessing.resource_tracker", "multiprocessing.forkserver", "loky.process_executor", "tests/forked.py",
    "chromedriver", "chromium",
)  # fmt: skip
"""Parts of command lines: helpers that libraries and tests keep for as long as the test process lives."""

OWN_START = (
    "object_storage/test_server.py",
    "relay/test_agent.py",
    "relay/test_relay.py",
    "hardware/test_relay.py",
    "e2e/test_benchmarks.py",
)
"""Files whose tests are about how helpers are started and measured: theirs are interpreters of their own."""

SHARED = ("tests/forked.py",)
"""Parts of command lines: processes that fork for all workers, whichever of them they were started by."""

# Without cached bytecode each process that a test starts compiles the package anew: a quarter of the processor time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Idle threads of mathematics spin on the processors that other tests need. Before torch and numpy are imported.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
os.environ.update(dict.fromkeys(ONE_THREAD, "1"))

# Programs that tests signal must not inherit that these are ignored, as a shell's background and nohup have them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

# An example's time says how busy the machine is, not whether the code is right.
hypothesis.settings.register_profile("trackers", deadline=None)
hypothesis.settings.load_profile("trackers")

LONG = (
    "backends/wandb/test_failures.py", "e2e/test_docs.py", "faults/test_far_side.py", "faults/test_chaos.py",
    "e2e/test_end_to_end.py",
    "backends/mlflow/test_server.py", "faults/test_far_side_wandb.py", "faults/test_failpoints.py",
    "ranks/test_transport.py", "backends/test_conformance.py", "faults/test_bounded.py", "faults/test_resume.py",
    "faults/test_rewind.py", "faults/test_crowd.py", "faults/test_no_locks.py", "faults/test_delivery_machine.py",
    "e2e/test_demo.py", "backends/mlflow/test_tracker.py", "hardware/test_relay.py", "ranks/test_directories.py",
    "faults/test_secrets.py", "e2e/test_fuzz.py", "e2e/test_examples.py", "faults/test_grace.py",
    "faults/test_near_side.py", "relay/test_relay.py", "plotting/test_presets.py",
    "as_wandb/test_framework_loggers.py", "relay/test_agent.py", "readers/test_wandb_reader.py",
    "backends/test_lost_stores.py", "ui/test_page.py", "as_wandb/test_replacement.py", "ui/test_served.py",
    "e2e/test_benchmarks.py", "backends/wandb/test_tracker.py", "backends/mlflow/test_traces.py",
)  # fmt: skip
"""Files whose tests take half a minute or more, the longest first."""

SPLIT = (
    "faults/test_bounded.py", "faults/test_crowd.py", "faults/test_delivery_machine.py",
    "faults/test_no_locks.py", "faults/test_far_side_wandb.py", "backends/wandb/test_failures.py",
)  # fmt: skip
"""Long files whose tests share no fixture: they are given to workers one by one."""

BY_FUNCTION = ("backends/test_conformance.py", "faults/test_far_side.py")
"""Long files whose tests have other vendors' clients or servers of their own: the cases of each test stay together."""

# Variables that could reach the outside, or make a run believe it is part of a cluster.
FOREIGN = (
    *("SESSION_", "TRAINING_LOG_LEVEL", "MULTIGPU_LOG_LEVEL", "NCCL_"),
    *("TRACKER_", "WANDB_", "TRACKIO_", "MLFLOW_", "TENSORBOARD_", "JSON_DIR", "BASELINE_RUN_ID", "HF_", "XDG_"),
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "ROLE_", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_"),
    *("SLURM_", "OMPI_", "PMI_", "PMIX_", "TORCHELASTIC_", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "KCONFIG_", "CONFIG_"),
)


def _has_gpu() -> bool:
    return Path("/dev/nvidiactl").exists() or Path("/dev/kfd").exists()


def _may_lack_postgresql() -> bool:
    return "CI" not in os.environ and shutil.which("postgres") is None and not Path("/usr/lib/postgresql").exists()


def _lacks_sharding_on_processors() -> bool:
    """torch 2.6, which Debian's Python 3.13 has, computes FSDP2 on GPUs only."""
    import torch

    return not hasattr(torch.cpu.Stream, "record_event")


def _has_older_wandb() -> bool:
    from trackers.backends.wandb.precheck import VERSIONS
    from trackers.support.client_versions import installed, number

    return number(installed(VERSIONS)) < number(VERSIONS.tested[-1])


def _lacks_mlflows_spans() -> bool:
    """MLflow 2 takes no spans from outside, and its client reads none of ours (`make test-oldest`)."""
    from mlflow.store.tracking.abstract_store import AbstractStore

    return not hasattr(AbstractStore, "log_spans")


def _lacks_mlflows_logged_models() -> bool:
    """MLflow 2 has none (`make test-oldest`)."""
    from mlflow import MlflowClient

    return not hasattr(MlflowClient, "create_logged_model")


def lacks_tested_versions() -> bool:
    """Other Pythons and `make test-oldest` have others than ``trackers setup`` installs."""
    from trackers.support.environments import TESTED

    pins = dict(re.findall(r"^([\w.-]+)==([^;\s]+)", TESTED.read_text("utf-8"), re.MULTILINE))
    names = ("numpy", "wandb", "trackio", "mlflow", "msgspec")
    return any(importlib.metadata.version(name) != pins[name] for name in names)


def _lacks_other_processes() -> bool:
    """Where this is in a PID namespace of its own (`make test-python`)."""
    from trackers.support import processes

    return processes.open_files() is None


ALLOWED_SKIPS: dict[str, Callable[[], bool]] = {
    "needs a GPU": lambda: not _has_gpu(),
    "needs FSDP2 on processors": _lacks_sharding_on_processors,
    "needs MLflow's spans": _lacks_mlflows_spans,
    "needs MLflow's logged models": _lacks_mlflows_logged_models,
    "needs wandb 0.": _has_older_wandb,
    "needs the tested versions": lacks_tested_versions,
    "needs to see all processes": _lacks_other_processes,
    "needs PostgreSQL": _may_lack_postgresql,
    "needs chromium": lambda: "CI" not in os.environ and not all(map(shutil.which, ("chromium", "chromedriver"))),
    "needs npm's axe-core": lambda: "CI" not in os.environ,
    "needs a C compiler": lambda: "CI" not in os.environ and compiler() is None,
    "needs Linux": lambda: sys.platform != "linux",
    "needs root": lambda: not hasattr(os, "geteuid") or os.geteuid() != 0,
    "needs a second account": lambda: not accounts.possible(),
}
"""How a skip's reason may begin, and when it holds. Any other skip fails: a test not run proves nothing."""


def environment(home: Path) -> dict[str, str]:
    """The variables that keep vendors' clients inside ``home``, off the network and quiet."""
    return {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "WANDB_MODE": "offline",
        "WANDB_CONFIG_DIR": str(home / ".config/wandb"),
        "WANDB_CACHE_DIR": str(home / ".cache/wandb"),
        "WANDB_DATA_DIR": str(home / ".local/share/wandb"),
        "WANDB_ARTIFACT_DIR": str(home / "wandb-artifacts"),
        "WANDB_ERROR_REPORTING": "false",
        "TRACKIO_DIR": str(home / "trackio"),
        "GRADIO_ANALYTICS_ENABLED": "False",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HOME": str(home / ".cache/huggingface"),
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
        # Samples of this machine would be among what other tests expect; tests/test_hardware_*.py have them on.
        "TRACKER_SAMPLE": "n",
        # What test scripts print would be another stream of every run; tests of the capture have it on.
        "TRACKER_CONSOLE_CAPTURE": "n",
        # A process of its own in every run; tests of what is recorded of the code have it on.
        "TRACKER_CODE": "n",
        # One would stay after a test; those of in-process runs share tests/shared_agent.py.
        "TRACKER_AGENT": "n",
        # After seconds commands say how far they are, which on a busy machine is anywhere in their output.
        "TRACKERS_PROGRESS_S": "3600",
        "MPLBACKEND": "Agg",
        **dict.fromkeys(ONE_THREAD, "1"),
    }


def _isolate(patch: pytest.MonkeyPatch, home: Path) -> None:
    for name in list(os.environ):
        if name.startswith(FOREIGN) or name == "TRACKER":
            patch.delenv(name)
    home.mkdir(parents=True, exist_ok=True)
    for name, value in environment(home).items():
        patch.setenv(name, value)


@pytest.fixture(scope="session", autouse=True)
def _session_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Isolation for what fixtures of wider scope than a test start."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("session-home")
        _isolate(patch, home)
        # Matplotlib lists the machine's fonts for seconds wherever it finds no cache.
        patch.setenv("MPLCONFIGDIR", str(home / "matplotlib"))
        yield


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """What a test sets of Python's logging, such as filters on the handlers of the whole process, ends with it."""
    root = logging.getLogger()
    handlers = [(handler, list(handler.filters)) for handler in root.handlers]
    levels = {one: one.level for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)}
    level = root.level

    yield

    if root.level != level:
        root.setLevel(level)
    for one, before in levels.items():
        if one.level != before:  # to set it clears the caches of all loggers, hundreds where vendors are loaded
            one.setLevel(before)
    for handler, filters in handlers:
        handler.filters[:] = filters


@pytest.fixture(autouse=True)
def _no_leftovers(
    _session_environment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Isolation for each test, and a failure that names the processes it left behind."""
    matplotlib = os.environ["MPLCONFIGDIR"]
    _isolate(monkeypatch, tmp_path / "home")
    monkeypatch.setenv("MPLCONFIGDIR", matplotlib)
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    monkeypatch.chdir(tmp_path)
    redirect_trackio(monkeypatch, tmp_path / "home/trackio")
    _prepare_mlflow(monkeypatch)
    told = "not processes" in request.config.option.markexpr  # a fork of another process would go unnoticed
    if not told and not _file(request.node.nodeid).startswith(OWN_START):
        monkeypatch.setattr(helper_process, "subprocess", forked.SUBPROCESS)
        monkeypatch.setattr(detached_helper, "subprocess", forked.SUBPROCESS)
    before = set(psutil.pids())
    ended = _ended_children()

    yield

    if told and _ended_children() != ended:
        pytest.fail("started a process: mark the test with pytest.mark.processes", pytrace=False)
    left = _wait_for_end(lambda: _leftovers(mark, tmp_path, before))
    if left:
        names = [_describe(process) for process in left]
        for _ in range(10):  # a supervisor may start a process while we kill another
            for process in _leftovers(mark, tmp_path, before):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            if not _leftovers(mark, tmp_path, before):
                break
        pytest.fail(f"left processes behind, killed now: {'; '.join(names)}", pytrace=False)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A run that only writes its journal."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    run = trackers.init("json", project="p", mode="offline")
    assert isinstance(run, Run)
    yield run
    run.finish()


@pytest.fixture(scope="session")
def _driver_libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The GPU drivers' stand-ins, compiled once."""
    if compiler() is None:
        pytest.skip("needs a C compiler: the GPU drivers' stand-ins are compiled")
    folder = tmp_path_factory.mktemp("drivers")
    build(folder)
    return folder


@pytest.fixture
def drivers(_driver_libraries: Path, tmp_path: Path) -> Drivers:
    """GPU drivers that do what a test says."""
    return Drivers(_driver_libraries, tmp_path / "knobs")


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stamps without a zone are local time; here that is UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def _ended_children() -> int:
    """Grows with each child that ended and was waited for."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


def redirect_trackio(patch: pytest.MonkeyPatch, directory: Path) -> None:
    """trackio reads its directories once, at import: where a test imported it, later tests need them moved."""
    if "trackio" not in sys.modules:
        return
    for module in _trackio(len(sys.modules)):
        for constant, part in (("TRACKIO_DIR", ""), ("MEDIA_DIR", "media"), ("ARTIFACTS_DIR", "artifacts")):
            if hasattr(module, constant):
                patch.setattr(module, constant, directory / part)


@functools.lru_cache(maxsize=1)
def _trackio(_modules: int) -> list[Any]:
    """trackio's modules, looked for only where modules were imported since: there are ten thousand."""
    return [module for name, module in list(sys.modules.items()) if name.startswith("trackio")]


def _prepare_mlflow(patch: pytest.MonkeyPatch) -> None:
    """MLflow makes the tables of a new SQLite database in a second: here only of the first."""
    utils = sys.modules.get("mlflow.store.db.utils")
    if utils is not None:
        quick = functools.partial(mlflow_tables.initialize, utils._initialize_tables)
        patch.setattr(utils, "_initialize_tables", quick)


def _leftovers(mark: str, place: Path, before: set[int]) -> list[psutil.Process]:
    """Living processes that this test started: new ones below this process, and whoever carries its mark. Forks of the
    agent that workers share have its environment; they are known by the run's directory, which they name.

    Only processes that weren't there before the test are looked at: to read the environment of each process of the
    machine after each test took a tenth of the whole run.
    """
    new = []
    for pid in psutil.pids():
        if pid not in before:
            with contextlib.suppress(psutil.Error):
                new.append(psutil.Process(pid))
    _stop_wandb_service(new)
    own = os.getpid()
    found = []
    for process in new:
        with contextlib.suppress(psutil.Error):
            mine = _environ(process).get(MARK) == mark or f"{place}/" in _command(process) or _is_below(process, own)
            if mine and _lives(process):
                found.append(process)
    return found


def _is_below(process: psutil.Process, ancestor: int) -> bool:
    """Whether a test process started it, not for another one. Most are forks for another worker, which their parent
    says: of the processes above that one nothing is read.
    """
    parent = process.parent()
    while parent is not None:
        if any(shared in _command(parent) for shared in SHARED):
            return False
        if parent.pid == ancestor:
            return True
        parent = parent.parent()
    return False


def _stop_wandb_service(new: list[psutil.Process]) -> None:
    """wandb keeps one service per process, with the environment of the test that started it."""
    wandb = sys.modules.get("wandb")
    if wandb is not None and any("wandb-core" in _command(one) and _parent(one) == os.getpid() for one in new):
        wandb.teardown()


def _wait_for_end(look: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
    deadline = time.monotonic() + GRACE_S
    while left := look():
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            break
        psutil.wait_procs(left, timeout=min(remaining, 0.2))
    return left


def _lives(process: psutil.Process) -> bool:
    try:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return False
    except psutil.Error:
        return False
    return not any(part in _command(process) for part in LASTING)


def _environ(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.Error, OSError):
        return ""


def _parent(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except psutil.Error:
        return None


def _describe(process: psutil.Process) -> str:
    return f"{process.pid}: {_command(process)[:300] or 'ended meanwhile'}"


def _refuse_skip(report: Any) -> None:
    """Turn a skip whose reason isn't allowed here into a failure."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if not any(reason.startswith(start) and holds() for start, holds in ALLOWED_SKIPS.items()):
        report.outcome = "failed"
        report.longrepr = f"skipped for a reason that isn't in ALLOWED_SKIPS of {__file__}: {reason}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--name-flaky", action="store_true", help="with --last-failed: name each test that passes now")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """A test that failed and passes when it runs again is named: it is a fault to mend."""
    if config.getoption("--name-flaky"):
        for report in terminalreporter.stats.get("passed", []):
            terminalreporter.write_line(f"flaky: {report.nodeid}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what is heavy where it isn't wanted: to import its files takes as long as the tests that are light."""
    if "not heavy" not in config.option.markexpr:
        return None
    path = os.path.relpath(collection_path, Path(__file__).parent)
    return True if f"{path}{'' if path.endswith('.py') else '/'}".startswith(FOLDERS["heavy"]) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """Mark what starts something. What takes long comes first, so that no worker is left with it at the end."""
    if not _names_written_marks(config.option.markexpr):  # else each worker would look through all code
        marks = Marks()
        for item in items:
            for name in sorted(marks.of(item)):
                item.add_marker(name)
    order = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(_file(item.nodeid), len(order)))


def _names_written_marks(expression: str) -> bool:
    """Whether a choice of tests goes by marks alone that are written at the tests."""
    words = set(re.findall(r"\w+", expression)) - {"and", "or", "not"}
    return bool(words) and words <= {"slow", "soak"}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of tests needn't be looked through by each garbage collection to come.

    Where none of those that failed is there, `--last-failed` would run all, one after the other, for hours.
    """
    if session.config.getoption("lf", False):
        failed: dict[str, bool] = session.config.cache.get("cache/lastfailed", {}) if session.config.cache else {}
        there = {part for item in session.items for part in (item.nodeid, item.nodeid.partition("::")[0])}
        if failed and there.isdisjoint(failed):
            pytest.exit(f"none of what failed is there: {', '.join(sorted(failed)[:5])}", returncode=1)
    gc.collect()
    gc.freeze()


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0].removeprefix("tests/")


_light: list[bool] = []
"""Whether heavy tests are left out."""


def _preload() -> tuple[str, ...]:
    return forked.LIGHT if _light else forked.ALL


class _ForkedWorker(gateway_io.Popen2IOMaster):
    """A worker that is a fork of a process that has imported what tests import: alone it takes half a minute to."""

    def __init__(self, args: list[str], execmodel: Any) -> None:
        pipe = execmodel.subprocess.PIPE
        self.popen = forked.Program(args, preload=_preload(), forks=False, stdin=pipe, stdout=pipe)
        gateway_io.Popen2IO.__init__(self, self.popen.stdin, self.popen.stdout, execmodel=execmodel)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have all workers of a test run know its number before the process that forks is started."""
    if sys.platform == "linux" and config.getoption("tx", None):
        config.option.testrunuid = config.option.testrunuid or uuid.uuid4().hex
        os.environ["PYTEST_XDIST_TESTRUNUID"] = config.option.testrunuid
        gateway_io.Popen2IOMaster = _ForkedWorker
        _light[:] = [True] * ("not heavy" in config.option.markexpr)
        stages = (forked.LIGHT,) if _light else (forked.PACKAGE, forked.HELPERS, forked.ALL, forked.MLFLOW_SERVER)
        forked.begin(*stages)
        # Once, not in each worker, and while the process that forks imports.
        compileall.compile_dir(os.path.dirname(trackers.__file__), quiet=2)
        _rewrite_assertions(config)


def _rewrite_assertions(config: pytest.Config) -> None:
    """Write pytest's cache of the test files to be collected where it is missing or old, as in a fresh clone."""
    state = config.stash.get(getattr(rewrite, "assertstate_key", None), None)
    if state is None or sys.dont_write_bytecode:
        return
    paths = [Path(config.invocation_params.dir, argument.partition("::")[0]) for argument in config.args]
    for source in {file for path in paths for file in ([path] if path.is_file() else path.rglob("test_*.py"))}:
        cached = rewrite.get_cache_dir(source) / f"{source.stem}{rewrite.PYC_TAIL}"
        if cached.exists() and cached.stat().st_mtime >= source.stat().st_mtime:
            continue
        with contextlib.suppress(OSError, SyntaxError):  # the worker that collects the file reports it
            cached.parent.mkdir(exist_ok=True)
            signature, code = rewrite._rewrite_test(source, config)
            rewrite._write_pyc(state, code, signature, cached)


class _RootLogs(pytest_logging.catching_logs):
    """Collects a test's log lines at the root logger. pytest 9 looks for loggers that don't propagate, six times a
    test, among the thousands that vendors have: a tenth of the time of a light test."""

    __slots__ = ()

    def __enter__(self) -> Any:
        root = logging.getLogger()
        if self.level is not None:
            self.handler.setLevel(self.level)
            self.orig_level = root.level
            root.setLevel(min(self.orig_level, self.level))
        root.addHandler(self.handler)
        getattr(self, "attached_loggers", []).append(root)
        return self.handler


pytest_logging.catching_logs = _RootLogs


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """``--dist loadfile``, but for a few long files, whose tests are given to workers one by one."""
    return _Files(config, log)


class _Files(LoadFileScheduling):
    """Gives each worker whole files, as their fixtures are made once."""

    def _split_scope(self, nodeid: str) -> str:
        if _file(nodeid) in BY_FUNCTION:
            return nodeid.partition("[")[0]
        return nodeid if _file(nodeid) in SPLIT else super()._split_scope(nodeid)

    def remove_node(self, node: Any) -> str | None:
        """Take a worker away that has ended. The test in which it crashed has failed: pytest-xdist would begin it
        again in the next worker, and in the next.
        """
        units = self.assigned_work.pop(node)
        pending = [(unit, nodeid) for unit in units.values() for nodeid, done in unit.items() if not done]
        if not pending:
            return None
        unit, crashed = pending[0]
        unit[crashed] = True
        self.workqueue.update({scope: unit for scope, unit in units.items() if not all(unit.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: Any) -> None:
        if node in self.registered_collections:  # a crashed worker's successor hasn't collected yet
            super()._reschedule(node)


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Any:
    """Interrupt a test again that waits on as it cleans up."""
    done = yield
    if settings.method == "signal":
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, AGAIN_S)
    return done


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Any:
    """Limit the end of a test that failed, too: as it fails its timer is taken away."""
    settings = pytest_timeout._get_item_settings(item)
    if settings.timeout:
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    """End the process of a test that nothing interrupts, as where all signals are blocked, and say where it waits."""
    limit = pytest_timeout._get_item_settings(item).timeout
    if limit:  # twice: each test, and the end of each
        faulthandler.dump_traceback_later(
            2 * limit + LAST_S, exit=True, file=item.config.stash[fault_handler_stderr_fd_key]
        )
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_testnodedown(node: Any, error: object) -> Any:
    """Kill what a worker started that was killed or crashed: nobody else will."""
    if error:
        names = {"PYTEST_XDIST_WORKER": node.gateway.id, "PYTEST_XDIST_TESTRUNUID": node.config.option.testrunuid}
        for process in psutil.process_iter():
            if names.items() <= _environ(process).items():
                with contextlib.suppress(psutil.Error):
                    process.kill()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """What interrupts a test doesn't interrupt the report of its failure: that would end the worker."""
    if call.excinfo is not None and pytest_timeout._get_item_settings(item).method == "signal":
        signal.setitimer(signal.ITIMER_REAL, 0)
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    report = yield
    _refuse_skip(report)
    return report
