"""Further frameworks' own W&B loggers, unchanged; run as :mod:`tests.as_wandb.framework_scripts` is.

Of frameworks whose packages need far more than their logger, the logger's module alone is loaded, from the installed
package: the packages around it are there by name, but what they import isn't.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import random
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.as_wandb.patterns import installed

Script = Callable[[Any], None]
ONLY_OURS = ("composer", "lerobot")
"""Loggers that ask for the run's ``get_url``, which W&B's client has no longer."""
SCRIPTS: dict[str, Script] = {}


def script(function: Script) -> Script:
    """Add a script to the table."""
    SCRIPTS[function.__name__] = function
    return function


def module(name: str, bare: int | None = None) -> Any:
    """A module whose packages aren't executed; their other modules are found.

    Args:
        bare: how many of them, the outermost first; default all.
    """
    above = name.split(".")[:-1][:bare]
    folders: list[str] = []
    for depth, part in enumerate(above):
        package = ".".join(above[: depth + 1])
        if not depth:
            spec = importlib.util.find_spec(part)
            assert spec is not None
            folders = list(spec.submodule_search_locations or [])
        else:
            folders = [str(Path(folder, part)) for folder in folders]
        if package not in sys.modules:
            empty = types.ModuleType(package)
            empty.__path__ = folders
            sys.modules[package] = empty
    return importlib.import_module(name)


@script
def torchtune(wandb: Any) -> None:
    """torchtune's WandBLogger: values and steps, and the configuration as a file, too."""
    import torch
    from omegaconf import OmegaConf

    logger = module("torchtune.training.metric_logging").WandBLogger(project="torchtune", log_dir=".", name="t")
    logger.log_config(OmegaConf.create({"lr": 0.1, "model": {"layers": 2}, "output_dir": "out"}))
    for step in range(1, 4):
        logger.log_dict({"loss": 1.0 / step, "lr": torch.tensor(0.5)}, step=step)
    logger.log("done", 1, step=3)
    logger.close()


@script
def lm_eval(wandb: Any) -> None:
    """lm-eval's WandbLogger: results of two tasks, and the samples of one."""
    logger = module("lm_eval.loggers.wandb_logger").WandbLogger({"project": "lm_eval", "name": "e"}, {"limit": 2})
    samples = [
        {"doc_id": number, "target": "b", "arguments": [["q", "a"], ["q", "b"]], "acc": 1.0,
         "resps": [[[-1.0, False]], [[-0.5, True]]], "filtered_resps": [[-1.0, False], [-0.5, True]]}
        for number in range(2)
    ]  # fmt: skip
    task = {"output_type": "multiple_choice", "metric_list": [{"metric": "acc"}]}
    results = {
        "results": {"arc": {"acc,none": 0.5, "acc_stderr,none": 0.1, "alias": "arc"},
                    "piqa": {"acc,none": 0.75, "acc_stderr,none": "N/A", "alias": "piqa"}},
        "configs": {"arc": task, "piqa": task}, "versions": {"arc": 1.0, "piqa": "N/A"},
        "n-shot": {"arc": 0, "piqa": 5}, "config": {"model": "dummy"},
    }  # fmt: skip
    logger.post_init(results)
    logger.log_eval_result()
    logger.log_eval_samples({"arc": samples, "piqa": samples})
    logger.run.finish()


@script
def verl(wandb: Any) -> None:
    """verl's Tracking, and its table of generated texts."""
    tracking = module("verl.utils.tracking")
    config = {"trainer": {"total_epochs": 2}, "actor": {"lr": 1e-6}}
    logger = tracking.Tracking("verl", "ppo", ["wandb"], config)
    for step in range(3):
        logger.log({"actor/loss": 1.0 / (step + 1), "critic/score/mean": step / 3}, step=step)
    tracking.ValidationGenerationsLogger().log(["wandb"], [["in", "out", 0.5]], 2)
    logger.finish()


@script
def lerobot(wandb: Any) -> None:
    """lerobot's WandBLogger: values, those of a step of their own, a policy and a video."""
    sys.modules["lerobot.configs.train"] = types.ModuleType("lerobot.configs.train")
    sys.modules["lerobot.configs.train"].TrainPipelineConfig = argparse.Namespace  # type: ignore[attr-defined]
    chosen = {"project": "lerobot", "entity": None, "notes": "n", "run_id": None, "mode": "offline",
              "disable_artifact": False}  # fmt: skip
    config = argparse.Namespace(
        wandb=argparse.Namespace(**chosen), output_dir=Path("out"), job_name="act", resume=False, seed=1,
        env=argparse.Namespace(type="pusht", fps=10), policy=argparse.Namespace(type="act"),
        dataset=argparse.Namespace(repo_id="a/b"), to_dict=lambda: {"seed": 1, "policy": {"type": "act"}},
    )  # fmt: skip
    config.output_dir.mkdir(exist_ok=True)
    logger = module("lerobot.rl.wandb_utils").WandBLogger(config)
    for step in range(1, 4):
        logger.log_dict({"loss": 1.0 / step, "grad": 0.5, "text": "t"}, step)
    logger.log_dict({"return": 3.0, "interaction": 50}, custom_step_key="interaction")
    model = Path("out/000003/pretrained_model/model.safetensors")
    model.parent.mkdir(parents=True)
    model.write_bytes(b"weights")
    logger.log_policy(model.parent.parent)
    wandb.finish()


@script
def openrlhf(wandb: Any) -> None:
    """OpenRLHF's WandbLogger, with its growing table of samples."""
    chosen = argparse.Namespace(key="0" * 40, org=None, project="openrlhf", group="g", run_name="r")
    arguments = argparse.Namespace(logger=argparse.Namespace(wandb=chosen), lr=0.1)
    os.environ.setdefault("WANDB_API_KEY", "0" * 40)
    logger = module("openrlhf.utils.logging_utils").WandbLogger(arguments)
    for step in range(1, 4):
        logger.log_train(step, {"loss": 1.0 / step, "lr": None, "generated_samples": ("text", 0.5)})
    logger.log_eval(1, {"accuracy": 0.5, "epoch": 1})
    logger.close()


@script
def fastai(wandb: Any) -> None:
    """fastai's WandbCallback, with the model's checkpoint.

    fastai 2.8.12 asks each setting for its own settings, which numbers don't have: it raises with any client.
    """
    import fastai.callback.wandb as theirs
    import torch
    from fastai.callback.schedule import Learner
    from fastai.callback.wandb import WandbCallback
    from fastai.data.core import DataLoaders
    from fastai.data.load import DataLoader
    from fastai.losses import MSELossFlat

    found = theirs.init_args
    theirs.init_args = lambda value: found(value) if hasattr(value, "__dict__") else {}
    torch.manual_seed(0)
    random.seed(0)
    inputs = torch.randn(16, 3)

    class Rows:
        def __len__(self) -> int:
            return len(inputs)

        def __getitem__(self, index: int) -> Any:
            return inputs[index], inputs[index].sum(0, keepdim=True)

    data = DataLoaders(*(DataLoader(Rows(), bs=4, num_workers=0) for _ in range(2)), device=torch.device("cpu"))
    wandb.init(project="fastai", name="f")
    learner = Learner(data, torch.nn.Linear(3, 1), loss_func=MSELossFlat(),
                      cbs=WandbCallback(log_preds=False, log_model=True))  # fmt: skip
    learner.remove_cbs([one for one in learner.cbs if type(one).__name__ == "ProgressCallback"])
    learner.logger = lambda row: None
    learner.fit_one_cycle(2, 0.1)
    wandb.finish()


@script
def composer(wandb: Any) -> None:
    """Composer's WandBLogger: a training, its checkpoints, images and a table."""
    import torch

    from tests.frameworks.vision import torchvision_without_gpu

    torchvision_without_gpu()
    from composer import Trainer
    from composer.loggers import WandBLogger
    from composer.models import ComposerClassifier

    torch.manual_seed(0)
    inputs = torch.randn(8, 4)
    data = torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long())
    model = ComposerClassifier(torch.nn.Linear(4, 2), num_classes=2)
    loader = torch.utils.data.DataLoader(data, batch_size=2)
    logger = WandBLogger(project="composer", name="c", tags=["t"], log_artifacts=True)
    trainer = Trainer(model=model, train_dataloader=loader, eval_dataloader=loader, max_duration="2ep", device="cpu",
                      progress_bar=False, loggers=logger, save_folder="saved", run_name="c",
                      optimizers=torch.optim.SGD(model.parameters(), lr=0.1))  # fmt: skip
    trainer.fit()
    trainer.logger.log_images(torch.zeros(2, 3, 4, 5), name="images")
    trainer.logger.log_table(["a", "b"], [[1, 2.0]], name="table")
    trainer.close()


@script
def ultralytics(wandb: Any) -> None:
    """Ultralytics' own callback: a tiny classifier for two epochs, its plots and its best weights."""
    import numpy as np
    import PIL.Image

    from tests.frameworks.vision import torchvision_without_gpu

    torchvision_without_gpu()
    for name in ("PYTEST_CURRENT_TEST", "PYTEST_VERSION"):  # in tests Ultralytics leaves its callbacks out
        os.environ.pop(name, None)
    os.environ["YOLO_CONFIG_DIR"] = os.getcwd()
    from ultralytics import YOLO, settings

    generator = np.random.default_rng(0)
    for part in ("train", "val"):
        for name in ("cat", "dog"):
            folder = Path("data", part, name)
            folder.mkdir(parents=True)
            for number in range(4):
                pixels = generator.integers(0, 255, (32, 32, 3), dtype=np.uint8)
                PIL.Image.fromarray(pixels).save(folder / f"{number}.png")
    settings.update({"wandb": True})
    model = YOLO("yolov8n-cls.yaml")
    model.train(data=str(Path("data").resolve()), imgsz=32, batch=4, workers=0, device="cpu", verbose=False, epochs=2,
                project="ultralytics", name="u", save_dir=str(Path("u").resolve()), plots=False, seed=0)  # fmt: skip


@script
def tianshou(wandb: Any) -> None:
    """tianshou's WandbLogger, whose values go through TensorBoard's writer, and a checkpoint.

    The last one: W&B's client counts differently from here on.
    """
    from torch.utils.tensorboard import SummaryWriter

    logger = module("tianshou.utils.logger.wandb", 1).WandbLogger(
        project="tianshou", name="d", config={"gamma": 0.9}, save_interval=1, training_interval=1, update_interval=1
    )
    logger.load(SummaryWriter("board"))
    for step in range(1, 4):
        logger.write("train/env_step", step * 10, {"train/return": step / 2, "train/length": step})
        logger.write("update/gradient_step", step, {"update/loss": 1.0 / step})
    checkpoint = Path("checkpoint.pth")
    checkpoint.write_bytes(b"weights")
    logger.save_data(1, 30, 3, lambda *steps: str(checkpoint))
    logger.tensorboard_logger.writer.flush()
    logger.finalize()


def main(which: str) -> None:
    """Run all scripts with wandb, or with this package under its name."""
    warnings.simplefilter("ignore")
    with installed(which) as wandb:
        for name, function in SCRIPTS.items():
            if which == "real" and name in ONLY_OURS:
                continue
            print(f"-- {name}", flush=True)
            function(wandb)


if __name__ == "__main__":
    main(sys.argv[1])
