"""What a process prints, taken where Python writes it."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import trackers
from tests import forked
from trackers.cli.app import app
from trackers.journal import console_spool
from trackers.journal.console_spool import segments
from trackers.journal.run_directory import RunDirectory
from trackers.readers.console import RunConsole, lines_of
from trackers.training import console_capture
from trackers.training.console_capture import ConsoleCapture
from trackers.training.wandb_arguments import init_arguments


class Captured:
    """A capture of streams of a test's own.

    Attributes:
        out, err: what ``sys.stdout`` and ``sys.stderr`` are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = io.TextIOWrapper(io.BufferedWriter(io.FileIO(os.memfd_create("out"), "w+")), encoding="utf-8")
        self.err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", line_buffering=True)
        self.capture = ConsoleCapture(folder, 0, 1, 1 << 30)
        self._before = sys.stdout, sys.stderr

    def __enter__(self) -> Captured:
        sys.stdout, sys.stderr = self.out, self.err
        return self

    def __exit__(self, *_: object) -> None:
        self.capture.end()
        sys.stdout, sys.stderr = self._before

    def text(self, stream: str = "stdout") -> bytes:
        """What was captured."""
        found = [name for name in segments(self.folder) if name.stream == stream]
        return b"".join((self.folder / str(name)).read_bytes() for name in found)

    def shown(self) -> bytes:
        """What went to standard output."""
        self.out.flush()
        os.lseek(self.out.fileno(), 0, os.SEEK_SET)
        return os.read(self.out.fileno(), 1 << 20)


@pytest.fixture
def streams(tmp_path: Path) -> Captured:
    """A capture to begin inside of the test: pytest has streams of its own for each of its phases."""
    return Captured(tmp_path / "console")


def test_text_and_bytes_are_captured_once_and_shown_as_before(streams: Captured) -> None:
    """Through ``print``, ``write``, ``writelines`` and the binary buffer, buffered and not."""
    with streams as captured:
        captured.capture.begin()
        print("printed", 1)
        sys.stdout.writelines(["two\n", "lines\n"])
        sys.stdout.flush()
        sys.stdout.buffer.write(b"bytes \xff\n")
        print("é flushed", flush=True)
        sys.stdout.write("x" * 20_000 + "\n")
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
        print("unbuffered")
        print("careful", file=sys.stderr)
        captured.capture.end()
        wanted = b"printed 1\ntwo\nlines\nbytes \xff\n\xc3\xa9 flushed\n" + b"x" * 20_000 + b"\nunbuffered\n"
        assert captured.text() == wanted
        assert captured.shown() == wanted
        assert captured.text("stderr") == b"careful\n"


def test_object_stays_the_one_that_it_was(streams: Captured) -> None:
    """Its descriptor, encoding, terminal and class; and after the end, its own methods."""
    with streams as captured:
        captured.capture.begin()
        assert sys.stdout is captured.out
        assert sys.stdout.fileno() >= 0
        assert sys.stdout.encoding == "utf-8"
        assert not sys.stdout.isatty()
        assert isinstance(sys.stdout, io.TextIOWrapper)
        assert "write" in vars(sys.stdout)
        captured.capture.end()
        assert not vars(sys.stdout).keys() & {"write", "flush"}
        assert "write" not in vars(sys.stdout.buffer)
        print("later")
        captured.out.flush()
        assert captured.text() == b""


def test_handler_of_logging_that_was_made_before_is_heard(streams: Captured) -> None:
    """It holds the object that standard error was."""
    with streams as made:
        handler = logging.StreamHandler()
        made.capture.begin()
        handler.emit(logging.makeLogRecord({"msg": "from a handler"}))
    assert streams.text("stderr") == b"from a handler\n"


def test_what_is_redirected_is_not_captured_and_what_passes_through_is(streams: Captured) -> None:
    """``redirect_stdout`` prints elsewhere; an object around the captured one prints there."""
    with streams as captured:
        captured.capture.begin()
        with contextlib.redirect_stdout(io.StringIO()):
            print("elsewhere")

        class Tee:
            def write(self, text: str) -> int:
                return captured.out.write(text)

            def flush(self) -> None:
                captured.out.flush()

        with contextlib.redirect_stdout(Tee()):  # type: ignore[type-var]
            print("through")
        assert captured.text() == b"through\n"


def test_others_wrappers_stay_and_go_on_printing(streams: Captured) -> None:
    """Who answers ``write`` after us, as W&B's client does, is left in place at the end."""
    with streams as captured:
        captured.capture.begin()
        heard: list[str] = []
        inner = sys.stdout.write

        def theirs(text: str) -> int:
            heard.append(text)
            return inner(text)

        sys.stdout.write = theirs  # type: ignore[method-assign]
        print("first")
        captured.capture.end()
        print("second")
        assert sys.stdout.write is theirs
        assert heard == ["first", "\n", "second", "\n"]
        assert captured.text() == b"first\n"
        assert captured.shown() == b"first\nsecond\n"


def test_notebook_that_puts_its_own_method_back_is_heard_at_the_next_cell(streams: Captured) -> None:
    """IPython answers ``write`` itself while a cell runs, and then forgets what was put in its place."""

    class Shell:
        def __init__(self) -> None:
            self.events = self
            self.begun: list[Any] = []

        def register(self, event: str, function: Any) -> None:
            assert event == "pre_run_cell"
            self.begun.append(function)

        def unregister(self, event: str, function: Any) -> None:
            self.begun.remove(function)

        def run(self, *lines: str) -> None:
            original = sys.stdout.write
            sys.stdout.write = lambda text: original(text)  # type: ignore[method-assign]
            for function in list(self.begun):
                function(None)
            for line in lines:
                print(line)
            sys.stdout.write = original  # type: ignore[method-assign]

    shell = Shell()
    with streams as captured:
        captured.capture.begin(shell=shell)
        shell.run("one", "two")
        shell.run("three")
        captured.capture.end()
        shell.run("four")
        assert captured.text() == b"one\ntwo\nthree\n"
        assert captured.shown() == b"one\ntwo\nthree\nfour\n"
        assert shell.begun == []


def test_method_that_somebody_put_back_is_answered_again_at_the_next_look(streams: Captured) -> None:
    """And where somebody answers it before, each line is kept once."""
    with streams as captured:
        before = sys.stdout.write
        captured.capture.begin()
        sys.stdout.write = before  # type: ignore[method-assign]
        print("unheard")
        captured.capture.poll()
        print("heard")
        inner = sys.stdout.write
        sys.stdout.write = lambda text: inner(text)  # type: ignore[method-assign]
        captured.capture.poll()
        print("once")
        captured.capture.end()
        print("after")
        assert captured.text() == b"heard\nonce\n"
        assert captured.shown() == b"unheard\nheard\nonce\nafter\n"


def test_object_around_another_one_is_heard_once(streams: Captured) -> None:
    """One that scripts put around standard output, which has everything else of it, whoever flushes what is below."""

    class Logger:
        def __init__(self, terminal: Any) -> None:
            self.terminal = terminal

        def write(self, text: str) -> int:
            return int(self.terminal.write(text))

        def flush(self) -> None:
            pass

        def __getattr__(self, name: str) -> Any:
            return getattr(self.terminal, name)

    with streams as captured:
        sys.stdout = Logger(captured.out)
        captured.capture.begin()
        print("once")
        captured.out.flush()
        captured.capture.end()
    assert streams.text() == b"once\n"
    assert streams.shown() == b"once\n"


def test_two_runs_capture_the_same(streams: Captured, tmp_path: Path) -> None:
    """Each gets what is printed while it is open."""
    with streams as captured:
        captured.capture.begin()
        print("one")
        second = ConsoleCapture(tmp_path / "second", 0, 1, 1 << 30)
        second.begin()
        print("both")
        captured.capture.end()
        print("two")
        second.end()
        print("none")
        assert captured.text() == b"one\nboth\n"
        assert (tmp_path / "second" / str(segments(tmp_path / "second")[0])).read_bytes() == b"both\ntwo\n"
        assert "write" not in vars(sys.stdout)


@pytest.mark.parametrize("stream", [None, object(), "closed"])
def test_streams_that_cannot_be_heard_are_left_alone(
    stream: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon has none; an object may be of any class; a closed file raises what it raises."""
    if stream == "closed":
        stream = io.StringIO()
        stream.close()
    monkeypatch.setattr(sys, "stdout", stream)
    capture = ConsoleCapture(tmp_path / "console", 0, 1, 1 << 30)
    capture.begin()
    if isinstance(stream, io.StringIO):
        with pytest.raises(ValueError, match="closed"):
            stream.write("x\n")
    capture.end()
    assert segments(tmp_path / "console") == []


def test_exception_of_the_stream_is_the_printers(streams: Captured) -> None:
    """What wasn't shown isn't captured."""
    with streams as captured:
        captured.capture.begin()

        class Broken(io.StringIO):
            def write(self, text: str) -> int:
                raise BrokenPipeError(text)

        capture = ConsoleCapture(captured.folder, 0, 2, 1 << 30)
        with contextlib.redirect_stdout(Broken()):
            capture.begin()
            with pytest.raises(BrokenPipeError):
                print("lost")
            capture.end()
        assert captured.text() == b""


def test_lines_of_threads_are_whole(streams: Captured) -> None:
    """No part of what threads print at once is lost."""
    with streams as captured:
        captured.capture.begin()

        def print_many(number: int) -> None:
            for place in range(200):
                sys.stdout.write(f"{number} {place}\n")

        threads = [threading.Thread(target=print_many, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        captured.capture.end()
        wanted = {f"{number} {place}" for number in range(8) for place in range(200)}
        assert sorted(captured.text().decode().splitlines()) == sorted(wanted)


def test_nothing_is_captured_where_the_option_says_so(tmp_path: Path) -> None:
    """``TRACKER_CONSOLE_CAPTURE=n``."""
    before = sys.stdout.write
    assert console_capture.begin(tmp_path, 0, 1, {"TRACKER_CONSOLE_CAPTURE": "n"}) is None
    assert sys.stdout.write == before


BEGIN = """
import os, signal, sys, threading, time
import trackers
run = trackers.init("json", project="p")
print("begun")
"""


def run_script(tmp_path: Path, body: str, **environment: str) -> tuple[int, list[str]]:
    """The exit code of a script, and the lines that its run kept."""
    script = tmp_path / "train.py"
    script.write_text(BEGIN + body)
    variables = {**os.environ, "TRACKER_CONSOLE_CAPTURE": "auto", "TRACKER_DIR": str(tmp_path / "runs"), **environment}
    done = forked.run([sys.executable, str(script)], preload=forked.HELPERS, env=variables, cwd=tmp_path)
    (directory,) = (tmp_path / "runs/p").iterdir()
    console = RunConsole(RunDirectory(directory))
    wait_for_end(directory)
    return done.returncode, [line.text for line in lines_of(console.read()) if not line.text.startswith("trackers:")]


def wait_for_end(directory: Path) -> None:
    """Until the relay has said how the run ended: everything is collected then."""
    import time

    from trackers.journal.run_directory import StreamName
    from trackers.journal.stream import find_finish

    path = RunDirectory(directory).stream(StreamName("node", 0, 1))
    until = time.monotonic() + 150.0
    while find_finish(path) is None and time.monotonic() < until:
        time.sleep(0.05)


ENDS = {
    "returns": ("", 0, ["begun"]),
    "an exception": ('raise ValueError("boom")', 1, ["begun", "ValueError: boom"]),
    "an exception inside with": ('with run:\n    raise ValueError("boom")', 1, ["begun", "ValueError: boom"]),
    "sys.exit with a text": ('sys.exit("gave up")', 1, ["begun", "gave up"]),
    "os._exit": ('print("last", flush=True)\nos._exit(3)', 3, ["begun", "last"]),
    "SIGKILL": ('print("last")\nos.kill(os.getpid(), signal.SIGKILL)', -9, ["begun", "last"]),
    "a thread's exception": (
        "t = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()",
        0, ["begun", "ZeroDivisionError: division by zero"],
    ),
    "a forked child": (
        'pid = os.fork()\nif not pid:\n    print("child", flush=True)\n    os._exit(0)\n'
        'os.waitpid(pid, 0)\nprint("parent")',
        0, ["begun", "child", "parent"],
    ),
    "a second run": ('run.log({"a": 1})\nrun.finish()\nprint("between")', 0, ["begun"]),
}  # fmt: skip


@pytest.mark.processes
@pytest.mark.parametrize("how", ENDS)
def test_what_was_printed_before_the_end_is_kept(how: str, tmp_path: Path) -> None:
    """However a process ends, its last lines are in the journal: tracebacks, too."""
    body, code, wanted = ENDS[how]
    found, lines = run_script(tmp_path, body)
    assert found == code
    kept = [line for line in lines if line in wanted]
    assert (sorted(kept) if "child" in kept else kept) == wanted  # two processes have no common order
    assert "between" not in lines


@pytest.mark.processes
def test_run_without_a_relay_collects_at_its_end(tmp_path: Path) -> None:
    """Nobody else would; nothing raw is left in its directory."""
    script = tmp_path / "train.py"
    script.write_text(BEGIN + 'print("token=hf_abcdefghijklmnopqrstuvwxyzabcdefgh")')
    variables = {"TRACKER_CONSOLE_CAPTURE": "auto", "TRACKER_RELAY": "n", "TRACKER_DIR": str(tmp_path / "runs")}
    forked.run([sys.executable, str(script)], preload=forked.HELPERS, env={**os.environ, **variables}, check=True)
    (directory,) = (tmp_path / "runs/p").iterdir()
    lines = [line.text for line in lines_of(RunConsole(RunDirectory(directory)).read())]
    assert lines[-2:] == ["begun", "token=***"]
    assert not (directory / "console").exists()


@pytest.mark.processes
def test_inline_trackers_get_what_was_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are delivered inside of training."""
    monkeypatch.setenv("TRACKER_CONSOLE_CAPTURE", "auto")
    run = trackers.init("json", project="p", inline=True)
    print("inside")
    run.finish()
    found = [line.text for line in lines_of(RunConsole(RunDirectory(run.path)).read())]
    assert "inside" in found


MORE = """
import ctypes, subprocess
subprocess.run(["echo", "from a child"])
library = ctypes.CDLL(None)
library.puts(b"from C")
library.fflush(None)
print("careful", file=sys.stderr)
"""


def lines_of_run(tmp_path: Path) -> list[str]:
    """What the only run kept."""
    (directory,) = (tmp_path / "runs/p").iterdir()
    wait_for_end(directory)
    found = lines_of(RunConsole(RunDirectory(directory)).read())
    return [line.text for line in found if not line.text.startswith("trackers:")]


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
@pytest.mark.parametrize("how", ["deleted", "moved away"])
def test_spool_that_is_gone_is_put_back_whole(how: str, streams: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the run's directory: what the relay hadn't read yet, and what is printed from then on, is there once."""
    monkeypatch.setattr(console_spool, "TIME_S", 0.0)
    with streams:
        streams.capture.begin()
        print("before")
        if how == "deleted":
            shutil.rmtree(streams.folder)
        else:
            streams.folder.rename(streams.folder.with_name("elsewhere"))
        print("after", flush=True)
        assert streams.text() == b"before\nafter\n"
        shutil.rmtree(streams.folder)
    assert streams.text() == b"before\nafter\n"


@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_output_into_a_file_is_whole_with_children_and_c(end: str, tmp_path: Path) -> None:
    """The relay reads the file: programs that training starts and C libraries are part of it, also after a kill."""
    script = tmp_path / "train.py"
    script.write_text(BEGIN + MORE + end)
    variables = {**os.environ, "TRACKER_CONSOLE_CAPTURE": "auto", "TRACKER_DIR": str(tmp_path / "runs")}
    with open(tmp_path / "out", "w+") as out:
        out.write("before\n")
        out.flush()
        # No fork: another one of the process that forks may have the file open at this moment.
        subprocess.run([sys.executable, str(script)], env=variables, stdout=out, check=False)
    found = lines_of_run(tmp_path)
    assert [text for text in found if text != "careful"] == ["begun", "from a child", "from C"]
    assert found.count("careful") == 1  # on stderr, whose lines may come before those of a file that is read later


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_file_that_others_print_into_is_not_read(tmp_path: Path) -> None:
    """Several runs of one job script share its file: each keeps what its own Python printed."""
    script = tmp_path / "train.py"
    script.write_text(BEGIN + MORE)
    variables = {**os.environ, "TRACKER_CONSOLE_CAPTURE": "auto", "TRACKER_DIR": str(tmp_path / "runs")}
    with open(tmp_path / "out", "a") as out, subprocess.Popen(["sleep", "60"], stdout=out) as other:
        try:
            forked.run([sys.executable, str(script)], preload=forked.HELPERS, env=variables, stdout=out)
        finally:
            other.kill()
    assert lines_of_run(tmp_path) == ["begun", "careful"]


RANKS = """
import os, sys, time
import trackers
run = trackers.init("json", project="p", id="ranks")
rank = os.environ["RANK"]
print("rank", rank, "prints")
run.log({"loss": trackers.Mean(1.0)}, 1)
if rank == "0":
    run.finish(wait=False)
    open("ended", "w").close()
if rank == "1":
    while not os.path.exists("ended"):  # the other ranks of one that fails are ended
        time.sleep(0.01)
    raise ValueError("rank 1 fails")
"""


@pytest.mark.slow
@pytest.mark.processes
def test_ranks_are_apart_and_their_spools_gone(tmp_path: Path) -> None:
    """Each rank's lines have its number, the traceback of one that failed, too."""
    script = tmp_path / "train.py"
    script.write_text(RANKS)
    variables = {**os.environ, "TRACKER_CONSOLE_CAPTURE": "auto", "TRACKER_DIR": str(tmp_path / "runs")}
    forked.run([sys.executable, str(script)], env=variables, ranks=2, cwd=tmp_path)
    directory = tmp_path / "runs/p/ranks"
    wait_for_end(directory)
    found = [(line.rank, line.text) for line in lines_of(RunConsole(RunDirectory(directory)).read())]
    assert [text for rank, text in found if rank == 0 and not text.startswith("trackers:")] == ["rank 0 prints"]
    assert [text for rank, text in found if rank == 1][:1] == ["rank 1 prints"]
    assert (1, "ValueError: rank 1 fails") in found
    assert not list((tmp_path / "runs").rglob("*.times"))


@pytest.mark.parametrize(("console", "wanted"), [("off", "n"), ("redirect", "descriptors"), ("auto", None)])
def test_setting_of_wandb_says_the_same(console: str, wanted: str | None) -> None:
    """``wandb.init(settings=wandb.Settings(console=…))``."""
    found = init_arguments({"settings": {"console": console}})
    assert found.get("TRACKER_CONSOLE_CAPTURE") == wanted


@pytest.mark.slow
@pytest.mark.processes
def test_sync_collects_what_a_killed_run_without_a_relay_printed(tmp_path: Path) -> None:
    """Once, masked, and read when the run is archived, too."""
    script = tmp_path / "train.py"
    secret = 'print("token=hf_abcdefghijklmnopqrstuvwxyzabcdefgh")\n'
    script.write_text(f"{BEGIN}{secret}os.kill(os.getpid(), signal.SIGKILL)")
    variables = {"TRACKER_CONSOLE_CAPTURE": "auto", "TRACKER_RELAY": "n", "TRACKER_DIR": str(tmp_path / "runs")}
    forked.run([sys.executable, str(script)], preload=forked.HELPERS, env={**os.environ, **variables})
    (directory,) = (tmp_path / "runs/p").iterdir()
    cli = CliRunner()
    shown = cli.invoke(app, ["logs", str(directory)]).stdout.splitlines()[-2:]
    assert shown == ["begun", "token=***"]
    assert (directory / "console").exists()
    for _ in range(2):
        done = cli.invoke(app, ["sync", str(directory)])
        assert done.exit_code == 0, done.output
    assert not (directory / "console").exists()
    assert cli.invoke(app, ["logs", str(directory)]).stdout.splitlines()[-2:] == shown
    archived = cli.invoke(app, ["archive", str(directory), "--older-than", "0", "--yes"])
    assert archived.exit_code == 0, archived.output
    assert not (directory / "streams/console-0.1.jsonl").exists()
    assert cli.invoke(app, ["logs", str(directory)]).stdout.splitlines()[-2:] == shown
