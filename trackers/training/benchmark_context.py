"""Environment of a benchmark callback: a Lightning trainer or a manual loop, with a run or without."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trackers.errors import UsageError
from trackers.metrics import groups, roles
from trackers.records import flatten
from trackers.support import launcher
from trackers.support.clock import Clock
from trackers.support.interruption import pass_on

if TYPE_CHECKING:
    from trackers.instruments.profiler import Profiler
    from trackers.instruments.step_series import StepSeries

RESULTS = "benchmark_results"
SAID: Mapping[str, tuple[str, ...]] = {
    "global_batch_size": ("global_batch_size",),
    "micro_batch_size": ("micro_batch_size",),
    "sequence_length": ("seq_length", "sequence_length", "max_seq_length", "block_size"),
}
"""Sizes, and what data modules (NeMo's: the first) call them."""
KNOWN: Mapping[str, tuple[str, ...]] = {
    "global_batch_size": roles.BATCHES,
    "sequence_length": roles.LENGTHS,
    "num_gpus": roles.GPU_COUNTS,
    "max_steps": groups.STEPS,
    "micro_batch_size": ("micro_batch_size", "per_device_train_batch_size"),
}
"""Names of sizes in a run's configuration."""

UNGIVEN = ("max_steps", "micro_batch_size")
"""Sizes that no two sources can contradict each other in: they are part of the configuration."""


class BenchmarkContext:
    """The environment in which a benchmark is measured.

    Args:
        run: the run, or None. log: whether values go to it. say: called with a line that says what went wrong.
    """

    def __init__(self, run: Any, log: bool, say: Callable[[str], None]) -> None:
        self._run = None if run is None or run.disabled else run
        self._log = log
        self._say = say
        self._clock = Clock()
        self._began = self._clock.now()
        self._sizes: dict[str, Any] = {}
        self._directory = Path(RESULTS)

    @property
    def step(self) -> int:
        """Steps that the run had before, where it goes on with an earlier attempt."""
        return int(self._run.step) if self._run is not None and self._run.resumed else 0

    def rank_and_ranks(self, trainer: Any) -> tuple[int, int]:
        """This process's rank, and how many ranks there are."""
        if trainer is not None and hasattr(trainer, "world_size"):
            return int(getattr(trainer, "global_rank", 0)), int(trainer.world_size)
        return launcher.rank(), launcher.world_size()

    def sizes(self, trainer: Any, ranks: int) -> dict[str, int]:
        """What the trainer and its data module say of the sizes of a step."""
        if trainer is None:
            return {}
        sizes: dict[str, int] = {}
        data = getattr(trainer, "datamodule", None)
        for size, names in SAID.items():
            values = [value for name in names if (value := _positive_integer(getattr(data, name, None)))]
            if values:
                sizes[size] = values[0]
        each = _positive_integer(getattr(getattr(trainer, "train_dataloader", None), "batch_size", None))
        if "global_batch_size" not in sizes and each:
            sizes.setdefault("micro_batch_size", each)
            sizes["global_batch_size"] = each * ranks * int(getattr(trainer, "accumulate_grad_batches", 1) or 1)
        for name in ("estimated_stepping_batches", "max_steps"):  # infinite, or -1: open
            if most := _positive_integer(getattr(trainer, name, None)):
                sizes["max_steps"] = most
        return sizes

    def begin(self, sizes: Mapping[str, int], output_dir: Any) -> None:
        """Make the directory of results, and tell the run the sizes that it doesn't know.

        Raises:
            UsageError: the directory can't be made, or an option makes no sense.
        """
        self._sizes = dict(sizes)
        home = str(self._run._info.cwd) if self._run is not None and hasattr(self._run, "_info") else "."
        chosen = output_dir if output_dir is not None else self._option("BENCHMARK_DIR", RESULTS)
        self._directory = Path("." if output_dir is not None else home, Path(str(chosen)).expanduser()).absolute()
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            pass_on(error)
            raise UsageError(f"BenchmarkCallback: {chosen} can't be made ({error.strerror}); name another") from None
        if self._run is not None:
            flat = dict(flatten(self._run.config.as_dict(), "."))
            missing = {name: value for name, value in sizes.items() if roles.setting(flat, KNOWN[name]) is None}
            if missing:
                self._run.config.update(missing)

    def series(self, device: str, start_step: int) -> StepSeries:
        """What measures the steps."""
        from trackers.instruments.step_series import StepSeries

        return StepSeries(device, self._say, self._clock.now, start_step)

    def profiler(self, start_step: int) -> Profiler | None:
        """The run's profiler, or one of one's own; None where TRACKER_PROFILE is off."""
        from trackers.instruments.profiler import Profiler, ProfilerSchedule

        if self._run is not None:
            driven: Profiler | None = self._run._drive_profiler(start_step)
            return driven
        schedule = ProfilerSchedule.from_options(self._option)
        return None if schedule is None else Profiler(schedule, say=self._say, start_step=start_step)

    def log(self, values: Mapping[str, Any], step: int) -> None:
        """Log a step's values to the run."""
        if self._run is not None and self._log:
            self._run.log(values, step)

    def end(
        self, series: StepSeries, ranks: int, platform: str, status: str, more: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Path]:
        """Write the result; returns it and its file.

        Args:
            platform: "" for what this process trains on. more: goes into the result's ``source``.

        Raises:
            OSError: it can't be written.
        """
        from trackers.benchmark import result as file
        from trackers.benchmark.result import result
        from trackers.benchmark.steps import StepCollector
        from trackers.hardware import host
        from trackers.instruments.clock import accelerator
        from trackers.records import Config, Environment, Start

        run = self._run
        settings: dict[str, Any] = {} if run is None else run.config.as_dict()
        machine = {**host.gpus(), **accelerator(), **({"accelerator": platform} if platform else {})}
        about: dict[str, Any] = {name: self._sizes[name] for name in UNGIVEN if name in self._sizes}
        steps = StepCollector().gather(
            [
                Start(time=self._began, rank=0, world_size=ranks),
                Config(time=self._began, values={**about, **settings}),
                Environment(time=self._began, values=machine),
                *series.records(),
            ]
        )
        source: dict[str, Any] = {"file": "", "format": "callback"}
        if run is not None:
            source |= {"file": str(Path(run.path).resolve()), "run_id": run.id, "run_name": run.name,
                       "project": run.project}  # fmt: skip
        document = result(steps, source={**source, "status": status, **more}, given=self._sizes, word="run")
        path = (file.save if run is not None else file.write)(document, self._directory)
        if run is not None:
            run._note_accelerator(ended=True)
            if "benchmark" not in run._info.trackers:  # that tracker has the whole run's, in the same file
                run.log_artifact(path, name=path.stem, type="benchmark")
        return document, path

    def _option(self, symbol: str, default: Any = None) -> Any:
        if self._run is not None and hasattr(self._run, "_info"):
            return self._run._info.option(symbol, default)
        from trackers import configuration

        value = configuration.resolve({}).to_dict().get(symbol)
        return default if value is None or value == "" else value


def _positive_integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
