"""Train a small GPT on real text, on one process or many, and log it to the trackers chosen by flag or .config.

    python examples/gpt2/train.py --tracker wandb,trackio --tracker-project gpt2-ablation
    python examples/gpt2/train.py --defconfig gpt2-local
    torchrun --nproc-per-node 2 examples/gpt2/train.py --tracker json

Needs torch. Every rank computes; rank 0 logs. Losses are in nats per token (a byte of text).
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from data import VOCABULARY, batch, load, text_of
from model import GPT, Shape
from torch import nn

import trackers
from trackers.instruments.flops import Transformer

PROMPTS = ("The ", "An expression ", "class ")


def perplexity(loss: float) -> float:
    """exp(loss), with the loss cut at 20 nats so that an untrained model's is a number one can plot."""
    return math.exp(min(loss, 20.0))


def learning_rate(step: int, args: argparse.Namespace) -> float:
    """Linear warm-up, then a cosine down to a tenth. step: from 1."""
    if step <= args.warmup_iters:
        return float(args.learning_rate * step / args.warmup_iters)
    done = (step - args.warmup_iters) / max(1, args.max_iters - args.warmup_iters)
    return float(args.learning_rate * (0.1 + 0.9 * (1 + math.cos(math.pi * done)) / 2))


def mean_over_ranks(value: torch.Tensor) -> float:
    """The mean over all ranks; each rank must call it."""
    if dist.is_initialized():
        dist.all_reduce(value)
        value = value / dist.get_world_size()
    return float(value)


@torch.no_grad()
def evaluate(model: nn.Module, tokens: torch.Tensor, args: argparse.Namespace, device: torch.device) -> float:
    """Mean loss over the same stretches of text each time, so that evaluations can be compared."""
    random = torch.Generator().manual_seed(args.seed)
    model.eval()
    losses = []
    for _ in range(args.eval_iters):
        inputs, targets = batch(tokens, args.batch_size, args.block_size, random)
        losses.append(model(inputs.to(device), targets.to(device)))
    model.train()
    return float(torch.stack(losses).mean())


def samples(model: GPT, args: argparse.Namespace, device: torch.device, step: int) -> trackers.Table:
    """What the model writes after each prompt."""
    random = torch.Generator().manual_seed(args.seed)
    table = trackers.Table(columns=["iteration", "prompt", "generated"])
    for prompt in PROMPTS:
        tokens = torch.tensor([list(prompt.encode())], device=device)
        written = model.generate(tokens, args.sample_tokens, 0.8, random)
        table.add_data(step, prompt, text_of(written[0, tokens.shape[1] :]))
    return table


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small GPT and log the run.")
    parser.add_argument("--model-name", default="gpt2", help="what run and project names call the model")
    parser.add_argument("--variant", default="baseline", help="what run names call this setting")
    parser.add_argument("--n-layer", type=int, default=4)
    parser.add_argument("--n-head", type=int, default=4)
    parser.add_argument("--n-embd", type=int, default=128, help="width of the model")
    parser.add_argument("--block-size", type=int, default=128, help="tokens the model sees at once")
    parser.add_argument("--batch-size", type=int, default=16, help="stretches of text per step and rank")
    parser.add_argument("--max-iters", type=int, default=1000, help="optimizer steps")
    parser.add_argument("--warmup-iters", type=int, default=50)
    parser.add_argument("--optimizer", choices=("adamw", "sgd"), default="adamw")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--grad-clip", type=float, default=1.0, help="largest l2 norm of the gradient")
    parser.add_argument("--log-interval", type=int, default=10, help="steps that a logged loss is the mean of")
    parser.add_argument("--eval-interval", type=int, default=100, help="steps between evaluations")
    parser.add_argument("--eval-iters", type=int, default=20, help="batches per evaluation")
    parser.add_argument("--sample-tokens", type=int, default=100, help="bytes of text generated per prompt")
    parser.add_argument("--log-communication", action="store_true", help="time the exchange of gradients between ranks")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--seed", type=int, default=1337)
    trackers.add_arguments(parser)
    return parser.parse_args(argv)


def configuration(args: argparse.Namespace, model: nn.Module, world_size: int) -> dict[str, Any]:
    """What the run is to be found and compared by."""
    return {
        "model": args.model_name,
        "optimizer": args.optimizer,
        "variant": args.variant,
        "n_layer": args.n_layer,
        "n_head": args.n_head,
        "n_embd": args.n_embd,
        "block_size": args.block_size,
        "batch_size": args.batch_size,
        "tokens_per_iter": world_size * args.batch_size * args.block_size,
        "max_iters": args.max_iters,
        "warmup_iters": args.warmup_iters,
        "learning_rate": args.learning_rate,
        "weight_decay": args.weight_decay,
        "grad_clip": args.grad_clip,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "world_size": world_size,
        "device": args.device,
        "dtype": "float32",
        "compile": args.compile,
        "seed": args.seed,
        "torch": torch.__version__,
    }


def train(args: argparse.Namespace, device: torch.device, rank: int, world_size: int) -> None:
    torch.manual_seed(args.seed)
    train_tokens, val_tokens = load()
    gpt = GPT(Shape(VOCABULARY, args.block_size, args.n_layer, args.n_head, args.n_embd)).to(device)
    model: nn.Module = nn.parallel.DistributedDataParallel(gpt) if world_size > 1 else gpt
    wrapped = model
    if args.compile:
        model = torch.compile(model)
    optimizer: torch.optim.Optimizer
    if args.optimizer == "adamw":
        optimizer = torch.optim.AdamW(gpt.parameters(), betas=(0.9, 0.95), weight_decay=args.weight_decay)
    else:
        optimizer = torch.optim.SGD(gpt.parameters(), momentum=0.9, weight_decay=args.weight_decay)
    random = torch.Generator().manual_seed(args.seed + rank)
    tokens_per_iter = world_size * args.batch_size * args.block_size
    sizes = Transformer(
        layers=args.n_layer, width=args.n_embd, heads=args.n_head, vocabulary=VOCABULARY, length=args.block_size
    )
    since_log = torch.zeros((), device=device)
    steps_since_log = 0
    best_loss = math.inf

    config = configuration(args, gpt, world_size)
    with tempfile.TemporaryDirectory() as folder, trackers.init_from_args(args, config=config) as run:
        checkpoint = Path(folder, "checkpoint.pt")
        # What it measures is chosen by flags: --tracker-log-throughput, --tracker-log-norms, --tracker-timing-level …
        loop = run.loop(
            args.max_iters,
            samples_per_step=world_size * args.batch_size,
            tokens_per_step=tokens_per_iter,
            micro_batch_size=args.batch_size,
            flops_per_token=sizes.per_token(),
            model=gpt,
            optimizer=optimizer,
        )
        if args.log_communication and world_size > 1:
            run.communications.watch(wrapped)
        for step in range(1, args.max_iters + 1):
            rate = learning_rate(step, args)
            for group in optimizer.param_groups:
                group["lr"] = rate
            with run.timer("batch-generator", level=2):
                inputs, targets = batch(train_tokens, args.batch_size, args.block_size, random)
            with run.timer("forward-backward", level=1):
                with run.timer("forward-compute", level=2):
                    loss = model(inputs.to(device), targets.to(device))
                optimizer.zero_grad(set_to_none=True)
                with run.timer("backward-compute", level=2):
                    loss.backward()
            with run.timer("optimizer", level=1):
                nn.utils.clip_grad_norm_(gpt.parameters(), args.grad_clip)
                optimizer.step()
            loop.step()
            since_log += loss.detach()
            steps_since_log += 1

            if step % args.log_interval == 0 or step == args.max_iters:
                mean = mean_over_ranks(since_log / steps_since_log)
                values = {"iteration": step, "train_loss": mean, "train_perplexity": perplexity(mean)}
                values["learning_rate"] = rate
                pace = loop.pace()
                if pace is not None:
                    values |= {
                        "perf/iter_time_sec": pace.step_s,
                        "perf/tokens_per_sec": pace.per_second(tokens_per_iter),
                    }
                run.log(values, step=step)
                since_log.zero_()
                steps_since_log = 0

            if step % args.eval_interval == 0 or step == args.max_iters:
                with loop.pause("evaluation"):
                    # Rank 0 alone evaluates, without DDP's wrapper, which would wait for the others, and tells them.
                    found = torch.tensor(evaluate(gpt, val_tokens, args, device) if rank == 0 else 0.0, device=device)
                    if world_size > 1:
                        dist.broadcast(found, 0)
                    val_loss = float(found)
                    run.log({"val_loss": val_loss, "val_perplexity": perplexity(val_loss)}, step=step)
                    if rank == 0:
                        run.log({"samples/generated_text": samples(gpt, args, device, step)}, step=step)
                if val_loss < best_loss:
                    best_loss = val_loss
                    with loop.checkpoint():
                        if rank == 0:
                            state = {"model": gpt.state_dict(), "step": step, "val_loss": val_loss, "config": config}
                            # Rewritten in place: the run keeps each version as it was when logged.
                            torch.save(state, checkpoint)
                            about = {"step": step, "val_loss": val_loss}
                            run.log_artifact(checkpoint, name="checkpoint", type="model", metadata=about)
                        if world_size > 1:
                            dist.barrier()
        if rank == 0:
            run.log({"final/best_val_loss": best_loss, "final/best_val_perplexity": perplexity(best_loss)})
            print(f"best validation loss {best_loss:.4f}, perplexity {perplexity(best_loss):.2f}")


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device(args.device)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if world_size > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        train(args, device, rank, world_size)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
