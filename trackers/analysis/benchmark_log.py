"""``extract_primus_metrics``: a console log's benchmark result, written to a file and told in a few lines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trackers.benchmark import result
from trackers.benchmark.steps import StepCollector
from trackers.errors import NotFound, UsageError
from trackers.readers.console_log.reader import STDIN, LogReader
from trackers.records import Metrics, Record
from trackers.support import atomic_write

NAME = "extract_primus_metrics"
RESULTS = Path("benchmark_results")


def main(arguments: Sequence[str]) -> int:
    """Run the program; 0 when the file is written.

    Raises:
        NotFound: no such log, or nothing in it. UsageError: the output can't be written.
    """
    options = _parser().parse_args(arguments)
    named = Path(options.output) if options.output else None
    if named is not None and (named.is_dir() or options.output.endswith("/")):
        named = None
    if named is not None:
        atomic_write.check(named, inputs=[options.log_file], ours=lambda there, head: True)
    reader = LogReader()
    runs = reader.runs(options.log_file)
    if len(runs) > 1:
        raise UsageError(f"{options.log_file} names {len(runs)} logs; give one")
    records = reader.read(runs[0])
    steps = StepCollector().gather(_shown(records) if options.verbose else records)
    source = str(options.log_file)
    if not steps.measured:
        raise NotFound(f"{source}: no line says how long an iteration took (`elapsed time per iteration (ms)`)")
    told = {"file": source, "format": steps.config.get("log.format")}
    if source != STDIN:
        told |= {"run_id": runs[0].id, "project": runs[0].project}
    document = result.result(steps, source=told, given={
        "num_gpus": options.num_gpus,
        "global_batch_size": options.global_batch_size,
        "sequence_length": options.sequence_length,
    })  # fmt: skip
    for text in [*([runs[0].note] if runs[0].note else []), *document["contradictions"]]:
        print(f"{NAME}: {text}", file=sys.stderr)
    if named is not None:
        atomic_write.check(named, inputs=[source], ours=lambda there, head: result.is_of(there, document["source"]),
                     force=options.force)  # fmt: skip
        atomic_write.write_text(named, result.text(document))
    try:
        path = named or result.write(document, Path(options.output or RESULTS))
    except OSError as error:
        raise UsageError(f"{options.output or RESULTS} can't be written: {error.strerror or error}") from None
    print(_summary(document))
    print(f"Saved {path}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=NAME,
        description="Extract a benchmark's result from the log of Primus, Megatron, TorchTitan or MaxText.",
        epilog=f"Example: {NAME}.py --log-file training.log --global-batch-size 128",
    )
    add = parser.add_argument
    add("--log-file", required=True, help="the log; may be gzipped; - is standard input")
    add("--output", help="file or directory; default benchmark_results/benchmark_{platform}_{timestamp}.json")
    add("--num-gpus", type=positive, help="total number of GPUs, if the log doesn't state it")
    add("--global-batch-size", type=positive, help="sequences per step, if the log doesn't state it")
    add("--sequence-length", type=positive, help="tokens per sequence, if the log doesn't imply it")
    add("--force", action="store_true", help="replace the file that --output names, whatever it is")
    add("--verbose", action="store_true", help="print every step, and what was derived")
    return parser


def positive(text: str) -> int:
    """A whole number of at least 1, as an argument of a command line."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} isn't a positive number")
    return value


def _shown(records: Iterator[Record]) -> Iterator[Record]:
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
        ("platform", f"{document['platform']}, {_show(gpu['device_count'])} × {gpu['device_name'] or 'GPU'}"),
        ("steps", f"{performance['total_steps']} ({performance['warmup_steps']} warm-up)"),
        ("step time", f"{_show(performance['avg_step_time_seconds'])} s"
                      f" (min {_show(performance['min_step_time_seconds'])},"
                      f" max {_show(performance['max_step_time_seconds'])})"),
        ("tokens/s", _show(performance["tokens_per_second"])),
        ("tokens/s/GPU", _show(performance["tokens_per_second_per_gpu"] or None)),
        ("batch × length", f"{_show(config['global_batch_size'])} × {_show(config['sequence_length'])}"),
        ("peak memory", f"{_show(peak)} GiB ({memory['kind'] or 'not in the log'}{', reserved' if reserved else ''})"),
    ]  # fmt: skip
    return "\n".join(f"{label:<15} {value}" for label, value in rows)


def _show(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
