"""Logs of trainings that are made up, as each program prints them, and what each of their rows says."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

Dice = random.Random
Value = float
BEGAN = 1_772_359_200.0  # 2026-03-01 10:00:00 UTC


@dataclass
class Written:
    """One row: its lines, its step, its values under the names that they have here, and its stamp if it has one.

    trains: of training; else of an evaluation.
    """

    lines: list[str]
    step: int
    values: dict[str, Value]
    time: float | None = None
    trains: bool = True


Fields = dict[str, str]
"""What a row says, as the program writes it, by its name here."""


@dataclass
class Evaluation:
    """How a program writes evaluations: as :class:`Layout`. resumed: there may be one before the first row of training
    behind a checkpoint.
    """

    row: Callable[[int, int, str, Fields], list[str]]
    shapes: dict[str, str]
    fixed: Callable[[int, int], dict[str, Value]] = lambda step, total: {}
    resumed: bool = True


@dataclass
class Layout:
    """How a program writes rows.

    Args:
        row: the lines of a step, of so many in all, with a stamp and the values' texts by name.
        shapes: how each value is written; "r": as Python does, "0.2f": never as NaN. maybe: what a log may lack.
        fixed: values that follow from the step. scale: factor from what is written to what is read.
        resumed: the line that says that training goes on behind a step; "" where the program has none.
        stamp: how it is written; "" where the program writes none.
        evaluation: how evaluations are written; None where their values are on training's lines. ahead: an evaluation
        before the first row behind a checkpoint has that row's step, not the one before.
        epoch: of a step, and heading: the line that it begins with, where the program writes one.
    """

    row: Callable[[int, int, str, Fields], list[str]]
    shapes: dict[str, str]
    maybe: Sequence[str] = ()
    fixed: Callable[[int, int], dict[str, Value]] = lambda step, total: {}
    scale: dict[str, float] = field(default_factory=dict)
    resumed: str = ""
    stamp: str = ""
    total: int = 900
    evaluation: Evaluation | None = None
    ahead: bool = False
    epoch: Callable[[int], int] = lambda step: 0
    heading: str = ""

    def evaluated(self, step: int, time: float, dice: Dice) -> Written:
        """An evaluation at a step, with values by chance."""
        assert self.evaluation is not None
        texts = {name: _text(shape, dice) for name, shape in self.evaluation.shapes.items()}
        lines = self.evaluation.row(step, self.total, _stamp(time, self.stamp), texts)
        values = {name: float(text.replace(",", "")) for name, text in texts.items()}
        return Written(lines, step, {**values, **self.evaluation.fixed(step, self.total)}, trains=False)

    def written(self, step: int, time: float, dice: Dice, lacks: Sequence[str] = ()) -> Written:
        """A row of a step, with values by chance."""
        texts, values = {}, {}
        for name, shape in self.shapes.items():
            if name in lacks:
                continue
            text = _text(shape, dice)
            texts[name] = text
            value = float(text.replace(",", ""))
            values[name] = value * self.scale.get(name, 1.0)
        shown = _stamp(time, self.stamp)
        lines = self.row(step, self.total, shown, texts)
        return Written(lines, step, {**values, **self.fixed(step, self.total)}, time if self.stamp else None)


def _text(shape: str, dice: Dice) -> str:
    if shape in ("d", ",d"):
        return format(dice.choice((0, 1, dice.randrange(10**6), dice.randrange(10**9))), shape)
    if shape == "r":
        return repr(dice.choice((dice.random(), dice.uniform(-5, 5), math.ldexp(dice.random(), -40), 0.0)))
    if dice.random() < 0.03 and shape[-1] in "fE" and shape[0] != "0":
        return "nan"
    return format(dice.choice((dice.uniform(0, 1), dice.uniform(0, 20), dice.uniform(10, 3000), 0.0)), shape)


def _stamp(time: float, shape: str) -> str:
    """A stamp, in UTC: ``s`` to seconds, ``ms`` with a comma, ``slash`` as MMEngine has it, ``plain`` as Primus."""
    if not shape:
        return ""
    at = datetime.fromtimestamp(time, timezone.utc)
    shapes = {"s": "%Y-%m-%d %H:%M:%S", "ms": "%Y-%m-%d %H:%M:%S,000",
              "slash": "%Y/%m/%d %H:%M:%S", "plain": "%Y%m%d %H:%M:%S"}  # fmt: skip
    return at.strftime(shapes[shape])


def _pairs(names: dict[str, str], texts: Fields, between: str) -> str:
    return between.join(names[name].format(texts[name]) for name in names if name in texts)


_MEGATRON = {
    "consumed_samples": "consumed samples: {:>12}", "perf/iter_ms": "elapsed time per iteration (ms): {}",
    "perf/tflops_per_gpu": "throughput per GPU (TFLOP/s/GPU): {}", "learning_rate": "learning rate: {}",
    "global_batch_size": "global batch size: {:>5}", "train_loss": "lm loss: {}",
    "load_balancing_loss": "load_balancing_loss: {}", "loss_scale": "loss scale: {}", "grad_norm": "grad norm: {}",
    "num_zeros": "num zeros: {}", "skipped_iterations": "number of skipped iterations: {:>3}",
    "nan_iterations": "number of nan iterations: {:>3}",
}  # fmt: skip
_MEGATRON_SHAPES = {
    "consumed_samples": "d", "perf/iter_ms": ".1f", "perf/tflops_per_gpu": ".1f", "learning_rate": ".6E",
    "global_batch_size": "d", "train_loss": ".6E", "load_balancing_loss": ".6E", "loss_scale": ".1f",
    "grad_norm": ".3f", "num_zeros": ".1f", "skipped_iterations": "d", "nan_iterations": "d",
}  # fmt: skip
_MEGATRON_MAYBE = ("global_batch_size", "load_balancing_loss", "num_zeros", "perf/tflops_per_gpu", "grad_norm")
_LOADED = "  successfully loaded checkpoint from /ckpt [ t 1/1, p 1/1 ] at iteration {}"


def _megatron(head: str, names: dict[str, str] = _MEGATRON, end: str = " |") -> Callable[..., list[str]]:
    def row(step: int, total: int, stamp: str, texts: Fields) -> list[str]:
        return [f"{head.format(stamp)} iteration {step:8d}/{total:8d} | {_pairs(names, texts, ' | ')}{end}"]

    return row


def _primus(step: int, total: int, stamp: str, texts: Fields) -> list[str]:
    two = {name: f"{texts[name]}/{texts[name + '_avg']}" for name in ("perf/iter_ms", "perf/tokens_per_sec_per_gpu")}
    names = {**_MEGATRON, "perf/tokens_per_sec_per_gpu": "tokens per GPU (tokens/s/GPU): {}"}
    return [f"[{stamp}][rank-7/8][INFO ] [--trainer.py:2488] :  iteration {step:8d}/{total:8d} | "
            f"{_pairs(names, {**texts, **two}, ' | ')} |"]  # fmt: skip


def _bridge(step: int, total: int, stamp: str, texts: Fields) -> list[str]:
    first = f"Step Time : {texts['Step Time (s)']}s GPU utilization: {texts['perf/tflops_per_gpu']}MODEL_TFLOP/s/GPU"
    names = {name: text for name, text in _MEGATRON.items() if name != "perf/tflops_per_gpu"}
    return [first, *_megatron(" [{}]", names)(step, total, stamp, texts)]


def _neox(step: int, total: int, stamp: str, texts: Fields) -> list[str]:
    names = {"perf/iter_ms": "elapsed time per iteration (ms): {}", "learning_rate": "learning rate: {}",
             "perf/tflops_per_gpu": "approx flops per GPU: {}TFLOPS", "train_loss": "lm_loss: {}",
             "nan_iterations": "number of nan iterations: {:>3}"}  # fmt: skip
    return [f" samples/sec: {texts['perf/samples_per_sec']} | iteration {step:8d}/{total:8d} | "
            f"{_pairs(names, texts, ' | ')} |"]  # fmt: skip


_NEMO = {"learning_rate": "lr: {}", "global_batch_size": "global_batch_size: {}",
         "train_loss": "reduced_train_loss: {}",
         "perf/iter_time_sec": "train_step_timing in s: {}", "consumed_samples": "consumed_samples: {}"}  # fmt: skip


def _nemo(step: int, total: int, stamp: str, texts: Fields) -> list[str]:
    return [
        f"Training epoch {step // 10}, iteration {step % 10}/9 | global_step: {step} | {_pairs(_NEMO, texts, ' | ')}"
    ]


_AUTOMODEL = {"train_loss": "loss {}", "grad_norm": "grad_norm {}", "learning_rate": "lr {}",
              "memory/max_allocated_gib": "mem {} GiB", "num_label_tokens": "num_label_tokens {}"}  # fmt: skip


def _automodel(step: int, total: int, stamp: str, texts: Fields) -> list[str]:
    speed = f"tps {texts['perf/tokens_per_sec']}({texts['perf/tokens_per_sec_per_gpu']}/gpu)"
    first, last = dict(_AUTOMODEL), {"num_label_tokens": _AUTOMODEL["num_label_tokens"]}
    del first["num_label_tokens"]
    return [f"{stamp} | INFO | root | step {step} | epoch {step // 50} | {_pairs(first, texts, ' | ')} | {speed} | "
            f"{_pairs(last, texts, ' | ')}"]  # fmt: skip


_TITAN = {"train_loss": "loss: {:>8}", "grad_norm": "grad_norm: {:>8}"}


def _titan(step: int, total: int, stamp: str, texts: Fields) -> list[str]:
    memory = f"{texts['gpu/max_reserved_memory_gib']}GiB({texts['gpu/max_reserved_memory_percent']}%)"
    rest = _pairs({"perf/tflops_per_gpu": "tflops: {}", "perf/mfu_percent": "mfu: {}%"}, texts, "  ")
    return [f"[rank0]:[titan] {stamp} - root - INFO - step: {step:2,}  {_pairs(_TITAN, texts, '  ')}  memory: {memory}"
            f"  tps: {texts['perf/tokens_per_sec_per_gpu']}  {rest}"]  # fmt: skip


_MAXTEXT = {"perf/iter_time_sec": "seconds: {}", "perf/tflops_per_gpu": "TFLOP/s/device: {}",
            "perf/tokens_per_sec_per_gpu": "Tokens/s/device: {}", "total_weights": "total_weights: {}",
            "train_loss": "loss: {}", "train_perplexity": "perplexity: {}"}  # fmt: skip
_NANOGPT = {"train_loss": "loss {}", "perf/iter_ms": "time {}ms", "perf/mfu_percent": "mfu {}%"}
_NANOCHAT = {"train_loss": "loss: {}", "grad_norm": "grad norm: {}", "lrm": "lrm: {}", "perf/iter_time_sec": "dt: {}ms",
             "perf/tokens_per_sec": "tok/sec: {}", "perf/mfu_percent": "bf16_mfu: {}", "epoch": "epoch: {}",
             "total_time_s": "total time: {}m"}  # fmt: skip
_MODDED = {"train_loss": "train_loss:{}", "val_loss": "val_loss:{}", "train_time_ms": "train_time:{}ms",
           "step_avg_ms": "step_avg:{}ms"}  # fmt: skip
_OLMO = {"train_loss": "train/CE loss={}", "train_perplexity": "train/PPL={}", "grad_norm": "optim/total grad norm={}",
         "perf/tokens_per_sec_per_gpu": "throughput/device/TPS={}"}  # fmt: skip
_DEEPSPEED = {"perf/samples_per_sec_avg": "RunningAvgSamplesPerSec={}", "perf/samples_per_sec": "CurrSamplesPerSec={}",
              "memory/allocated_gib": "MemAllocated={}GB",
              "memory/max_allocated_gib": "MaxMemAllocated={}GB"}  # fmt: skip
_VERL = {"actor/pg_loss": "actor/pg_loss:{}", "actor/lr": "actor/lr:{}", "critic/score/mean": "critic/score/mean:{}",
         "critic/score/max": "critic/score/max:np.float64({})", "timing_s/step": "timing_s/step:{}"}  # fmt: skip
_PRIME = {"train_loss": "Loss {}", "entropy": "Entropy {}", "grad_norm": "Grad. Norm {}", "learning_rate": "LR {}",
          "perf/tokens_per_sec": "Throughput {} tokens/s", "perf/mfu_percent": "MFU {}%",
          "gpu/max_reserved_memory_gib": "Peak Mem. {} GiB"}  # fmt: skip
_MMENGINE = {"learning_rate": "lr: {}", "perf/iter_time_sec": "time: {}", "data_time": "data_time: {}",
             "memory/max_allocated_mib": "memory: {}", "grad_norm": "grad_norm: {}",
             "train_loss": "loss: {}"}  # fmt: skip
_FAIRSEQ = {"train_loss": "loss={}", "train_perplexity": "ppl={}", "perf/tokens_per_sec": "wps={}",
            "learning_rate": "lr={}", "grad_norm": "gnorm={}", "wall": "wall={}",
            "num_updates": "num_updates={}"}  # fmt: skip
_TRAINER_EVALUATION = {"eval_loss": "'eval_loss': {}", "eval_runtime": "'eval_runtime': {}"}
_TRAINER = {"loss": "'loss': {}", "grad_norm": "'grad_norm': {}", "learning_rate": "'learning_rate': {}",
            "rewards/chosen": "'rewards/chosen': {}"}  # fmt: skip
_ACCELERATE = {"perf/steps_per_sec": "Average steps/s: {}", "perf/tokens_per_sec_per_gpu": "Average tokens/s: {}"}
_DETECTED = {"memory/reserved_gib": "{}G", "train/box_loss": "{}", "train/cls_loss": "{}", "Instances": "{}",
             "Size": "{}"}  # fmt: skip


def _timm(step: int, total: int, stamp: str, texts: Fields) -> list[str]:
    def both(name: str) -> str:
        return f"{texts[name]} ({texts[name + '_avg']})"

    return [f"Train: {step // 100} [{step % 100:>4d}/100 ({step % 100:>3.0f}%)]  Loss: {both('train_loss')}  Time: "
            f"{texts['perf/iter_time_sec']}s, {texts['perf/samples_per_sec']}/s  ({texts['perf/iter_time_sec_avg']}s, "
            f"{texts['perf/samples_per_sec_avg']}/s)  LR: {texts['learning_rate']}  "
            f"Data: {both('data_time_s')}"]  # fmt: skip


_EVALUATED = {"val_loss": ".6E", "val_perplexity": ".6E"}
_MEGATRON_EVALUATION = Evaluation(
    lambda step, total, stamp, texts: [f" validation loss at iteration {step} | lm loss value: {texts['val_loss']} | "
                                       f"lm loss PPL: {texts['val_perplexity']} | "], _EVALUATED)  # fmt: skip
_PRIMUS_EVALUATION = Evaluation(
    lambda step, total, stamp, texts: [f"[{stamp}][rank-7/8][INFO ] [--trainer.py:2488] :  validation loss at "
                                       f"iteration {step} on validation set | lm loss value: {texts['val_loss']} | "
                                       f"lm loss PPL: {texts['val_perplexity']} |"], _EVALUATED)  # fmt: skip
_NEOX_EVALUATION = Evaluation(
    lambda step, total, stamp, texts: [f" validation results at iteration {step} | lm_loss value: {texts['val_loss']} "
                                       f"| lm_loss_ppl value: {texts['val_perplexity']} | "], _EVALUATED)  # fmt: skip


def _keras(step: int, total: int, stamp: str, texts: Fields) -> list[str]:
    return [f"{(step - 1) % 50 + 1}/50 ━━━━━━━━━━━━━━━━━━━━ 2s {texts['perf/iter_time_sec']}ms/step - "
            f"{_pairs(_KERAS, texts, ' - ')}"]  # fmt: skip


_KERAS = {"accuracy": "accuracy: {}", "train_loss": "loss: {}", "val_accuracy": "val_accuracy: {}",
          "val_loss": "val_loss: {}", "learning_rate": "learning_rate: {}"}  # fmt: skip


def _keras_2(step: int, total: int, stamp: str, texts: Fields) -> list[str]:
    return [f"{(step - 1) % 50 + 1}/50 [=====>....] - 2s {texts['perf/iter_time_sec']}ms/step - "
            f"{_pairs(_KERAS, texts, ' - ')}"]  # fmt: skip


def _keras_plain(step: int, total: int, stamp: str, texts: Fields) -> list[str]:
    return [f"{(step - 1) % 50 + 1}/50 - 2s - {texts['perf/iter_time_sec']}ms/step - {_pairs(_KERAS, texts, ' - ')}"]


def _keras_layout(row: Callable[[int, int, str, Fields], list[str]]) -> Layout:
    return Layout(
        row, {"perf/iter_time_sec": "d", "accuracy": ".4f", "train_loss": ".4f", "val_accuracy": ".4f",
              "val_loss": ".4f", "learning_rate": ".4e"},
        ("val_accuracy", "val_loss", "learning_rate", "accuracy"), lambda step, total: {"epoch": (step - 1) // 50 + 1},
        {"perf/iter_time_sec": 1e-3}, epoch=lambda step: (step - 1) // 50 + 1, heading="Epoch {}/18")  # fmt: skip


def _trainer(bars: str, epochs: int = 1, decimals: int = 17) -> Layout:
    """Hugging Face's Trainer.

    Args:
        bars: where progress bars stand beside rows: "before", "behind", "both". decimals: of the epochs.
    """

    def epoch(step: int, total: int) -> float:
        return round(step * epochs / total, decimals)

    def beside(step: int, total: int, line: str) -> list[str]:
        bar = [f" {step}%|#  | {step}/{total} [00:10<00:30,  1.00it/s]"]
        return [*(bar if bars != "behind" else []), line, *(bar if bars != "before" else [])]

    def row(step: int, total: int, stamp: str, texts: Fields) -> list[str]:
        return beside(step, total, f"{{{_pairs(_TRAINER, texts, ', ')}, 'epoch': {epoch(step, total)}}}")

    def evaluated(step: int, total: int, stamp: str, texts: Fields) -> list[str]:
        line = f"{{{_pairs(_TRAINER_EVALUATION, texts, ', ')}, 'epoch': {epoch(step, total)}}}"
        return beside(step, total, line) if bars != "before" else [line]

    def fixed(step: int, total: int) -> dict[str, Value]:
        return {"epoch": epoch(step, total)}

    return Layout(
        row, {"loss": "r", "grad_norm": "r", "learning_rate": "r", "rewards/chosen": "r"}, ("rewards/chosen",), fixed,
        resumed="  Continuing training from global step {}",
        evaluation=Evaluation(evaluated, {"eval_loss": "r", "eval_runtime": ".4f"}, fixed, resumed=False))  # fmt: skip


LAYOUTS: dict[str, Layout] = {
    "keras": _keras_layout(_keras),
    "keras-2": _keras_layout(_keras_2),
    "keras-plain": _keras_layout(_keras_plain),
    "megatron": Layout(_megatron(" [{}]"), _MEGATRON_SHAPES, _MEGATRON_MAYBE, resumed=_LOADED, stamp="s",
        evaluation=_MEGATRON_EVALUATION),
    "megatron-bare": Layout(_megatron("{}"), _MEGATRON_SHAPES, _MEGATRON_MAYBE, resumed=_LOADED,
        evaluation=_MEGATRON_EVALUATION),
    "primus": Layout(
        _primus, {**_MEGATRON_SHAPES, "perf/iter_ms_avg": ".1f", "perf/tokens_per_sec_per_gpu": ".1f",
                  "perf/tokens_per_sec_per_gpu_avg": ".1f"},
        _MEGATRON_MAYBE, resumed=_LOADED, stamp="plain",
        evaluation=_PRIMUS_EVALUATION),
    "bridge": Layout(_bridge, {"Step Time (s)": ".2f", **_MEGATRON_SHAPES}, ("global_batch_size", "num_zeros"),
                     resumed=_LOADED, stamp="s",
        evaluation=_MEGATRON_EVALUATION),
    "megatron-deepspeed": Layout(
        _megatron("[{}][INFO][training:1145] - ", {
            **_MEGATRON, "perf/samples_per_sec": "samples per second: {}",
            "perf/tokens_per_sec_per_gpu": "tokens per gpu per second (tgs): {}", "perf/tflops_per_gpu": "TFLOPs: {}"}),
        {**_MEGATRON_SHAPES, "perf/samples_per_sec": ".3f", "perf/tokens_per_sec_per_gpu": ".3f"},
        ("global_batch_size", "num_zeros", "load_balancing_loss"), resumed=_LOADED, stamp="s",
        evaluation=_MEGATRON_EVALUATION),
    "neox": Layout(
        _neox, {"perf/samples_per_sec": ".3f", "perf/iter_ms": ".1f", "learning_rate": ".3E",
                "perf/tflops_per_gpu": ".1f", "train_loss": ".6E", "nan_iterations": "d"},
        resumed="  successfully loaded /ckpt/global_step{}",
        evaluation=_NEOX_EVALUATION),
    "nemo": Layout(
        _nemo, {"learning_rate": ".4g", "global_batch_size": "d", "train_loss": ".4g", "perf/iter_time_sec": ".4g",
                "consumed_samples": "d"},
        ("perf/iter_time_sec",), lambda step, total: {"epoch": step // 10, "global_step": step}),
    "automodel": Layout(
        _automodel, {"train_loss": ".4f", "grad_norm": ".4f", "learning_rate": ".2e", "memory/max_allocated_gib": ".2f",
                     "perf/tokens_per_sec": ".2f", "perf/tokens_per_sec_per_gpu": ".2f", "num_label_tokens": "d"},
        fixed=lambda step, total: {"epoch": step // 50}, stamp="s",
        evaluation=Evaluation(
            lambda step, total, stamp, texts: [f"{stamp} | INFO | root | [val] step {step} | epoch {step // 50} | loss "
                                               f"{texts['val_loss']} | num_label_tokens "
                                               f"{texts['num_label_tokens validation']}"],
            {"val_loss": ".4f", "num_label_tokens validation": "d"}, lambda step, total: {"epoch": step // 50})),
    "titan": Layout(
        _titan, {"train_loss": ".4f", "grad_norm": ".4f", "gpu/max_reserved_memory_gib": ".2f",
                 "gpu/max_reserved_memory_percent": ".2f", "perf/tokens_per_sec_per_gpu": ",d",
                 "perf/tflops_per_gpu": ",.2f", "perf/mfu_percent": ".2f"},
        ("grad_norm",), resumed="[rank0]:[titan] - root - INFO - Loading the checkpoint from out/step-{}.", stamp="ms",
        evaluation=Evaluation(
            lambda step, total, stamp, texts: [f"[rank0]:[titan] {stamp} - root - INFO - validate step: {step:2,}  "
                                               f"loss: {texts['val_loss']:>8}  memory: "
                                               f"{texts['gpu/max_reserved_memory_gib']}GiB("
                                               f"{texts['gpu/max_reserved_memory_percent']}%)  "
                                               f"tps: {texts['tps validation']}"],
            {"val_loss": ".4f", "gpu/max_reserved_memory_gib": ".2f", "gpu/max_reserved_memory_percent": ".2f",
             "tps validation": ",d"})),
    "maxtext": Layout(
        lambda step, total, stamp, texts: [f"completed step: {step}, {_pairs(_MAXTEXT, texts, ', ')}"],
        {"perf/iter_time_sec": ".3f", "perf/tflops_per_gpu": ".3f", "perf/tokens_per_sec_per_gpu": ".3f",
         "total_weights": "d", "train_loss": ".3f", "train_perplexity": ".3f"}, ("train_perplexity",),
        resumed="restoring from this run's directory step {}",
        evaluation=Evaluation(
            lambda step, total, stamp, texts: [f"eval metrics after step: {step}, loss={texts['val_loss']}, "
                                               f"total_weights={texts['total_weights validation']}"],
            {"val_loss": ".3f", "total_weights validation": "d"})),
    "nanogpt": Layout(
        lambda step, total, stamp, texts: [f"iter {step}: {_pairs(_NANOGPT, texts, ', ')}"],
        {"train_loss": ".4f", "perf/iter_ms": ".2f", "perf/mfu_percent": ".2f"}, ("perf/mfu_percent",),
        resumed="Resuming training from out",
        evaluation=Evaluation(
            lambda step, total, stamp, texts: [f"step {step}: train loss {texts['train/loss']}, val loss "
                                               f"{texts['val_loss']}"],
            {"train/loss": ".4f", "val_loss": ".4f"}), ahead=True),
    "nanochat": Layout(
        lambda step, total, stamp, texts: [f"step {step:05d}/{total:05d} ({100 * step / total:.2f}%) | "
                                           f"{_pairs(_NANOCHAT, texts, ' | ')}"],
        {"train_loss": ".6f", "grad_norm": ".4f", "lrm": ".2f", "perf/iter_time_sec": "0.2f",
         "perf/tokens_per_sec": ",d", "perf/mfu_percent": ".2f", "epoch": "d", "total_time_s": "0.2f"}, ("grad_norm",),
        lambda step, total: {"done_percent": float(f"{100 * step / total:.2f}")},
        {"perf/iter_time_sec": 1e-3, "total_time_s": 60.0}, "Resuming optimization from step {}",
        evaluation=Evaluation(
            lambda step, total, stamp, texts: [f"Step {step:05d} | Validation bpb: {texts['val_bpb']}"],
            {"val_bpb": ".4f"}), ahead=True),
    "modded": Layout(
        lambda step, total, stamp, texts: [f"step:{step}/{total} {_pairs(_MODDED, texts, ' ')}"],
        {"train_loss": ".4f", "val_loss": ".4f", "train_time_ms": "d", "step_avg_ms": ".2f"},
        ("train_loss", "val_loss")),
    "litgpt": Layout(
        lambda step, total, stamp, texts: [f"Epoch {step // 50 + 1} | iter {step} step {step // 4} | loss train: "
                                           f"{texts['train_loss']}, val: n/a | iter time: {texts['perf/iter_ms']} ms"],
        {"train_loss": ".3f", "perf/iter_ms": ".2f"},
        fixed=lambda step, total: {"epoch": step // 50 + 1, "optimizer_step": step // 4},
        resumed="Resuming training from out/step.pth",
        evaluation=Evaluation(
            lambda step, total, stamp, texts: [f"iter {step}: val loss {texts['val_loss']}, val time: "
                                               f"{texts['val_time_ms']} ms"],
            {"val_loss": ".4f", "val_time_ms": ".2f"})),
    "olmo": Layout(
        lambda step, total, stamp, texts: [f"{stamp}\thost:0\tconsole_logger:90\tINFO\t[step={step}/{total},epoch=1]",
                                           *(f"    {_OLMO[name].format(text)}" for name, text in texts.items())],
        {"train_loss": ".3f", "train_perplexity": ".2f", "grad_norm": ".3f", "perf/tokens_per_sec_per_gpu": ",d"},
        ("train_perplexity", "grad_norm"), lambda step, total: {"epoch": 1}, resumed="Checkpoint successfully loaded",
        stamp="s",
        evaluation=Evaluation(
            lambda step, total, stamp, texts: [f"{stamp}\thost:0\tevaluator:90\tINFO\tFinished lm evals in 12.5 "
                                               "seconds. Metrics:", f"    wiki/CE loss={texts['eval/wiki/CE loss']}"],
            {"eval/wiki/CE loss": ".3f"})),
    "levanter": Layout(
        lambda step, total, stamp, texts: [f"{stamp} - 0 - levanter - INFO :: Progress on:train {step}.0it/{total}it "
                                           f"rate:{texts['perf/its_per_sec']}it/s remaining:01:00 elapsed:00:20 "
                                           f"postfix:loss={texts['train_loss']}"],
        {"perf/its_per_sec": ".1f", "train_loss": ".3g"}, fixed=lambda step, total: {"remaining_time_s": 60.0},
        resumed="Resuming training from step {}", stamp="s",
        evaluation=Evaluation(
            lambda step, total, stamp, texts: [f"{stamp} - 0 - levanter.eval - INFO :: eval loss: {texts['val_loss']}"],
            {"val_loss": ".3f"})),
    "trainer": _trainer("before"),
    "trainer-redrawn": _trainer("both", epochs=3, decimals=2),
    "trainer-behind": _trainer("behind", epochs=2),
    "accelerate": Layout(
        lambda step, total, stamp, texts: [f"Step {step}/{total}, Loss: {texts['train_loss']} | "
                                           f"{_pairs(_ACCELERATE, texts, ' | ')}"],
        {"train_loss": ".4f", "perf/steps_per_sec": ".2f", "perf/tokens_per_sec_per_gpu": ".2f"},
        resumed="Resumed from checkpoint: /ckpt"),
    "deepspeed": Layout(
        lambda step, total, stamp, texts: [f"[{stamp}] [INFO] [timer.py:264:stop] epoch=0/micro_step={step}/"
                                           f"global_step={step}, {_pairs(_DEEPSPEED, texts, ', ')}"],
        {"perf/samples_per_sec_avg": "r", "perf/samples_per_sec": "r", "memory/allocated_gib": ".2f",
         "memory/max_allocated_gib": ".2f"},
        fixed=lambda step, total: {"epoch": 0, "micro_step": step}, stamp="ms"),
    "lightning": Layout(
        lambda step, total, stamp, texts: [f"Epoch {(step - 1) // 50}: 50%|###  | {(step - 1) % 50 + 1}/50 "
                                           f"[00:01<00:02,  {texts['perf/its_per_sec']}it/s, v_num=0, "
                                           f"train_loss={texts['train_loss']}]"],
        {"perf/its_per_sec": ".2f", "train_loss": ".3f"}, fixed=lambda step, total: {"epoch": (step - 1) // 50},
        resumed="Restored all states from the checkpoint at x.ckpt"),
    "verl": Layout(
        lambda step, total, stamp, texts: [f"(TaskRunner pid=1) step:{step} - {_pairs(_VERL, texts, ' - ')}"],
        {"actor/pg_loss": "r", "actor/lr": "r", "critic/score/mean": "r", "critic/score/max": "r",
         "timing_s/step": "r"},
        ("critic/score/max",), resumed="(TaskRunner pid=1) Setting global step to {}"),
    "prime": Layout(
        lambda step, total, stamp, texts: [f"10:00:00 SUCCESS Step {step} |  {texts['perf/iter_time_sec']}s | "
                                           f"{_pairs(_PRIME, texts, ' | ')}"],
        {"perf/iter_time_sec": "0.1f", "train_loss": ".4f", "entropy": ".4f", "grad_norm": ".4f",
         "learning_rate": ".2e", "perf/tokens_per_sec": "d", "perf/mfu_percent": ".1f",
         "gpu/max_reserved_memory_gib": ".1f"}, ("entropy",),
        resumed="10:00:00 INFO Resuming training from checkpoint step {}",
        evaluation=Evaluation(
            lambda step, total, stamp, texts: [f"10:00:00 SUCCESS Validation | Step {step} | Loss {texts['val_loss']}"],
            {"val_loss": ".4f"})),
    "ultralytics": Layout(
        lambda step, total, stamp, texts: ["      Epoch    GPU_mem   box_loss   cls_loss  Instances       Size",
                                           f"{step:>7d}/{total} {_pairs(_DETECTED, texts, '  ')}: 100% ━━━━ 8/8"],
        {"memory/reserved_gib": "0.2f", "train/box_loss": ".4f", "train/cls_loss": ".4f", "Instances": "d",
         "Size": "d"},
        fixed=lambda step, total: {"epoch": step},
        resumed="Resuming training x.pt from epoch {1} to 900 total epochs",
        evaluation=Evaluation(
            lambda step, total, stamp, texts: ["                 Class     Images  Instances      Box(P          R "
                                               "     mAP50  mAP50-95): 100% ━━━━ 4/4",
                                               "                   all  " + "  ".join(texts.values())],
            {"val/Images": "d", "val/Instances": "d", "metrics/precision(B)": ".3f", "metrics/recall(B)": ".3f",
             "metrics/mAP50(B)": ".3f", "metrics/mAP50-95(B)": ".3f"}, resumed=False)),
    "mmengine": Layout(
        lambda step, total, stamp, texts: [f"{stamp} - mmengine - INFO - Iter(train) [{step:4d}/{total}]  "
                                           f"{_pairs(_MMENGINE, texts, '  ')}"],
        {"learning_rate": ".4e", "perf/iter_time_sec": ".4f", "data_time": ".4f", "memory/max_allocated_mib": "d",
         "grad_norm": ".4f", "train_loss": ".4f"}, ("grad_norm",),
        resumed="03/01 10:00:00 - mmengine - INFO - resumed epoch: 0, iter: {}", stamp="slash",
        evaluation=Evaluation(
            lambda step, total, stamp, texts: [f"{stamp} - mmengine - INFO - Iter(val) [50/50]    mIoU: "
                                               f"{texts['val/mIoU']}  data_time: {texts['val/data_time']}"],
            {"val/mIoU": ".4f", "val/data_time": ".4f"})),
    "timm": Layout(
        _timm, {"train_loss": ".2f", "train_loss_avg": ".2f", "perf/iter_time_sec": ".3f",
                "perf/samples_per_sec": ".2f", "perf/iter_time_sec_avg": ".3f", "perf/samples_per_sec_avg": ".2f",
                "learning_rate": ".3e", "data_time_s": ".3f", "data_time_s_avg": ".3f"},
        fixed=lambda step, total: {"epoch": step // 100, "epoch_done_percent": step % 100},
        evaluation=Evaluation(
            lambda step, total, stamp, texts: ["Test: [  49/49]  Time: {} ({})  Loss: {} ({})  Acc@1: {} ({})  Acc@5: "
                                               "{} ({})".format(*texts.values())],
            dict.fromkeys(("val_batch_time_s", "val_batch_time_s_avg", "val_loss_last_batch", "val_loss",
                           "val_top1_last_batch", "val_top1", "val_top5_last_batch", "val_top5"), "0.3f"))),
    "fairseq": Layout(
        lambda step, total, stamp, texts: [f"{stamp} | INFO | train_inner | epoch 001:  {step:5d} / {total} "
                                           f"{_pairs(_FAIRSEQ, {**texts, 'num_updates': str(step)}, ', ')}"],
        {"train_loss": ".3f", "train_perplexity": ".2f", "perf/tokens_per_sec": ".1f", "learning_rate": "g",
         "grad_norm": ".3f", "wall": "d"},
        ("grad_norm",), lambda step, total: {"epoch": 1, "num_updates": step},
        resumed="Loaded checkpoint /ckpt.pt (epoch 1 @ {} updates)", stamp="s",
        evaluation=Evaluation(
            lambda step, total, stamp, texts: [f"{stamp} | INFO | valid | epoch 001 | valid on 'valid' subset | loss "
                                               f"{texts['val_loss']} | ppl {texts['val_perplexity']} | num_updates "
                                               f"{step}"],
            {"val_loss": ".3f", "val_perplexity": ".2f"},
            lambda step, total: {"epoch": 1, "num_updates valid": step})),
}  # fmt: skip


@dataclass
class Training:
    """A training that was made up: its rows in the order of the log, where it went back, the log, and what it lacks."""

    name: str
    rows: list[Written] = field(default_factory=list)
    restarts: list[int] = field(default_factory=list)
    lines: list[list[str]] = field(default_factory=list)
    lacks: set[str] = field(default_factory=set)

    @property
    def text(self) -> str:
        """The log."""
        return "".join(line + "\n" for group in self.lines for line in group)

    def kept(self) -> dict[int, dict[str, Value]]:
        """What remains of each step: what was trained again takes the place of what was before."""
        kept: dict[int, dict[str, Value]] = {}
        for number, row in enumerate(self.rows):
            if number in self.restarts:
                began = next(later.step for later in self.rows[number:] if later.trains)
                kept = {step: values for step, values in kept.items() if step < began}
            kept[row.step] = {**kept.get(row.step, {}), **row.values}
        return kept

    def begins(self) -> list[int]:
        """The first step of each attempt behind the first."""
        return [next(row.step for row in self.rows[number:] if row.trains) for number in self.restarts]

    def times(self) -> dict[int, float | None]:
        """The stamps of those rows."""
        return {row.step: row.time for row in self.rows if row.trains}


PREFIXES = ("0: ", "trainer-1  | ", "[default0]: ", "[pod/train-0/main] ", "(TaskRunner pid=71) ")
"""What launchers and collectors put before each line, and say no time with."""


def training(name: str, seed: int, plain: bool = False) -> Training:
    """A log of a program with values, optional fields, pauses, steps that are left out and restarts by chance.

    Evaluations stand before training, between its rows, behind a checkpoint and at the end; each line may have a
    launcher's prefix or colours.

    Args:
        plain: without evaluations, restarts, prefixes and colours.
    """
    dice, layout = Dice(f"{name} {seed}"), LAYOUTS[name]
    lacks = [field for field in layout.maybe if dice.random() < 0.4]
    made = Training(name, lacks=set(lacks))
    stride, step, time, epoch = dice.choice((1, 1, 2, 5)), 0, BEGAN, -1

    def add(row: Written) -> None:
        made.rows.append(row)
        made.lines.append(row.lines)

    def may_evaluate(chance: float, at: int) -> None:
        if layout.evaluation is not None and not plain and dice.random() < chance:
            add(layout.evaluated(at, time, dice))

    may_evaluate(0.5 if layout.ahead else 0.0, 0)
    for _ in range(dice.randrange(4, 14)):
        step += stride
        time += dice.choice((3, 10, 30, 7200 if dice.random() < 0.2 else 5))
        trained = [row.step for row in made.rows if row.trains]
        if layout.resumed and not plain and len(trained) > 2 and dice.random() < 0.15:
            step = dice.choice(sorted(set(trained))[-3:])
            step = min(step, trained[-1])
            time += 120
            made.restarts.append(len(made.rows))
            made.lines.append([layout.resumed.format(step - 1, step)])
            if layout.evaluation is not None and layout.evaluation.resumed:
                may_evaluate(0.5, step if layout.ahead else step - 1)
        if layout.heading and layout.epoch(step) != epoch:
            epoch, heading = layout.epoch(step), [layout.heading.format(layout.epoch(step))]
        else:
            heading = []
        row = layout.written(step, time, dice, lacks)
        while len(made.lines) > 1 and row.lines == made.lines[-2]:  # no more than drawn anew
            row = layout.written(step, time, dice, lacks)
        row.lines[:0] = heading
        add(row)
        may_evaluate(0.2, step)
    if not plain and dice.random() < 0.2:
        prefix = dice.choice(PREFIXES)
        made.lines = [[prefix + line for line in group] for group in made.lines]
    if not plain and dice.random() < 0.1:
        made.lines = [[f"\x1b[32m{line}\x1b[0m" for line in group] for group in made.lines]
    return made
