"""The arguments of ``scripts/monitor_gpu.py``, and what it prints."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import os
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TextIO

from trackers.cli.scripts import called, speaker
from trackers.errors import NotFound, TrackersError, UsageError
from trackers.hardware.monitor import Monitor, Thresholds, read_recording, recording_summary, split_command, watch
from trackers.support.atomic_write import check, never, real, write_text

NAME = "monitor_gpu"
COMMANDS = """Record the same training twice, then compare the recordings:
  CUDA_VISIBLE_DEVICES=0 {program} --output single_gpu.json --monitor-training 'python train.py'
  {program} --output multi_gpu.json --monitor-training 'accelerate launch train.py'
  {program} --compare single_gpu.json multi_gpu.json"""


def parser() -> argparse.ArgumentParser:
    """The script's arguments."""
    argument_parser = argparse.ArgumentParser(
        prog=called(NAME),
        description="Record what the GPUs do: until Ctrl-C, or while a training runs, whose exit code is returned.",
        epilog=f"Example: {called(NAME)} --output run.json --monitor-training 'accelerate launch train.py'",
    )
    argument_parser.add_argument(
        "--interval", type=_seconds, default=2.0, metavar="S", help="seconds between snapshots (2)"
    )
    argument_parser.add_argument(
        "--output", type=Path, metavar="FILE", help="the recording (gpu_monitor_DATE_TIME.json)"
    )
    argument_parser.add_argument("--force", action="store_true", help="replace the recording that --output names")
    argument_parser.add_argument("--snapshot", action="store_true", help="print one snapshot and exit")
    argument_parser.add_argument(
        "--monitor-training", metavar="CMD", help="start this command, without a shell, and record it"
    )
    argument_parser.add_argument(
        "--compare", nargs="*", type=Path, metavar="FILE", help="compare recordings; without any: how to make them"
    )
    argument_parser.add_argument(
        "--scope", choices=("node", "job"), default="node", help="all GPUs, or those visible to CUDA"
    )
    usual = Thresholds()
    for flag, value, unit in (
        ("--min-utilization", usual.utilization, "percent"),
        ("--max-memory", usual.memory, "percent"),
        ("--max-temperature", usual.temperature, "°C"),
    ):
        text = f"warn beyond this, in {unit} ({value:g})"
        argument_parser.add_argument(flag, type=_threshold, default=value, metavar="X", help=text)
    return argument_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say; returns the exit code."""
    options = parser().parse_args(arguments)
    try:
        if options.compare is not None:
            told = "\n\n".join(recording_summary(read_recording(path), path.name) for path in options.compare)
            print(told or COMMANDS.format(program=_program()))
            return 0
        return _monitor(options)
    except TrackersError as error:
        print(f"{speaker(NAME)}: {error}", file=sys.stderr)
        return 1 if isinstance(error, NotFound) else 2
    except OSError as error:
        print(f"{speaker(NAME)}: {error}", file=sys.stderr)
        return 1


def _program() -> str:
    program = called(NAME)
    return program if program.startswith("trackers ") else f"python {program}"


def _monitor(options: argparse.Namespace) -> int:
    if options.monitor_training is not None:
        split_command(options.monitor_training)
    output = options.output
    if output is not None:
        for path in (output, _summary(output)):
            check(path, ours=never, force=options.force)
            if options.force and path.is_file():
                path.unlink()  # what another name of it holds stays
    elif not options.snapshot:
        output = _unused(f"gpu_monitor_{datetime.now():%Y%m%d_%H%M%S}")
    try:
        monitor = Monitor(
            output and real(output),
            options.interval,
            Thresholds(options.min_utilization, options.max_memory, options.max_temperature),
            scope=options.scope,
            show=lambda text: _print(text, sys.stdout),
            say=lambda text: _print(f"WARNING | {text}", sys.stderr),
        )
    except OSError as error:
        raise UsageError(f"{output} can't be written: {error.strerror or error}") from None
    if options.snapshot:
        time.sleep(0.1)  # processor load is measured between two readings
        monitor.take()
        monitor.close()
        return 0 if monitor.complete else 1
    code = watch(monitor, options.monitor_training)
    try:  # the command's exit code is what counts, whatever became of the recording
        text = recording_summary(read_recording(output), output.name)
        _print(text, sys.stdout)
        write_text(_summary(output), text + "\n")
    except TrackersError as error:
        _print(f"{speaker(NAME)}: the summary isn't kept: {error}", sys.stderr)
    return code


def _summary(recorded: Path) -> Path:
    return recorded.with_name(f"{recorded.stem}_summary.txt")


def _unused(stem: str) -> Path:
    """A name that no recording has: several machines may begin one in a directory in the same second."""
    for number in itertools.count(1):
        path = Path(f"{stem}.json" if number == 1 else f"{stem}_{number}.json")
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            return path
    raise AssertionError


def _print(text: str, stream: TextIO) -> None:
    """A line, for as long as anybody reads: the command that is watched, and its exit code, don't depend on it."""
    try:
        print(text, file=stream, flush=True)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # or what it holds is tried again at the end, and makes that a failure
        os.close(nowhere)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.05 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text} isn't between 0.05 and 86400 seconds")
    return value


def _threshold(text: str) -> float:
    value = float(text)
    if math.isnan(value):  # nothing is below or above it: the warning would be off, unasked
        raise argparse.ArgumentTypeError(f"{text} is not a number; 0, 100 or 1000 switches a warning off")
    return value
