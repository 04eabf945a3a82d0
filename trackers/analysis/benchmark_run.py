"""Makes a benchmark result from a run of any source, and names the file that it is written to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trackers.benchmark import file, result
from trackers.benchmark.steps import StepCollector
from trackers.errors import NotFound, UsageError
from trackers.readers.reader import Reader, SourceRun
from trackers.support.atomic_write import check, write_text

RESULTS = Path("benchmark_results")


def document(reader: Reader, run: SourceRun, given: dict[str, int | None] | None = None) -> dict[str, Any]:
    """A run's result.

    Args:
        given: ``num_gpus``, ``global_batch_size``, ``sequence_length``, where the run doesn't say.

    Raises:
        NotFound: the run has no two steps whose time is known.
    """
    steps = StepCollector().gather(reader.read(run))
    if not steps.measured:
        raise NotFound(f"run {run.name!r} ({run.source}) has no two steps whose times are known: nothing to export")
    logged = steps.config.get("log.format")
    source = {"file": run.source, "format": logged or "run", "run_id": run.id, "run_name": run.name,
              "project": run.project}  # fmt: skip
    return result.result(steps, source=source, given=given, word="log" if logged else "run")


def save(found: dict[str, Any], output: Path | None = None, *, inputs: Sequence[str] = (), force: bool = False) -> Path:
    """Write a result; returns its file.

    Args:
        output: a file, or a directory for the documented name; default :data:`RESULTS`. Another run's result of the
            same name isn't overwritten: this one gets a number; of a name that was given only with ``force``.
        inputs: what the result was read from: it is never overwritten.

    Raises:
        UsageError: it can't be written, or something else is there.
    """
    path = output or RESULTS
    if path.suffix == ".json" and not path.is_dir():
        check(path, inputs=inputs, ours=lambda there, head: file.is_of(there, found["source"]), force=force)
        write_text(path, result.text(found))
        return path
    try:
        return file.write(found, path)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror or error}") from None
