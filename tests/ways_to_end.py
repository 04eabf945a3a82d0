"""Ways for a process to end, each with the true status of its run. ``docs/endings.md`` shows them as a table."""

from __future__ import annotations

import signal
from typing import NamedTuple

BEGIN = """\
import atexit, os, signal, sys, threading, time
{before}
import trackers
def begin():
    run = trackers.init("json", mode="offline", project="p", id="{name}")
    run.log({{"a": 1.0}})
    return run
"""
"""Every script begins so. ``run = begin()`` follows, but for runs that a worker begins."""

KILLED = "crashed"


class Way(NamedTuple):
    """A way to end.

    what: as the documentation has it. code: the script after ``run = begin()``. status, exit_code: the truth.
    alone: the status where the operating system can't tell the exit code; "": the same. before: code above the
    package's import. how: how the script is started. typed: what it is given on its standard input. own: the code
    begins the run itself. returned: the process's exit code (negative: a signal), where that isn't the run's.
    """

    what: str
    code: str
    status: str = "finished"
    exit_code: int | None = 0
    alone: str = ""
    before: str = ""
    how: str = "script"
    typed: str = ""
    own: bool = False
    returned: int | None = None

    @property
    def worker(self) -> bool:
        """Whether the run is that of a process which the script starts."""
        return self.own and "work" in self.code

    @property
    def forked(self) -> bool:
        """Whether a fork of a process that has imported the package can play it: Python's start doesn't matter."""
        return self.how == "script" and not self.before and "spawn" not in self.code and "pytest" not in self.code


def killed(what: str, code: str, number: int, **more: str) -> Way:
    return Way(what, code, KILLED, None, returned=-number, **more)  # type: ignore[arg-type]


_MAIN = "def main(): return {}\n"
_CAUGHT = "try:\n    sys.exit(2)\nexcept SystemExit:\n    pass\n"
_FORK = "child = os.fork()\nif child == 0:\n    {}\nos.waitpid(child, 0)\n"
_HOOK = "def hook(*about):\n    {}\nsys.excepthook = hook\n1 / 0\n"
_WORKER = (
    "import multiprocessing\ndef work():\n    run = begin()\n    {}\n"
    "if __name__ == '__main__':\n    worker = multiprocessing.get_context('{}').Process(target=work)\n"
    "    worker.start()\n    {}\n    worker.join()\n"
)
_PYTEST = "import os\nos.environ['PYTEST_DISABLE_PLUGIN_AUTOLOAD'] = '1'\nimport pytest\ndef test_one():\n    assert {}\nif __name__ == '__main__':\n    sys.exit(pytest.main([__file__, '-q', '-p', 'no:cacheprovider']))\n"  # noqa: E501
_EXEC = "os.execv(sys.executable, [sys.executable, '-c', 'raise SystemExit({})'])"
_ON_TERM = "signal.signal(signal.SIGTERM, lambda *about: {})\nsignal.raise_signal(signal.SIGTERM)\n"


def table() -> list[str]:
    """The rows of the documentation's table."""
    rows = []
    for way in WAYS:
        code = "" if way.exit_code is None else str(way.exit_code)
        alone = f"`{way.alone}`" if way.alone and way.alone != way.status else ""
        rows.append(f"| {way.what} | `{way.status}` | {code} | {alone} |")
    return rows


WAYS = [
    Way("the script's last line", "pass"),
    Way("`sys.exit()`", "sys.exit()"),
    Way("`sys.exit(0)`", "sys.exit(0)"),
    Way("`sys.exit(7)`", "sys.exit(7)", "failed", 7),
    Way("`sys.exit(True)`", "sys.exit(True)", "failed", 1),
    Way("`sys.exit('out of memory')`", "sys.exit('out of memory')", "failed", 1),
    Way("`sys.exit(3.5)`", "sys.exit(3.5)", "failed", 1),
    Way("`sys.exit((3,))`", "sys.exit((3,))", "failed", 3),
    Way("`sys.exit(256)`, 0 to the operating system", "sys.exit(256)"),
    Way("`sys.exit(-1)`, 255 to the operating system", "sys.exit(-1)", "failed", 255),
    Way(
        "`sys.exit` deep in calls, through `finally`",
        "def f():\n    try:\n        sys.exit(7)\n    finally:\n        time.time()\nf()",
        "failed",
        7,
    ),
    Way("`exit()`", "exit()"),
    Way("`exit(3)`", "exit(3)", "failed", 3),
    Way("`quit(3)`", "quit(3)", "failed", 3),
    Way("`raise SystemExit`", "raise SystemExit"),
    Way("`raise SystemExit(3)`", "raise SystemExit(3)", "failed", 3),
    Way("`raise SystemExit(main())`, 0", _MAIN.format(0) + "raise SystemExit(main())"),
    Way("`raise SystemExit(main())`, 4", _MAIN.format(4) + "raise SystemExit(main())", "failed", 4),
    Way("`raise SystemExit('no data')`", "raise SystemExit('no data')", "failed", 1),
    Way("an exception class made from `SystemExit`", "class Stop(SystemExit): pass\nraise Stop(6)", "failed", 6),
    Way("`from sys import exit` before `init`", "exit(5)", "failed", 5, before="from sys import exit"),
    Way("`argparse` refuses an option", "import argparse\nargparse.ArgumentParser().parse_args(['--x'])", "failed", 2),
    Way(
        "`unittest.main()` with a failure",
        "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.fail()\nunittest.main(argv=['x'])",
        "failed",
        1,
    ),
    Way("`sys.exit(2)`, caught", _CAUGHT),
    Way("`sys.exit(2)`, caught; then `sys.exit(3)`", _CAUGHT + "sys.exit(3)", "failed", 3),
    Way("`sys.exit(2)`, caught; then `raise SystemExit(0)`", _CAUGHT + "raise SystemExit(0)"),
    Way("`sys.exit(2)`, caught; then an exception", _CAUGHT + "1 / 0", "failed", 1),
    Way(
        "`sys.exit(2)`, kept and raised anew",
        "try:\n    sys.exit(2)\nexcept SystemExit as error:\n    kept = error\nraise kept",
        "failed",
        2,
    ),
    Way(
        "`sys.exit(4)`, its code changed to 0 on the way",
        "try:\n    sys.exit(4)\nexcept SystemExit as error:\n    error.code = 0\n    raise",
        alone="failed",
    ),
    Way("`sys.exit(0)` in `finally`, after an exception", "try:\n    1 / 0\nfinally:\n    sys.exit(0)"),
    Way("`sys.exit(4)` in a thread", "t = threading.Thread(target=sys.exit, args=(4,))\nt.start()\nt.join()"),
    Way("an exception", "raise ValueError('boom')", "failed", 1),
    Way(
        "an exception that can't be printed",
        "class E(Exception):\n    def __str__(self): return 1 / 0\nraise E",
        "failed",
        1,
    ),
    Way("an exception, caught", "try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass"),
    Way("`MemoryError`", "raise MemoryError", "failed", 1),
    Way("endless recursion", "def f(): f()\nf()", "failed", 1),
    Way("an exception in `asyncio.run`", "import asyncio\nasync def f(): 1 / 0\nasyncio.run(f())", "failed", 1),
    Way("`sys.exit(3)` in `asyncio.run`", "import asyncio\nasync def f(): sys.exit(3)\nasyncio.run(f())", "failed", 3),
    Way("an exception in a thread", "t = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()"),
    Way(
        "an exception, while another thread works on",
        "threading.Thread(target=time.sleep, args=(0.2,)).start()\n1 / 0",
        "failed",
        1,
    ),
    Way("the last line, while a thread works on", "threading.Thread(target=time.sleep, args=(0.2,)).start()"),
    Way("the last line, with a daemon thread", "threading.Thread(target=time.sleep, args=(9,), daemon=True).start()"),
    Way("an exception in `__del__`", "class D:\n    def __del__(self): 1 / 0\nd = D()"),
    Way("an exception in an atexit function", "atexit.register(lambda: 1 / 0)"),
    Way("`sys.exit(4)` in an atexit function", "atexit.register(sys.exit, 4)\natexit.register(lambda: sys.exit(5))"),
    Way("an excepthook set after `init`, and an exception", _HOOK.format("pass"), "failed", 1),
    Way(
        "`rich.traceback.install()`, and an exception",
        "import rich.traceback\nrich.traceback.install()\n1 / 0",
        "failed",
        1,
    ),
    Way("an excepthook that calls `sys.exit(5)`", _HOOK.format("sys.exit(5)"), "failed", 5),
    Way("an excepthook that raises `SystemExit(0)`", _HOOK.format("raise SystemExit(0)")),
    Way("an excepthook that fails", _HOOK.format("2 / 0"), "failed", 1),
    Way("an exception, with `sys.excepthook` deleted", "del sys.excepthook\n1 / 0", "failed", 1),
    Way(
        "output that can't be written at the end",
        "sys.stdout = open('/dev/full', 'w')\nprint('x')",
        "failed",
        120,
        alone="finished",
    ),
    Way("Ctrl-C", "signal.raise_signal(signal.SIGINT)", "failed", 130, returned=-signal.SIGINT),
    Way(
        "Ctrl-C, and again while the run ends",
        "atexit.register(signal.raise_signal, signal.SIGINT)\nraise KeyboardInterrupt",
        "failed",
        130,
        returned=-signal.SIGINT,
    ),
    Way("Ctrl-C, caught", "try:\n    signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt:\n    pass"),
    Way(
        "Ctrl-C, caught; then `sys.exit(130)`",
        "try:\n    signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt:\n    sys.exit(130)",
        "failed",
        130,
    ),
    killed(
        "Ctrl-C with the system's handler",
        "signal.signal(signal.SIGINT, signal.SIG_DFL)\nsignal.raise_signal(signal.SIGINT)",
        signal.SIGINT,
    ),
    killed("SIGTERM", "signal.raise_signal(signal.SIGTERM)", signal.SIGTERM),
    killed("SIGKILL", "os.kill(os.getpid(), signal.SIGKILL)", signal.SIGKILL),
    killed("SIGHUP", "signal.raise_signal(signal.SIGHUP)", signal.SIGHUP),
    killed("an alarm", "signal.raise_signal(signal.SIGALRM)", signal.SIGALRM),
    killed("more processor time than allowed", "signal.raise_signal(signal.SIGXCPU)", signal.SIGXCPU),
    killed("`os.abort()`", "os.abort()", signal.SIGABRT),
    killed("a segmentation fault", "import ctypes\nctypes.string_at(0)", signal.SIGSEGV),
    killed(
        "a segmentation fault with `faulthandler`",
        "import ctypes, faulthandler\nfaulthandler.enable()\nctypes.string_at(0)",
        signal.SIGSEGV,
    ),
    killed(
        "a segmentation fault while the interpreter ends",
        "import ctypes\nclass D:\n    def __del__(self): ctypes.string_at(0)\nd = D()",
        signal.SIGSEGV,
        alone="finished",
    ),
    Way("SIGTERM, handled by `sys.exit(0)`", _ON_TERM.format("sys.exit(0)")),
    Way("SIGTERM, handled by `sys.exit(143)`", _ON_TERM.format("sys.exit(143)"), "failed", 143),
    Way("SIGTERM, handled by an exception", _ON_TERM.format("1 / 0"), "failed", 1),
    Way("SIGTERM, ignored", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.raise_signal(signal.SIGTERM)"),
    Way(
        "stopped, and continued",
        _FORK.format(
            "time.sleep(0.3)\n    os.kill(os.getppid(), signal.SIGCONT)\n    os._exit(0)\n"
            "signal.raise_signal(signal.SIGSTOP)"
        ),
    ),
    Way("`os._exit(0)`", "os._exit(0)", alone="crashed"),
    Way("`os._exit(3)`", "os._exit(3)", "failed", 3, alone="crashed"),
    Way("`os._exit(6)` in an atexit function", "atexit.register(os._exit, 6)", "failed", 6, alone="crashed"),
    Way(
        "`os._exit(5)` in an atexit function from before `init`",
        "pass",
        "failed",
        5,
        alone="finished",
        before="atexit.register(os._exit, 5)",
    ),
    Way(
        "`os._exit(9)` in `threading.excepthook`",
        "threading.excepthook = lambda about: os._exit(9)\n"
        "t = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()",
        "failed",
        9,
        alone="crashed",
    ),
    Way(
        "`faulthandler.dump_traceback_later(exit=True)`",
        "import faulthandler\nfaulthandler.dump_traceback_later(0.05, exit=True)\ntime.sleep(9)",
        "failed",
        1,
        alone="crashed",
    ),
    Way("a forked child that fails", _FORK.format("os._exit(3)")),
    Way("a forked child with an exception", _FORK.format("1 / 0")),
    Way("a forked child that is killed", _FORK.format("os.kill(os.getpid(), signal.SIGKILL)")),
    Way("a forked child that ends with `sys.exit(3)`", _FORK.format("sys.exit(3)")),
    Way(
        "a program started with `subprocess` that fails",
        "import subprocess\nsubprocess.call([sys.executable, '-Sc', 'exit(3)'])",
    ),
    Way(
        "a worker of `multiprocessing` that fails",
        "import multiprocessing\np = multiprocessing.get_context('fork').Process(target=sys.exit, args=(3,))\n"
        "p.start()\np.join()",
    ),
    Way("a run begun in a forked worker that returns", _WORKER.format("pass", "fork", "pass"), own=True, returned=0),
    Way(
        "a run begun in a forked worker: an exception",
        _WORKER.format("1 / 0", "fork", "pass"),
        "failed",
        1,
        own=True,
        returned=0,
    ),
    Way(
        "a run begun in a forked worker: `sys.exit(3)`",
        _WORKER.format("sys.exit(3)", "fork", "pass"),
        "failed",
        3,
        own=True,
        returned=0,
    ),
    Way(
        "a run begun in a forked worker that is terminated",
        _WORKER.format(
            "open('up', 'w').close()\n    time.sleep(30)",
            "fork",
            "while not os.path.exists('up'): time.sleep(0.01)\n    worker.terminate()",
        ),
        KILLED,
        None,
        own=True,
        returned=0,
    ),
    Way("a run begun in a spawned worker that returns", _WORKER.format("pass", "spawn", "pass"), own=True, returned=0),
    Way(
        "a run begun in a spawned worker: `raise SystemExit(3)`",
        _WORKER.format("raise SystemExit(3)", "spawn", "pass"),
        "failed",
        3,
        own=True,
        returned=0,
    ),
    Way(
        "a run begun in a worker of `concurrent.futures`",
        "import concurrent.futures as f, multiprocessing as m\ndef work(): begin()\n"
        "with f.ProcessPoolExecutor(1, m.get_context('fork')) as pool: pool.submit(work).result()",
        own=True,
        returned=0,
    ),
    Way("another program in its place (`os.execv`)", _EXEC.format(0), alone="crashed"),
    Way("another program in its place that fails", _EXEC.format(3), "failed", 3, alone="crashed"),
    Way("`with init()`", "with begin():\n    pass", own=True),
    Way("`with init()`: an exception", "with begin():\n    1 / 0", "failed", 1, own=True),
    Way("`with init()`: `raise SystemExit(3)`", "with begin():\n    raise SystemExit(3)", "failed", 3, own=True),
    Way("`finish()`", "run.finish()"),
    Way("`finish()`, then `sys.exit(3)`, as in W&B", "run.finish()\nsys.exit(3)", returned=3),
    Way("`finish(exit_code=5)`", "run.finish(exit_code=5)", "failed", 5, returned=0),
    Way("`finish` registered with `atexit`", "atexit.register(run.finish)"),
    Way("`finish` registered with `atexit`, and an exception", "atexit.register(run.finish)\n1 / 0", "failed", 1),
    Way(
        "`finish` registered with `atexit`, and `sys.exit(3)`",
        "atexit.register(run.finish)\nsys.exit(3)",
        "failed",
        3,
    ),
    Way(
        "`finish` registered with `atexit`, and `raise SystemExit(3)`",
        "atexit.register(lambda: trackers.finish())\nraise SystemExit(3)",
        "failed",
        3,
    ),
    Way(
        "`finish(exit_code=0)` registered with `atexit`, and an exception",
        "atexit.register(run.finish, 0)\n1 / 0",
        returned=1,
    ),
    Way("`finish()`, then SIGKILL", "run.finish()\nos.kill(os.getpid(), signal.SIGKILL)", returned=-signal.SIGKILL),
    Way(
        "`finish()` in `finally`, then an exception, as in W&B",
        "try:\n    1 / 0\nfinally:\n    run.finish()",
        returned=1,
    ),
    Way(
        "`mark_preempting()`, then SIGKILL",
        "run.mark_preempting()\nos.kill(os.getpid(), signal.SIGKILL)",
        "preempted",
        None,
        returned=-signal.SIGKILL,
    ),
    Way("`mark_preempting()`, then `sys.exit(1)`", "run.mark_preempting()\nsys.exit(1)", "preempted", 1),
    Way(
        "`mark_preempting()`, then `finish(exit_code=1)`, as in W&B",
        "run.mark_preempting()\nrun.finish(exit_code=1)",
        "preempted",
        1,
        returned=0,
    ),
    Way("`python -c`", "pass", how="-c"),
    Way("`python -c`: `raise SystemExit(3)`", "raise SystemExit(3)", "failed", 3, how="-c"),
    Way("`python -c`: an exception", "1 / 0", "failed", 1, how="-c"),
    Way("`python -m`", "pass", how="-m"),
    Way("`python -m`: `raise SystemExit(3)`", "raise SystemExit(3)", "failed", 3, how="-m"),
    Way("`python -m`: an exception", "1 / 0", "failed", 1, how="-m"),
    Way("`python < script`: an exception", "1 / 0", "failed", 1, how="<"),
    Way("`runpy.run_path` of a script: `raise SystemExit(3)`", "raise SystemExit(3)", "failed", 3, how="runpy"),
    Way("`python -i`, left with Ctrl-D", "pass", how="-i"),
    Way("`python -i`, an exception, left with Ctrl-D", "1 / 0", how="-i"),
    Way("`python -i`, an exception, left with `exit(3)`", "1 / 0", "failed", 3, how="-i", typed="exit(3)\n"),
    Way("a prompt, left with `raise SystemExit(3)`", "pass", "failed", 3, how="-i", typed="raise SystemExit(3)\n"),
    Way("the debugger, quit", "pass", how="pdb", typed="continue\nquit\n"),
    Way("pytest, all passed", _PYTEST.format("begin()"), own=True),
    Way("pytest, a test failed", _PYTEST.format("not begin()"), "failed", 1, own=True),
]
"""All of them."""
