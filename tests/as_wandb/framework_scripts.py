"""Frameworks with their own W&B loggers, unchanged: two tiny epochs each; run as :mod:`tests.as_wandb.patterns` is."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

from tests.as_wandb.patterns import installed

Script = Callable[[Any], None]
SCRIPTS: dict[str, Script] = {}


def script(function: Script) -> Script:
    """Add a script to the table."""
    SCRIPTS[function.__name__] = function
    return function


def _lightning(package: Any, project: str) -> None:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class Module(package.LightningModule):  # type: ignore[misc]
        def __init__(self, lr: float = 0.1) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            loss = ((self.layer(batch[0]) - batch[1]) ** 2).mean()
            self.log("train/loss", loss)
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val/loss", ((self.layer(batch[0]) - batch[1]) ** 2).mean())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=self.hparams["lr"])

    torch.manual_seed(0)
    inputs = torch.randn(32, 4)
    data = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8)
    logger = package.loggers.WandbLogger(project=project, name="base", save_dir=".", log_model=True, tags=["t"])
    module = Module()
    logger.log_hyperparams({"batch": 8})
    trainer = package.Trainer(
        max_epochs=2, logger=logger, log_every_n_steps=1, accelerator="cpu", enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(module, data, data)
    logger.log_table("table", columns=["a"], data=[[1]])
    logger.log_image("images", [torch.zeros(3, 4, 4)])
    logger.log_metrics({"after": 1.0}, step=100)


@script
def lightning(wandb: Any) -> None:
    """``lightning``'s WandbLogger."""
    import lightning.pytorch as package

    _lightning(package, "lightning")
    wandb.finish()


@script
def pytorch_lightning(wandb: Any) -> None:
    """``pytorch_lightning``'s WandbLogger."""
    import pytorch_lightning as package

    _lightning(package, "pytorch_lightning")
    wandb.finish()


@script
def fabric(wandb: Any) -> None:
    """wandb's own logger for Lightning Fabric."""
    from wandb.integration.lightning.fabric import WandbLogger

    logger = WandbLogger(project="fabric", save_dir=".")
    logger.log_hyperparams({"lr": 0.1})
    for step in (1, 2):
        logger.log_metrics({"loss": 1.0 / step}, step=step)
    logger.log_table("table", columns=["a"], data=[[1]])
    logger.finalize("success")
    wandb.finish()


@script
def huggingface(wandb: Any) -> None:
    """Transformers' Trainer with ``report_to="wandb"``."""
    import os

    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    torch.manual_seed(0)
    small = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=50)
    rows = [{"input_ids": torch.tensor([1, 2, 3, row]), "labels": torch.tensor(row % 2)} for row in range(16)]
    arguments = TrainingArguments(
        "out", num_train_epochs=2, per_device_train_batch_size=8, report_to="wandb", logging_steps=1, disable_tqdm=True,
        eval_strategy="epoch", use_cpu=True, run_name="bert", save_strategy="no",
    )  # fmt: skip
    os.environ["WANDB_WATCH"] = "false"
    trainer = Trainer(BertForSequenceClassification(small), arguments, train_dataset=rows, eval_dataset=rows)
    trainer.train()
    trainer.evaluate()
    wandb.finish()


@script
def accelerate(wandb: Any) -> None:
    """Accelerate with ``log_with="wandb"``."""
    import numpy as np
    import torch
    from accelerate import Accelerator

    torch.manual_seed(0)
    accelerator = Accelerator(log_with="wandb", cpu=True)
    accelerator.init_trackers("accelerate", config={"lr": 0.1}, init_kwargs={"wandb": {"name": "a", "tags": ["t"]}})
    model = torch.nn.Linear(2, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    for step in range(6):
        loss = model(torch.ones(4, 2)).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.log({"loss": loss.item(), "epoch": step // 3}, step=step)
    tracker = accelerator.get_tracker("wandb")
    tracker.log_images({"image": [np.zeros((4, 4, 3), dtype=np.uint8)]}, step=5)
    tracker.log_table("table", columns=["a"], data=[[1]], step=5)
    assert accelerator.get_tracker("wandb", unwrap=True).id
    accelerator.end_training()


def _data() -> tuple[Any, Any]:
    import numpy as np

    generator = np.random.default_rng(0)
    inputs = generator.random((100, 4))
    return inputs, inputs.sum(1)


@script
def xgboost(wandb: Any) -> None:
    """wandb's callback for XGBoost."""
    import xgboost as library
    from wandb.integration.xgboost import WandbCallback

    inputs, targets = _data()
    with wandb.init(project="xgboost", name="x"):
        callback = WandbCallback(log_model=True)
        model = library.XGBRegressor(n_estimators=3, eval_metric="rmse", callbacks=[callback], n_jobs=1)
        model.fit(inputs, targets, eval_set=[(inputs, targets)], verbose=False)


@script
def lightgbm(wandb: Any) -> None:
    """wandb's callback for LightGBM."""
    import lightgbm as library
    from wandb.integration.lightgbm import log_summary, wandb_callback

    inputs, targets = _data()
    run = wandb.init(project="lightgbm", name="l")
    data = library.Dataset(inputs, targets)
    parameters = {"objective": "regression", "metric": "rmse", "verbose": -1, "num_threads": 1}
    booster = library.train(parameters, data, num_boost_round=3, valid_sets=[data], callbacks=[wandb_callback()])
    log_summary(booster, save_model_checkpoint=True)
    run.finish()


@script
def stable_baselines3(wandb: Any) -> None:
    """wandb's callback for Stable-Baselines3."""
    from stable_baselines3 import PPO
    from wandb.integration.sb3 import WandbCallback

    run = wandb.init(project="stable_baselines3", name="s", config={"timesteps": 128})
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, device="cpu", seed=0)
    model.learn(total_timesteps=128, callback=WandbCallback(model_save_path=f"models/{run.id}"))
    run.log({"done": 1})
    run.finish()


def main(which: str) -> None:
    """Run all scripts with wandb, or with this package under its name."""
    warnings.simplefilter("ignore")
    with installed(which) as wandb:
        for name, function in SCRIPTS.items():
            print(f"-- {name}", flush=True)
            function(wandb)


if __name__ == "__main__":
    main(sys.argv[1])
