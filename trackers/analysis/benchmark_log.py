"""``extract_primus_metrics``: a console log's benchmark result, written to a file and told in a few lines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trackers.benchmark import file, result
from trackers.benchmark.steps import Steps
from trackers.errors import NotFound, UsageError
from trackers.readers.log import LogReader
from trackers.records import Metrics, Record

NAME = "extract_primus_metrics"
RESULTS = Path("benchmark_results")


def main(arguments: Sequence[str]) -> int:
    """Run the program; 0 when the file is written.

    Raises:
        NotFound: no such log, or nothing in it. UsageError: the output can't be written.
    """
    options = _parser().parse_args(arguments)
    reader = LogReader()
    runs = reader.runs(options.log_file)
    if len(runs) > 1:
        raise UsageError(f"{options.log_file} names {len(runs)} logs; give one")
    records = reader.read(runs[0])
    steps = Steps().gather(_shown(records) if options.verbose else records)
    source = str(options.log_file)
    if not steps.measured:
        raise NotFound(f"{source}: no line says how long an iteration took (`elapsed time per iteration (ms)`)")
    document = result.result(steps, source={"file": source, "format": steps.config.get("log.format")}, given={
        "num_gpus": options.num_gpus,
        "global_batch_size": options.global_batch_size,
        "sequence_length": options.sequence_length,
    })  # fmt: skip
    for text in [*([runs[0].note] if runs[0].note else []), *document["contradictions"]]:
        print(f"{NAME}: {text}", file=sys.stderr)
    path = Path(options.output) if options.output else RESULTS
    try:
        if not options.output or path.is_dir() or str(options.output).endswith("/"):
            path = file.write(document, path)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(result.text(document), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror or error}") from None
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
    add("--num-gpus", type=_positive, help="GPUs in all, where the log doesn't say")
    add("--global-batch-size", type=_positive, help="sequences per step, where the log doesn't say")
    add("--sequence-length", type=_positive, help="tokens per sequence, where the log doesn't prove it")
    add("--verbose", action="store_true", help="print every step, and what was derived")
    return parser


def _positive(text: str) -> int:
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
        ("tokens/s/GPU", _show(performance["tokens_per_second_per_gpu"])),
        ("batch × length", f"{_show(config['global_batch_size'])} × {_show(config['sequence_length'])}"),
        ("peak memory", f"{_show(peak)} GiB ({memory['kind'] or 'not in the log'}{', reserved' if reserved else ''})"),
    ]  # fmt: skip
    return "\n".join(f"{label:<15} {value}" for label, value in rows)


def _show(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
