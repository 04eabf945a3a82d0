"""``training_log`` as Megatron calls it, once an iteration: Megatron's names in every tracker, its lines as text.

The losses of an interval, added up as they come: a value that is no number costs itself, never its neighbours.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from trackers.errors import UsageError
from trackers.formats import megatron_line as line
from trackers.formats.megatron_line import SAMPLES, VS_SAMPLES
from trackers.formats.megatron_line import report as timer_report
from trackers.frameworks.megatron.config import LoggerConfig
from trackers.frameworks.megatron.straggler import (
    DATA,
    FORWARD_PART,
    MegatronTimers,
    StragglerDetectionConfig,
    StragglerLines,
    StragglerReports,
    StragglerTimer,
)
from trackers.instruments.clock import TrainingClock
from trackers.instruments.energy import ENERGY, POWER, RunEnergy, own_gpu
from trackers.instruments.loop import Loop
from trackers.instruments.memory import PREFIX, MemoryReader
from trackers.instruments.options import check_numbers
from trackers.instruments.plan import LoopPlan
from trackers.instruments.timers import Timers, cuda_in_use
from trackers.metrics import checkpoint_keys
from trackers.reductions import Mean, Reduction
from trackers.support import launcher
from trackers.support.interruption import pass_on
from trackers.training.init import init as begin
from trackers.training.measuring import Measuring
from trackers.values.coerce import Unrecordable, number, whole
from trackers.values.device_copy import Scalar
from trackers.values.device_copy import deferred_number as number_of

SIZES = frozenset(
    {"train_iters", "global_batch_size", "micro_batch_size", "seq_length", "start_iteration", "consumed_samples"}
    | {"flops_per_token", "flops_per_step"}
)
TOLD = frozenset({"micro_batch_size", "flops_per_token", "flops_per_step", "model", "optimizer", "group", "precision"})
"""What of a :class:`trackers.instruments.plan.LoopPlan` is told; all else follows from what Megatron says."""
MOST_WHOLE = 1 << 63
NORMS = ("grad-norm", "params-norm", "num-zeros")


class Done(NamedTuple):
    """What training had gone through at a start. flops: None to count by iterations. counted: else it is a guess."""

    samples: int
    tokens: int | None
    flops: float | None
    counted: bool


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Raise UsageError for an argument of :class:`MegatronLog` that makes no sense."""
    sizes = {name: value for name, value in arguments.items() if name in SIZES}
    for name in ("train_iters", "global_batch_size"):
        if name in arguments and arguments[name] is None:
            raise UsageError(f"megatron: {name}=None: give a number, 0 or more")
    precision = arguments.get("precision")
    if precision is not None and not isinstance(precision, str):
        raise UsageError(f"megatron: precision={precision!r}: give text, such as bf16")
    check_numbers(precision, "megatron", **sizes)
    straggler = arguments.get("straggler")
    if straggler is not None:
        if not isinstance(straggler, StragglerDetectionConfig):
            raise UsageError("megatron: straggler: give a trackers.frameworks.megatron.StragglerDetectionConfig")
        straggler.check()


def _check_told(training: Mapping[str, Any]) -> None:
    if unknown := sorted(training.keys() - TOLD):
        raise TypeError(f"{', '.join(unknown)}: no argument of MegatronLog; of the training it takes {sorted(TOLD)}")


class MegatronLog:
    """Logs a training as Megatron does. Made by ``trackers.frameworks.megatron.start``, on every rank.

    Args:
        run: where values go. config: what is wanted.
        train_iters: where training ends. start_iteration: iterations that were done before this start; default those
            before the iteration that ``training_log`` is first given.
        global_batch_size: samples of an iteration, all ranks together; ``training_log`` may say otherwise for one.
        seq_length: tokens of a sample.
        consumed_samples: gone through before this start; default what the run's checkpoint was recorded by
            (``checkpoint``), else start_iteration × global_batch_size.
        straggler: how slow ranks are reported; default: the options TRACKER_LOG_STRAGGLER and TRACKER_STRAGGLER_COUNT.
        write: called with each line for the console, on the rank that prints: the last one.
        **training: ``model`` (a module or its chunks), ``optimizer``, ``group``, ``precision``, ``micro_batch_size``,
            ``flops_per_token``, ``flops_per_step``: see :class:`trackers.instruments.plan.LoopPlan`.

    Attributes:
        timers: Megatron's: ``timers("forward-backward", log_level=1)``, ``timers.log(names)``, ``timers.write(…)``.
        straggler_timer: traces what tells ranks apart: ``with log.straggler_timer:`` around the forward pass.

    Raises:
        UsageError: an argument that makes no sense. MissingPackage: norms without torch.
    """

    def __init__(
        self, run: Any, config: LoggerConfig, *, train_iters: int, global_batch_size: int,
        seq_length: int | None = None, start_iteration: int | None = None, consumed_samples: int | None = None,
        straggler: StragglerDetectionConfig | None = None, write: Callable[[str], Any] | None = None, **training: Any,
    ) -> None:  # fmt: skip
        config.check()
        _check_told(training)
        check_arguments({
            "train_iters": train_iters, "global_batch_size": global_batch_size, "seq_length": seq_length,
            "start_iteration": start_iteration, "consumed_samples": consumed_samples, "straggler": straggler,
            **training,
        })  # fmt: skip
        straggler = _straggler(run) if straggler is None else straggler
        train_iters, global_batch_size, start = map(int, (train_iters, global_batch_size, start_iteration or 0))
        self.run = run
        self.config = config
        self.ranks = launcher.world_size()
        self.say: Callable[[str], None] = run._recorder.problem if isinstance(run, Measuring) else lambda text: None
        self._iterations = train_iters
        self._batch_size, self._tokens_each = global_batch_size, seq_length
        self._given_start, self._given_samples = start_iteration, consumed_samples
        self._numbered_from: int | None = None  # the number of the first iteration, 1, or 0 where a script counts so
        done = self._done_before(start)
        self._consumed = done.samples
        self._flops_per_token, self._flops_per_step = training.get("flops_per_token"), training.get("flops_per_step")
        self._model = training.get("model")
        together = run.logs_together if isinstance(run, Measuring) else True
        self._say_lacking()
        self._measured: dict[str, Any] = {}
        self._counting = False
        self._obeying: tuple[Any, Any] = (None, None)
        self._save_interval: tuple[Any, ...] = ()
        self._loop = Loop(
            self._at_once,
            self.say,
            config.measure(),
            run.timers,
            LoopPlan(
                total_steps=train_iters,
                start_step=start,
                samples_per_step=global_batch_size,
                tokens_per_step=None if seq_length is None else global_batch_size * seq_length,
                consumed_samples=done.samples,
                consumed_tokens=done.tokens,
                consumed_flops=done.flops,
                ranks=self.ranks,
                together=together,
                **training,
            ),
        )
        run.inspect_if_asked(self._model, start_iteration)
        self._timers = run.timers.interval()
        self._timed = -1  # iterations that they cover; the first one, which compiles, isn't among them
        self._host = TrainingClock("cpu")
        self._hosted = self._host.reading(), 0
        self._begin_reports(straggler, self.ranks if together else 1, write)
        run.define_metric(f"*{VS_SAMPLES}", step_metric=SAMPLES)
        if isinstance(run, Measuring):
            run.close_with(self)

    def _begin_reports(
        self, straggler: StragglerDetectionConfig, together: int, write: Callable[[str], Any] | None
    ) -> None:
        """What tells ranks apart, energy, and what is printed.

        Args:
            together: how many ranks values are of.
        """
        run, config = self.run, self.config
        self._straggler = straggler
        tells = straggler.enabled and self.ranks > 1
        self._traced = Timers(0, say=self.say)
        self.straggler_timer = StragglerTimer(tells, self._traced, launcher.rank(), self.ranks)
        self._traces = self._traced.interval()
        self._gpu = own_gpu(self.say) if config.log_energy or tells else None
        self._energy = RunEnergy(self.say, self._gpu, ranks=together) if config.log_energy else None
        self._losses = Losses(self.say)
        self._skipped = 0
        prints = launcher.rank() == self.ranks - 1
        self._write = (write or _print) if prints else (lambda text: None)
        self._reports = StragglerReports(self.say)
        self.timers = MegatronTimers(
            run.timers, self._traced if tells else None, config.timing_log_option, rank=launcher.rank(),
            ranks=self.ranks, reports=self._reports, log=lambda values, step: run.log(values, step=step),
            write=self._write, say=self.say,
        )  # fmt: skip
        if self.ranks > 1 and prints and self._reports.alone:
            self.say(
                "megatron: torch.distributed isn't initialised: timers and stragglers on the console are this rank's "
                "own: call init_process_group before trackers.frameworks.megatron.start"
            )

    def pause(self, what: str) -> Any:
        """Keep an evaluation or a checkpoint out of what is measured: ``with log.pause("evaluation"):``."""
        stack = contextlib.ExitStack()
        stack.enter_context(self._loop.pause(what))
        stack.enter_context(self._host.pause(what))
        if self._energy is not None:
            self._energy.pause()
            stack.callback(self._energy.resume)
        return stack

    @contextlib.contextmanager
    def checkpoint(self) -> Iterator[None]:
        """Save a checkpoint in the body: kept out of what is measured, and recorded if the body doesn't raise."""
        with self.pause("checkpoint"), self._loop.checkpoint():
            yield

    def obey(self, training: Any, checkpoints: Any = None) -> None:
        """Have requests to stop and to save (``run.should_stop``) carried out in Megatron's own way, on every rank.

        At the iteration that all ranks agree on, ``exit_interval`` becomes 1: Megatron saves its checkpoint, if it has
        a place for it, and leaves its loop. To save alone, ``save_interval`` is 1 for that iteration.

        Args:
            training: what has ``exit_interval``: Megatron-LM's ``get_args()``, Megatron Bridge's ``cfg.train``.
            checkpoints: what has ``save_interval``: Megatron Bridge's ``cfg.checkpoint``; default the same.
        """
        self._obeying = training, training if checkpoints is None else checkpoints

    def _obey(self) -> None:
        if self._save_interval:  # it was for one iteration
            self._obeying[1].save_interval, self._save_interval = self._save_interval[0], ()
        training, checkpoints = self._obeying
        if training is None:
            return
        save, stop = self.run.should_checkpoint, self.run.should_stop
        if stop:
            training.exit_interval = 1
        elif save:
            self._save_interval = (getattr(checkpoints, "save_interval", None),)
            checkpoints.save_interval = 1

    def _at_once(self, values: dict[str, Any], step: int) -> None:
        """What the loop measured: with the iteration's other values, or, between iterations, by itself."""
        if self._counting:
            self._measured.update(values)
        else:
            self.run.log(values, step=step)

    def training_log(
        self,
        loss_dict: Mapping[str, Any],
        total_loss_dict: Any,
        learning_rate: float | None,
        decoupled_learning_rate: float | None,
        iteration: int,
        loss_scale: float | None,
        report_memory_flag: bool,
        skipped_iter: int,
        grad_norm: Any,
        params_norm: Any,
        num_zeros_in_grad: Any,
        *,
        max_attention_logit: Any = None,
        batch_size: int | None = None,
        skipped_samples: int = 0,
    ) -> bool:
        """Log one iteration, on every rank, in Megatron's order of arguments. Waits for nothing and never raises.

        Args:
            loss_dict: this iteration's losses by name: numbers or tensors, also on a GPU.
            total_loss_dict: Megatron's own sums; not needed, and left as they are.
            decoupled_learning_rate: None where there is none. skipped_iter: 1 if the optimizer didn't step.
            grad_norm, params_norm, num_zeros_in_grad, max_attention_logit: None where they weren't computed; what
                ``LoggerConfig`` asks for is measured here then.
            batch_size: of this iteration, where it differs. skipped_samples: left out of training so far.

        Returns:
            Megatron's ``report_memory_flag``: False once memory was reported.
        """
        try:
            self._log_iteration(
                loss_dict, {"learning rate": learning_rate, "decoupled learning rate": decoupled_learning_rate},
                iteration, loss_scale, skipped_iter,
                {"grad-norm": grad_norm, "params-norm": params_norm, "num-zeros": num_zeros_in_grad,
                 "max-attention-logit": max_attention_logit if self.config.log_max_attention_logit else None},
                batch_size, skipped_samples,
            )  # fmt: skip
            if report_memory_flag:
                self._report_memory(iteration)
            self._reports.advance()
            self._obey()
        except Exception as error:
            pass_on(error)
            self.say(f"training_log: {type(error).__name__}: {error}")
        return False

    def _log_iteration(
        self, losses: Any, rates: dict[str, Any], iteration: Any, loss_scale: Any, skipped_iter: Any,
        norms: dict[str, Any], batch_size: Any, skipped_samples: Any,
    ) -> None:  # fmt: skip
        size = self._whole_number("batch_size", batch_size, self._batch_size)
        iteration = self._whole_number("iteration", iteration, self._loop.steps + 1, "; {} is taken")
        self._go_on_at(iteration)
        skipped = self._whole_number("skipped_iter", skipped_iter, 0)
        skipped_samples = self._whole_number("skipped_samples", skipped_samples, 0)
        logged = self._count(losses, skipped, size)
        rates = {name: self._scalar(name, rate) for name, rate in rates.items()}
        scale = self._scalar("loss scale", loss_scale)
        norms = {name: norm for name, value in norms.items() if (norm := self._scalar(name, value)) is not None}
        measured, self._measured = self._measured, {}
        if self.config.skip_train_metrics_log:
            return
        logged_norms = {name: measured.pop(name) for name in NORMS if name in measured} | norms
        if iteration % self.config.tensorboard_log_interval == 0 or iteration == self._iterations:
            both = {name.replace(" ", "-"): rate for name, rate in rates.items() if rate is not None}
            both |= {"batch-size": size, **logged, **self._optional_values(scale), **logged_norms}
            if skipped_samples > 0:
                measured["skipped-train-samples"] = skipped_samples
            measured |= both | {f"{name}{VS_SAMPLES}": value for name, value in both.items()}
            measured[SAMPLES] = self._consumed
        if iteration % self.config.log_interval == 0:
            learning_rates = {line.RATE: rates[line.RATE]}
            if rates[line.DECOUPLED_RATE] is not None:
                learning_rates[line.DECOUPLED_RATE] = rates[line.DECOUPLED_RATE]
            try:
                measured |= self._summarize(iteration, learning_rates, scale, size, skipped_samples, logged_norms)
            except Exception as error:  # the other ranks count on this one's word all the same
                pass_on(error)
                self.say(f"training_log: the line of iteration {iteration}: {type(error).__name__}: {error}")
                self._reports.add(StragglerLines([], lambda: None, dict, lambda rows: None))
        if measured:
            self.run.log(measured, step=iteration)

    def validation_log(self, losses: Mapping[str, Any], iteration: int) -> None:
        """Log an evaluation's losses as ``{key} validation``, and their perplexities. Never raises.

        The console's line has the perplexities whatever ``log_validation_ppl_to_tensorboard`` says, as Megatron's.
        """
        try:
            iteration = self._whole_number("iteration", iteration, self._loop.steps, "; {} is taken")
            if self._numbered_from is None:  # an evaluation before the first iteration of a resumed training
                self._go_on_at(iteration + 1)
            logged = Losses(self.say).add(losses, advanced=False)
            tracked: dict[str, Any] = {}
            for key, loss in logged.items():
                tracked[f"{key} validation"] = loss
                if self.config.log_validation_ppl_to_tensorboard and not isinstance(loss, Reduction):
                    tracked[f"{key} validation ppl"] = _perplexity(Scalar(loss))
            if not tracked:
                return
            tracked |= {f"{name}{VS_SAMPLES}": value for name, value in tracked.items()}
            self.run.log({**tracked, SAMPLES: self._consumed}, step=iteration)
            scalars = {key: Scalar(loss) for key, loss in logged.items() if not isinstance(loss, Reduction)}

            def print_line() -> None:
                values = {f"{key}{line.VALIDATION}": float(loss.value()) for key, loss in scalars.items()}
                self._print([line.validation(iteration, values)])

            self._reports.add(StragglerLines(list(scalars.values()), print_line))
        except Exception as error:
            pass_on(error)
            self.say(f"validation_log: {type(error).__name__}: {error}")

    def close(self) -> None:
        """Log and print what is left; the run itself goes on."""
        self._loop.close()
        self._reports.finish()
        if self._gpu is not None:
            self._gpu.close()

    def _say_lacking(self) -> None:
        """Name what is asked for and can't be done with what there is."""
        config, lines = self.config, list(self.config.remarks())
        if self._model is None and (config.log_params_norm or config.log_l2_norm_grad_to_tensorboard
                                    or config.log_num_zeros_in_grad):  # fmt: skip
            lines.append("norms and zeros that training_log isn't given aren't measured: give start model=")
        counted = self._flops_per_step is not None or (self._flops_per_token is not None and self._tokens_each)
        if (config.log_throughput or config.log_throughput_to_tensorboard) and not counted:
            lines.append(
                "the throughput in TFLOP/s isn't known: give start flops_per_step=, or flops_per_token= and seq_length="
            )
        for text in lines if launcher.rank() == self.ranks - 1 else ():
            self.say(f"megatron: {text}")

    def _scalar(self, name: str, value: Any) -> Any:
        """A value as a number or a tensor of one; None where there is none, or where it is neither, which is said."""
        if value is None:
            return None
        try:
            return scalar(value)
        except Exception as error:
            pass_on(error)
            self.say(f"training_log: {name} is left out, all else is logged: {error}")
            return None

    def _whole_number(self, name: str, value: Any, default: int, instead: str = "; {} is taken") -> int:
        """A value as a whole number of 0 or more, else the default, which is said."""
        if type(value) is int and 0 <= value < MOST_WHOLE:
            return value
        if value is None and name != "iteration":
            return default
        try:
            converted = int(number(value))
            if 0 <= converted < MOST_WHOLE:
                return converted
        except Exception as error:  # no number at all, or NaN: said as any other
            pass_on(error)
        self.say(f"training_log: {name}={_short_repr(value)}: give a whole number, 0 or more{instead.format(default)}")
        return default

    def _done_before(self, start: int) -> Done:
        """What was gone through in the iterations before a start: as the checkpoint says, else by the sizes given."""
        saved = self.run.saved(start) if isinstance(self.run, Measuring) else {}
        samples = saved.get(checkpoint_keys.SAMPLES) if self._given_samples is None else self._given_samples
        counted = samples is not None
        samples = start * self._batch_size if samples is None else samples
        tokens = None if self._tokens_each is None else samples * self._tokens_each
        return Done(samples, saved.get(checkpoint_keys.TOKENS, tokens), saved.get(checkpoint_keys.FLOPS), counted)

    def _go_on_at(self, iteration: int) -> None:
        """Take over where training is, where ``iteration`` isn't the next one: it was resumed, has left iterations out,
        or has gone back to a checkpoint."""
        first = self._numbered_from is None
        self._numbered_from = min(iteration, 1 if self._numbered_from is None else self._numbered_from)
        start = iteration - self._numbered_from
        missing = start - self._loop.steps
        if not missing:
            return
        if missing > 0 and not (first and self._given_start is None):  # left out, as by Megatron's iterations_to_skip
            self._consumed += missing * self._batch_size
            tokens = None if self._tokens_each is None else missing * self._tokens_each * self._batch_size
            self._loop.leave_out(missing, missing * self._batch_size, tokens)
            return
        if not first:
            self._given_samples = None
        done = self._done_before(start)
        self._consumed = done.samples
        self._loop.go_on_at(start, samples=done.samples, tokens=done.tokens, flops=done.flops)
        if start and not done.counted:
            self.say(
                f"megatron: the consumed samples of the {start:,} iterations before this start are taken for "
                f"{start:,} × {self._batch_size:,}: if the batch size was another one, give start consumed_samples="
            )

    def _count(self, losses: Any, skipped: int, size: int) -> dict[str, Any]:
        """Count an iteration; its losses that can be logged."""
        self._consumed += size
        tokens = None if self._tokens_each is None else size * self._tokens_each
        self._counting = True
        self._loop.inspection = self.run.inspection  # it may have been asked for since
        self._loop.step(samples=size, tokens=tokens)
        self._counting = False
        reading = self._host.step()
        self._timed += 1
        if not self._timed:
            self._timers.take()
            self._traces.take()
            if self._energy is not None:
                self._energy.take()
            self._hosted = reading, self._host.steps
        self._skipped += bool(skipped)
        return self._losses.add(losses, advanced=not skipped)

    def _optional_values(self, loss_scale: Any) -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        if self.config.log_loss_scale_to_tensorboard and loss_scale is not None:
            chosen["loss-scale"] = loss_scale
        if self.config.log_world_size_to_tensorboard:
            chosen["world-size"] = self.ranks
        return chosen

    def _summarize(
        self, iteration: int, rates: dict[str, Any], loss_scale: Any, size: int, skipped: int, norms: dict[str, Any]
    ) -> dict[str, Any]:
        """Print the interval's line and reports, once all of it is known; returns what is to be logged of it."""
        config, now, consumed = self.config, time.time(), self._consumed
        # Everything of the interval is taken before anything can fail: the next one begins afresh.
        (sums, nan_count), skips, self._skipped = self._losses.take(), self._skipped, 0
        spans, traces = self._timers.take(), self._traces.take()
        spans, timed = (spans, self._timed) if self._timed > 0 else ({}, 1)
        self._timed = min(self._timed, 0)
        host_s, pace = self._host_step_s(), self._loop.pace()
        energy = self._energy.values(pace.steps, pace.span) if self._energy is not None and pace is not None else {}
        losses = {name: (Scalar(total), count) for name, (total, count) in sums.items()}
        nans, scale = Scalar(nan_count), None if loss_scale is None else Scalar(loss_scale)
        scalars_by_name = {name: Scalar(value) for name, value in norms.items()}
        shown_rates = {name: None if rate is None else Scalar(rate) for name, rate in rates.items()}
        step_s = Scalar(pace.step_s) if pace is not None else None
        means = {name: value.parts if isinstance(value, Mean) else (value, 1) for name, value in energy.items()}
        own = {name: Scalar(value) for name, (value, weight) in means.items() if weight}  # 0: its GPU can't tell
        flops = self._flops_per_step
        if flops is None and self._flops_per_token is not None and self._tokens_each is not None:
            flops = self._flops_per_token * size * self._tokens_each

        def print_line(used: Mapping[str, float | None]) -> None:
            seconds = float(step_s.value()) if step_s is not None else None
            tflops = None if flops is None or not seconds else flops / seconds / self.ranks / 1e12
            self._print([line.summary(
                time=now, iteration=iteration, iterations=self._iterations, consumed_samples=consumed,
                skipped_samples=skipped, batch_size=size,
                rates={name: _value(rate) for name, rate in shown_rates.items()}, loss_scale=_value(scale),
                elapsed_ms=None if seconds is None else 1000 * seconds,
                tflops=tflops if config.log_throughput else None,
                energy_j=used.get(ENERGY), power_w=used.get(POWER),
                losses={name: float(total.value()) / count for name, (total, count) in losses.items()},
                grad_norm=_value(scalars_by_name.get("grad-norm")), zeros=_count(scalars_by_name.get("num-zeros")),
                params_norm=_value(scalars_by_name.get("params-norm")),
                max_attention_logit=_value(scalars_by_name.get("max-attention-logit")),
                skipped=skips, nans=int(nans.value()),
            )])  # fmt: skip

        def own_row() -> dict[str, Any]:
            seconds = float(step_s.value()) if step_s is not None else None
            times = {name: 1000 * span.elapsed_s / timed for name, span in spans.items()}
            row: dict[str, Any] = {"iteration": iteration, "timers": times}
            if own:
                row["energy"] = {name: float(value.value()) for name, value in own.items()}
            if self._straggler.enabled and self.ranks > 1:
                row["straggler"] = self._own(host_s, seconds, flops)
                row["traced"] = {name: 1000 * span.elapsed_s / timed for name, span in traces.items()}
            return row

        def print_all(of_ranks: Sequence[Any]) -> None:
            # A rank that had a fault may have left an interval out: what it tells is another one's then.
            rows = [row if row and row.get("iteration") == iteration else None for row in of_ranks]
            if joint:
                print_line(_means([row.get("energy") for row in rows if row]))
            names = dict.fromkeys(name for row in rows if row for name in row["timers"])
            times = {name: [row["timers"].get(name) if row else None for row in rows] for name in names}
            text = timer_report(times, config.timing_log_option)
            self._print([*([text] if text else []), *self._stragglers(rows, flops)])

        joint = self._energy is not None and not self._reports.alone
        scalars = [*(total for total, _ in losses.values()), nans, *scalars_by_name.values(), *own.values()]
        scalars += [known for known in (scale, step_s, *shown_rates.values()) if known is not None]
        mine = {} if joint else own  # one rank's isn't the mean of all
        self._reports.add(
            StragglerLines(
                [*scalars, *spans.values(), *traces.values()],
                lambda: print_line({name: float(value.value()) for name, value in mine.items()}),
                own_row, print_all, joint,
            )
        )  # fmt: skip
        return energy

    def _stragglers(self, rows: Sequence[Any], flops: float | None) -> list[str]:
        """The report of stragglers, where several ranks have told of themselves."""
        if len(rows) < 2 or not any(row and "straggler" in row for row in rows):
            return []
        times, forward = line.traced([{**row["timers"], **row.get("traced", {})} if row else None for row in rows])
        stragglers = [dict(row.get("straggler", {})) if row else None for row in rows]
        if not any(times) and any(row and "rtt_ms" in row for row in stragglers):
            self.say(
                "megatron: the report of stragglers compares whole iterations, which take equally long on ranks that "
                "wait for each other: put the forward pass into `with log.straggler_timer:`"
            )
        part = FORWARD_PART if forward else 1.0
        for row, known, ms in zip(rows, stragglers, times, strict=True):
            if known is None:
                continue
            data = {**row["timers"], **row.get("traced", {})}.get(DATA)
            if data is not None:
                known["drtt_ms"] = data
            if ms:
                known["rtt_ms"] = ms
                if flops is not None:
                    known["tflops"] = flops / (ms / 1000) / self.ranks / 1e12 / part
        return line.stragglers(stragglers, self._straggler.straggler_minmax_count)

    def _host_step_s(self) -> float | None:
        """The mean time of an iteration since the last call, by this host's clock."""
        reading, steps = self._host.reading(), self._host.steps
        (first, before), self._hosted = self._hosted, (reading, steps)
        return self._host.span(first, reading).elapsed_s / (steps - before) if steps > before else None

    def _own(self, host_s: float | None, seconds: float | None, flops: float | None) -> dict[str, float]:
        """What this rank tells of itself for the report of stragglers."""
        readings = self._gpu.read() if self._gpu is not None else []
        reading = readings[0] if readings else None
        measured = {
            "rtt_ms": None if host_s is None else 1000 * host_s,
            "power_w": reading.power_w if reading else None,
            "temp_c": reading.temp_c if reading else None,
            "util_pct": 100 * reading.compute_frac if reading and reading.compute_frac is not None else None,
            "clock_mhz": reading.sm_clock_hz / 1e6 if reading and reading.sm_clock_hz is not None else None,
            "drtt_ms": 1000 * seconds if seconds and cuda_in_use() is not None else None,
            "tflops": flops / seconds / self.ranks / 1e12 if seconds and flops is not None else None,
        }
        return {name: float(value) for name, value in measured.items() if value is not None}

    def _report_memory(self, iteration: int) -> None:
        values = MemoryReader(self.config.memory_keys, self.say).values()
        figures = [f"{name.removeprefix(PREFIX)}: {value}" for name, value in values.items()]
        head = f"[Rank {launcher.rank()}] (after {iteration} iterations) memory (GB)"
        self._print([line.SEPARATOR.join([head, *figures])])

    def _print(self, lines: Sequence[str]) -> None:
        for text in lines:
            self._write(text)


def _straggler(run: Any) -> StragglerDetectionConfig:
    """As the run's options say."""
    info = getattr(getattr(run, "_recorder", None), "info", None)
    if info is None:
        return StragglerDetectionConfig()
    return StragglerDetectionConfig(
        log_straggler=bool(info.option("TRACKER_LOG_STRAGGLER", True)),
        straggler_minmax_count=int(info.option("TRACKER_STRAGGLER_COUNT", line.STRAGGLER_ENDS)),
    )


def _perplexity(loss: Scalar) -> Any:
    return number_of([loss], lambda: math.exp(min(float(loss.value()), line.PPL_MOST)))


def _means(of_ranks: Sequence[Mapping[str, float] | None]) -> dict[str, float]:
    """The mean of each value over the ranks that know it."""
    known = [row for row in of_ranks if row]
    names = dict.fromkeys(name for row in known for name in row)
    values = {name: [row[name] for row in known if name in row] for name in names}
    return {name: math.fsum(series) / len(series) for name, series in values.items()}


def _short_repr(value: Any) -> str:
    try:
        text = " ".join(repr(value).split())
    except Exception as error:  # of the value's own, or a number of too many digits
        pass_on(error)
        text = type(value).__name__
    return text if len(text) <= 60 else f"{text[:60]}…"


def _value(scalar: Scalar | None) -> float | None:
    return None if scalar is None else float(scalar.value())


def _count(scalar: Scalar | None) -> float | None:
    """A count for the line; None where it is NaN, for a rank couldn't count."""
    count = _value(scalar)
    return count if count is None or math.isfinite(count) else None


def _print(text: str) -> None:
    print(text, flush=True)


def scalar(value: Any) -> Any:
    """A number, or a tensor of one number without its graph and dimensions: it may be on a GPU.

    Raises:
        Unrecordable: neither.
    """
    if not hasattr(value, "detach"):
        plain = number(value)
        try:
            float(plain)
        except OverflowError:
            raise Unrecordable("a number beyond all that a float holds") from None
        return plain
    plain = whole(value).detach()
    if plain.numel() != 1:
        raise Unrecordable(f"an array of shape {tuple(plain.shape)} is not a scalar: give its mean or its sum")
    if plain.is_complex():
        raise Unrecordable("a complex number")
    if getattr(plain, "is_meta", False):
        raise Unrecordable("a tensor without data (meta)")
    return plain.reshape(())


class Losses:
    """Sums of the losses since they were last taken.

    Args:
        say: called with a line for a loss that is left out.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._sums: dict[str, Any] = {}
        self._counts: dict[str, int] = {}
        self._nans: Any = 0

    def add(self, losses: Any, advanced: bool) -> dict[str, Any]:
        """Add an iteration's losses by name, where it advanced; what of them can be logged."""
        logged: dict[str, Any] = {}
        if not isinstance(losses, Mapping):
            if losses is not None:
                self._say(f"training_log: losses of type {type(losses).__name__} aren't logged: give a mapping")
            return logged
        bad: Any = False
        for key, value in losses.items():
            name = str(key)
            if value is None:
                continue
            try:
                if isinstance(value, Reduction):  # of all ranks: the trackers have it, no line of this rank's does
                    logged[name] = value
                    continue
                loss = scalar(value)
                finite, wrong = _float(loss), _is_bad(loss)
                if advanced:
                    self._sums[name] = self._sums[name] + finite if name in self._sums else finite
                    self._counts[name] = self._counts.get(name, 0) + 1
                bad = bad | wrong
                logged[name] = loss
            except Exception as error:
                pass_on(error)
                self._say(f"training_log: loss {name!r} is left out, all else is logged: {_why(error)}")
        try:
            self._nans = self._nans + bad
        except Exception as error:
            pass_on(error)
            self._say(f"training_log: iterations with NaN aren't counted: {_why(error)}")
        return logged

    def take(self) -> tuple[dict[str, tuple[Any, int]], Any]:
        """Each loss's sum and how many iterations it is of; how many iterations had one that is no finite number."""
        totals = {name: (total, self._counts[name]) for name, total in self._sums.items()}
        nans, self._nans = self._nans, 0
        self._sums, self._counts = {}, {}
        return totals, nans


def _float(value: Any) -> Any:
    return value.float() if hasattr(value, "detach") else float(value)


def _is_bad(loss: Any) -> Any:
    """Whether a loss is no finite number; of a tensor a tensor, so that nobody waits."""
    if hasattr(loss, "detach"):
        return ~sys.modules["torch"].isfinite(loss.float())
    return not math.isfinite(float(loss))


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, Unrecordable) else f"{type(error).__name__}: {error}"


def start(
    config: LoggerConfig,
    *,
    trackers: Sequence[str] | str | None = None,
    run_config: Any = None,
    init: Mapping[str, Any] | None = None,
    save: str | os.PathLike[str] | None = None,
    **arguments: Any,
) -> MegatronLog:
    """Begin a run as Megatron's ``LoggerConfig`` says; call it on every rank.

    Args:
        trackers: besides those that the configuration asks for; without any the usual choice counts (TRACKER, json).
        run_config: the whole configuration of the training. init: what else ``trackers.init`` is to be given.
        save: where checkpoints are saved: with ``log_progress``, progress.txt is kept there.
        **arguments: those of :class:`MegatronLog`.

    Raises:
        UsageError: whatever can be seen before the first step, before a run is begun. TypeError: an argument that is
            unknown, or one that is missing.
    """
    if not isinstance(config, LoggerConfig):
        raise UsageError(f"config of type {type(config).__name__}: give a trackers.frameworks.megatron.LoggerConfig")
    config.check()
    bound = inspect.signature(MegatronLog.__init__).bind(None, None, config, **arguments)
    _check_told(bound.arguments.get("training", {}))
    check_arguments(arguments)
    if launcher.rank() == 0:
        config.prepare()
    names = [*config.trackers(), *(trackers.split(",") if isinstance(trackers, str) else trackers or ())]
    chosen = list(dict.fromkeys(name.strip() for name in names if name.strip()))
    more = dict(init or {})
    flags = {symbol for symbol, value in (more.get("flags") or {}).items() if value is not None}
    logging = {symbol: value for symbol, value in config.logging_options().items() if symbol not in flags}
    options = {**config.options(), **logging, **more.pop("options", {})}
    if save is not None:
        options.setdefault("PROGRESS_DIR", os.fspath(save))
    run = begin(chosen or None, config=run_config, options=options, **more)
    try:
        log = MegatronLog(run, config, **arguments)
    except BaseException:
        run.finish(exit_code=1)
        raise
    if launcher.rank() == 0:
        try:
            config.save(dict(run.config))
        except OSError as error:
            pass_on(error)
            log.say(f"megatron: the configuration can't be written: {error}")
    return log
