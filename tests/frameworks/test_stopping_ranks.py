"""A job of several ranks that is asked to stop, and to save, in each framework's own loop: all leave it at one step."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import forked
from tests.frameworks.support import directories
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import last_status
from trackers.support import run_requests

pytestmark = [pytest.mark.processes, pytest.mark.slow]

HEAD = """
import os, torch
from pathlib import Path
from trackers.support import run_requests
from trackers.training import stopping
stopping.AHEAD_S = 2.0
RANK = int(os.environ["RANK"])

def ask(step):  # as `trackers stop --checkpoint` does, while training goes on
    if RANK == 0 and step == 5:
        (found,) = Path("runs").glob("*/*/run.json")
        run_requests.ask(found.parent, run_requests.new_request(
            1, stop=True, checkpoint=True, who="alice", by="trackers stop", reason="enough"))

def ended(step, *saved):
    Path(f"ended.{RANK}").write_text(" ".join(map(str, [step, *saved])))
"""

ACCELERATE = """
from accelerate import Accelerator, InitProcessGroupKwargs
from trackers.frameworks.accelerate import TrackersTracker
tracker, saved = TrackersTracker("json", name="one"), []
gloo = InitProcessGroupKwargs(backend="gloo")  # where torch has MPI, it would be that
accelerator = Accelerator(log_with=tracker, cpu=True, kwargs_handlers=[gloo])
accelerator.init_trackers("p")
for step in range(100_000):
    accelerator.log({"loss": 1.0}, step=step)
    ask(step)
    accelerator.wait_for_everyone()
    asked = tracker.asked()
    if asked.save:
        saved.append(step)
    if asked.stop:
        break
ended(step, *saved)
accelerator.end_training()
"""

TRANSFORMERS = """
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from trackers.frameworks.transformers import TrackersCallback

class Asks(TrainerCallback):
    def on_step_end(self, args, state, control, **more):
        ask(state.global_step)

rows = [{"input_ids": [1, 2, 3, 4], "labels": [1, 2, 3, 4]} for _ in range(8)]
made = Trainer(
    model=GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=1, vocab_size=16, n_positions=8)),
    args=TrainingArguments(
        output_dir="out", max_steps=100_000, per_device_train_batch_size=2, logging_steps=1, use_cpu=True,
        ddp_backend="gloo", save_strategy="no", report_to=[], disable_tqdm=True),
    train_dataset=rows, callbacks=[TrackersCallback("json", project="p", name="one"), Asks()])
made.train()
ended(made.state.global_step, *(path.name.split("-")[1] for path in Path("out").glob("checkpoint-*")))
"""

LIGHTNING = """
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset
from trackers.frameworks.lightning import TrackersLogger

class Line(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def training_step(self, batch, index):
        return (self.layer(batch[0]) ** 2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

class Asks(Callback):
    def on_train_batch_end(self, trainer, *more):
        ask(trainer.global_step)

data = DataLoader(TensorDataset(torch.arange(16.0).reshape(8, 2) / 16), batch_size=2)
trainer = Trainer(
    logger=TrackersLogger("json", project="p", name="one"), strategy="ddp", devices=3, accelerator="cpu",
    max_steps=100_000, max_epochs=-1, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
    callbacks=[Asks()])
trainer.fit(Line(), data)
ended(trainer.global_step, *(path.stem.split("=")[1] for path in Path().rglob("asked-step=*.ckpt")))
"""

MEGATRON = """
from types import SimpleNamespace
from trackers.frameworks.megatron import LoggerConfig, start
torch.distributed.init_process_group("gloo")
args = SimpleNamespace(save="out", save_interval=None, exit_interval=None)
log = start(LoggerConfig(), train_iters=100_000, global_batch_size=8, trackers="json",
            init={"name": "one", "project": "p"})
log.obey(args)
saved = []

def checkpoint_and_decide_exit(iteration):  # what Megatron-LM's function of this name does with these arguments
    is_saved = bool(args.save and args.save_interval and iteration % args.save_interval == 0)
    if is_saved:
        saved.append(iteration)
    if args.exit_interval and iteration % args.exit_interval == 0:
        if args.save and not is_saved:
            saved.append(iteration)
        torch.distributed.barrier()
        return True
    return False

for iteration in range(1, 100_000):
    torch.distributed.barrier()
    ask(iteration)
    log.training_log({"lm loss": 1.0}, {}, 0.1, None, iteration, None, False, 0, None, None, None)
    if checkpoint_and_decide_exit(iteration):
        break
ended(iteration, *saved)
log.close()
log.run.finish()
"""


@pytest.mark.parametrize(
    "loop", [ACCELERATE, TRANSFORMERS, LIGHTNING, MEGATRON], ids=["accelerate", "transformers", "lightning", "megatron"]
)
def test_all_ranks_leave_the_loop_at_the_same_step(loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has saved by then, and the run ends as stopped, with who asked and why."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACKER_SAMPLE", "n")
    Path("train.py").write_text(HEAD + loop)
    done = forked.run([sys.executable, "train.py"], ranks=3, preload=forked.TORCH, timeout=280)
    assert done.returncode == 0, done.stderr
    ends = [[int(word) for word in Path(f"ended.{rank}").read_text().split()] for rank in range(3)]
    assert len({step for step, *_ in ends}) == 1
    step, *saved = ends[0]
    assert 5 < step < 99_999
    assert len(saved) >= 1
    assert max(saved) <= step
    (run,) = directories()
    status = last_status(RunDirectory(run))
    assert (status.name, status.reason) == ("stopped", "by alice (trackers stop): enough")
    control = run_requests.read_control(run_requests.control_path(Path(run), 1))
    assert len(control.saved) == 1
