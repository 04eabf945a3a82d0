"""What further logs below tests/logs say: other releases, launchers and kinds of training, with data of their own."""

from __future__ import annotations

import math

from tests.readers.console_log.samples import Sample

# fmt: off
VARIANTS: dict[str, Sample] = {
    "megatron-2025-mtp": Sample(
        {
            1: {"consumed_samples": 256, "perf/iter_ms": 8123.7, "perf/tflops_per_gpu": 212.6,
                "learning_rate": 1.833333e-06, "global_batch_size": 256, "train_loss": 15.46789,
                "load_balancing_loss": 1.353344, "mtp_1 loss": 14.21333, "loss_scale": 1.3, "grad_norm": 4.458,
                "num_zeros": 0.3, "params_norm": 812.583, "skipped_iterations": 0, "nan_iterations": 0},
            2: {"consumed_samples": 512, "perf/iter_ms": 6100.4, "perf/tflops_per_gpu": 282.8,
                "learning_rate": 3.333333e-06, "global_batch_size": 256, "train_loss": 15.33333,
                "load_balancing_loss": 1.341333, "mtp_1 loss": 14.13333, "loss_scale": 1.3, "grad_norm": 3.108,
                "num_zeros": 0.3, "params_norm": 812.833, "skipped_iterations": 0, "nan_iterations": 0},
        },
        "Megatron-LM", release="2024 and 2025", total=50, begins="2025-03-07 08:10:05.000",
        ends="2025-03-07 08:10:11.000",
    ),
    "megatron-2022": Sample(
        {
            10: {"consumed_samples": 40, "perf/iter_ms": 351.5, "learning_rate": 0.333, "global_batch_size": 4,
                "loss_scale": 8388608.3, "skipped_iterations": 10, "nan_iterations": 0},
            20: {"consumed_samples": 80, "perf/iter_ms": 141.9, "learning_rate": 2.353e-08, "global_batch_size": 4,
                "train_loss": 13.37355, "sop loss": 0.8497235, "loss_scale": 32768.3, "grad_norm": 215.422,
                "skipped_iterations": 2, "nan_iterations": 0, "val_loss": 9.145678, "val_perplexity": 11503.33,
                "sop loss validation": 0.7445678, "sop loss validation ppl": 2.369333},
        },
        "Megatron-LM", total=1000000,
    ),
    "megatron-arrow": Sample(
        {
            5: {"consumed_samples": 80, "consumed_tokens": 163840, "perf/iter_ms": 1200.8,
                "learning_rate": 0.0001333, "global_batch_size": 16, "train_loss": 9.833333, "loss_scale": 1.3,
                "grad_norm": 2.833},
        },
        "Megatron-LM", total=100,
    ),
    "bridge-2025": Sample(
        {
            1: {"Step Time (s)": 12.01, "perf/tflops_per_gpu": 528.4, "consumed_samples": 128,
                "perf/iter_ms": 12780.4, "learning_rate": 1.3e-06, "global_batch_size": 128, "train_loss": 15.0,
                "loss_scale": 1.3, "grad_norm": 3.8, "skipped_iterations": 0, "nan_iterations": 0},
            2: {"Step Time (s)": 11.83, "perf/tflops_per_gpu": 580.8, "consumed_samples": 256,
                "perf/iter_ms": 11500.4, "learning_rate": 2.3e-06, "global_batch_size": 128, "train_loss": 14.0,
                "loss_scale": 1.3, "grad_norm": 3.7, "skipped_iterations": 0, "nan_iterations": 0},
        },
        "Megatron Bridge", release="0.1 and later (2025, 2026)", total=100, begins="2025-03-07 11:00:00.000",
        ends="2025-03-07 11:00:12.000",
    ),
    "gpt-neox-2023": Sample(
        {
            34: {"deepspeed/skipped_steps": 0, "deepspeed/learning_rate": 2.4e-06,
                "deepspeed/learning_rate/1": 2.4e-06, "deepspeed/momentum": 0.2, "deepspeed/momentum/1": 0.28,
                "deepspeed/momentum/2": 0.2, "deepspeed/momentum/3": 0.28, "deepspeed/micro_step": 34,
                "deepspeed/epoch": 0, "deepspeed/perf/samples_per_sec_avg": 7.8,
                "deepspeed/perf/samples_per_sec": 8.58, "deepspeed/memory/allocated_gib": 59.98,
                "deepspeed/memory/max_allocated_gib": 63.64, "perf/samples_per_sec": 7.083, "perf/iter_ms": 4103.4,
                "learning_rate": 2.444e-06, "perf/tflops_per_gpu": 112.2, "train_loss": 14.41998,
                "skipped_iterations": 0, "nan_iterations": 0},
            35: {"deepspeed/skipped_steps": 0, "deepspeed/learning_rate": 2.5e-06,
                "deepspeed/learning_rate/1": 2.5e-06, "deepspeed/momentum": 0.2, "deepspeed/momentum/1": 0.28,
                "deepspeed/momentum/2": 0.2, "deepspeed/momentum/3": 0.28, "perf/samples_per_sec": 7.133,
                "perf/iter_ms": 4101.4, "learning_rate": 2.544e-06, "perf/tflops_per_gpu": 113.4,
                "train_loss": 14.31998, "skipped_iterations": 0, "nan_iterations": 0},
        },
        "GPT-NeoX, DeepSpeed", release="2 (2023 to 2025)", total=10000, begins="2023-03-07 21:03:17.269",
        ends="2023-03-07 21:03:21.037", note="values of DeepSpeed's rows are called deepspeed/…",
    ),
    "megatron-deepspeed-2024": Sample(
        {
            2: {"consumed_samples": 32, "consumed_tokens": 131072, "perf/iter_ms": 5200.8,
                "learning_rate": 3.3e-07, "global_batch_size": 16, "train_loss": 14.4, "loss_scale": 1.3,
                "grad_norm": 12.583, "actual seqlen": 4096, "skipped_iterations": 0, "nan_iterations": 0,
                "perf/samples_per_sec": 3.3, "perf/tokens_per_sec_per_gpu": 1575.8, "perf/tflops_per_gpu": 60.58},
            3: {"consumed_samples": 48, "consumed_tokens": 196608, "perf/iter_ms": 5100.8,
                "learning_rate": 6.3e-07, "global_batch_size": 16, "train_loss": 14.3, "loss_scale": 1.3,
                "grad_norm": 11.583, "actual seqlen": 4096, "skipped_iterations": 0, "nan_iterations": 0,
                "perf/samples_per_sec": 3.46, "perf/tokens_per_sec_per_gpu": 1606.3, "perf/tflops_per_gpu": 61.58},
        },
        "Megatron-DeepSpeed", release="2024 and 2025", total=1000, begins="2024-03-07 18:24:40.000",
        ends="2024-03-07 18:24:46.000",
    ),
    "nemo-bionemo": Sample(
        {
            120: {"epoch": 0, "learning_rate": 3e-05, "consumed_samples": 121, "global_batch_size": 1,
                "global_step": 120, "train_loss": 1.453, "perf/iter_time_sec": 0.36473, "val_loss": 4.439},
            121: {"epoch": 0, "learning_rate": 3e-05, "consumed_samples": 122, "global_batch_size": 1,
                "global_step": 121, "train_loss": 1.454, "perf/iter_time_sec": 0.36474, "val_loss": 4.439},
            122: {"epoch": 0, "learning_rate": 3e-05, "consumed_samples": 123, "global_batch_size": 1,
                "global_step": 122, "train_loss": 1.455, "perf/iter_time_sec": 0.36475, "val_loss": 4.439},
        },
        "NeMo 2", release="2.0 and later (2024 to 2026)",
    ),
    "lightning-nemo-1": Sample(
        {
            795: {"perf/sec_per_it": 41.69, "epoch": 0, "loss": 3.4, "reduced_train_loss": 3.323,
                "global_step": 794.3, "consumed_samples": 1960000.0},
            796: {"perf/sec_per_it": 41.63, "epoch": 0, "loss": 3.32, "reduced_train_loss": 3.313,
                "global_step": 795.3, "consumed_samples": 1960000.0},
        },
        "Lightning", release="2 (2023 to 2026)",
    ),
    "automodel-2026": Sample(
        {
            13: {"epoch": 0, "train_loss": 0.973, "grad_norm": 1.4087, "learning_rate": 1.33e-05,
                "memory/max_allocated_gib": 31.88, "perf/tokens_per_sec": 6574.84,
                "perf/tokens_per_sec_per_gpu": 821.14, "num_label_tokens": 26779},
            14: {"epoch": 0, "train_loss": 0.0838, "grad_norm": 1.5621, "learning_rate": 1.33e-05,
                "memory/max_allocated_gib": 25.72, "perf/tokens_per_sec": 10144.74,
                "perf/tokens_per_sec_per_gpu": 1268.38, "num_label_tokens": 25518, "val_loss": 0.0334,
                "lr validation": 1.33e-05, "num_label_tokens validation": 512},
        },
        "NeMo AutoModel", release="2025 and 2026", begins="2026-03-07 15:48:59.000",
        ends="2026-03-07 15:49:03.000",
    ),
    "torchtitan-ranks": Sample(
        {
            4: {"train_loss": 7.75818, "grad_norm": 26.9583, "gpu/max_reserved_memory_gib": 66.24,
                "gpu/max_reserved_memory_percent": 37.84, "perf/tokens_per_sec_per_gpu": 10363,
                "perf/tflops_per_gpu": 314.03, "perf/mfu_percent": 13.22},
            5: {"train_loss": 7.85818, "grad_norm": 26.9583, "gpu/max_reserved_memory_gib": 66.24,
                "gpu/max_reserved_memory_percent": 37.84, "perf/tokens_per_sec_per_gpu": 10363,
                "perf/tflops_per_gpu": 314.03, "perf/mfu_percent": 13.22},
            6: {"train_loss": 7.95818, "grad_norm": 26.9583, "gpu/max_reserved_memory_gib": 66.24,
                "gpu/max_reserved_memory_percent": 37.84, "perf/tokens_per_sec_per_gpu": 10363,
                "perf/tflops_per_gpu": 314.03, "perf/mfu_percent": 13.22},
        },
        "TorchTitan", release="2025 and 2026", begins="2026-03-07 19:46:19.569", ends="2026-03-07 19:46:21.569",
    ),
    "torchtitan-colours": Sample(
        {
            1: {"train_loss": 12.5054, "grad_norm": 3.8333, "gpu/max_reserved_memory_gib": 47.54,
                "gpu/max_reserved_memory_percent": 59.95, "perf/tokens_per_sec_per_gpu": 1763,
                "perf/tflops_per_gpu": 60.58, "perf/mfu_percent": 6.32},
            10: {"train_loss": 10.5054, "grad_norm": 2.8333, "gpu/max_reserved_memory_gib": 56.33,
                "gpu/max_reserved_memory_percent": 70.83, "perf/tokens_per_sec_per_gpu": 6763,
                "perf/tflops_per_gpu": 360.58, "perf/mfu_percent": 36.32, "val_loss": 10.4333,
                "tps validation": 8013},
        },
        "TorchTitan", release="2025 and 2026", begins="2025-06-01 10:00:00.020", ends="2025-06-01 10:00:10.020",
        note="the clock was set back by 7,430,399 s at line 3: later times go on from there",
    ),
    "maxtext-2023": Sample(
        {
            15107: {"perf/iter_time_sec": 2.49, "perf/tflops_per_gpu": 36.055, "train_loss": 2.424},
            15108: {"perf/iter_time_sec": 2.497, "perf/tflops_per_gpu": 36.004, "train_loss": 2.406},
        },
        "MaxText", release="2023",
    ),
    "maxtext-absl": Sample(
        {
            1: {"perf/iter_time_sec": 0.964, "perf/tflops_per_gpu": 5688.515,
                "perf/tokens_per_sec_per_gpu": 311629.854, "total_weights": 1572864, "train_loss": 12.202,
                "lm_loss": 12.202, "train_perplexity": 433358.514},
            2: {"perf/iter_time_sec": 10.551, "perf/tflops_per_gpu": 350.192,
                "perf/tokens_per_sec_per_gpu": 19222.408, "total_weights": 1572864, "train_loss": 12.213,
                "lm_loss": 12.213, "train_perplexity": 433463.042},
        },
        "MaxText", release="2026", begins="2026-08-11 21:54:55.864", ends="2026-08-11 21:55:06.442",
    ),
    "nanogpt-stamps": Sample(
        {
            2980: {"train_loss": 3.1216, "perf/iter_ms": 1099.41, "perf/mfu_percent": 15.67},
            3000: {"train/loss": 4.3623, "val_loss": 4.375, "train_loss": 4.5723, "perf/iter_ms": 35392.66,
                "perf/mfu_percent": 13.18},
            3010: {"train_loss": math.nan, "perf/iter_ms": 1019.28, "perf/mfu_percent": 14.45},
        },
        "nanoGPT", release="2023 to 2025", begins="2023-03-07 09:31:45.000", ends="2023-03-07 09:32:52.000",
    ),
    "nanogpt-2022": Sample(
        {
            1631: {"train_loss": 4.3196, "perf/iter_ms": 561.27},
            1632: {"train_loss": 3.0774, "perf/iter_ms": 563.48},
        },
        "nanoGPT", release="2022",
    ),
    "nanochat-2026": Sample(
        {
            0: {"done_percent": 0.33, "train_loss": 11.323688, "lrm": 1.33,
                "perf/iter_time_sec": 22.000439999999998, "perf/tokens_per_sec": 23830, "perf/mfu_percent": 2.83,
                "epoch": 1, "pq": 0, "rg": 8, "total_time_s": 19.8},
            1: {"done_percent": 0.33, "train_loss": 10.223688, "lrm": 1.33, "perf/iter_time_sec": 0.52244,
                "perf/tokens_per_sec": 1004210, "perf/mfu_percent": 48.83, "epoch": 1, "pq": 0, "rg": 8,
                "total_time_s": 19.8},
            250: {"val_bpb": 1.456789, "done_percent": 1.4, "train_loss": 5.223688, "lrm": 1.33,
                "perf/iter_time_sec": 0.52144, "perf/tokens_per_sec": 1006699, "perf/mfu_percent": 48.93,
                "epoch": 1, "pq": 1, "rg": 8, "total_time_s": 139.2, "eta_s": 10980.0},
        },
        "nanochat", release="2026", total=21400,
    ),
    "nanochat-sft-2025": Sample(
        {
            0: {"val_loss": 1.56789},
            1: {"train_loss": 1.66789, "lrm": 0.221804, "num_tokens": 10693},
            2: {"train_loss": 1.65789, "lrm": 0.220476, "num_tokens": 11693},
        },
        "nanochat", release="2025 and 2026", total=700,
    ),
    "modded-nanogpt-2024": Sample(
        {
            0: {"val_loss": 7.0432, "train_time_ms": 0, "step_avg_ms": math.nan},
            1: {"train_loss": 7.0432, "train_time_ms": 311, "step_avg_ms": math.nan},
            125: {"val_loss": 4.6042, "train_time_ms": 29736, "step_avg_ms": 258.8},
        },
        "modded-nanogpt", release="2024 to 2026", total=1480,
    ),
    "trainer-bars": Sample(
        {
            283: {"loss": 0.1968, "learning_rate": 0.33346, "epoch": 0.2},
            284: {"loss": 0.18, "learning_rate": 0.33345, "epoch": 0.21},
        },
        "Hugging Face Trainer", release="transformers 4",
    ),
    "trainer-axolotl": Sample(
        {
            1: {"loss": 4.08, "grad_norm": 98.8, "learning_rate": 5e-06, "memory/max_mem_active(gib)": 25.78,
                "memory/max_mem_allocated(gib)": 25.78, "memory/device_mem_reserved(gib)": 30.55, "epoch": 1.3},
            2: {"loss": 2.3645, "grad_norm": 59.8, "learning_rate": 4.289099880907269e-06,
                "memory/max_mem_active(gib)": 34.12, "memory/max_mem_allocated(gib)": 34.12,
                "memory/device_mem_reserved(gib)": 41.59, "epoch": 2.3, "train_runtime": 21.8,
                "train_samples_per_second": 1.8, "train_steps_per_second": 0.4, "train_loss": 3.58},
        },
        "Hugging Face Trainer", release="transformers 4", status="finished",
        note="the log has no steps: its rows are numbered",
    ),
    "trainer-5-texts": Sample(
        {
            1: {"loss": 2.367, "grad_norm": 0.7345, "learning_rate": 9.2e-05, "epoch": 0.34},
            2: {"loss": 2.334, "grad_norm": 0.7445, "learning_rate": 9.1e-05, "epoch": 3, "eval_loss": 1.2,
                "eval_runtime": 10.8, "eval_samples_per_second": 95.4, "eval_steps_per_second": 12.3,
                "train_runtime": 2219, "train_samples_per_second": 1.707, "train_steps_per_second": 0.418,
                "train_loss": 0.0551},
        },
        "Hugging Face Trainer", release="transformers 5", status="finished",
        note="the log has no steps: its rows are numbered",
    ),
    "trainer-grpo": Sample(
        {
            3: {"loss": -0.3917, "grad_norm": 0.38, "learning_rate": 1.2e-06, "num_tokens": 280752.3,
                "completions/mean_length": 163.3, "completions/min_length": 78.3, "completions/clipped_ratio": 0.3,
                "rewards/compute_reward/mean": 0.608, "rewards/compute_reward/std": 0.8408722167472839,
                "reward": 0.608, "reward_std": 0.8408, "frac_reward_zero_std": 0.3, "kl": math.nan,
                "clip_ratio/low_mean": 0.3, "epoch": 0.3},
            4: {"loss": 0.3, "grad_norm": 0.3, "learning_rate": 1.1e-06, "num_tokens": 284827.3,
                "completions/mean_length": 396.608, "completions/min_length": 209.3,
                "completions/clipped_ratio": 0.3, "rewards/compute_reward/mean": 0.3,
                "rewards/compute_reward/std": 0.3, "reward": 0.3, "reward_std": 0.3, "frac_reward_zero_std": 1.3,
                "kl": 0.334, "clip_ratio/low_mean": 0.3, "epoch": 0.3},
        },
        "Hugging Face Trainer", release="transformers 4",
    ),
    "trainer-swift": Sample(
        {
            5: {"loss": 1.58, "grad_norm": 0.8, "learning_rate": 2.9e-07, "token_acc": 0.08, "epoch": 0.3,
                "global_step": 5, "max_steps": 3766, "percentage_percent": 0.46, "elapsed_time": 89.0,
                "remaining_time": 67042.0, "memory(GiB)": 56.07, "train_speed(iter/s)": 0.389322},
            10: {"loss": 1.48, "grad_norm": 0.7, "learning_rate": 2e-07, "token_acc": 0.01, "epoch": 0.3,
                "global_step": 10, "max_steps": 3766, "percentage_percent": 0.5, "elapsed_time": 178.0,
                "remaining_time": 65842.0, "memory(GiB)": 56.07, "train_speed(iter/s)": 0.389422},
        },
        "Hugging Face Trainer", release="transformers 4",
    ),
    "trainer-swift-json": Sample(
        {
            2: {"loss": 1.58, "grad_norm": 0.8, "learning_rate": 1e-08, "epoch": 0.3337, "global_step": 2,
                "max_steps": 4389, "percentage_percent": 0.38, "elapsed_time": 410.0, "remaining_time": 899413.0,
                "train_speed(iter/s)": 0.337101},
        },
        "Hugging Face Trainer",
    ),
    "deepspeed-2022": Sample(
        {
            40: {"skipped_steps": 2, "learning_rate": 5e-05, "momentum": 0.2, "momentum/1": 0.222},
            50: {"skipped_steps": 2, "learning_rate": 5e-05, "momentum": 0.2, "momentum/1": 0.222},
        },
        "DeepSpeed", release="0.3 and later (2020 to 2026)", begins="2022-03-07 02:06:58.985",
        ends="2022-03-07 02:07:14.130",
        note="read 2 of 4 rows; 2 not understood, first at line 2",
    ),
    "lightning-1": Sample(
        {
            1: {"perf/sec_per_it": 8.0, "epoch": 0, "loss": 10.706},
            2: {"perf/sec_per_it": 5.15, "epoch": 0, "loss": 10.557},
        },
        "Lightning", release="2 (2023 to 2026)",
    ),
    "lightning-validation": Sample(
        {
            50: {"perf/its_per_sec": 9.13, "epoch": 0, "train_loss_step": 0.926},
            100: {"perf/its_per_sec": 9.78, "epoch": 0, "train_loss_step": 0.983, "val_loss": 0.973,
                "val_acc": 0.973, "train_loss_epoch": 0.913},
            200: {"perf/its_per_sec": 9.78, "epoch": 1, "train_loss_step": 0.883, "val_loss": 0.973,
                "val_acc": 0.973, "train_loss_epoch": 0.913},
        },
        "Lightning", release="2 (2023 to 2026)", status="finished",
    ),
    "keras-2-seconds": Sample(
        {
            60918: {"epoch": 39, "train_loss": 0.0077, "acc": 0.0677, "val_loss": 0.9906, "val_acc": 0.006},
            62480: {"epoch": 40, "train_loss": 0.0081, "acc": 0.0696, "val_loss": 0.9933, "val_acc": 0.0133},
        },
        "Keras", release="2", total=312400,
    ),
    "keras-2": Sample(
        {
            1000: {"perf/iter_time_sec": 0.000735, "epoch": 5, "train_loss": 0.6916, "accuracy": 0.1606,
                "val_loss": 0.6044, "val_accuracy": 0.1642, "learning_rate": 0.3433},
            1200: {"perf/iter_time_sec": 0.000703, "epoch": 6, "train_loss": 0.6824, "accuracy": 0.1756,
                "val_loss": 0.6951, "val_accuracy": 0.1677, "learning_rate": 0.3433},
        },
        "Keras", release="2", total=4000,
    ),
    "keras-2-verbose-2": Sample(
        {
            178: {"perf/iter_time_sec": 0.012, "epoch": 1, "train_loss": 0.4816, "acc": 0.8333, "val_loss": 0.341,
                "val_acc": 0.8433},
            356: {"perf/iter_time_sec": 0.006, "epoch": 2, "train_loss": 0.4716, "acc": 0.8433, "val_loss": 0.34,
                "val_acc": 0.8533},
        },
        "Keras", release="2", total=534,
    ),
    "keras-3-verbose-2": Sample(
        {
            178: {"perf/iter_time_sec": 0.012, "epoch": 1, "accuracy": 0.8333, "train_loss": 0.4816,
                "val_accuracy": 0.8433, "val_loss": 0.341, "learning_rate": 0.0013333},
            356: {"perf/iter_time_sec": 0.006, "epoch": 2, "accuracy": 0.8433, "train_loss": 0.4716,
                "val_accuracy": 0.8533, "val_loss": 0.34, "learning_rate": 0.0013333},
        },
        "Keras", release="3", total=534,
    ),
    "litgpt-pretrain": Sample(
        {
            3050700: {"optimizer_step": 610140, "train_loss": 2.179, "last_val_loss": 2.194,
                "perf/iter_ms": 112.53, "remaining_time_s": 114.0, "epoch": 34},
            3050750: {"optimizer_step": 610150, "train_loss": 2.083, "last_val_loss": 2.194,
                "perf/iter_ms": 111.68, "remaining_time_s": 109.0, "epoch": 34, "val_loss": 2.1933,
                "val_time_ms": 3000.83},
        },
        "LitGPT", release="0.4 and later (2024 to 2026)",
    ),
    "litgpt-finetune": Sample(
        {
            1: {"optimizer_step": 0, "train_loss": 1.895, "perf/iter_ms": 298.5, "epoch": 1},
            2: {"optimizer_step": 1, "train_loss": 1.839, "perf/iter_ms": 174.97, "epoch": 1, "val_loss": 1.773,
                "val_time_ms": 512.83, "val_perplexity": 4.554},
        },
        "LitGPT", release="0.4 and later (2024 to 2026)",
    ),
    "verl-2025": Sample(
        {
            0: {"val-aux/openai/gsm8k/reward/mean@1": 0.898, "val-core/openai/gsm8k/acc/mean@1": 0.831},
            1: {"global_seqlen/min": 484245.333, "actor/entropy": 0.656, "actor/kl_loss": 0.333,
                "actor/pg_loss": 0.334, "actor/ppo_kl": -0.333, "actor/grad_norm": 0.353, "perf/mfu/actor": 0.676,
                "perf/max_memory_allocated_gb": 62.77, "actor/lr": 0.333, "training/global_step": 1.333,
                "training/epoch": 0.333, "critic/score/mean": 0.881, "prompt_length/clip_ratio": 0.333,
                "timing_s/gen": 20.8, "timing_per_token_ms/gen": 0.38, "perf/throughput": 2500.8},
        },
        "verl", release="0.3 and later (2025)",
    ),
    "verl-2024": Sample(
        {
            3: {"timing/gen": 305.323, "train_verify_score/math": 0.614, "reward_model/prm_loss": 0.053,
                "critic/kl": 0.333, "actor/pg_loss": -0.983, "actor/lr(1e-4)": 0.338, "critic/score/mean": 2.809},
            4: {"timing/gen": 300.323, "train_verify_score/math": 0.624, "reward_model/prm_loss": 0.043,
                "critic/kl": 0.333, "actor/pg_loss": -0.883, "actor/lr(1e-4)": 0.338, "critic/score/mean": 2.909},
        },
        "verl", release="0.1 to 0.7 (2024 to 2026)",
    ),
    "prime-rl-orchestrator": Sample(
        {
            28: {"perf/iter_time_sec": 73.0, "reward": 0.611, "perf/tokens_per_sec": 2408.2,
                "sequence_length": 345.9, "Async Level": 1, "Max. Off-Policy Level": 0},
            29: {"perf/iter_time_sec": 72.06, "reward": 0.7341, "perf/tokens_per_sec": 2288.4,
                "sequence_length": 323.6, "Async Level": 1, "Max. Off-Policy Level": 0},
        },
        "prime-rl", release="2025 and 2026",
    ),
    "ultralytics-8": Sample(
        {
            151: {"memory/reserved_gib": 10.7, "train/box_loss": 0.7968, "train/cls_loss": 0.5677,
                "train/dfl_loss": 0.138, "Instances": 1578, "Size": 640, "epoch": 151, "val/Images": 498,
                "val/Instances": 70099, "metrics/precision(B)": 0.26, "metrics/recall(B)": 0.238,
                "metrics/mAP50(B)": 0.274, "metrics/mAP50-95(B)": 0.15},
            152: {"memory/reserved_gib": 12.4, "train/box_loss": 0.796, "train/cls_loss": 0.567,
                "train/dfl_loss": 0.1382, "Instances": 1762, "Size": 640, "epoch": 152, "val/Images": 498,
                "val/Instances": 70099, "metrics/precision(B)": 0.267, "metrics/recall(B)": 0.238,
                "metrics/mAP50(B)": 0.274, "metrics/mAP50-95(B)": 0.15},
        },
        "Ultralytics", release="8 (2023 to 2025)", total=200,
    ),
    "ultralytics-masks": Sample(
        {
            1: {"memory/reserved_gib": 1.42, "train/box_loss": 0.9677, "train/seg_loss": 1.533,
                "train/cls_loss": 0.0989, "train/dfl_loss": 0.25, "train/sem_loss": 0.3433, "Instances": 120,
                "Size": 1024, "epoch": 1, "val/Images": 361, "val/Instances": 34288, "metrics/precision(B)": 0.291,
                "metrics/recall(B)": 0.211, "metrics/mAP50(B)": 0.212, "metrics/mAP50-95(B)": 0.118,
                "metrics/precision(M)": 0.293, "metrics/recall(M)": 0.213, "metrics/mAP50(M)": 0.218,
                "metrics/mAP50-95(M)": 0.133},
        },
        "Ultralytics", release="8.3.200 and later (2025, 2026)", total=10,
    ),
    "mmengine-years": Sample(
        {
            44320: {"epoch": 5, "base_lr": 0.00023333, "learning_rate": 0.013333, "eta_s": 179297.0,
                "perf/iter_time_sec": 0.1538, "data_time": 0.3447, "memory/max_allocated_mib": 5493,
                "grad_norm": 10.8333, "train_loss": 0.6572, "loss_cls": 0.4833, "loss_bbox": 0.3076},
            44370: {"epoch": 5, "base_lr": 0.00023333, "learning_rate": 0.013333, "eta_s": 179224.0,
                "perf/iter_time_sec": 0.179, "data_time": 0.3463, "memory/max_allocated_mib": 5493,
                "grad_norm": 11.8333, "train_loss": 0.7893, "loss_cls": 0.5473, "loss_bbox": 0.4366,
                "val/eta_s": 195.0, "val/time": 0.3896, "val/data_time": 0.3336, "val/max_allocated_mib": 1445,
                "val/coco/bbox_mAP": 0.6833, "val/coco/bbox_mAP_50": 0.8333, "val/coco/bbox_mAP_75": 0.6133,
                "val/coco/bbox_mAP_s": 0.3333},
        },
        "MMEngine", release="0.1 and later (2022 to 2026)", begins="2024-03-07 05:20:00.000",
        ends="2024-03-07 05:40:53.000",
    ),
    "timm-2022": Sample(
        {
            0: {"epoch_done_percent": 0, "train_loss": 6.297124, "train_loss_avg": 6.2972,
                "perf/iter_time_sec": 5.845, "perf/samples_per_sec": 46.77, "perf/iter_time_sec_avg": 5.845,
                "perf/samples_per_sec_avg": 46.77, "learning_rate": 1.333e-06, "data_time_s": 2.243,
                "data_time_s_avg": 2.243, "epoch": 0},
            50: {"epoch_done_percent": 4, "train_loss": 6.287124, "train_loss_avg": 6.2821,
                "perf/iter_time_sec": 0.845, "perf/samples_per_sec": 500.45, "perf/iter_time_sec_avg": 0.953,
                "perf/samples_per_sec_avg": 412.64, "learning_rate": 1.333e-06, "data_time_s": 0.343,
                "data_time_s_avg": 0.39, "epoch": 0, "val_batch_time_s": 0.358, "val_batch_time_s_avg": 0.438,
                "val_loss_last_batch": 6.7333, "val_loss": 6.7833, "val_top1_last_batch": 1.9333,
                "val_top1": 1.8833, "val_top5_last_batch": 4.9333, "val_top5": 4.8833},
        },
        "timm", release="0.6 to 1.0 (2022 to 2026)",
    ),
    "timm-ema": Sample(
        {
            0: {"epoch_done_percent": 0, "train_loss": 6.29, "train_loss_avg": 6.29, "perf/iter_time_sec": 5.845,
                "perf/samples_per_sec": 46.77, "perf/iter_time_sec_avg": 5.845, "perf/samples_per_sec_avg": 46.77,
                "learning_rate": 1.333e-06, "data_time_s": 2.243, "data_time_s_avg": 2.243, "epoch": 0},
            1250: {"epoch_done_percent": 100, "train_loss": 6.23, "train_loss_avg": 6.26,
                "perf/iter_time_sec": 0.745, "perf/samples_per_sec": 621.69, "perf/iter_time_sec_avg": 0.853,
                "perf/samples_per_sec_avg": 492.64, "learning_rate": 1.333e-06, "data_time_s": 0.333,
                "data_time_s_avg": 0.34, "epoch": 0, "val_batch_time_s": 0.358, "val_batch_time_s_avg": 0.438,
                "val_loss_last_batch": 6.733, "val_loss": 6.783, "val_top1_last_batch": 1.933, "val_top1": 1.883,
                "val_top5_last_batch": 4.933, "val_top5": 4.883, "eval time (EMA)": 0.358,
                "eval time_avg (EMA)": 0.438, "eval loss (EMA)": 6.233, "eval loss_avg (EMA)": 6.283,
                "eval top1 (EMA)": 0.433, "eval top1_avg (EMA)": 0.483, "eval top5 (EMA)": 0.933,
                "eval top5_avg (EMA)": 0.883},
        },
        "timm", release="0.6 to 1.0 (2022 to 2026)",
    ),
    "fairseq-2019": Sample(
        {
            445: {"epoch": 1, "train_loss": 11.854, "nll_loss": 10.114, "train_perplexity": 1886.38,
                "perf/tokens_per_sec": 52922, "perf/updates_per_sec": 0.8, "wpb": 104928, "bsz": 5325,
                "num_updates": 445, "learning_rate": 8.23112e-05, "grad_norm": 1.876, "clip_percent": 0, "oom": 0,
                "loss_scale": 2.333, "wall": 882, "train_wall": 756},
            495: {"epoch": 1, "train_loss": 11.679, "nll_loss": 10.901, "train_perplexity": 1637.16,
                "perf/tokens_per_sec": 53351, "perf/updates_per_sec": 0.8, "wpb": 104872, "bsz": 5322,
                "num_updates": 495, "learning_rate": 9.23109e-05, "grad_norm": 1.83, "clip_percent": 0, "oom": 0,
                "loss_scale": 2.333, "wall": 973, "train_wall": 840},
            600: {"epoch": 1, "val_loss": 8.44758, "valid_nll_loss valid": 6.1167, "val_perplexity": 118.39,
                "num_updates valid": 600},
        },
        "fairseq", release="0.9 and later (2020 to 2024)",
    ),
    "fairseq-2020": Sample(
        {
            2800: {"epoch": 1, "train_loss": 9.588, "train_perplexity": 611.45, "perf/tokens_per_sec": 57.6,
                "perf/updates_per_sec": 0.37, "wpb": 1613, "bsz": 80, "num_updates": 2800,
                "learning_rate": 2.1e-05, "grad_norm": 3.56, "train_wall": 13, "wall": 1236},
            2900: {"epoch": 1, "train_loss": 8.202, "train_perplexity": 504.06, "perf/tokens_per_sec": 53.8,
                "perf/updates_per_sec": 0.37, "wpb": 1504, "bsz": 64, "num_updates": 2900,
                "learning_rate": 2.2e-05, "grad_norm": 2.62, "train_wall": 13, "wall": 1265, "val_loss": 8.2,
                "nll_loss valid": 7.1, "val_perplexity": 222.4, "wps valid": 1234.8, "wpb valid": 900,
                "bsz valid": 40, "num_updates valid": 2900, "best_loss valid": 8.2, "loss epoch": 9.8,
                "nll_loss epoch": 8.9, "ppl epoch": 388.35, "wps epoch": 55, "ups epoch": 0.37, "wpb epoch": 1500,
                "bsz epoch": 60, "num_updates epoch": 2900, "lr epoch": 2.2e-05, "gnorm epoch": 3.4,
                "train_wall epoch": 380, "wall epoch": 1300},
        },
        "fairseq", release="0.9 and later (2020 to 2024)", begins="2020-03-07 07:11:02.000",
        ends="2020-03-07 07:12:32.000",
    ),
    "olmo-core-2025": Sample(
        {
            100: {"eta_s": 273600.0, "epoch": 1, "train_loss": 4.583, "train_perplexity": 70.44,
                "grad_norm": 0.083, "optim/LR (group 0)": 4.3e-05, "throughput/total tokens": 419430813,
                "perf/tokens_per_sec_per_gpu": 12428, "perf/mfu_percent": 41.83},
            110: {"eta_s": 273600.0, "epoch": 1, "train_loss": 4.483, "train_perplexity": 63.76},
        },
        "OLMo and OLMo-core", release="OLMo 2023 to 2025, OLMo-core 1 and 2 (2024 to 2026)", total=953674,
        begins="2025-03-07 10:00:00.456", ends="2025-03-07 10:01:00.456",
    ),
    "olmo": Sample(
        {
            20: {"epoch": 0, "grad_norm": 1.583, "train_loss": 5.083, "train_perplexity": 314.5,
                "throughput/total_tokens": 83886573, "perf/tokens_per_sec_per_gpu": 9145,
                "System/Peak GPU Memory (MB)": 45759},
        },
        "OLMo and OLMo-core", release="OLMo 2023 to 2025, OLMo-core 1 and 2 (2024 to 2026)", total=1000,
        begins="2024-03-07 10:00:00.456", ends="2024-03-07 10:00:00.456",
    ),
    "primus-2025": Sample(
        {
            1: {"consumed_samples": 128, "perf/iter_ms": 33687.4, "perf/iter_ms_avg": 0.3,
                "gpu/hip_memory_used_gib": 93.78, "gpu/hip_memory_free_gib": 98.88,
                "gpu/hip_memory_total_gib": 192.33, "gpu/hip_memory_used_percent": 48.9,
                "perf/tflops_per_gpu": 120.8, "perf/tflops_per_gpu_avg": 0.3,
                "perf/tokens_per_sec_per_gpu": 3890.8, "perf/tokens_per_sec_per_gpu_avg": 0.3,
                "learning_rate": 0.333333, "global_batch_size": 128, "train_loss": 14.12395, "loss_scale": 1.3,
                "grad_norm": 7.722, "skipped_iterations": 0, "nan_iterations": 0},
            2: {"consumed_samples": 256, "perf/iter_ms": 9836.6, "perf/iter_ms_avg": 9836.6,
                "gpu/hip_memory_used_gib": 93.88, "gpu/hip_memory_free_gib": 98.78,
                "gpu/hip_memory_total_gib": 192.33, "gpu/hip_memory_used_percent": 48.05,
                "perf/tflops_per_gpu": 420.8, "perf/tflops_per_gpu_avg": 420.8,
                "perf/tokens_per_sec_per_gpu": 13325.6, "perf/tokens_per_sec_per_gpu_avg": 13325.6,
                "learning_rate": 1.333333e-06, "global_batch_size": 128, "train_loss": 14.02395, "loss_scale": 1.3,
                "grad_norm": 6.722, "skipped_iterations": 0, "nan_iterations": 0},
        },
        "Primus", release="2025", total=50, begins="2025-11-21 12:10:29.000", ends="2025-11-21 12:10:39.000",
    ),
    "trainer-joined": Sample(
        {
            5: {"loss": 2.8, "grad_norm": 1.58, "learning_rate": 5e-05, "epoch": 0.8, "my_metric": 0.458},
            6: {"loss": 2.7, "grad_norm": 1.48, "learning_rate": 4e-05, "epoch": 0.9},
        },
        "Hugging Face Trainer", release="transformers 4",
    ),
    "verl-joined": Sample(
        {
            1: {"actor/pg_loss": 0.8, "critic/score/mean": 0.8, "val-core/a/acc/mean@1": 0.58},
            2: {"actor/pg_loss": 0.7, "critic/score/mean": 0.9},
        },
        "verl", release="0.1 to 0.7 (2024 to 2026)",
    ),
    "megatron-wrapped": Sample(
        {
            1: {"consumed_samples": 16, "perf/iter_ms": 100.8, "learning_rate": 0.00013, "train_loss": 2.8,
                "grad_norm": 1.583},
            2: {"consumed_samples": 32, "perf/iter_ms": 100.8, "learning_rate": 0.00013, "train_loss": 2.7,
                "grad_norm": 1.583},
        },
        "Megatron-LM", total=10,
    ),
    "torchtitan-srun": Sample(
        {
            1: {"train_loss": 7.95818, "grad_norm": 26.9583, "gpu/max_reserved_memory_gib": 66.24,
                "gpu/max_reserved_memory_percent": 37.84, "perf/tokens_per_sec_per_gpu": 10363,
                "perf/tflops_per_gpu": 314.03, "perf/mfu_percent": 13.22},
            2: {"train_loss": 7.95818, "grad_norm": 26.9583, "gpu/max_reserved_memory_gib": 66.24,
                "gpu/max_reserved_memory_percent": 37.84, "perf/tokens_per_sec_per_gpu": 10363,
                "perf/tflops_per_gpu": 314.03, "perf/mfu_percent": 13.22},
            3: {"train_loss": 7.95818, "grad_norm": 26.9583, "gpu/max_reserved_memory_gib": 66.24,
                "gpu/max_reserved_memory_percent": 37.84, "perf/tokens_per_sec_per_gpu": 10363,
                "perf/tflops_per_gpu": 314.03, "perf/mfu_percent": 13.22},
        },
        "TorchTitan", release="2025 and 2026", begins="2026-03-07 19:46:01.513", ends="2026-03-07 19:46:03.513",
    ),
    "nanogpt-kubectl": Sample(
        {
            1: {"train_loss": 2.4333, "perf/iter_ms": 1025.83, "perf/mfu_percent": 14.83},
            2: {"train_loss": 2.5333, "perf/iter_ms": 1025.83, "perf/mfu_percent": 14.83},
            3: {"train_loss": 2.6333, "perf/iter_ms": 1025.83, "perf/mfu_percent": 14.83},
        },
        "nanoGPT", release="2023 to 2025", begins="2026-02-24 19:46:01.456", ends="2026-02-24 19:46:03.456",
    ),
    "nanogpt-compose": Sample(
        {
            1: {"train_loss": 2.4333, "perf/iter_ms": 1025.83, "perf/mfu_percent": 14.83},
            2: {"train_loss": 2.5333, "perf/iter_ms": 1025.83, "perf/mfu_percent": 14.83},
            3: {"train_loss": 2.6333, "perf/iter_ms": 1025.83, "perf/mfu_percent": 14.83},
        },
        "nanoGPT", release="2023 to 2025",
    ),
    "nanogpt-journald": Sample(
        {
            1: {"train_loss": 2.4333, "perf/iter_ms": 1025.83, "perf/mfu_percent": 14.83},
            2: {"train_loss": 2.5333, "perf/iter_ms": 1025.83, "perf/mfu_percent": 14.83},
            3: {"train_loss": 2.6333, "perf/iter_ms": 1025.83, "perf/mfu_percent": 14.83},
        },
        "nanoGPT", release="2023 to 2025", begins="2026-02-24 19:46:01.000", ends="2026-02-24 19:46:03.000",
    ),
    "trainer-ray": Sample(
        {
            1: {"loss": 2.4, "grad_norm": 1.3, "learning_rate": 5e-05, "epoch": 0.4},
            2: {"loss": 2.5, "grad_norm": 1.3, "learning_rate": 5e-05, "epoch": 0.5},
            3: {"loss": 2.6, "grad_norm": 1.3, "learning_rate": 5e-05, "epoch": 0.6},
        },
        "Hugging Face Trainer", release="transformers 4", note="the log has no steps: its rows are numbered",
    ),
    "accelerate-stamps": Sample(
        {
            0: {"val_perplexity": 15.8, "val_loss": 2.07, "epoch": 0},
            1: {"val_perplexity": 14.8, "val_loss": 2.9, "epoch": 1},
        },
        "Accelerate examples", release="0.20 and later (2023 to 2026)", begins="2026-03-26 08:17:49.000",
        ends="2026-03-26 08:27:49.000",
    ),
    "accelerate-memory": Sample(
        {
            10: {"train_loss": 2.5833, "perf/steps_per_sec": 1.83, "perf/tokens_per_sec_per_gpu": 3072.33,
                "perf/tflops_per_gpu": 45.83, "memory/active_gb": 12.8, "memory/alloc_gb": 11.8,
                "memory/reserved_gb": 14.8},
        },
        "Accelerate examples", release="0.20 and later (2023 to 2026)", total=100,
    ),
    "lightning-rich": Sample(
        {
            10: {"epoch_time_s": 1.0, "perf/its_per_sec": 9.83, "epoch": 0, "train_loss": 2.633,
                "val_loss": 1.833},
            20: {"epoch_time_s": 1.0, "perf/its_per_sec": 9.83, "epoch": 1, "train_loss": 2.433,
                "val_loss": 1.733},
        },
        "Lightning", release="2 (2023 to 2026)", status="finished",
    ),
    "lightning-no-logger": Sample(
        {
            5: {"perf/its_per_sec": 5.33, "epoch": 0, "train_loss": 2.8},
            10: {"perf/its_per_sec": 5.33, "epoch": 0, "train_loss": 2.6},
        },
        "Lightning", release="2 (2023 to 2026)", status="finished",
    ),
    "keras-3-batches": Sample(
        {
            1: {"perf/iter_time_sec": 0.35, "epoch": 1, "accuracy": 0.4333, "train_loss": 2.6333},
            32: {"perf/iter_time_sec": 0.01, "epoch": 1, "accuracy": 0.6333, "train_loss": 1.2333,
                "val_accuracy": 0.7333, "val_loss": 1.0333},
            64: {"perf/iter_time_sec": 0.009, "epoch": 2, "accuracy": 0.7333, "train_loss": 1.9333,
                "val_accuracy": 0.8333, "val_loss": 1.8333},
        },
        "Keras", release="3 (2023 to 2026)", status="finished", total=64,
    ),
    "mmengine-segmentation": Sample(
        {
            50: {"base_lr": 0.013333, "learning_rate": 0.0013333, "eta_s": 86401.0, "perf/iter_time_sec": 0.4583,
                "data_time": 0.3433, "memory/max_allocated_mib": 345, "train_loss": 1.5833,
                "decode.loss_ce": 0.8333, "decode.acc_seg": 75.3333, "val/aAcc": 80.5833, "val/mIoU": 40.5833,
                "val/mAcc": 50.5833, "val/data_time": 0.3458, "val/time": 0.3583},
        },
        "MMEngine", release="0.1 and later (2022 to 2026)", total=1000, begins="2026-03-07 10:00:00.000",
        ends="2026-03-07 10:01:00.000",
    ),
    "ultralytics-classes": Sample(
        {
            1: {"memory/reserved_gib": 0.6, "train/loss": 2.678, "Instances": 16, "Size": 224, "epoch": 1,
                "metrics/accuracy_top1": 0.858, "metrics/accuracy_top5": 0.233},
        },
        "Ultralytics", release="8.3.200 and later (2025, 2026)", total=2,
    ),
    "ultralytics-poses": Sample(
        {
            1: {"memory/reserved_gib": 0.6, "train/box_loss": 1.678, "train/pose_loss": 2.678,
                "train/kobj_loss": 0.678, "train/cls_loss": 3.678, "train/dfl_loss": 1.478, "Instances": 16,
                "Size": 640, "epoch": 1, "val/Images": 4, "val/Instances": 14, "metrics/precision(B)": 0.244,
                "metrics/recall(B)": 0.145, "metrics/mAP50(B)": 0.246, "metrics/mAP50-95(B)": 0.047,
                "metrics/precision(P)": 0.148, "metrics/recall(P)": 0.049, "metrics/mAP50(P)": 0.04,
                "metrics/mAP50-95(P)": 0.741},
        },
        "Ultralytics", release="8 (2023 to 2025)", total=2,
    ),
    "trainer-restart": Sample(
        {
            1: {"loss": 2.8, "grad_norm": 1.58, "learning_rate": 5e-05, "epoch": 0.4},
            2: {"loss": 2.6, "grad_norm": 1.58, "learning_rate": 5e-05, "epoch": 0.5},
            3: {"loss": 2.5, "grad_norm": 1.58, "learning_rate": 5e-05, "epoch": 0.6},
        },
        "Hugging Face Trainer", release="transformers 4", note="training went back from step 2 to 2 at line 14",
    ),
    "bridge-torchx": Sample(
        {
            50: {"Step Time (s)": 9.32, "perf/tflops_per_gpu": 663.8, "consumed_samples": 25600,
                "perf/iter_ms": 9089.3, "learning_rate": 3.333333e-05, "global_batch_size": 512,
                "train_loss": 8.447547, "load_balancing_loss": 1.333333, "loss_scale": 1.3, "grad_norm": 0.375,
                "skipped_iterations": 0, "nan_iterations": 0},
        },
        "Megatron Bridge", release="0.1 and later (2025, 2026)", status="finished", total=50,
        begins="2025-03-07 15:18:33.000", ends="2025-03-07 15:18:33.000",
    ),
    "deepspeed-pipeline": Sample(
        {
            200: {"train_loss": 5.8831, "lm loss": 5.8436, "moe loss": 0.3738, "perf/iter_time_sec": 0.269,
                "perf/samples_per_sec": 136.039},
            210: {"train_loss": 5.7831, "lm loss": 5.7436, "moe loss": 0.3738, "perf/iter_time_sec": 0.259,
                "perf/samples_per_sec": 137.039},
        },
        "DeepSpeed", release="0.3 and later (2020 to 2026)",
    ),
    "modded-nanogpt-bpb": Sample(
        {
            0: {"val_loss": 6.268, "val_bpb": 4.43, "train_time_ms": 0, "step_avg_ms": 0.35},
            1: {"train_loss": 6.268, "train_time_ms": 325, "step_avg_ms": 325.58, "tok_s": 1612800},
            1000: {"val_loss": 2.5833, "val_bpb": 1.6633, "train_time_ms": 43000, "step_avg_ms": 43.33},
        },
        "modded-nanogpt", release="2024 to 2026", total=20000,
    ),
    "prime-rl-2025": Sample(
        {
            5: {"perf/iter_time_sec": 12.63, "train_loss": 0.4583, "entropy": 0.8333, "mismatch_kl": 0.3343,
                "grad_norm": 0.5833, "learning_rate": 1.33e-06, "perf/tokens_per_sec": 1234,
                "perf/mfu_percent": 12.8, "gpu/max_reserved_memory_gib": 70.4, "Max Vio": 0.8333},
            6: {"perf/iter_time_sec": 12.53, "train_loss": 0.4483, "entropy": 0.7233, "mismatch_kl": 0.3344,
                "grad_norm": 0.5733, "learning_rate": 1.33e-06, "perf/tokens_per_sec": 1244,
                "perf/mfu_percent": 12.9, "gpu/max_reserved_memory_gib": 70.4, "Max Vio": 0.7333},
        },
        "prime-rl", release="2025 and 2026",
    ),
    "prime-rl-sft-2025": Sample(
        {
            0: {"perf/iter_time_sec": 12.63, "train_loss": 1.4583, "grad_norm": 0.5833, "learning_rate": 1.33e-06,
                "perf/tokens_per_sec": 1234, "perf/mfu_percent": 12.8, "gpu/max_reserved_memory_gib": 70.4,
                "gpu/memory_total_gib": 80.3, "gpu/max_reserved_memory_percent": 87.9},
            1: {"perf/iter_time_sec": 2.63, "train_loss": 1.3583, "grad_norm": 0.5733, "learning_rate": 1.33e-06,
                "perf/tokens_per_sec": 11234, "perf/mfu_percent": 32.8, "gpu/max_reserved_memory_gib": 70.4,
                "gpu/memory_total_gib": 80.3, "gpu/max_reserved_memory_percent": 87.9},
        },
        "prime-rl", release="2025 and 2026",
    ),
    "prime-rl-val-reward": Sample(
        {
            3: {"perf/iter_time_sec": 12.63, "reward": 0.611, "Val. Reward": 0.7333, "perf/tokens_per_sec": 2408.2,
                "sequence_length": 345.9},
            4: {"perf/iter_time_sec": 12.63, "reward": 0.621, "perf/tokens_per_sec": 2418.2,
                "sequence_length": 346.9},
        },
        "prime-rl", release="2025 and 2026",
    ),
    "nanochat-2025": Sample(
        {
            10: {"done_percent": 1.33, "train_loss": 3.474826, "grad_norm": 1.5833, "lrm": 1.33,
                "perf/iter_time_sec": 0.12378, "perf/tokens_per_sec": 12428, "perf/mfu_percent": 12.67,
                "total_time_s": 19.8},
            11: {"done_percent": 1.43, "train_loss": 3.464826, "grad_norm": 1.5733, "lrm": 1.33,
                "perf/iter_time_sec": 0.12368000000000001, "perf/tokens_per_sec": 12435, "perf/mfu_percent": 12.68,
                "total_time_s": 19.8},
        },
        "nanochat", release="2025 and 2026", total=1000,
    ),
    "nanochat-rl": Sample(
        {
            0: {"Pass@1": 0.3833, "Pass@8": 0.5333, "reward": 0.3958, "sequence_length": 150.58},
        },
        "nanochat", release="2025 and 2026", total=467,
    ),
    "primus-torchtitan-2026": Sample(
        {
            1: {"train_loss": 11.4833, "grad_norm": 3.8333, "gpu/max_reserved_memory_gib": 95.83,
                "gpu/max_reserved_memory_percent": 33.49, "perf/tokens_per_sec_per_gpu": 1520,
                "perf/tflops_per_gpu": 30.33, "perf/mfu_percent": 3.33},
            2: {"train_loss": 11.5833, "grad_norm": 3.8333, "gpu/max_reserved_memory_gib": 95.83,
                "gpu/max_reserved_memory_percent": 33.49, "perf/tokens_per_sec_per_gpu": 1527,
                "perf/tflops_per_gpu": 30.33, "perf/mfu_percent": 3.33},
            3: {"train_loss": 11.6833, "grad_norm": 3.8333, "gpu/max_reserved_memory_gib": 95.83,
                "gpu/max_reserved_memory_percent": 33.49, "perf/tokens_per_sec_per_gpu": 1534,
                "perf/tflops_per_gpu": 30.33, "perf/mfu_percent": 3.33},
        },
        "Primus (TorchTitan back end)", release="2025 and 2026", begins="2026-06-01 08:00:01.000",
        ends="2026-06-01 08:00:03.000",
    ),
    "timm-epochs": Sample(
        {
            0: {"epoch_done_percent": 0, "train_loss": 6.33, "train_loss_avg": 6.23, "perf/iter_time_sec": 0.845,
                "perf/samples_per_sec": 500.45, "perf/iter_time_sec_avg": 0.953,
                "perf/samples_per_sec_avg": 412.64, "learning_rate": 1.333e-06, "data_time_s": 0.343,
                "data_time_s_avg": 0.39, "epoch": 0},
            1: {"epoch_done_percent": 50, "train_loss": 6.34, "train_loss_avg": 6.23, "perf/iter_time_sec": 0.845,
                "perf/samples_per_sec": 500.45, "perf/iter_time_sec_avg": 0.953,
                "perf/samples_per_sec_avg": 412.64, "learning_rate": 1.333e-06, "data_time_s": 0.343,
                "data_time_s_avg": 0.39, "epoch": 0},
            2: {"epoch_done_percent": 100, "train_loss": 6.35, "train_loss_avg": 6.23, "perf/iter_time_sec": 0.845,
                "perf/samples_per_sec": 500.45, "perf/iter_time_sec_avg": 0.953,
                "perf/samples_per_sec_avg": 412.64, "learning_rate": 1.333e-06, "data_time_s": 0.343,
                "data_time_s_avg": 0.39, "epoch": 0},
            3: {"epoch_done_percent": 0, "train_loss": 6.43, "train_loss_avg": 6.23, "perf/iter_time_sec": 0.845,
                "perf/samples_per_sec": 500.45, "perf/iter_time_sec_avg": 0.953,
                "perf/samples_per_sec_avg": 412.64, "learning_rate": 1.333e-06, "data_time_s": 0.343,
                "data_time_s_avg": 0.39, "epoch": 1},
            4: {"epoch_done_percent": 50, "train_loss": 6.44, "train_loss_avg": 6.23, "perf/iter_time_sec": 0.845,
                "perf/samples_per_sec": 500.45, "perf/iter_time_sec_avg": 0.953,
                "perf/samples_per_sec_avg": 412.64, "learning_rate": 1.333e-06, "data_time_s": 0.343,
                "data_time_s_avg": 0.39, "epoch": 1},
            5: {"epoch_done_percent": 100, "train_loss": 6.45, "train_loss_avg": 6.23, "perf/iter_time_sec": 0.845,
                "perf/samples_per_sec": 500.45, "perf/iter_time_sec_avg": 0.953,
                "perf/samples_per_sec_avg": 412.64, "learning_rate": 1.333e-06, "data_time_s": 0.343,
                "data_time_s_avg": 0.39, "epoch": 1},
        },
        "timm", release="0.6 to 1.0 (2022 to 2026)",
    ),
    "megatron-test-set": Sample(
        {
            10: {"consumed_samples": 160, "perf/iter_ms": 100.8, "train_loss": 2.833333, "val_loss": 2.733333,
                "val_perplexity": 14.35641, "test_loss": 2.783333, "test_perplexity": 14.81168},
        },
        "Megatron-LM", release="2024 and 2025", status="finished", total=10, begins="2026-03-07 10:00:00.000",
        ends="2026-03-07 10:00:00.000",
    ),
    "keras-3-unknown": Sample(
        {
            1: {"perf/iter_time_sec": 1.0, "epoch": 1, "train_loss": 2.8333},
            20: {"perf/iter_time_sec": 0.01, "epoch": 1, "train_loss": 2.3333, "val_loss": 1.8333},
            40: {"perf/iter_time_sec": 0.01, "epoch": 2, "train_loss": 1.1333, "val_loss": 1.7333},
        },
        "Keras", release="3 (2023 to 2026)", status="finished", total=40,
    ),
    "levanter-slow": Sample(
        {
            19: {"perf/sec_per_it": 76.1, "remaining_time_s": 3915.0, "train_loss": 1.58},
            20: {"perf/sec_per_it": 76.8, "remaining_time_s": 3855.0, "train_loss": 1.57},
        },
        "levanter", release="1 (2023 to 2026)", total=70, begins="2026-05-05 10:00:00.000",
        ends="2026-05-05 10:01:17.000",
    ),
    "maxtext-eval": Sample(
        {
            9: {"perf/iter_time_sec": 1.674, "perf/tflops_per_gpu": 257.252,
                "perf/tokens_per_sec_per_gpu": 36653.577, "total_weights": 512, "train_loss": 5.583,
                "val_loss": 5.458, "total_weights validation": 2048.3},
            10: {"perf/iter_time_sec": 1.664, "perf/tflops_per_gpu": 258.252,
                "perf/tokens_per_sec_per_gpu": 36753.577, "total_weights": 512, "train_loss": 5.483},
        },
        "MaxText", release="2024 and 2025",
    ),
    "olmo-core-eval": Sample(
        {
            10: {"eta_s": 3720.0, "epoch": 1, "train_loss": 4.583, "eval/CE loss": 3.233, "eval/PPL": 49.73},
            20: {"eta_s": 3660.0, "epoch": 1, "train_loss": 4.483},
        },
        "OLMo and OLMo-core", release="OLMo 2023 to 2025, OLMo-core 1 and 2 (2024 to 2026)", total=100,
        begins="2025-03-07 10:00:00.456", ends="2025-03-07 10:00:15.456",
    ),
    "fairseq-bars": Sample(
        {
            49: {"epoch": 1, "train_loss": 13.36, "train_perplexity": 8405.94, "perf/tokens_per_sec": 2288,
                "perf/updates_per_sec": 0.5, "wpb": 2526, "bsz": 168, "num_updates": 49, "learning_rate": 0.58,
                "grad_norm": 0.877, "clip": 1, "train_wall": 10, "wall": 15},
            50: {"epoch": 1, "train_loss": 13.35, "train_perplexity": 8404.07, "perf/tokens_per_sec": 2304,
                "perf/updates_per_sec": 0.6, "wpb": 2559, "bsz": 168, "num_updates": 50, "learning_rate": 0.58,
                "grad_norm": 0.887, "clip": 1, "train_wall": 10, "wall": 16},
            70: {"epoch": 1, "loss epoch": 12.8, "ppl epoch": 5792.9, "wps epoch": 2300, "ups epoch": 0.6,
                "wpb epoch": 2500, "bsz epoch": 160, "num_updates epoch": 70, "lr epoch": 0.58, "gnorm epoch": 0.8,
                "clip epoch": 0, "train_wall epoch": 40, "wall epoch": 45},
        },
        "fairseq", release="0.9 and later (2020 to 2024)",
    ),
    "olmo-core-rich": Sample(
        {
            1: {"epoch": 1, "train_loss": 11.58, "grad_norm": 5.583},
            2: {"eta_s": 3600.0, "epoch": 1, "train_loss": 11.38, "grad_norm": 5.483},
        },
        "OLMo and OLMo-core", release="OLMo 2023 to 2025, OLMo-core 1 and 2 (2024 to 2026)", total=100,
        begins="2025-05-05 10:00:00.000", ends="2025-05-05 10:00:10.000",
    ),
    "nemo-mpirun": Sample(
        {
            0: {"epoch": 0, "learning_rate": 1e-06, "global_batch_size": 32, "global_step": 0, "train_loss": 9.58,
                "perf/iter_time_sec": 12.8},
            1: {"epoch": 0, "learning_rate": 2e-06, "global_batch_size": 32, "global_step": 1, "train_loss": 9.48,
                "perf/iter_time_sec": 2.8, "consumed_samples": 64},
        },
        "NeMo 2", release="2.0 and later (2024 to 2026)",
    ),
    "megatron-energy": Sample(
        {
            10: {"consumed_samples": 160, "perf/iter_ms": 1000.8, "perf/tflops_per_gpu": 400.8,
                "perf/energy_per_gpu_j": 650.8, "perf/power_per_gpu_w": 650.5, "learning_rate": 0.0001333333,
                "global_batch_size": 16, "train_loss": 5.833333, "indexer loss": 0.1583333, "z_loss": 2.333333e-05,
                "loss_scale": 1.3, "grad_norm": 1.583, "num_zeros": 12, "params_norm": 100.833,
                "max attention logit": 25.833, "skipped_iterations": 0, "nan_iterations": 0},
        },
        "Megatron-LM", release="2026 (stamps with microseconds)", total=100, begins="2026-03-07 10:00:00.456",
        ends="2026-03-07 10:00:00.456",
    ),
    "verl-numpy": Sample(
        {
            1: {"actor/a": 0.8333, "actor/b": 3, "critic/c": 1.58, "val-core/x/acc/mean@1": math.nan,
                "actor/lr": 1e-06},
        },
        "verl", release="0.3 and later (2025)",
    ),
    "trainer-evaluation": Sample(
        {
            2: {"loss": 2.8, "grad_norm": 1.3, "learning_rate": 5e-05, "epoch": 0.8, "eval_loss": 2.58,
                "eval_runtime": 1.8, "eval_samples_per_second": 10.3, "eval_steps_per_second": 5.3},
            4: {"loss": 2.3, "grad_norm": 0.2, "learning_rate": 0.3, "epoch": 1.3, "train_runtime": 6.8,
                "train_samples_per_second": 5.3, "train_steps_per_second": 0.9, "train_loss": 2.58},
        },
        "Hugging Face Trainer", release="transformers 4", status="finished",
    ),
    "torchtitan-interleaved": Sample(
        {
            1: {"train_loss": 12.5833, "grad_norm": 1.5833, "gpu/max_reserved_memory_gib": 40.33,
                "gpu/max_reserved_memory_percent": 50.33, "perf/tokens_per_sec_per_gpu": 1013,
                "perf/tflops_per_gpu": 10.33, "perf/mfu_percent": 1.33},
            10: {"train_loss": 11.5833, "grad_norm": 1.4833, "gpu/max_reserved_memory_gib": 41.33,
                "gpu/max_reserved_memory_percent": 51.58, "perf/tokens_per_sec_per_gpu": 9013,
                "perf/tflops_per_gpu": 90.33, "perf/mfu_percent": 9.33},
        },
        "TorchTitan", release="2025 and 2026", begins="2026-03-07 10:00:01.013", ends="2026-03-07 10:00:11.013",
    ),
    "nanogpt-resumed": Sample(
        {
            2000: {"train/loss": 3.4333, "val_loss": 3.5333, "train_loss": 3.4833, "perf/iter_ms": 9000.33},
            2010: {"train_loss": 3.4733, "perf/iter_ms": 500.33, "perf/mfu_percent": 30.33},
        },
        "nanoGPT", release="2023 to 2025",
    ),
}
# fmt: on
