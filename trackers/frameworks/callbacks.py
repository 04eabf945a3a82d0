"""``BenchmarkCallback``: measures a PyTorch loop's steps and writes a benchmark result, with a run or without.

    trainer = lightning.Trainer(callbacks=[trackers.BenchmarkCallback(global_batch_size=128, sequence_length=8192)])

    benchmark = trackers.BenchmarkCallback()            # by hand, in a loop of one's own
    benchmark.on_train_start()
    for batch in loader:
        ...
        benchmark.on_train_batch_end(loss=loss, learning_rate=rate)
    benchmark.on_train_end()

Lightning asks that a callback be of its own class. This one is, of ``lightning.pytorch``'s and ``pytorch_lightning``'s,
whichever of them is loaded when it is made; neither is imported for it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from trackers.errors import UsageError
from trackers.support.interruption import pass_on

Hook = TypeVar("Hook", bound=Callable[..., Any])
LIGHTNING = ("lightning.pytorch", "pytorch_lightning")
PLATFORMS = ("auto", "cuda", "rocm", "cpu")
SIZES = ("global_batch_size", "micro_batch_size", "sequence_length", "num_gpus", "max_steps")


def _guarded(hook: Hook) -> Hook:
    """A hook that never stops training: what it raises is said once."""

    @functools.wraps(hook)
    def guarded(self: BenchmarkCallback, *arguments: Any, **more: Any) -> None:
        try:
            hook(self, *arguments, **more)
        except Exception as error:
            pass_on(error)
            self._say(f"BenchmarkCallback.{hook.__name__}: {type(error).__name__}: {error}; training goes on")

    return guarded  # type: ignore[return-value]


class BenchmarkCallback:
    """Measures each step and writes ``benchmark_{platform}_{timestamp}.json`` when training ends.

    A step is an optimizer step, from the end of one to the end of the next, data loading included, evaluations and
    checkpoints left out; on CUDA and ROCm by the GPU's own clock. Nothing waits for the GPU but the end of training,
    once. The first step is warm-up. With a run (``trackers.init``) every value is logged to it, too.

    Args:
        output_dir: where the result goes; default BENCHMARK_DIR, else ``benchmark_results``.
        platform: cuda, rocm or cpu; "auto": what this process trains on.
        model_name: recorded as the result's ``model_name``.
        run: the run to log to; default the current one, if any.
        log: False: log nothing to it.
        start_step: steps done before; default what the trainer says, else 0.
        device: "cuda", "cpu" or "auto", as for timers.
        **sizes: ``global_batch_size``, ``sequence_length``, ``micro_batch_size``, ``num_gpus``, ``max_steps``: of all
            GPUs together; default what Lightning's trainer and the data module (NeMo's too) say, or the run's
            configuration.

    Attributes:
        result: the result, once training has ended. path: its file; None on ranks other than the first.

    Raises:
        UsageError: a platform that isn't known, a size that is no positive number.
    """

    result: dict[str, Any] | None = None
    path: Path | None = None
    _plain: type[BenchmarkCallback]

    def __new__(cls, *arguments: Any, **more: Any) -> BenchmarkCallback:
        """An instance that Lightning takes for its own, where Lightning is loaded."""
        return object.__new__(_for_lightning(getattr(cls, "_plain", cls)))

    def __init__(
        self,
        output_dir: str | os.PathLike[str] | None = None,
        *,
        platform: str = "auto",
        model_name: str = "",
        run: Any = None,
        log: bool = True,
        start_step: int | None = None,
        device: str = "auto",
        **sizes: int | None,
    ) -> None:
        if platform not in PLATFORMS:
            raise UsageError(f"BenchmarkCallback: platform {platform!r}: known are {', '.join(PLATFORMS)}")
        if unknown := sorted(sizes.keys() - set(SIZES)):
            raise TypeError(f"BenchmarkCallback: {', '.join(unknown)}: no argument of it; sizes are {', '.join(SIZES)}")
        self._given = {name: size for name in SIZES if (size := sizes.get(name)) is not None}
        for name, value in self._given.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"BenchmarkCallback: {name}={value!r}: give a whole number, 1 or more")
        self._output_dir, self._platform, self._model_name = output_dir, platform, model_name
        self._run, self._log, self._start_step, self._device = run, log, start_step, device
        self._begun = False
        self._series: Any = None
        self._profiler: Any = None
        self._context: Any = None
        self._paused = contextlib.ExitStack()
        self._said: set[str] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        anew = dict.fromkeys(("_series", "_profiler", "_context"))  # what measures belongs to this process
        return _anew, (self._plain,), {**self.__dict__, **anew, "_begun": False, "_paused": contextlib.ExitStack()}

    def on_train_start(self, trainer: Any = None, pl_module: Any = None) -> None:
        """Training begins: the clock runs from here.

        Raises:
            UsageError: the directory of results can't be made, or TRACKER_PROFILE can't be carried out.
        """
        from trackers.training.benchmark_context import BenchmarkContext

        here = self._context = BenchmarkContext(self._wanted_run(), self._log, self._say)
        rank, self._ranks = here.rank_and_ranks(trainer)
        self._begun, self._series, self._profiler = True, None, None
        self.result = self.path = None
        if rank:
            return
        here.begin({**here.sizes(trainer, self._ranks), **self._given}, self._output_dir)
        self._global = int(getattr(trainer, "global_step", 0) or 0)
        self._loss: Any = None
        start = self._start_step
        if start is None:
            start = here.step if trainer is None else self._global
        self._profiler = here.profiler(start)
        self._series = here.series(self._device, start)

    @_guarded
    def on_train_batch_start(
        self, trainer: Any = None, pl_module: Any = None, batch: Any = None, batch_idx: int = 0
    ) -> None:
        """A batch begins: what was left out of the time (a checkpoint) is over. Needn't be called by hand."""
        if not self._begun:
            self.on_train_start(trainer, pl_module)
        self._paused.close()

    @_guarded
    def on_train_batch_end(
        self,
        trainer: Any = None,
        pl_module: Any = None,
        outputs: Any = None,
        batch: Any = None,
        batch_idx: int = 0,
        *,
        loss: Any = None,
        learning_rate: float | None = None,
    ) -> None:
        """A batch has ended; with a trainer that accumulates gradients, a step only with its last batch.

        Args:
            outputs: Lightning's: a loss, or a mapping with one.
            loss, learning_rate: by hand. A loss may be a tensor on a GPU: it isn't waited for.
        """
        if not self._begun:
            self.on_train_start(trainer, pl_module)
        if self._series is None:
            return
        loss = _loss(outputs) if loss is None else loss
        if trainer is not None:
            self._loss = loss if self._loss is None or loss is None else self._loss + loss
            done = int(getattr(trainer, "global_step", 0) or 0)
            if done <= self._global:
                return
            self._global, loss, self._loss = done, self._loss, None
            learning_rate = _rate(trainer) if learning_rate is None else learning_rate
        measured = self._series.step(loss, learning_rate)
        self._context.log(measured, self._series.steps)
        if self._profiler is not None:
            self._profiler.step()

    @_guarded
    def on_validation_start(self, trainer: Any = None, pl_module: Any = None) -> None:
        """An evaluation begins: its time isn't training's."""
        self._pause("evaluation")

    @_guarded
    def on_validation_end(self, trainer: Any = None, pl_module: Any = None) -> None:
        """An evaluation has ended."""
        self._paused.close()

    @_guarded
    def on_save_checkpoint(self, trainer: Any = None, pl_module: Any = None, checkpoint: Any = None) -> None:
        """A checkpoint is written: its time, up to the next batch, isn't training's."""
        self._pause("checkpoint")

    @_guarded
    def on_train_end(self, trainer: Any = None, pl_module: Any = None) -> None:
        """Training has ended: waits for the GPU and writes the result."""
        self._end("finished")

    @_guarded
    def on_exception(self, trainer: Any = None, pl_module: Any = None, exception: BaseException | None = None) -> None:
        """Training has failed: the result holds what was measured until then."""
        self._end("failed")

    def _pause(self, what: str) -> None:
        if self._series is not None:
            self._paused.enter_context(self._series.pause(what))

    def _end(self, status: str) -> None:
        series, self._series, self._begun = self._series, None, False
        if series is None:
            return
        self._paused.close()
        if self._profiler is not None:
            self._profiler.close()
        series.settle()
        more = {"model_name": self._model_name} if self._model_name else {}
        platform = "" if self._platform == "auto" else self._platform
        self.result, self.path = self._context.end(series, self._ranks, platform, status, more)

    def _wanted_run(self) -> Any:
        if self._run is not None:
            return self._run
        from trackers.training.init import current

        return current()

    def _say(self, text: str) -> None:
        from trackers.journal.messages import show_once

        show_once(text, self._said)


def _loss(outputs: Any) -> Any:
    if isinstance(outputs, Mapping):
        return outputs.get("loss")
    return outputs


def _rate(trainer: Any) -> float | None:
    for optimizer in getattr(trainer, "optimizers", None) or ():
        for group in getattr(optimizer, "param_groups", None) or ():
            if "lr" in group:
                return float(group["lr"])
    return None


@functools.lru_cache(maxsize=64)
def _make_class(plain: type[BenchmarkCallback], bases: tuple[type, ...]) -> type[BenchmarkCallback]:
    names = {"_plain": plain, "__doc__": plain.__doc__, "__module__": plain.__module__,
             "__qualname__": plain.__qualname__}  # fmt: skip
    return type(plain.__name__, (plain, *bases), names)


def _for_lightning(plain: type[BenchmarkCallback]) -> type[BenchmarkCallback]:
    """The class, as a subclass of each loaded Lightning's Callback."""
    loaded = [getattr(sys.modules.get(name), "Callback", None) for name in LIGHTNING]
    bases = tuple(base for base in loaded if isinstance(base, type) and not issubclass(plain, base))
    return _make_class(plain, bases)  # type: ignore[arg-type]


def _anew(plain: type[BenchmarkCallback]) -> BenchmarkCallback:
    """An instance to be filled, of a class for what is loaded here: how a pickle is read."""
    return object.__new__(_for_lightning(plain))
