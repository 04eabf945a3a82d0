"""The rules that tests/conftest.py lays on every test do bite."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from _pytest.assertion import rewrite

from tests import ROOT, conftest

CONFTEST = ROOT / "tests/conftest.py"


def run_pytest(directory: Path, body: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a test file under a copy of our conftest, with a short grace for what it leaves behind."""
    directory.mkdir()
    (directory / "conftest.py").write_text(CONFTEST.read_text().replace("GRACE_S = 10.0", "GRACE_S = 0.5"))
    (directory / "test_inner.py").write_text(body)
    return again(directory, *(options or ("-p", "no:cacheprovider")))


def again(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of such a directory."""
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(directory), *options, str(directory)]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize(
    "skip",
    [
        "def test_one():\n    pytest.skip('not today')",
        "@pytest.mark.skip(reason='not today')\ndef test_one(): pass",
        "pytest.importorskip('no_such_package', reason='not today')\ndef test_one(): pass",
    ],
)
def test_skip_for_an_unlisted_reason_fails_the_run(tmp_path: Path, skip: str) -> None:
    """A test that is skipped for a reason nobody allowed can't hide in a green run."""
    result = run_pytest(tmp_path / "inner", f"import pytest\n{skip}\ndef test_two(): pass\n")
    assert result.returncode != 0
    assert "not today" in result.stdout
    assert "skipped" not in result.stdout.splitlines()[-1]


@pytest.mark.slow
def test_skip_for_a_listed_reason_passes(tmp_path: Path) -> None:
    """A test that this machine can't run may be skipped, if its reason is one of those agreed on."""
    body = "import os, pytest\nos.geteuid = lambda: 1000\ndef test_one(): pytest.skip('needs root: mounts')\n"
    result = run_pytest(tmp_path / "inner", body)
    assert result.returncode == 0, result.stdout
    assert "1 skipped" in result.stdout.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("session", [False, True])
def test_process_left_behind_is_named_killed_and_fails_its_test(tmp_path: Path, session: bool) -> None:
    """A process that outlives its test, also one that left its parent's session, is found, ended and reported."""
    sleeper = "import time; time.sleep(999)"
    parent = (
        "import subprocess, sys;"
        f"p = subprocess.Popen([sys.executable, '-c', {sleeper!r}], start_new_session={session});"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid))"
    )
    body = f"import subprocess, sys\ndef test_one(): subprocess.run([sys.executable, '-c', {parent!r}], check=True)\n"
    result = run_pytest(tmp_path / "inner", body)
    pid = int((tmp_path / "pid").read_text())
    assert result.returncode == 1, result.stdout
    assert f"left processes behind, killed now: {pid}:" in result.stdout
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.slow
def test_test_sees_no_settings_of_the_machine(tmp_path: Path) -> None:
    """A test runs in an empty home and directory, with no account, no rank and no option from outside."""
    body = """
import os, pathlib
def test_one(tmp_path):
    assert pathlib.Path.cwd() == tmp_path
    assert pathlib.Path.home() == tmp_path / "home" and not any(pathlib.Path.home().iterdir())
    assert not {"RANK", "WANDB_API_KEY", "TRACKER", "TRACKER_PROJECT", "MLFLOW_TRACKING_URI"} & set(os.environ)
    assert os.environ["WANDB_MODE"] == "offline"
"""
    outside = {"RANK": "3", "WANDB_API_KEY": "k", "TRACKER": "json", "TRACKER_PROJECT": "p", "MLFLOW_TRACKING_URI": "u"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in outside.items():
            patch.setenv(name, value)
        result = run_pytest(tmp_path / "inner", body)
    assert result.returncode == 0, result.stdout
    assert os.environ["WANDB_MODE"] == "offline"


@pytest.mark.slow
def test_test_that_passes_the_second_time_is_named_as_flaky(tmp_path: Path) -> None:
    """A failure that doesn't come again is listed by name, before the closing line."""
    body = """
import pathlib
def test_flaky():
    seen = pathlib.Path(__file__).with_name("seen")
    again = seen.exists()
    seen.touch()
    assert again
def test_steady(): pass
"""
    home = tmp_path / "inner"
    first = run_pytest(home, body, "-p", "cacheprovider")
    assert first.returncode == 1, first.stdout
    second = again(home, "--last-failed", "--name-flaky", "-p", "cacheprovider")
    assert second.returncode == 0, second.stdout
    named, closing = second.stdout.splitlines()[-2:]
    assert named == "flaky: test_inner.py::test_flaky"
    assert closing.startswith("1 passed")


@pytest.mark.slow
def test_failure_of_a_test_that_is_there_no_more_runs_no_others(tmp_path: Path) -> None:
    """One whose name has an address in it, for example: the second run names it and ends."""
    home = tmp_path / "inner"
    body = "import os, pytest\n@pytest.mark.parametrize('n', [os.getpid()])\ndef test_one(n): assert 0\n"
    body += "def test_two(): pass\n"
    assert run_pytest(home, body, "-p", "cacheprovider").returncode == 1
    second = again(home, "--last-failed", "-p", "cacheprovider")
    assert second.returncode == 1
    assert "none of what failed is there: test_inner.py::test_one[" in second.stdout + second.stderr
    assert "passed" not in second.stdout


@pytest.mark.slow
def test_test_that_waits_for_ever_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits on as it cleans up is interrupted again; where nothing interrupts, its process is ended with all
    that it started, the place is printed, and the other tests run, those of its own file, too, each once.
    """
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")  # a worker outside of the same name as the one that is killed
    home = tmp_path / "inner"
    home.mkdir()
    text = CONFTEST.read_text().replace("AGAIN_S = 15.0", "AGAIN_S = 0.5").replace("LAST_S = 90.0", "LAST_S = 8.0")
    text += """
class Slow:
    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call):
        time.sleep(0.7 if call.excinfo else 0)  # longer than until the next interruption
        return (yield)
def pytest_sessionstart(session):
    session.config.pluginmanager.register(Slow())
"""
    (home / "conftest.py").write_text(text)
    body = """
import pathlib, pytest, signal, subprocess, time
@pytest.fixture
def late():
    yield
    time.sleep(1000)
@pytest.mark.timeout(1)
def test_cleans_up():
    try:
        time.sleep(1000)
    finally:
        time.sleep(1000)
@pytest.mark.timeout(1)
def test_fails_and_ends_late(late):
    assert not "failed"
@pytest.mark.timeout(1)
def test_hears_nothing():
    pathlib.Path(__file__).with_name("pid").write_text(str(subprocess.Popen(["sleep", "1000"]).pid))
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(1000)
def test_after(): pass
"""
    (home / "test_inner.py").write_text(body)
    (home / "test_other.py").write_text("def test_other(): pass\n")
    done = again(home, "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-rA", "-p", "no:cacheprovider")
    closing = done.stdout.splitlines()[-1]
    assert re.match(r"3 failed, 2 passed, (\d+ warnings?, )?1 error in ", closing), done.stdout
    assert "crashed while running 'test_inner.py::test_hears_nothing'" in done.stdout
    assert "in test_hears_nothing" in done.stderr
    pid = int((home / "pid").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.slow
def test_process_of_a_test_without_the_mark_is_named(tmp_path: Path) -> None:
    """Where tests that start processes are left out, one that starts some nevertheless fails with what to do."""
    body = "import os\nsystem = getattr(os, 'system')\ndef test_one(): system('true')\ndef test_two(): pass\n"
    result = run_pytest(tmp_path / "inner", body, "-m", "not processes")
    assert "started a process: mark the test with pytest.mark.processes" in result.stdout
    assert "2 passed, 1 error" in result.stdout.splitlines()[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: processes that fork")
def test_packages_that_are_not_installed_are_not_imported_ahead() -> None:
    """The process that forks workers goes without them: not every environment has all."""
    code = """
import sys
from tests import forked
words = [sys.executable, "-c", "raise SystemExit(7)"]
print(forked.Program(words, preload=("no_such_package.inner", "json"), forks=False).wait())
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_TESTRUNUID"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "7\n"


def cached_bytecode(source: Path) -> Path:
    return rewrite.get_cache_dir(source) / f"{source.stem}{rewrite.PYC_TAIL}"


def is_cached_rewritten(source: Path) -> bool:
    """Whether pytest would load this file's bytecode from its cache, with rewritten assertions."""
    code = rewrite._read_pyc(source, cached_bytecode(source))
    return code is not None and "@pytest_ar" in code.co_names


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_program_that_is_killed_as_it_asks_for_a_fork_costs_nobody_else_one() -> None:
    """The process that forks hears nothing, part of a number, a job that is cut, one that is none: it goes on."""
    code = """
import os, socket, sys
from tests import forked
preload = ("json",)
print(forked.run([sys.executable, "-c", "print(1)"], preload=preload).stdout, end="")
for sent in (b"", bytes(2), forked._NUMBER.pack(100) + b"abc", forked._NUMBER.pack(3) + b"abc"):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(forked._address(preload))
        read, _ = os.pipe()
        socket.send_fds(line, [sent], [read]) if sent else None
print(forked.run([sys.executable, "-c", "print(2)"], preload=preload).stdout, end="")
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("1\n2\n", "")


def test_rewritten_assertions_are_cached_ahead_where_missing_or_old(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Workers find the bytecode of all collected files in the cache, and of no others; current files are left alone."""
    names = ("folder/test_old.py", "folder/inner/test_current.py", "single/test_named.py", "single/test_other.py")
    old, current, named, other = sources = [tmp_path / name for name in names]
    helper, broken = tmp_path / "folder/support.py", tmp_path / "folder/test_broken.py"
    for source in (*sources, helper):
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text("def test_one(): assert 1 + 1 == 2\n")
    broken.write_text("def test_one(:\n")
    config: Any = SimpleNamespace(
        stash=pytestconfig.stash,
        getini=pytestconfig.getini,
        invocation_params=SimpleNamespace(dir=tmp_path),
        args=["folder", "single/test_named.py::test_one"],
    )
    conftest._rewrite_assertions(config)
    assert all(map(is_cached_rewritten, (old, current, named)))
    assert not any(cached_bytecode(source).exists() for source in (other, helper, broken))

    old.write_text("def test_one(): assert 1 + 2 == 3\n")
    assert not is_cached_rewritten(old)
    written = cached_bytecode(old).stat().st_mtime
    os.utime(old, (written + 10, written + 10))
    untouched = cached_bytecode(current).stat().st_mtime_ns
    conftest._rewrite_assertions(config)
    assert is_cached_rewritten(old)
    assert cached_bytecode(current).stat().st_mtime_ns == untouched
