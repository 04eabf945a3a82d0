"""``run_primus_with_benchmark``: runs a training command, keeps what it prints, and extracts the benchmark's result.

The command stands in the wrapper's place: it has its standard input, terminal and signals, its output goes on as it
comes, and its exit code is the wrapper's, 128 and the signal's number where a signal killed it, as shells say it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

from trackers.analysis import benchmark_log
from trackers.errors import TrackersError, UsageError

NAME = "run_primus_with_benchmark"
RESULTS = "benchmark_results"
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""As shells say it."""
KILLED = 128
CHUNK_BYTES = 65536
GRACE_S = 5.0
"""Maximum wait for output of processes that the command left behind, in seconds."""
FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
"""What is passed on: schedulers and containers send it to the first process alone. A terminal's SIGINT and SIGQUIT
reach the command by themselves."""
KEPT = ("SIGINT", "SIGQUIT")


def main(arguments: Sequence[str]) -> int:
    """Run the program; the command's exit code, whatever becomes of the result.

    Raises:
        UsageError: the log can't be written: nothing was run.
    """
    options = _parser().parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if command and options.command[0] == command[0] and command[0].startswith("-"):
        raise UsageError(
            f"unknown option {command[0]}: options stand before the command; -- before one with such a name"
        )
    if not command or not command[0]:
        raise UsageError(f"name the command to run: {NAME}.sh bash examples/run_pretrain.sh")
    path, log = _open(Path(options.output_dir))
    with log:
        try:
            code = _run(command, log)
        except OSError as error:
            print(f"{NAME}: {command[0]}: {error.strerror}", file=sys.stderr)
            path.unlink()
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    _say(f"log saved to {path}")
    given = [f"--{name.replace('_', '-')}={value}"
             for name in ("num_gpus", "global_batch_size", "sequence_length")
             if (value := getattr(options, name)) is not None]  # fmt: skip
    # The command's exit code is what counts, whatever becomes of the result.
    try:
        benchmark_log.main(["--log-file", str(path), "--output", f"{options.output_dir}/", *given])
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except TrackersError as error:
        _say(f"no result: {error}")
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        _say(f"no result: {type(error).__name__}: {error}; extract_primus_metrics.py --log-file {path} tries again")
    return code


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(f"{NAME}: {text}", file=sys.stderr)


def _open(directory: Path) -> tuple[Path, IO[bytes]]:
    """A new log of this second."""
    stem = f"primus_training_{time.strftime('%Y%m%d_%H%M%S')}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for number in range(1, 1000):
            path = directory / (f"{stem}.log" if number == 1 else f"{stem}_{number}.log")
            with contextlib.suppress(FileExistsError):
                return path, path.open("xb", buffering=0)
        raise FileExistsError(0, "too many logs of this second")
    except OSError as error:
        raise UsageError(f"{directory} can't be written: {error.strerror}") from None


def _run(command: Sequence[str], log: IO[bytes]) -> int:
    with _signals() as process:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0)
        process.append(child)
        assert child.stdout is not None
        with child.stdout:
            _copy(child, child.stdout, log)
        code = child.wait()
    return KILLED - code if code < 0 else code


def _copy(child: subprocess.Popen[bytes], output: IO[bytes], log: IO[bytes]) -> None:
    """Pass the output on and into the log, until its end; the loss of one of the two doesn't hold up the other."""
    from trackers.support.process_watch import readable

    targets = {"standard output": sys.stdout.fileno(), "the log": log.fileno()}
    ended = 0.0
    while True:
        if not readable(output.fileno(), 0.2):
            if child.poll() is not None:
                ended = ended or time.monotonic()
                if time.monotonic() - ended > GRACE_S:
                    return
            continue
        chunk = os.read(output.fileno(), CHUNK_BYTES)
        if not chunk:
            return
        for name, target in list(targets.items()):
            try:
                _write(target, chunk)
            except OSError as error:  # nobody reads any more, or the disk is full
                del targets[name]
                with contextlib.suppress(OSError):
                    print(f"{NAME}: {name} takes no more: {error.strerror}; the command goes on", file=sys.stderr)


def _write(target: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(target, view) :]


@contextlib.contextmanager
def _signals() -> Iterator[list[subprocess.Popen[bytes]]]:
    """While the command runs, signals are for it. Give the process to the list."""
    running: list[subprocess.Popen[bytes]] = []

    def forward(number: int, frame: FrameType | None) -> None:
        for child in running:
            with contextlib.suppress(OSError):
                child.send_signal(number)

    def keep(number: int, frame: FrameType | None) -> None:
        """A handler of its own, not SIG_IGN: that the command would inherit."""

    handlers = [*((name, forward) for name in FORWARDED), *((name, keep) for name in KEPT)]
    known = [(getattr(signal, name), handler) for name, handler in handlers if hasattr(signal, name)]
    before = [(number, signal.signal(number, handler)) for number, handler in known]
    try:
        yield running
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{NAME}.sh",
        allow_abbrev=False,
        description="Run a training command, save its output and extract the benchmark's result.",
        epilog=f"Example: EXP=examples/llama.yaml {NAME}.sh bash examples/run_pretrain.sh",
        usage=f"{NAME}.sh [--output-dir DIR] [--num-gpus N] [--global-batch-size N] [--sequence-length N] COMMAND …",
    )
    add = parser.add_argument
    add("--output-dir", default=os.environ.get("BENCHMARK_DIR") or RESULTS,
        help=f"where log and result go; default BENCHMARK_DIR, else {RESULTS}")  # fmt: skip
    add("--num-gpus", type=benchmark_log.positive, help="total number of GPUs, if the log doesn't state it")
    add("--global-batch-size", type=benchmark_log.positive, help="sequences per step, if the log doesn't state it")
    add("--sequence-length", type=benchmark_log.positive, help="tokens per sequence, if the log doesn't imply it")
    add("command", nargs=argparse.REMAINDER, help="the command and its arguments, as they are")
    return parser
