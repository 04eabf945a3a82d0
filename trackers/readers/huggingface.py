"""Hugging Face's ``trainer_state.json``, which ``Trainer`` writes into each checkpoint.

``log_history`` becomes metrics under their own names, at their steps; the file has no times, so they have the
file's. What the trainer keeps beside it is configuration (``max_steps``, ``train_batch_size``, …) or results
(``best_metric``, ``total_flos``, …).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trackers.errors import NotFound
from trackers.formats import text_file
from trackers.readers import helpers
from trackers.readers.boundary import bounded
from trackers.readers.reader import Reader, SourceRun
from trackers.records import Config, Finish, Metrics, Record, Summary, Text

FILE = "trainer_state.json"
RESULTS = ("best_metric", "best_model_checkpoint", "best_global_step", "epoch", "global_step", "total_flos",
           "num_input_tokens_seen")  # fmt: skip
"""transformers/trainer_callback.py TrainerState: what is known at the end."""

ENDS = "train_runtime"
"""The last row of a training that came to its end has it (``Trainer.train``)."""


@bounded
class HuggingFaceReader(Reader):
    """Reads the state that a Trainer saved."""

    scheme = "hf"

    def runs(self, where: str) -> list[SourceRun]:
        """See :class:`trackers.readers.reader.Reader`. A directory stands for its own, or its longest checkpoint's."""
        paths = helpers.find_paths(self.scheme, where, _newest)
        return helpers.newest_first(paths, _source_run)

    def version(self, run: SourceRun) -> str:
        """See :class:`trackers.readers.reader.Reader`."""
        return helpers.version([Path(run.source.partition(":")[2])])

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """See :class:`trackers.readers.reader.Reader`."""
        path = Path(run.source.partition(":")[2])
        state = read_state(path)
        time = path.stat().st_mtime
        history = state["log_history"]
        settings = {
            name: value
            for name, value in state.items()
            if name not in (*RESULTS, "log_history") and not isinstance(value, (dict, list, type(None)))
        }
        if settings:
            yield Config(time=time, values=settings)
        for row in history:
            step = row.get("step")
            values = {name: value for name, value in row.items() if name != "step" and helpers.is_number(value)}
            texts = {name: value for name, value in row.items() if isinstance(value, str)}
            if values:
                yield Metrics(step=step, time=time, values=values)
            if texts:
                yield Text(step=step, time=time, values=texts)
        results = {name: state[name] for name in RESULTS if state.get(name) is not None}
        if results:
            yield Summary(time=time, values=results)
        if any(ENDS in row for row in history):
            yield Finish(time=time, status="finished")


def read_state(path: Path) -> dict[str, Any]:
    """The file, checked.

    Raises:
        NotFound: it has gone, or isn't a trainer's state.
    """
    try:
        state = json.loads(text_file.read_text(path))
    except FileNotFoundError:
        raise helpers.gone_error("hf", path) from None
    except ValueError as error:
        raise NotFound(f"hf: {path} isn't whole JSON: {error}") from None
    rows = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise NotFound(f"hf: {path} has no log_history: name the {FILE} that a Trainer saved")
    return dict(state)


def _newest(directory: Path) -> list[Path]:
    if (directory / FILE).exists():
        return [directory / FILE]
    paths = list(directory.glob(f"checkpoint-*/{FILE}"))
    return sorted(paths, key=lambda path: (_number(path.parent), path.stat().st_mtime))[-1:]


def _number(checkpoint: Path) -> int:
    """The steps of a checkpoint, by its name: a copy's times say nothing."""
    digits = checkpoint.name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() and len(digits) < 19 else -1


def _source_run(path: Path) -> SourceRun:
    folder = path.parent
    name = folder.parent.name if folder.name.startswith("checkpoint-") else folder.name
    return SourceRun(source=f"hf:{path}", id=helpers.identity(path), name=name, created=path.stat().st_mtime)
