"""The same training, logged as Megatron does it: Megatron's names in every tracker, its lines on the console.

    python examples/gpt2/megatron_log.py --tracker tensorboard,json --max-iters 200 --log-interval 20
    torchrun --nproc-per-node 4 examples/gpt2/megatron_log.py --tracker json

Takes train.py's flags. Values come from the last rank, as in a pipeline.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from data import VOCABULARY, batch, load
from model import GPT, Shape
from torch import nn
from train import configuration, evaluate, learning_rate, parse

from trackers.configuration import flags_from_args
from trackers.frameworks.megatron import LoggerConfig, start
from trackers.instruments.flops import Transformer


def logger_config(args: argparse.Namespace) -> LoggerConfig:
    """Everything on; energy where there is a GPU, or it is asked for. How it is told is as the options say."""
    asked = LoggerConfig.from_options(*flags_from_args(args))
    return LoggerConfig(
        log_interval=args.log_interval,
        tensorboard_log_interval=max(1, args.log_interval // 2),
        log_params_norm=True,
        log_num_zeros_in_grad=True,
        log_l2_norm_grad_to_tensorboard=True,
        log_throughput=True,
        log_throughput_to_tensorboard=True,
        log_timers_to_tensorboard=True,
        timing_log_level=2,
        log_memory_to_tensorboard=True,
        log_runtime_to_tensorboard=True,
        log_world_size_to_tensorboard=True,
        log_validation_ppl_to_tensorboard=True,
        log_energy=torch.cuda.is_available() or asked.log_energy,
        timing_log_option=asked.timing_log_option,
        runtime_time_unit=asked.runtime_time_unit,
        throughput_window_size=asked.throughput_window_size,
        memory_keys=asked.memory_keys,
    )


def train(args: argparse.Namespace, rank: int, ranks: int, checkpoint: Path) -> None:
    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    train_tokens, val_tokens = load()
    gpt = GPT(Shape(VOCABULARY, args.block_size, args.n_layer, args.n_head, args.n_embd)).to(device)
    model: nn.Module = nn.parallel.DistributedDataParallel(gpt) if ranks > 1 else gpt
    optimizer = torch.optim.AdamW(gpt.parameters(), betas=(0.9, 0.95), weight_decay=args.weight_decay)
    random = torch.Generator().manual_seed(args.seed + rank)
    sizes = Transformer(
        layers=args.n_layer, width=args.n_embd, heads=args.n_head, vocabulary=VOCABULARY, length=args.block_size
    )
    flags, defconfig = flags_from_args(args)
    log = start(
        logger_config(args),
        run_config=configuration(args, gpt, ranks),
        init={"flags": flags, "defconfig": defconfig},
        train_iters=args.max_iters,
        global_batch_size=ranks * args.batch_size,
        micro_batch_size=args.batch_size,
        seq_length=args.block_size,
        flops_per_token=sizes.per_token(),
        model=gpt,
        optimizer=optimizer,
    )
    for iteration in range(1, args.max_iters + 1):
        rate = learning_rate(iteration, args)
        for group in optimizer.param_groups:
            group["lr"] = rate
        with log.timers("batch-generator"):
            inputs, targets = batch(train_tokens, args.batch_size, args.block_size, random)
        with log.timers("forward-backward", log_level=1):
            with log.timers("forward-compute"):
                loss = model(inputs.to(device), targets.to(device))
            optimizer.zero_grad(set_to_none=True)
            with log.timers("backward-compute"):
                loss.backward()
        with log.timers("optimizer", log_level=1):
            grad_norm = nn.utils.clip_grad_norm_(gpt.parameters(), args.grad_clip)
            optimizer.step()
        log.training_log({"lm loss": loss.detach()}, {}, rate, None, iteration, 1.0, iteration == 1, 0, grad_norm, None,
                         None)  # fmt: skip
        if iteration % args.eval_interval == 0 or iteration == args.max_iters:
            with log.pause("evaluation"):
                log.validation_log({"lm loss": evaluate(gpt, val_tokens, args, device)}, iteration)
            with log.checkpoint():
                if rank == 0:
                    torch.save({"model": gpt.state_dict(), "iteration": iteration}, checkpoint)
                if ranks > 1:
                    dist.barrier()
    log.run.finish()


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    try:
        with tempfile.TemporaryDirectory() as folder:
            train(args, rank, ranks, Path(folder, "checkpoint.pt"))
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
