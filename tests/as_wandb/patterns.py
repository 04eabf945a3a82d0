"""Call patterns of scripts that were written for W&B, each a small script; run by W&B's client, and by this package.

``python patterns.py real`` runs them all with the installed wandb, offline; ``python patterns.py ours`` with
``install_as_wandb``; names behind that choose some. Each one's run has the pattern's name as its project. A pattern
that fails ends the program.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Pattern = Callable[[Any], None]
PATTERNS: dict[str, Pattern] = {}


def pattern(function: Pattern) -> Pattern:
    """Add a script to the table."""
    PATTERNS[function.__name__] = function
    return function


@pattern
def plain_steps(wandb: Any) -> None:
    """nanoGPT: the iteration among the values, and as the step."""
    wandb.init(project="plain_steps", name="run", config={"lr": 0.1, "model": {"depth": 2}})
    for iteration in range(0, 40, 10):
        wandb.log({"iter": iteration, "train/loss": 4.0 - iteration / 10, "lr": 0.1}, step=iteration)
    wandb.finish()


@pattern
def no_steps(wandb: Any) -> None:
    """timm: no step at all."""
    wandb.init(project="no_steps", config=argparse.Namespace(epochs=3, opt="sgd"))
    for epoch in range(3):
        wandb.log({"epoch": epoch, "eval_top1": 50.0 + epoch})
    wandb.finish()


@pattern
def with_statement(wandb: Any) -> None:
    """The documentation's form."""
    with wandb.init(project="with_statement", config={"a": 1}) as run:
        for number in range(3):
            run.log({"accuracy": number / 3, "loss": 1 - number / 3})


@pattern
def commit_false(wandb: Any) -> None:
    """Values of one step come in parts."""
    wandb.init(project="commit_false")
    for number in range(3):
        wandb.log({"a": number}, commit=False)
        wandb.log({"b": number * 2}, commit=False)
        wandb.log({"c": number * 3})
    wandb.finish()


@pattern
def empty_commit(wandb: Any) -> None:
    """XGBoost's callback: parts, then an empty row that ends the step."""
    wandb.init(project="empty_commit")
    for number in range(3):
        wandb.log({"rmse": 1.0 / (number + 1)}, commit=False)
        wandb.log({})
    wandb.finish()


@pattern
def same_step_twice(wandb: Any) -> None:
    """Training and validation log at one step."""
    wandb.init(project="same_step_twice")
    for step in range(1, 4):
        wandb.log({"train/loss": 1.0 / step}, step=step)
        wandb.log({"val/loss": 2.0 / step}, step=step)
    wandb.finish()


@pattern
def value_again_in_a_step(wandb: Any) -> None:
    """The last value of a step counts."""
    wandb.init(project="value_again_in_a_step")
    wandb.log({"x": 1}, step=0)
    wandb.log({"x": 2}, step=0)
    wandb.log({"x": 3}, step=1)
    wandb.finish()


@pattern
def step_then_none(wandb: Any) -> None:
    """A call without a step belongs to the step of the call before."""
    wandb.init(project="step_then_none")
    wandb.log({"a": 1.0}, step=5)
    wandb.log({"b": 2.0})
    wandb.log({"c": 3.0})
    wandb.log({"a": 4.0}, step=9, commit=True)
    wandb.log({"b": 5.0})
    wandb.finish()


@pattern
def gaps_between_steps(wandb: Any) -> None:
    """Logged every so many steps."""
    wandb.init(project="gaps_between_steps")
    for step in (0, 7, 100, 1000):
        wandb.log({"loss": step * 0.5}, step=step)
    wandb.finish()


@pattern
def nested(wandb: Any) -> None:
    """Dicts in dicts."""
    wandb.init(project="nested", config={"optimizer": {"name": "adam", "betas": [0.9, 0.999]}})
    for step in range(2):
        wandb.log({"train": {"loss": 1.0 - step, "acc": {"top1": step, "top5": step + 1}}})
    wandb.finish()


@pattern
def not_finite(wandb: Any) -> None:
    """A diverging loss."""
    wandb.init(project="not_finite")
    for value in (1.0, math.inf, math.nan, -math.inf):
        wandb.log({"loss": value})
    wandb.finish()


@pattern
def names_of_floats(wandb: Any) -> None:
    """Texts that are called like floats, beside floats: in lists, in results and in tables."""
    wandb.init(project="names_of_floats")
    wandb.log({"one": ["NaN"], "two": ["NaN", 1], "three": ["Infinity", 2.5, math.inf, "-Infinity", math.nan, "a"]})
    rows = [["NaN", 1.0, ["NaN", "x"]], ["Infinity", math.nan, ["-Infinity"]]]
    wandb.log({"table": wandb.Table(columns=["text", "number", "list"], data=rows)})
    wandb.run.summary["result"] = ["NaN", 1, "x"]
    wandb.finish()


@pattern
def numpy_values(wandb: Any) -> None:
    """Scalars of NumPy."""
    import numpy as np

    wandb.init(project="numpy_values", config={"seed": np.int64(3), "lr": np.float64(0.25)})
    wandb.log({"f32": np.float32(0.5), "i64": np.int64(7), "zero_d": np.array(2.5), "bool": np.bool_(True)})
    wandb.finish()


@pattern
def torch_values(wandb: Any) -> None:
    """Scalars of torch that nobody called item on."""
    import torch

    wandb.init(project="torch_values")
    wandb.log({"loss": torch.tensor(0.5), "one": torch.tensor([3.0]), "grad": torch.tensor(1.5, requires_grad=True)})
    wandb.finish()


@pattern
def booleans_and_texts(wandb: Any) -> None:
    """Flags, words."""
    wandb.init(project="booleans_and_texts")
    wandb.log({"flag": True, "n": 1, "word": "begin"})
    wandb.log({"flag": False, "n": 2, "word": "end"})
    wandb.finish()


@pattern
def lists_and_arrays(wandb: Any) -> None:
    """Values of each class, in each of the forms; long arrays."""
    import numpy as np
    import torch

    run = wandb.init(project="lists_and_arrays")
    run.log({"per_class": [0.25, 0.5], "names": ["a", "b"], "pair": (1, 2), "none": [], "deep": {"more": [[1], [2]]}})
    run.log({"array": np.array([0.5, 1.5]), "matrix": torch.tensor([[0.5, 1.5]]), "one": np.array([[2.5]])})
    run.log({"gradients": np.linspace(0, 1, 40), "weights": torch.linspace(0, 2, 64).reshape(8, 8)}, step=5)
    run.summary["confusion"] = [[3, 1], [0, 4]]
    assert run.summary["confusion"] == [[3, 1], [0, 4]]
    run.summary["report"] = {"rows": [1, 2], "of": {"classes": ["a"]}}
    assert run.summary["report"]["rows"] == [1, 2]
    assert run.summary["report"]["of"]["classes"] == ["a"]
    run.finish()


@pattern
def other_objects(wandb: Any) -> None:
    """What scripts put among their values."""
    import datetime
    import uuid

    config = {"when": datetime.datetime(2026, 1, 2, 3), "day": datetime.date(2026, 1, 2)}
    run = wandb.init(project="other_objects", config=config)
    run.log({"when": datetime.datetime(2026, 1, 2, 3, 4, 5), "day": datetime.date(2026, 1, 2), "raw": b"text"})
    run.log({"took": datetime.timedelta(days=-1, seconds=2.5), "at": datetime.time(3, 4), "who": uuid.UUID(int=7)})
    run.log({"parts": dataclasses.make_dataclass("Parts", ["a", "b"])(1.5, "text")})
    run.log({"function": math.sqrt, "class": argparse.Namespace, "complex": 1 + 2j, "numbers": {1}})
    run.finish()


@pattern
def none_values(wandb: Any) -> None:
    """A metric that isn't known yet."""
    wandb.init(project="none_values")
    wandb.log({"a": 1.0, "b": None})
    wandb.log({"a": 2.0, "b": 3.0})
    wandb.finish()


@pattern
def axis_of_its_own(wandb: Any) -> None:
    """Lightning: the trainer's step is a value, and the axis of all."""
    run = wandb.init(project="axis_of_its_own")
    run.define_metric("trainer/global_step")
    run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    for step in (0, 10, 20):
        run.log({"loss": 1.0 / (step + 1), "trainer/global_step": step})
    run.finish()


@pattern
def axis_by_epoch(wandb: Any) -> None:
    """torchtune, OpenRLHF: another axis for each group."""
    wandb.init(project="axis_by_epoch", reinit=True)
    wandb.define_metric("train/global_step")
    wandb.define_metric("train/*", step_metric="train/global_step", step_sync=True)
    wandb.define_metric("eval/epoch")
    wandb.define_metric("eval/*", step_metric="eval/epoch", step_sync=True)
    for step in range(1, 5):
        wandb.log({"train/loss": 1.0 / step, "train/global_step": step})
        if step % 2 == 0:
            wandb.log({"eval/acc": step / 4, "eval/epoch": step // 2})
    wandb.finish()


@pattern
def summary_writes(wandb: Any) -> None:
    """Results, written in each of the ways."""
    run = wandb.init(project="summary_writes")
    run.log({"acc": 0.5})
    run.summary["best_acc"] = 0.75
    wandb.run.summary["epochs"] = 3
    wandb.summary.update({"params": 1000})
    run.summary.flops = 2.5
    run.finish()


@pattern
def summary_of_nested_values(wandb: Any) -> None:
    """Results below others: read, written and counted on."""
    run = wandb.init(project="summary_of_nested_values")
    run.log({"val": {"acc": 0.5, "loss": 2.0}})
    assert run.summary["val"]["acc"] == 0.5
    run.summary["test"] = {"acc": 0.25}
    run.summary["test"]["loss"] = 4.0
    run.summary["epochs"] = 1
    run.summary["epochs"] += 1
    for missing in ("nothing", "va", "val/nothing"):
        try:
            run.summary[missing]
        except KeyError:
            continue
        raise AssertionError(missing)
    run.finish()


@pattern
def summary_by_definition(wandb: Any) -> None:
    """Best values by define_metric."""
    wandb.init(project="summary_by_definition")
    wandb.define_metric("loss", summary="min")
    wandb.define_metric("acc", summary="max")
    for loss, acc in ((3.0, 0.1), (1.0, 0.9), (2.0, 0.5)):
        wandb.log({"loss": loss, "acc": acc})
    wandb.finish()


@pattern
def config_updates(wandb: Any) -> None:
    """Configuration that comes later, in each of the ways."""
    wandb.init(project="config_updates", config={"lr": 0.1, "epochs": 3})
    wandb.config.update({"depth": 4})
    wandb.config.update({"lr": 0.2}, allow_val_change=True)
    wandb.config["width"] = 64
    wandb.config.batch_size = 32
    wandb.config.setdefaults({"depth": 9, "seed": 1})
    assert {"lr", "width"} <= set(wandb.config._items) & set(wandb.config._as_dict())
    assert wandb.config.lr == wandb.config["lr"] == wandb.config.get("lr") == 0.2
    assert "depth" in wandb.config
    wandb.log({"a": 1})
    wandb.finish()


@pattern
def config_replaced(wandb: Any) -> None:
    """A mapping takes the place of another one, whatever it is given by."""
    run = wandb.init(project="config_replaced", config={"model": {"depth": 2, "opt": {"lr": 0.1}}, "data": {"a": 1}})
    run.config.update({"model": {"width": 4}}, allow_val_change=True)
    assert dict(run.config["model"]) == {"width": 4}
    run.config.update({"data": 5, "fresh": {"a": {"b": 1}}}, allow_val_change=True)
    run.config.update({"fresh": {"a": {"c": None}}}, allow_val_change=True)
    run.config.setdefaults({"model": {"n": 7}, "more": {"deep": {"er": 1}}})
    assert run.config["fresh"] == {"a": {"c": None}}
    run.log({"loss": 1.0})
    run.finish()


@pattern
def config_of_a_dataclass(wandb: Any) -> None:
    """vars and asdict."""

    @dataclasses.dataclass
    class Settings:
        lr: float = 0.1
        layers: tuple[int, ...] = (1, 2)

    wandb.init(project="config_of_a_dataclass", config=dataclasses.asdict(Settings()))
    wandb.config.update(argparse.Namespace(extra=True))
    wandb.log({"a": 1})
    wandb.finish()


@pattern
def config_without_some(wandb: Any) -> None:
    """Keys that are left out."""
    wandb.init(project="config_without_some", config={"keep": 1, "drop": 2}, config_exclude_keys=["drop"])
    wandb.log({"a": 1})
    wandb.finish()


@pattern
def config_from_files(wandb: Any) -> None:
    """A file without some keys, in a directory with defaults."""
    files = {
        "config-defaults.yaml": "seed: {value: 1}\nlr: {value: 9}\n",
        "own.yaml": "wandb_version: 1\nlr: {value: 0.5, desc: rate}\nepochs: {value: 3}\n",
    }
    for name, text in files.items():
        Path(name).write_text(text)
    try:
        for number, more in enumerate(({}, {"config_exclude_keys": ["lr"]}, {"config_include_keys": ("lr",)})):
            run = wandb.init(project="config_from_files", name=f"{number}", config="own.yaml", reinit=True, **more)
            run.log({"a": 1})
            run.finish()
        try:
            wandb.init(config="own.yaml", config_exclude_keys=["lr"], config_include_keys=["epochs"])
        except wandb.UsageError:
            pass
        else:
            raise AssertionError("both")
        assert wandb.helper.parse_config({"a": 1, "b": 2}, exclude=("a",)) == {"b": 2}
        assert wandb.helper.parse_config(argparse.Namespace(a=1, b=2), include=("a",)) == {"a": 1}
        assert wandb.helper.parse_config("own.yaml") == {"lr": 0.5, "epochs": 3}
    finally:
        for name in files:
            Path(name).unlink()


@pattern
def identity(wandb: Any) -> None:
    """tianshou, lerobot: name, group, tags, notes, job type."""
    run = wandb.init(
        project="identity", name="seed 3", group="ablation", tags=["a", "b", "c, d"], notes="why",
        job_type="train_eval", id="identity-1", resume="allow", save_code=False, mode="offline",
    )  # fmt: skip
    run._label(repo="tianshou")
    assert run.project == "identity"
    run.log({"a": 1}, step=1)
    run.tags += ("c",)
    run.finish()


@pattern
def names_set_later(wandb: Any) -> None:
    """The name is known when the model is built."""
    wandb.init(project="names_set_later")
    wandb.run.name = "resnet50"
    wandb.run.notes = "late"
    wandb.log({"a": 1})
    wandb.finish()


@pattern
def two_runs(wandb: Any) -> None:
    """A loop over seeds: one run after the other."""
    for seed in range(2):
        run = wandb.init(project="two_runs", name=f"seed-{seed}", reinit=True, config={"seed": seed})
        for step in range(2):
            run.log({"loss": seed + step})
        run.finish()


@pattern
def init_twice(wandb: Any) -> None:
    """A library calls init again: it is the same run."""
    first = wandb.init(project="init_twice", name="one")
    wandb.log({"a": 1})
    second = wandb.init(project="init_twice", name="two")
    assert second.id == first.id
    wandb.log({"a": 2})
    wandb.finish()


@pattern
def beside_another(wandb: Any) -> None:
    """A run for a trial beside the script's own, which ``wandb.log`` goes on to mean."""
    assert wandb.run is None
    first = wandb.init(project="beside_another", name="first")
    settings = wandb.Settings(reinit="create_new")
    second = wandb.init(project="beside_another", name="second", settings=settings)
    alone = wandb.init(project="beside_another", name="third", reinit="create_new")
    assert wandb.run is first
    assert wandb.init(project="beside_another", name="fourth") is alone
    for number in range(2):
        alone.log({"a": number})
        second.log({"b": number})
        wandb.log({"c": number})
    wandb.summary["own"] = 1
    second.finish()
    alone.finish()
    assert wandb.run is first
    wandb.log({"c": 2})
    wandb.finish()
    assert wandb.run is None
    trial = wandb.init(project="beside_another", name="trial", reinit="create_new")
    assert wandb.run is None
    trial.log({"d": 1})
    last = wandb.init(project="beside_another", name="last", reinit="finish_previous")
    assert wandb.run is last
    last.log({"e": 1})
    last.finish()


@pattern
def second_init(wandb: Any) -> None:
    """A second ``init`` while a run is open, by each word that ``reinit`` takes."""
    for mode in (None, True, False, "default", "return_previous", "finish_previous", "create_new"):
        first = wandb.init(project="second_init", name=f"{mode}-first", config={"own": 1, "lr": 0.1})
        first.log({"x": 1})
        more = {} if mode is None else {"reinit": mode}
        second = wandb.init(project="second_init", name=f"{mode}-second", config={"lr": 0.2}, **more)
        wandb.log({"meant": 1, "lr": wandb.config["lr"]})
        second.log({"y": 2, "lr": second.config["lr"]})
        wandb.summary.update({"by_module": wandb.config["lr"]})
        second.finish()
        if wandb.run is not None:
            wandb.log({"late": 1})
        wandb.finish()
        assert wandb.run is None


@pattern
def result_of_parts(wandb: Any) -> None:
    """A result that was a number, and logged since, becomes a mapping, and the other way round."""
    for number, changes in enumerate((
        [{"a": 9}, 3, {"a": {"q": 1}}], [3, {"a": {"q": 1}}], [{"a": {"q": 1}}, {"a": 4}],
        [3, {"a": 9}, 4, 5, {"a": {"q": 1}}],
    )):  # fmt: skip
        run = wandb.init(project="result_of_parts", name=str(number), reinit=True)
        run.log({"b": 0})
        for change in changes:
            if isinstance(change, dict):
                run.summary.update(change)
            else:
                run.log({"a": change, "b": 1})
        assert run.summary["a"] == 4 or dict(run.summary["a"]) == {"q": 1}
        run.finish()


@pattern
def names_with_slashes(wandb: Any) -> None:
    """A name with a slash isn't a mapping's: neither it nor the name before the slash takes the other's place."""
    run = wandb.init(project="names_with_slashes")
    run.summary["acc/best"] = 0.9
    run.summary["acc"] = 0.5
    run.log({"loss": 1.0, "loss/ce": 0.5})
    run.summary["loss/kl"] = 3
    run.log({"loss": 1.5})
    run.summary["loss"] = 7
    run.log({"loss/ce": 0.25, "w/x": 5})
    run.summary["w"] = {"y": 1}
    run.summary["v/x"] = 1
    run.summary["v"] = {"y": 1}
    wanted = {"acc/best": 0.9, "acc": 0.5, "loss": 7, "loss/ce": 0.25, "loss/kl": 3, "w/x": 5, "v/x": 1}
    assert eventually(lambda: {name: run.summary[name] for name in wanted} == wanted)
    run.finish()


@pattern
def value_and_mapping(wandb: Any) -> None:
    """A name's value gives way to a mapping, and that to a value, whichever is logged and whichever set."""
    for number, (first, second) in enumerate((({"a": 3}, {"a": {"q": 1}}), ({"a": {"q": 1}}, {"a": "text"}))):
        for ways in ("log log", "log set", "set log", "set set"):
            run = wandb.init(project="value_and_mapping", name=f"{number} {ways}", reinit=True)
            run.log({"b": 0})
            for way, values in zip(ways.split(), (first, second), strict=True):
                if way == "log":
                    run.log(values)
                else:
                    run.summary.update(values)
            assert eventually(lambda: run.summary["a"] == second["a"] or dict(run.summary["a"]) == {"q": 1})  # noqa: B023
            run.finish()


@pattern
def announced_preemption(wandb: Any) -> None:
    """A script that says that it will be preempted, and gets to its end, or says that it failed."""
    for number, exit_code in enumerate((None, 1)):
        run = wandb.init(project="announced_preemption", name=f"run {number}")
        run.log({"a": 1})
        run.mark_preempting()
        run.log({"a": 2})
        run.finish(exit_code=exit_code)


def _of_a_worker(wandb: Any, number: int) -> None:
    run = wandb.init(project="forked_workers", name=f"worker-{number}")
    run.log({"fold": number})
    run.finish()


@pattern
def spawned_worker(wandb: Any) -> None:
    """A worker that is given the run: once that is used there, it is ``wandb.run``, and ``init`` gives it back.

    Its values count in the results.
    """
    run = wandb.init(project="spawned_worker")
    run.define_metric("w", summary="min,max")
    run.log({"a": 1, "w": 2})
    process = multiprocessing.get_context("spawn").Process(target=_given_a_run, args=(run, type(run).__module__))
    process.start()
    process.join()
    assert process.exitcode == 0
    run.log({"a": 2}, step=5)
    run.finish()


def _given_a_run(run: Any, module: str) -> None:
    with installed("ours" if module.startswith("trackers") else "real") as wandb:
        run.log({"w": 1}, step=2)
        assert wandb.run is run
        wandb.log({"m": 1})
        assert wandb.init(project="another") is run


@pattern
def forked_workers(wandb: Any) -> None:
    """Cross-validation: while the script's run is open, each forked worker has one of its own."""
    run = wandb.init(project="forked_workers", name="all")
    run.log({"a": 1})
    for number in range(2):
        worker = multiprocessing.get_context("fork").Process(target=_of_a_worker, args=(wandb, number))
        worker.start()
        worker.join()
        assert worker.exitcode == 0
    wandb.log({"a": 2})
    run.finish()


@pattern
def step_is_read(wandb: Any) -> None:
    """The step that the next call has, by which scripts place values of their own."""
    run = wandb.init(project="step_is_read")
    assert run.step == 0
    run.log({"a": 1})
    run.log({"a": 2})
    assert run.step == 2
    run.log({"b": 1}, commit=False)
    assert run.step == 2
    run.log({"a": 3}, step=wandb.run.step + 3)
    assert run.step == 5
    run.log({"b": 2})
    assert run.step == 6
    run.log({"step": run.step}, step=10, commit=True)
    assert run.step == 11
    run.log({"a": 5})
    run.finish()


@pattern
def axis_given_as_an_object(wandb: Any) -> None:
    """What ``define_metric`` gives is the axis of another."""
    run = wandb.init(project="axis_given_as_an_object")
    axis = run.define_metric("epoch", hidden=True)
    assert (axis.name, axis.hidden) == ("epoch", True)
    assert run.define_metric("val/*", step_metric=axis).step_metric == "epoch"
    for epoch in range(3):
        run.log({"epoch": epoch, "val/acc": epoch / 4})
    run.finish()


@pattern
def log_after_finish(wandb: Any) -> None:
    """A last line after the end."""
    run = wandb.init(project="log_after_finish")
    run.log({"a": 1})
    run.finish()
    try:
        run.log({"a": 2})
        wandb.log({"a": 3})
    except wandb.Error:
        pass


@pattern
def failed_run(wandb: Any) -> None:
    """An exception leaves the with statement."""
    try:
        with wandb.init(project="failed_run") as run:
            run.log({"a": 1})
            raise ValueError("diverged")
    except ValueError:
        pass


@pattern
def exit_code(wandb: Any) -> None:
    """Said to have failed."""
    wandb.init(project="exit_code")
    wandb.log({"a": 1})
    wandb.finish(exit_code=1)


@pattern
def keyword_arguments(wandb: Any) -> None:
    """verl: everything by its name."""
    settings = wandb.Settings(silent=True)
    run = wandb.init(project="keyword_arguments", name="v", entity=None, config={}, settings=settings)
    run.log(data={"critic/score": 0.5}, step=1)
    wandb.log(data={"critic/score": 0.75}, step=2)
    wandb.finish(exit_code=0)


@pattern
def settings_of_a_script(wandb: Any) -> None:
    """Settings that concern W&B's own client."""
    settings = wandb.Settings(x_disable_stats=True, console="off", init_timeout=300)
    run = wandb.init(project="settings_of_a_script", settings=settings)
    assert run.settings.mode == "offline"
    assert run.offline
    run.log({"a": 1})
    run.finish()


@pattern
def media(wandb: Any) -> None:
    """Pictures, tables, sounds, histograms beside numbers."""
    import numpy as np

    wandb.init(project="media")
    for step in range(2):
        table = wandb.Table(columns=["id", "text"], data=[[step, "a"], [step + 1, "b"]])
        table.add_data(9, "c")
        wandb.log(
            {
                "image": wandb.Image(np.zeros((4, 4, 3), dtype=np.uint8), caption="black"),
                "images": [wandb.Image(np.zeros((2, 2), dtype=np.uint8)) for _ in range(2)],
                "table": table,
                "histogram": wandb.Histogram(np.arange(10)),
                "page": wandb.Html("<p>hello</p>"),
                "loss": 1.0 - step,
            },
            step=step,
        )
    wandb.finish()


@pattern
def artifacts(wandb: Any) -> None:
    """lerobot, composer: checkpoints."""
    run = wandb.init(project="artifacts")
    with open("model.bin", "wb") as file:
        file.write(b"weights")
    artifact = wandb.Artifact(wandb.util.make_artifact_name_safe("policy/x 1"), type="model", metadata={"step": 1})
    artifact.add_file("model.bin")
    run.log_artifact(artifact, aliases=["latest"])
    run.log_artifact(artifact_or_path="model.bin", name="plain", type="file", tags=["t"])
    wandb.save("model.bin", base_path=".", policy="now")
    run.log({"a": 1})
    run.finish()


@pattern
def alert_and_terminal(wandb: Any) -> None:
    """Messages."""
    wandb.init(project="alert_and_terminal")
    wandb.alert(title="low", text="accuracy", level=wandb.AlertLevel.WARN, wait_duration=300)
    wandb.termlog("one line")
    wandb.termwarn("careful", repeat=False)
    wandb.log({"a": 1})
    wandb.finish()


@pattern
def keys_of_any_kind(wandb: Any) -> None:
    """Names with spaces, dots and slashes."""
    wandb.init(project="keys_of_any_kind")
    wandb.log({"a b": 1, "c/d/e": 2, "f-g": 3, "Ä": 4, "h@5": 5})
    wandb.finish()


@pattern
def many_values(wandb: Any) -> None:
    """A row of many names, many rows."""
    wandb.init(project="many_values")
    for step in range(50):
        wandb.log({f"layer{number}/norm": number * 0.5 + step for number in range(20)}, step=step)
    wandb.finish()


@pattern
def define_hidden(wandb: Any) -> None:
    """lerobot: a metric that is only an axis."""
    run = wandb.init(project="define_hidden")
    run.define_metric("steps", hidden=True)
    run.define_metric("eval/reward", step_metric="steps")
    for step in range(3):
        run.log({"steps": step * 100, "eval/reward": step * 1.5})
    run.finish()


@pattern
def disabled(wandb: Any) -> None:
    """A debug run: every call works, nothing is recorded."""
    run = wandb.init(project="disabled", mode="disabled", config={"a": 1})
    assert wandb.run is run
    assert run.id
    assert run.name
    wandb.log({"loss": 1.0, "val": {"acc": 0.5}})
    run.summary["x"] = 1
    assert (run.summary["loss"], run.summary["val"]["acc"], run.summary["x"]) == (1.0, 0.5, 1)
    wandb.config.update({"b": 2})
    wandb.finish()


@pattern
def after_a_disabled_run(wandb: Any) -> None:
    """A trial without tracking, never finished, and then the run that counts."""
    wandb.init(project="after_a_disabled_run", mode="disabled")
    wandb.log({"lost": 1})
    run = wandb.init(project="after_a_disabled_run")
    wandb.log({"a": 1})
    run.finish()


@pattern
def results_by_definition(wandb: Any) -> None:
    """What ``define_metric`` asks for is a mapping of the summary."""
    run = wandb.init(project="results_by_definition")
    run.define_metric("loss", summary="min,max")
    run.define_metric("acc", summary="last")
    run.define_metric("hidden", summary="none")
    for value in (3.0, 1.0, 2.0):
        run.log({"loss": value, "acc": value / 4, "plain": value, "hidden": value})
    assert eventually(lambda: wandb.summary["loss"]["max"] == 3 and run.summary["plain"] == 2)
    assert (run.summary["loss"]["min"], run.summary["loss"].min) == (1, 1)
    assert run.summary["acc"]["last"] == 0.5
    assert run.summary.get("hidden") is None
    run.finish()


@pattern
def media_with_results(wandb: Any) -> None:
    """A definition that asks for a maximum of media: the last one is the result."""
    import numpy as np

    run = wandb.init(project="media_with_results")
    for name in ("spread", "one", "several"):
        run.define_metric(name, summary="max")
    for level in (1, 3, 2):
        image = wandb.Image(np.full((4, 4, 3), level, np.uint8))
        run.log({"spread": wandb.Histogram([level]), "one": image, "several": [image, image], "loss": level})
    run.finish()


@pattern
def artifacts_of_paths(wandb: Any) -> None:
    """What is logged by its path is named after the run."""
    run = wandb.init(project="artifacts_of_paths", id="paths1")
    Path("by_path.txt").write_text("text")
    assert run.log_artifact("by_path.txt").name.startswith("run-paths1-by_path.txt")
    artifact = wandb.Artifact("entries", "dataset")
    entry = artifact.add_file("by_path.txt", name="in/a.txt")
    assert (entry.path, entry.size, entry.ref) == ("in/a.txt", 4, None)
    (address,) = artifact.add_reference("https://bucket/key", checksum=False)
    assert (address.path, address.ref) == ("key", "https://bucket/key")
    with artifact.new_file("made.txt") as file:
        file.write("made")
    run.log_artifact(artifact)
    run.log({"a": 1})
    run.finish()


def eventually(condition: Callable[[], Any]) -> bool:
    """Whether a condition comes true: W&B's client computes results in another process."""
    for _ in range(200):
        with contextlib.suppress(KeyError, TypeError, AttributeError):
            if condition():
                return True
        time.sleep(0.05)
    return False


@contextlib.contextmanager
def installed(which: str) -> Iterator[Any]:
    """The module that ``import wandb`` gives: the real one, or this package."""
    if which == "ours":
        import trackers

        trackers.install_as_wandb()
    import wandb

    yield wandb


def main(which: str, *chosen: str) -> None:
    """Run all patterns, or those that are named, with wandb, or with this package under its name."""
    with installed(which) as wandb:
        for name in chosen or PATTERNS:
            print(f"-- {name}", flush=True)
            PATTERNS[name](wandb)


if __name__ == "__main__":
    main(*sys.argv[1:])
