"""The scripts for Primus: ``extract_primus_metrics`` and ``run_primus_with_benchmark``.

The first writes a console log's benchmark result to a file and prints a summary. The second runs a training command,
keeps what it prints, and extracts the result. The command takes the wrapper's place: it has its standard input,
terminal and signals, its output goes on as it comes, and its exit code is the wrapper's, 128 and the signal's number
where a signal killed it, as shells say it.
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
from typing import IO, Any

from trackers.benchmark import result
from trackers.benchmark.steps import StepCollector
from trackers.cli.scripts import called, speaker
from trackers.errors import NotFound, TrackersError, UsageError
from trackers.records import Metrics, Record
from trackers.support import atomic_write
from trackers_console_logs.flags import use
from trackers_console_logs.reader import STDIN, LogReader

EXTRACT, RUN = "extract_primus_metrics", "run_primus_with_benchmark"
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


def extract(arguments: Sequence[str]) -> int:
    """Run the program; 0 when the file is written.

    Raises:
        NotFound: no such log, or nothing in it. UsageError: the output can't be written.
    """
    options = _extract_parser().parse_args(arguments)
    named = Path(options.output) if options.output else None
    if named is not None and (named.is_dir() or options.output.endswith("/")):
        named = None
    if named is not None:
        atomic_write.check(named, inputs=[options.log_file], ours=lambda existing, head: True)
    use(options.log_format)
    reader = LogReader()
    runs = reader.runs(options.log_file)
    if len(runs) > 1:
        raise UsageError(f"{options.log_file} names {len(runs)} logs; give one")
    records = reader.read(runs[0])
    steps = StepCollector().gather(_printing(records) if options.verbose else records)
    source = str(options.log_file)
    if not steps.measured:
        raise NotFound(f"{source}: no line says how long an iteration took (`elapsed time per iteration (ms)`)")
    origin = {"file": source, "format": steps.config.get("log.format")}
    if source != STDIN:
        origin |= {"run_id": runs[0].id, "project": runs[0].project}
    document = result.result(steps, source=origin, given={
        "num_gpus": options.num_gpus,
        "global_batch_size": options.global_batch_size,
        "sequence_length": options.sequence_length,
    })  # fmt: skip
    for text in [*([runs[0].note] if runs[0].note else []), *document["contradictions"]]:
        print(f"{EXTRACT}: {text}", file=sys.stderr)
    if named is not None:
        ours = lambda existing, head: result.is_of(existing, document["source"])  # noqa: E731
        atomic_write.check(named, inputs=[source], ours=ours, force=options.force)
        atomic_write.write_text(named, result.text(document))
    try:
        path = named or result.write(document, Path(options.output or RESULTS))
    except OSError as error:
        raise UsageError(f"{options.output or RESULTS} can't be written: {error.strerror or error}") from None
    print(_summary(document))
    print(f"Saved {path}")
    return 0


def _extract_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=called(EXTRACT),
        description="Extract a benchmark's result from the log of Primus, Megatron, TorchTitan or MaxText.",
        epilog=f"Example: {called(EXTRACT)} --log-file training.log --global-batch-size 128",
    )
    add = parser.add_argument
    add("--log-file", required=True, help="the log; may be gzipped; - is standard input")
    add("--output", help="file or directory; default benchmark_results/benchmark_{platform}_{timestamp}.json")
    _add_sizes(parser)
    add("--log-format", action="append", default=[], metavar="FILE",
        help="a format of your own for the log's lines (TOML; docs/console-logs.md)")  # fmt: skip
    add("--force", action="store_true", help="replace the file that --output names, whatever it is")
    add("--verbose", action="store_true", help="print every step, and what was derived")
    return parser


def positive(text: str) -> int:
    """A whole number of at least 1, as an argument of a command line."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} isn't a positive number")
    return value


def _printing(records: Iterator[Record]) -> Iterator[Record]:
    for record in records:
        if isinstance(record, Metrics):
            values = ", ".join(f"{name} {value:g}" for name, value in record.values.items())
            print(f"step {record.step}: {values}", file=sys.stderr)
        yield record


def _summary(document: dict[str, Any]) -> str:
    performance, config, gpu = document["performance_metrics"], document["training_config"], document["gpu_info"]
    memory = document["memory_metrics"]
    reserved = memory["peak_memory_allocated_gb"] is None and memory["peak_memory_reserved_gb"] is not None
    peak = memory["peak_memory_reserved_gb" if reserved else "peak_memory_allocated_gb"]
    rows = [
        ("platform", f"{document['platform']}, {_format_number(gpu['device_count'])} × {gpu['device_name'] or 'GPU'}"),
        ("steps", f"{performance['total_steps']} ({performance['warmup_steps']} warm-up)"),
        ("step time", f"{_format_number(performance['avg_step_time_seconds'])} s"
                      f" (min {_format_number(performance['min_step_time_seconds'])},"
                      f" max {_format_number(performance['max_step_time_seconds'])})"),
        ("tokens/s", _format_number(performance["tokens_per_second"])),
        ("tokens/s/GPU", _format_number(performance["tokens_per_second_per_gpu"] or None)),
        ("batch × length",
         f"{_format_number(config['global_batch_size'])} × {_format_number(config['sequence_length'])}"),
        ("peak memory", f"{_format_number(peak)} GiB ({memory['kind'] or 'not in the log'}"
                        f"{', reserved' if reserved else ''})"),
    ]  # fmt: skip
    return "\n".join(f"{label:<15} {value}" for label, value in rows)


def _format_number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    """Add what a log may not state."""
    add = parser.add_argument
    add("--num-gpus", type=positive, help="total number of GPUs, if the log doesn't state it")
    add("--global-batch-size", type=positive, help="sequences per step, if the log doesn't state it")
    add("--sequence-length", type=positive, help="tokens per sequence, if the log doesn't imply it")


def run(arguments: Sequence[str]) -> int:
    """Run the program; the command's exit code, whatever becomes of the result.

    Raises:
        UsageError: the log can't be written: nothing was run.
    """
    options = _run_parser().parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if command and options.command[0] == command[0] and command[0].startswith("-"):
        raise UsageError(
            f"unknown option {command[0]}: options stand before the command; -- before one with such a name"
        )
    if not command or not command[0]:
        raise UsageError(f"name the command to run: {called(RUN)} bash examples/run_pretrain.sh")
    path, log = _open(Path(options.output_dir))
    with log:
        try:
            code = _pass_on(command, log)
        except OSError as error:
            print(f"{speaker(RUN)}: {command[0]}: {error.strerror}", file=sys.stderr)
            path.unlink()
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    _print_message(f"log saved to {path}")
    flags = [f"--{name.replace('_', '-')}={value}"
             for name in ("num_gpus", "global_batch_size", "sequence_length")
             if (value := getattr(options, name)) is not None]  # fmt: skip
    # The command's exit code is what counts, whatever becomes of the result.
    try:
        extract(["--log-file", str(path), "--output", f"{options.output_dir}/", *flags])
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except TrackersError as error:
        _print_message(f"no result: {error}")
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        _print_message(f"no result: {type(error).__name__}: {error}; {called(EXTRACT)} --log-file {path} tries again")
    return code


def _print_message(text: str) -> None:
    with contextlib.suppress(OSError):
        print(f"{speaker(RUN)}: {text}", file=sys.stderr)


def _open(directory: Path) -> tuple[Path, IO[bytes]]:
    """A new log of this second."""
    stem = f"primus_training_{time.strftime('%Y%m%d_%H%M%S')}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for number in range(1, 1000):
            path = directory / (f"{stem}.log" if number == 1 else f"{stem}_{number}.log")
            with contextlib.suppress(FileExistsError):
                return path, path.open("xb", buffering=0)
        raise FileExistsError(0, "too many logs carry this second's time")
    except OSError as error:
        raise UsageError(f"{directory} can't be written: {error.strerror}") from None


def _pass_on(command: Sequence[str], log: IO[bytes]) -> int:
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
    from trackers.support.descriptors import readable

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
                    print(
                        f"{speaker(RUN)}: {name} takes no more: {error.strerror}; the command goes on", file=sys.stderr
                    )


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


def _run_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=called(RUN),
        allow_abbrev=False,
        description="Run a training command, save its output and extract the benchmark's result.",
        epilog=f"Example: EXP=examples/llama.yaml {called(RUN)} bash examples/run_pretrain.sh",
        usage=f"{called(RUN)} [--output-dir DIR] [--num-gpus N] [--global-batch-size N] [--sequence-length N] "
        "COMMAND …",
    )
    add = parser.add_argument
    add("--output-dir", default=os.environ.get("BENCHMARK_DIR") or RESULTS,
        help=f"where log and result go; default BENCHMARK_DIR, else {RESULTS}")  # fmt: skip
    _add_sizes(parser)
    add("command", nargs=argparse.REMAINDER, help="the command and its arguments, as they are")
    return parser
