"""``training_log`` as Megatron calls it, once an iteration: document 4's names in every tracker, its lines on paper."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trackers import identity
from trackers.formats import training_line as line
from trackers.formats.timer_report import report as timer_report
from trackers.formats.training_line import SAMPLES, VS_SAMPLES
from trackers.instruments.attach import Measuring
from trackers.instruments.clock import TrainingClock
from trackers.instruments.energy import ENERGY, POWER, Energy, own_gpu
from trackers.instruments.later import Later, Scalar
from trackers.instruments.loop import Loop
from trackers.instruments.memory import PREFIX, Memory
from trackers.instruments.timers import NullTimer, Timer, cuda_in_use
from trackers.megatron.config import LoggerConfig
from trackers.megatron.report import Report, Reports
from trackers.naming import checkpoint
from trackers.reductions import Mean

PPL_MOST = 20.0
"""Losses above it have this one's perplexity, so that an untrained model's is a number one can plot."""


class MegatronLog:
    """Logs a training as document 4 says. Made by ``trackers.megatron.start``, on every rank.

    Args:
        run: where values go. config: what is wanted.
        train_iters: where training ends. start_iteration: iterations that were done before this start.
        global_batch_size: samples of an iteration, all ranks together; ``training_log`` may say otherwise for one.
        micro_batch_size: samples that go through a rank at once. seq_length: tokens of a sample.
        consumed_samples: gone through before this start; default what the run's checkpoint was recorded by, else
            start_iteration × global_batch_size.
        flops_per_token, flops_per_step: see :mod:`trackers.instruments.flops`.
        model: a module or its chunks. optimizer, group, precision: as for ``run.loop``.
        write: called with each line for the console, on the rank that prints: the last one.
    """

    def __init__(
        self,
        run: Any,
        config: LoggerConfig,
        *,
        train_iters: int,
        global_batch_size: int,
        micro_batch_size: int | None = None,
        seq_length: int | None = None,
        start_iteration: int = 0,
        consumed_samples: int | None = None,
        flops_per_token: float | None = None,
        flops_per_step: float | None = None,
        model: Any = None,
        optimizer: Any = None,
        group: Any = None,
        precision: str | None = None,
        write: Callable[[str], Any] | None = None,
    ) -> None:
        config.check()
        self.run = run
        self.config = config
        self.ranks = identity.world_size()
        self._say: Callable[[str], None] = getattr(getattr(run, "_recorder", None), "problem", lambda text: None)
        self._iterations = train_iters
        self._batch_size, self._tokens_each = global_batch_size, seq_length
        before = run.saved(start_iteration) if isinstance(run, Measuring) else {}
        if consumed_samples is None:
            consumed_samples = before.get(checkpoint.SAMPLES)
        done = start_iteration * global_batch_size if consumed_samples is None else consumed_samples
        self._consumed = done
        self._flops_per_token, self._flops_per_step = flops_per_token, flops_per_step
        together = run.logs_together if isinstance(run, Measuring) else True
        self._measured: dict[str, Any] = {}
        self._counting = False
        self._loop = Loop(
            self._at_once,
            self._say,
            config.measure(),
            run.timers,
            total_steps=train_iters,
            start_step=start_iteration,
            samples_per_step=global_batch_size,
            tokens_per_step=None if seq_length is None else global_batch_size * seq_length,
            consumed_samples=done,
            consumed_tokens=before.get(checkpoint.TOKENS, None if seq_length is None else done * seq_length),
            consumed_flops=before.get(checkpoint.FLOPS),
            micro_batch_size=micro_batch_size,
            ranks=self.ranks,
            together=together,
            flops_per_token=flops_per_token,
            flops_per_step=flops_per_step,
            model=model,
            optimizer=optimizer,
            group=group,
            precision=precision,
        )
        run.inspect_if_asked(model, start_iteration)
        self._timers = run.timers.interval()
        self._timed = -1  # iterations that they cover; the first one, which compiles, isn't among them
        self._host = TrainingClock("cpu")
        self._hosted = self._host.reading(), 0
        self._gpu = own_gpu(self._say) if config.log_energy or self.ranks > 1 else None
        together_ranks = self.ranks if together else 1
        self._energy = Energy(self._say, self._gpu, ranks=together_ranks) if config.log_energy else None
        self._losses: dict[str, Any] = {}
        self._counts = {"advanced": 0, "skipped": 0}
        self._nans: Any = 0
        prints = identity.rank() == self.ranks - 1
        self._write = (write or _print) if prints else (lambda text: None)
        self._reports = Reports(self._say)
        if self.ranks > 1 and prints and self._reports.alone:
            self._say(
                "megatron: torch.distributed isn't initialised: timers and stragglers on the console are this rank's "
                "own: call init_process_group before trackers.megatron.start"
            )
        run.define_metric(f"*{VS_SAMPLES}", step_metric=SAMPLES)
        if isinstance(run, Measuring):
            run.close_with(self)

    def timers(self, name: str, log_level: int | None = None) -> Timer | NullTimer:
        """Megatron's ``timers("forward-backward", log_level=1)``; without a level it is a frequent one's, 2."""
        found: Timer | NullTimer = self.run.timers.get(name, 2 if log_level is None else log_level)
        return found

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
            size = self._batch_size if batch_size is None else batch_size
            self._count(loss_dict, skipped_iter, size)
            given = {"grad-norm": grad_norm, "params-norm": params_norm, "num-zeros": num_zeros_in_grad}
            norms = {name: value for name, value in given.items() if value is not None}
            if max_attention_logit is not None and self.config.log_max_attention_logit:
                norms["max-attention-logit"] = max_attention_logit
            measured, self._measured = self._measured, {}
            found = {name: measured.pop(name) for name in given if name in measured} | norms
            if iteration % self.config.tensorboard_log_interval == 0 or iteration == self._iterations:
                both = {"learning-rate": learning_rate, "decoupled-learning-rate": decoupled_learning_rate}
                both = {name: rate for name, rate in both.items() if rate is not None}
                both |= {"batch-size": size, **loss_dict, **self._chosen(loss_scale), **found}
                if skipped_samples > 0:
                    measured["skipped-train-samples"] = skipped_samples
                measured |= both | {f"{name}{VS_SAMPLES}": value for name, value in both.items()}
                measured[SAMPLES] = self._consumed
            if iteration % self.config.log_interval == 0:
                rates = {line.RATE: learning_rate}
                if decoupled_learning_rate is not None:
                    rates[line.DECOUPLED_RATE] = decoupled_learning_rate
                measured |= self._summarize(iteration, rates, loss_scale, size, skipped_samples, found)
            if measured:
                self.run.log(measured, step=iteration)
            if report_memory_flag:
                self._report_memory(iteration)
            self._reports.advance()
        except Exception as error:
            self._say(f"training_log: {type(error).__name__}: {error}")
        return False

    def validation_log(self, losses: Mapping[str, Any], iteration: int) -> None:
        """Log an evaluation's losses as ``{key} validation``, and their perplexities. Never raises."""
        try:
            found: dict[str, Any] = {}
            for key, loss in losses.items():
                found[f"{key} validation"] = loss
                if self.config.log_validation_ppl_to_tensorboard:
                    found[f"{key} validation ppl"] = _perplexity(Scalar(loss))
            found |= {f"{name}{VS_SAMPLES}": value for name, value in found.items()}
            self.run.log({**found, SAMPLES: self._consumed}, step=iteration)
            scalars = {key: Scalar(loss) for key, loss in losses.items()}

            def print_line() -> None:
                told = {f"{key}{line.VALIDATION}": float(loss.value()) for key, loss in scalars.items()}
                self._print([line.validation(iteration, told)])

            self._reports.add(Report(list(scalars.values()), print_line))
        except Exception as error:
            self._say(f"validation_log: {type(error).__name__}: {error}")

    def close(self) -> None:
        """Log and print what is left; the run itself goes on."""
        self._loop.close()
        self._reports.finish()
        if self._gpu is not None:
            self._gpu.close()

    def _count(self, losses: Mapping[str, Any], skipped: int, size: int) -> None:
        self._consumed += size
        tokens = None if self._tokens_each is None else size * self._tokens_each
        self._counting = True
        self._loop.inspection = self.run.inspection  # it may have been asked for since
        self._loop.step(samples=size, tokens=tokens)
        self._counting = False
        mark = self._host.step()
        self._timed += 1
        if not self._timed:
            self._timers.take()
            if self._energy is not None:
                self._energy.take()
            self._hosted = mark, self._host.steps
        self._counts["skipped" if skipped else "advanced"] += 1
        bad: Any = False
        for name, loss in losses.items():
            bad = bad | _is_bad(loss)
            if not skipped:
                self._losses[name] = self._losses.get(name, 0.0) + _detached(loss)
        self._nans = self._nans + bad

    def _chosen(self, loss_scale: float | None) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.config.log_loss_scale_to_tensorboard and loss_scale is not None:
            found["loss-scale"] = loss_scale
        if self.config.log_world_size_to_tensorboard:
            found["world-size"] = self.ranks
        return found

    def _summarize(
        self, iteration: int, rates: dict[str, float | None], scale: float | None, size: int, skipped: int,
        norms: dict[str, Any],
    ) -> dict[str, Any]:  # fmt: skip
        """Print the interval's line and reports, once all of it is known; returns what is to be logged of it."""
        config, now, consumed = self.config, time.time(), self._consumed
        counts, self._counts = self._counts, {"advanced": 0, "skipped": 0}
        losses = {name: Scalar(total) for name, total in self._losses.items()}
        nans, self._losses, self._nans = Scalar(self._nans), {}, 0
        shown = {name: Scalar(value) for name, value in norms.items()}
        pace = self._loop.pace()
        span_s = pace.step_s if pace is not None else None
        step_s = Scalar(span_s) if span_s is not None else None
        energy = self._energy.values(pace.steps, pace.span) if self._energy is not None and pace is not None else {}
        means = {name: value.parts if isinstance(value, Mean) else (value, 1) for name, value in energy.items()}
        own = {name: Scalar(value) for name, (value, weight) in means.items() if weight}  # 0: its GPU can't tell
        flops = self._flops_per_step
        if flops is None and self._flops_per_token is not None and self._tokens_each is not None:
            flops = self._flops_per_token * size * self._tokens_each
        spans, timed = (self._timers.take(), self._timed) if self._timed > 0 else ({}, 1)
        self._timed = min(self._timed, 0)
        host_s = self._host_step_s()

        def print_line() -> None:
            seconds = float(step_s.value()) if step_s is not None else None
            tflops = None if flops is None or not seconds else flops / seconds / self.ranks / 1e12
            self._print([line.summary(
                time=now, iteration=iteration, iterations=self._iterations, consumed_samples=consumed,
                skipped_samples=skipped, batch_size=size, rates=rates, loss_scale=scale,
                elapsed_ms=None if seconds is None else 1000 * seconds,
                tflops=tflops if config.log_throughput else None,
                energy_j=_value(own.get(ENERGY)), power_w=_value(own.get(POWER)),
                losses={name: float(total.value()) / max(1, counts["advanced"]) for name, total in losses.items()},
                grad_norm=_value(shown.get("grad-norm")), zeros=_count(shown.get("num-zeros")),
                params_norm=_value(shown.get("params-norm")),
                max_attention_logit=_value(shown.get("max-attention-logit")),
                skipped=counts["skipped"], nans=int(nans.value()),
            )])  # fmt: skip

        def told() -> dict[str, Any]:
            seconds = float(step_s.value()) if step_s is not None else None
            times = {name: 1000 * span.elapsed_s / timed for name, span in spans.items()}
            return {"iteration": iteration, "timers": times, "straggler": self._own(host_s, seconds, flops)}

        def print_reports(told: Sequence[Any]) -> None:
            # A rank that had a fault may have left an interval out: what it tells is another one's then.
            rows = [row if row and row["iteration"] == iteration else None for row in told]
            names = dict.fromkeys(name for row in rows if row for name in row["timers"])
            times = {name: [row["timers"].get(name) if row else None for row in rows] for name in names}
            text = timer_report(times, config.timing_log_option)
            stragglers = line.stragglers([row["straggler"] if row else None for row in rows]) if len(rows) > 1 else []
            self._print([*([text] if text else []), *stragglers])

        scalars = [*losses.values(), nans, *shown.values(), *own.values(), *([step_s] if step_s is not None else [])]
        self._reports.add(Report([*scalars, *spans.values()], print_line, told, print_reports))
        return energy

    def _host_step_s(self) -> float | None:
        """The mean time of an iteration since the last call, by this host's clock."""
        mark, steps = self._host.reading(), self._host.steps
        (first, before), self._hosted = self._hosted, (mark, steps)
        return self._host.span(first, mark).elapsed_s / (steps - before) if steps > before else None

    def _own(self, host_s: float | None, seconds: float | None, flops: float | None) -> dict[str, float]:
        """What this rank tells of itself for the report of stragglers."""
        readings = self._gpu.read() if self._gpu is not None else []
        one = readings[0] if readings else None
        told = {
            "rtt_ms": None if host_s is None else 1000 * host_s,
            "power_w": one.power_w if one else None,
            "temp_c": one.temp_c if one else None,
            "util_pct": 100 * one.compute_frac if one and one.compute_frac is not None else None,
            "clock_mhz": one.sm_clock_hz / 1e6 if one and one.sm_clock_hz is not None else None,
            "drtt_ms": 1000 * seconds if seconds and cuda_in_use() is not None else None,
            "tflops": flops / seconds / self.ranks / 1e12 if seconds and flops is not None else None,
        }
        return {name: float(value) for name, value in told.items() if value is not None}

    def _report_memory(self, iteration: int) -> None:
        told = [
            f"{name.removeprefix(PREFIX)}: {value}" for name, value in Memory(self.config.memory_keys).values().items()
        ]
        head = f"[Rank {identity.rank()}] (after {iteration} iterations) memory (GB)"
        self._print([line.SEPARATOR.join([head, *told])])

    def _print(self, lines: Sequence[str]) -> None:
        for text in lines:
            self._write(text)


def _perplexity(loss: Scalar) -> Any:
    later = Later([loss], lambda: math.exp(min(PPL_MOST, float(loss.value()))))
    return later.value() if later.ready() else later


def _value(scalar: Scalar | None) -> float | None:
    return None if scalar is None else float(scalar.value())


def _count(scalar: Scalar | None) -> float | None:
    """A count for the line; None where it is NaN, for a rank couldn't count."""
    found = _value(scalar)
    return found if found is None or math.isfinite(found) else None


def _detached(loss: Any) -> Any:
    return loss.detach().float() if hasattr(loss, "detach") else float(loss)


def _is_bad(loss: Any) -> Any:
    """Whether a loss is no finite number; of a tensor a tensor, so that nobody waits."""
    if hasattr(loss, "detach"):
        return ~sys.modules["torch"].isfinite(loss.detach().float()).all()
    return not math.isfinite(float(loss))


def _print(text: str) -> None:
    print(text, flush=True)
