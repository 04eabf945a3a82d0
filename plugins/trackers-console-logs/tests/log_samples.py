"""What the logs in ``logs`` say that were typed from what programs print, with data of their own."""

from __future__ import annotations

import math
from typing import NamedTuple


class Sample(NamedTuple):
    """rows: values by step, all of them. format: the program. release: how that of its format begins. status: how the
    run ended; "" if the log doesn't say. total: steps to come, if the log says so. begins, ends: UTC of the first and
    last values; "" where the log has no stamps. note: how what it says of the log begins."""

    rows: dict[int, dict[str, float]]
    format: str
    release: str = ""
    status: str = ""
    total: int | None = None
    begins: str = ""
    ends: str = ""
    note: str = ""


# fmt: off
SAMPLES: dict[str, Sample] = {
    "megatron-2026": Sample(
        {
            5: {"loss_scale": 1.0, "skipped_iterations": 0, "nan_iterations": 0, "global_batch_size": 16,
                "consumed_samples": 80, "perf/iter_ms": 2500.5, "perf/tflops_per_gpu": 101.5,
                "learning_rate": 0.00015, "train_loss": 8.25, "load_balancing_loss": 1.02, "grad_norm": 1.25,
                "memory/rank_0/allocated_mib": 100.5, "memory/rank_0/max_allocated_mib": 200.25, "val_loss": 7.5,
                "val_perplexity": 1808.042, "lm loss validation-wiki": 7.25, "lm loss validation-wiki ppl": 1408.105},
            6: {"loss_scale": 1.0, "skipped_iterations": 0, "nan_iterations": 0, "global_batch_size": 16,
                "consumed_samples": 96, "perf/iter_ms": 2400.5, "perf/tflops_per_gpu": 105.5,
                "learning_rate": 0.00014, "train_loss": 8.0, "load_balancing_loss": 1.01, "grad_norm": math.nan},
        },
        "Megatron-LM", release="2026", status="finished", total=6,
    ),
    "bridge-2026": Sample(
        {
            1: {"loss_scale": 1.0, "skipped_iterations": 0, "nan_iterations": 0, "global_batch_size": 16,
                "Step Time (s)": 9.5, "perf/tflops_per_gpu": 55.5, "consumed_samples": 16, "perf/iter_ms": 9500.0,
                "learning_rate": 1e-05, "train_loss": 12.5, "grad_norm": 3.0},
        },
        "Megatron Bridge", release="0.1 and later", total=20,
    ),
    "megatron-deepspeed": Sample(
        {
            2: {"loss_scale": 1.0, "skipped_iterations": 0, "nan_iterations": 0, "global_batch_size": 16,
                "consumed_samples": 32, "consumed_tokens": 65536, "perf/iter_ms": 5250.0, "learning_rate": 1.1e-05,
                "train_loss": 8.125, "grad_norm": 0.6, "actual seqlen": 2048, "perf/samples_per_sec": 3.048,
                "perf/tokens_per_sec_per_gpu": 780.19, "perf/tflops_per_gpu": 23.58},
        },
        "Megatron-DeepSpeed", release="2024 and 2025", total=100,
    ),
    "gpt-neox": Sample(
        {
            10: {"perf/samples_per_sec": 98.25, "perf/iter_ms": 1303.5, "learning_rate": 1e-05,
                "perf/tflops_per_gpu": 123.4, "perf/mfu_percent": 39.5, "perf/hfu_percent": 52.7,
                "train_loss": 10.625, "loss_scale": 4096.0, "skipped_iterations": 1, "nan_iterations": 0,
                "val_loss": 9.5, "val_perplexity": 13359.73},
        },
        "GPT-NeoX", release="2025 and 2026", total=320000,
    ),
    "primus-torchtitan": Sample(
        {
            1: {"train_loss": 12.25, "grad_norm": 3.5, "gpu/max_reserved_memory_gib": 95.5,
                "gpu/max_reserved_memory_percent": 33.16, "perf/tokens_per_sec_per_gpu": 1500,
                "perf/tflops_per_gpu": 30.0, "perf/mfu_percent": 3.0},
        },
        "Primus (TorchTitan back end)", release="2025 and 2026",
    ),
    "torchtitan-2024": Sample(
        {
            1: {"train_loss": 12.25, "gpu/max_reserved_memory_gib": 30.5, "gpu/max_reserved_memory_percent": 38.55,
                "perf/tokens_per_sec_per_gpu": 1100, "perf/mfu_percent": 2.5},
        },
        "TorchTitan", release="2024", status="finished",
    ),
    "nemo-2": Sample(
        {
            0: {"epoch": 0, "learning_rate": 1e-06, "global_batch_size": 32, "global_step": 0, "train_loss": 9.01,
                "perf/iter_time_sec": 4.5},
            1: {"epoch": 0, "learning_rate": 2e-06, "global_batch_size": 32, "global_step": 1, "train_loss": 8.02,
                "perf/iter_time_sec": 2.5, "consumed_samples": 64},
            2: {"epoch": 1, "learning_rate": 3e-06, "global_batch_size": 32, "global_step": 2, "train_loss": 7.03,
                "perf/iter_time_sec": 2.4, "consumed_samples": 96, "val_loss": 8.5},
        },
        "NeMo 2", release="2.0 and later",
    ),
    "automodel": Sample(
        {
            1: {"epoch": 0, "train_loss": 2.25, "grad_norm": 1.5, "learning_rate": 1e-05,
                "memory/max_allocated_gib": 12.25, "perf/tokens_per_sec": 2345.5,
                "perf/tokens_per_sec_per_gpu": 1172.75, "num_label_tokens": 1024, "val_loss": 2.125,
                "lr validation": 1e-05, "num_label_tokens validation": 512},
        },
        "NeMo AutoModel", release="2025 and 2026",
    ),
    "maxtext-2026": Sample(
        {
            10: {"perf/iter_time_sec": 5.25, "perf/tflops_per_gpu": 107.125, "perf/tokens_per_sec_per_gpu": 6529.5,
                "total_weights": 524288, "train_loss": 10.125, "lm_loss": 10.0, "train_perplexity": 22026.466,
                "val_loss": 9.875, "val_perplexity": 19435.123, "total_weights validation": 65536.0,
                "avg_z_loss validation": 0.0},
        },
        "MaxText", release="2026",
    ),
    "nanogpt": Sample(
        {
            0: {"train/loss": 4.25, "val_loss": 4.2, "train_loss": 4.275, "perf/iter_ms": 30500.1},
            10: {"train_loss": 3.125, "perf/iter_ms": 25.5, "perf/mfu_percent": 14.5},
        },
        "nanoGPT", release="2023 to 2025",
    ),
    "nanochat": Sample(
        {
            0: {"val_bpb": 3.30125, "done_percent": 0.0, "train_loss": 11.125, "lrm": 1.0,
                "perf/iter_time_sec": 1.2505, "perf/tokens_per_sec": 419262, "perf/mfu_percent": 12.5, "epoch": 1,
                "total_time_s": 0.0},
            11: {"done_percent": 55.0, "train_loss": 7.125, "lrm": 0.9, "perf/iter_time_sec": 0.5005,
                "perf/tokens_per_sec": 1047528, "perf/mfu_percent": 48.25, "epoch": 1, "total_time_s": 30.0,
                "eta_s": 90.0},
            20: {"core_metric": 0.125},
        },
        "nanochat", release="2026", status="finished", total=20,
    ),
    "modded-nanogpt": Sample(
        {
            0: {"val_loss": 10.8125, "train_time_ms": 0, "step_avg_ms": 0.03},
            1: {"train_time_ms": 125, "step_avg_ms": 125.25},
        },
        "modded-nanogpt", release="2024 to 2026", total=1750,
    ),
    "trainer-4": Sample(
        {
            2: {"loss": 2.5, "grad_norm": 1.25, "learning_rate": 5e-05, "rewards/chosen": 0.125, "epoch": 0.5},
            4: {"loss": 2.0, "grad_norm": 1.0, "learning_rate": 2.5e-05, "rewards/chosen": 0.25, "epoch": 1.0,
                "eval_loss": 1.875, "eval_runtime": 1.5, "eval_samples_per_second": 10.0, "train_runtime": 21.5,
                "train_samples_per_second": 8.0, "train_loss": 2.25},
        },
        "Hugging Face Trainer", release="transformers 4", status="finished",
    ),
    "trainer-5": Sample(
        {
            1: {"loss": 2.5, "grad_norm": 1.25, "learning_rate": 5e-05, "epoch": 0.25},
            2: {"loss": 2.25, "grad_norm": math.nan, "learning_rate": 4e-05, "epoch": 0.5},
        },
        "Hugging Face Trainer", release="transformers 5",
    ),
    "accelerate": Sample(
        {
            0: {"epoch": 0, "eval_accuracy": 0.6875, "eval_f1": 0.8125},
            1: {"epoch": 1, "eval_accuracy": 0.75, "eval_f1": 0.875},
        },
        "Accelerate examples",
    ),
    "accelerate-parallel": Sample(
        {
            10: {"train_loss": 2.25, "perf/steps_per_sec": 1.5, "perf/tokens_per_sec_per_gpu": 3072.0,
                "perf/tflops_per_gpu": 45.5, "memory/active_gb": 12.5, "memory/alloc_gb": 11.5,
                "memory/reserved_gb": 14.5},
        },
        "Accelerate examples", status="finished", total=20,
    ),
    "lightning": Sample(
        {
            2: {"epoch": 0, "perf/its_per_sec": 2.0, "train_loss": 2.5},
            4: {"epoch": 0, "perf/its_per_sec": 1.9, "train_loss": 2.25, "val_loss": 2.125},
        },
        "Lightning", release="2 ", status="finished",
    ),
    "keras-3": Sample(
        {
            1: {"epoch": 1, "perf/iter_time_sec": 0.9, "accuracy": 0.5, "train_loss": 0.95},
            2: {"epoch": 1, "perf/iter_time_sec": 0.01, "accuracy": 0.55, "train_loss": 0.9, "val_accuracy": 0.6,
                "val_loss": 0.8},
            4: {"epoch": 2, "perf/iter_time_sec": 0.009, "accuracy": 0.65, "train_loss": 0.0007,
                "val_accuracy": 0.7, "val_loss": 0.6, "evaluate/accuracy": 0.625, "evaluate/loss": 0.625,
                "evaluate/time": 0.002},
        },
        "Keras", release="3", status="finished", total=4,
    ),
    "deepspeed": Sample(
        {
            10: {"skipped_steps": 1, "learning_rate": 1e-05, "learning_rate/1": 2e-05, "momentum": 0.9,
                "momentum/1": 0.999, "momentum/2": 0.9, "momentum/3": 0.999, "epoch": 0, "micro_step": 10,
                "perf/samples_per_sec_avg": 12.5, "perf/samples_per_sec": 13.5, "memory/allocated_gib": 1.25,
                "memory/max_allocated_gib": 3.5},
            20: {"train_loss": 2.25, "perf/iter_time_sec": 0.125, "perf/samples_per_sec": 128.0},
        },
        "DeepSpeed",
    ),
    "litgpt": Sample(
        {
            1: {"epoch": 1, "optimizer_step": 0, "train_loss": 10.98, "perf/iter_ms": 2100.5},
            2: {"epoch": 1, "optimizer_step": 1, "train_loss": 10.5, "perf/iter_ms": 310.5,
                "remaining_time_s": 86460.0, "val_loss": 10.25, "val_time_ms": 1250.5},
            3: {"epoch": 1, "optimizer_step": 1, "train_loss": 10.25, "last_val_loss": 10.25,
                "perf/iter_ms": 300.25, "val_loss": 10.125, "val_perplexity": 24959.145},
        },
        "LitGPT", release="0.4", status="finished",
    ),
    "olmo-core": Sample(
        {
            11: {"epoch": 1, "eta_s": 3723.0, "train_loss": 2.25, "throughput/total tokens": 1500000000.0,
                "perf/tokens_per_sec_per_gpu": 12345, "eval/c4/CE loss": 2.125},
        },
        "OLMo and OLMo-core", status="finished", total=1000,
    ),
    "levanter": Sample(
        {
            20: {"perf/its_per_sec": 1.5, "remaining_time_s": 653.0, "train_loss": 7.25, "val_loss": 7.125,
                "paloma/c4_en/loss": 7.25},
        },
        "levanter", total=1000,
    ),
    "verl": Sample(
        {
            0: {"val-core/toymath/acc/mean@1": 0.25, "val-aux/num_turns/min": 2},
            1: {"actor/pg_loss": -0.05, "actor/lr": 1e-06, "critic/score/mean": 0.5, "training/global_step": 1,
                "timing_s/step": 90.5},
        },
        "verl", release="0.5 and later",
    ),
    "prime-rl": Sample(
        {
            10: {"perf/iter_time_sec": 12.3, "train_loss": 0.125, "entropy": 0.5, "mismatch_kl": 0.001,
                "grad_norm": 0.25, "learning_rate": 1e-06, "perf/tokens_per_sec": 1234, "perf/mfu_percent": 12.5,
                "gpu/max_reserved_memory_gib": 70.1, "eval/math/policy": 9, "eval/math/time": 90.0,
                "eval/math/Reward": 0.75, "eval/math/Turns": 1.5, "eval/math/Error_percent": 2.5},
        },
        "prime-rl", release="2026", status="finished",
    ),
    "prime-rl-sft": Sample(
        {
            1: {"perf/iter_time_sec": 0.85, "train_loss": 1.25, "grad_norm": 0.25, "learning_rate": 1e-06,
                "perf/tokens_per_sec": 1234, "perf/mfu_percent": 12.5, "gpu/max_reserved_memory_gib": 70.0,
                "gpu/memory_total_gib": 80.0, "gpu/max_reserved_memory_percent": 87.5, "val_loss": 1.125},
        },
        "prime-rl", release="2026",
    ),
    "ultralytics": Sample(
        {
            1: {"epoch": 1, "memory/reserved_gib": 2.37, "train/box_loss": 1.234, "train/cls_loss": 2.345,
                "train/dfl_loss": 1.456, "Instances": 12, "Size": 640, "val/Images": 128, "val/Instances": 929,
                "metrics/precision(B)": 0.625, "metrics/recall(B)": 0.55, "metrics/mAP50(B)": 0.605,
                "metrics/mAP50-95(B)": 0.446},
            2: {"epoch": 2, "memory/reserved_gib": 2.4, "train/box_loss": 1.125, "train/cls_loss": 2.125,
                "train/dfl_loss": 1.375, "Instances": 14, "Size": 640, "val/Images": 128, "val/Instances": 929,
                "metrics/precision(B)": 0.65, "metrics/recall(B)": 0.56, "metrics/mAP50(B)": 0.61,
                "metrics/mAP50-95(B)": 0.45},
        },
        "Ultralytics", status="finished", total=2,
    ),
    "mmengine": Sample(
        {
            50: {"epoch": 1, "learning_rate": 0.01, "eta_s": 60.0, "perf/iter_time_sec": 0.125, "data_time": 0.01,
                "memory/max_allocated_mib": 345, "train_loss": 1.25, "loss_cls": 0.75},
            150: {"epoch": 2, "learning_rate": 0.01, "eta_s": 30.0, "perf/iter_time_sec": 0.125, "data_time": 0.01,
                "memory/max_allocated_mib": 345, "train_loss": 1.125, "loss_cls": 0.625},
            200: {"epoch": 2, "val/accuracy/top1": 50.25, "val/data_time": 0.0125, "val/time": 0.025},
        },
        "MMEngine",
    ),
    "mmengine-iterations": Sample(
        {
            50: {"base_lr": 0.01, "learning_rate": 0.001, "eta_s": 86401.0, "perf/iter_time_sec": 0.125,
                "data_time": 0.01, "train_loss": 1.25, "val/mIoU": 40.25, "val/data_time": 0.0125, "val/time": 0.025},
        },
        "MMEngine", total=1000,
    ),
    "timm": Sample(
        {
            0: {"epoch": 0, "epoch_done_percent": 1, "train_loss": 6.94, "train_loss_avg": 6.94,
                "perf/iter_time_sec": 1.512, "perf/samples_per_sec": 169.34, "perf/iter_time_sec_avg": 1.512,
                "perf/samples_per_sec_avg": 169.34, "learning_rate": 1e-05, "data_time_s": 0.91,
                "data_time_s_avg": 0.91},
            150: {"epoch": 1, "epoch_done_percent": 51, "train_loss": 6.5, "train_loss_avg": 6.62,
                "perf/iter_time_sec": 0.512, "perf/samples_per_sec": 500.12, "perf/iter_time_sec_avg": 0.52,
                "perf/samples_per_sec_avg": 492.31, "learning_rate": 0.0001, "data_time_s": 0.01,
                "data_time_s_avg": 0.012, "val_batch_time_s": 0.125, "val_batch_time_s_avg": 0.25,
                "val_loss_last_batch": 6.125, "val_loss": 6.0, "val_top1_last_batch": 4.125, "val_top1": 4.0,
                "val_top5_last_batch": 14.5, "val_top5": 14.25},
        },
        "timm", status="finished",
    ),
    "fairseq": Sample(
        {
            100: {"epoch": 1, "train_loss": 5.125, "train_perplexity": 34.85, "perf/tokens_per_sec": 12345.6,
                "perf/updates_per_sec": 1.25, "num_updates": 100, "learning_rate": 1e-05, "grad_norm": 1.25,
                "train_wall": 80, "wall": 85},
            200: {"epoch": 1, "val_loss": 4.875, "val_perplexity": 29.34, "wps valid": 34567.8,
                "num_updates valid": 200, "loss epoch": 5.0, "ppl epoch": 32, "wps epoch": 12300,
                "num_updates epoch": 200, "lr epoch": 2e-05, "wall epoch": 165},
        },
        "fairseq", status="finished",
    ),
    "fairseq-json": Sample(
        {
            100: {"epoch": 1, "update": 0.5, "train_loss": 5.125, "num_updates": 100, "learning_rate": 1e-05},
            200: {"epoch": 1, "val_loss": 4.875, "valid_num_updates": 200},
        },
        "fairseq", release="0.9 and later, json",
    ),
}
# fmt: on
