"""The training of `make pages`, logged with each vendor's own client: ``python native.py NAME``.

The long run and the sweep are each vendor's own way to log them well; the failed, the killed and the resumed run are
the same few lines for all (``Short``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import wave
from typing import Any

import content as c

PAUSE_S = 0.05


def flat(nested: dict[str, Any], before: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in nested.items():
        out.update(flat(value, f"{before}{name}.") if isinstance(value, dict) else {before + name: value})
    return out


def numbers(step: int) -> dict[str, float]:
    shown = float("nan") if step in (37, 38) else c.loss(step)
    row = {"train/loss": shown, "train/optim/grad_norm": 1 / (1 + step / 50), "learning_rate": c.rate(step)}
    if step % c.EPOCH == c.EPOCH - 1:
        row |= {"val/loss": c.loss(step) * 1.1, "val/accuracy": 1 - c.loss(step) / 3}
    return row


def tensorboard() -> None:
    import torch
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter("events/baseline-cosine")
    writer.add_text("config", "```json\n" + json.dumps(c.CONFIG, indent=1) + "\n```")
    for step in range(c.STEPS):
        for name, value in numbers(step).items():
            writer.add_scalar(name, value, step)
        if step % c.MEDIA == c.MEDIA - 1:
            pixels, place = c.picture(step)
            several = torch.stack([torch.tensor(c.picture(step + k)[0]) for k in range(3)]).permute(0, 3, 1, 2)
            writer.add_images("val/samples", several, step)
            box = torch.tensor([place])
            writer.add_image_with_boxes("val/boxes", torch.tensor(pixels).permute(2, 0, 1), box, step, labels=["leaf"])
            writer.add_histogram("weights/block1", c.weights(step), step)
            writer.add_audio("audio/voice", torch.tensor(c.sound(step // c.MEDIA))[None], step, sample_rate=8000)
            writer.add_figure("plots/residuals", c.figure(step), step)
            writer.add_text("generated/text", c.story(step), step)
            writer.add_text("val/mistakes", "|id|label|\n|-|-|\n|0|leaf|", step)
    writer.close()
    for seed, (rate, width) in enumerate(c.SWEEP):
        writer = SummaryWriter(f"events/sweep-{rate}-{width}")
        for step in range(60):
            writer.add_scalar("train/loss", c.loss(step, rate, seed), step)
        hparams = {"learning_rate": rate, "network.width": width}
        writer.add_hparams(hparams, {"final/test_accuracy": 0.8 + seed / 50}, run_name=".")
        writer.close()


def mlflow() -> None:
    import mlflow
    import numpy as np
    import pandas as pd
    import torch
    from PIL import Image

    mlflow.set_experiment(c.PROJECT)
    mlflow.set_system_metrics_sampling_interval(2)
    with (
        mlflow.start_run(run_name="paper"),
        mlflow.start_run(
            run_name="baseline-cosine",
            nested=True,
            tags={"baseline": "yes"},
            description=c.NOTES,
            log_system_metrics=True,
        ),
    ):
        mlflow.log_params(flat(c.CONFIG))
        mlflow.log_dict(c.CONFIG, "config.json")
        rows = pd.read_csv(c.data_files() / "rows.csv")
        mlflow.log_input(mlflow.data.from_pandas(rows, source="data/rows.csv", name="leaves"), context="training")
        for step in range(c.STEPS):
            mlflow.log_metrics(numbers(step), step=step)
            if step % c.MEDIA == c.MEDIA - 1:
                for k in range(3):
                    mlflow.log_image(Image.fromarray(c.picture(step + k)[0]), key=f"val/samples{k}", step=step)
                mlflow.log_figure(c.figure(step), f"plots/residuals-{step}.png")
                images = [mlflow.Image(c.picture(step + k)[0]) for k in range(4)]
                table = {"id": [0, 1, 2, 3], "image": images, "label": ["leaf"] * 4, "score": [0.9, 0.8, 0.7, 0.6]}
                mlflow.log_table(table, "mistakes.json")
                mlflow.log_text(c.HTML, "page/attention.html")
                mlflow.log_text(c.story(step), f"generated/{step}.txt")
            if step % c.MODEL == c.MODEL - 1:
                mlflow.pytorch.log_model(
                    torch.nn.Linear(4, 2), name="detector", step=step, input_example=np.zeros((1, 4), np.float32)
                )
                with mlflow.start_span("evaluate", span_type="CHAIN") as outer:
                    outer.set_inputs({"question": "Which leaf?"})
                    with mlflow.start_span("chat", span_type="LLM") as inner:
                        inner.set_inputs([{"role": "user", "content": "Which leaf?"}])
                        inner.set_outputs("oak")
                    outer.set_outputs("oak")
            time.sleep(PAUSE_S)
    for seed, (rate, width) in enumerate(c.SWEEP):
        with mlflow.start_run(run_name=f"sweep-{rate}-{width}"):
            mlflow.log_params({"learning_rate": rate, "network.width": width})
            for step in range(60):
                mlflow.log_metric("train/loss", c.loss(step, rate, seed), step=step)
            mlflow.log_metric("test_accuracy", 0.8 + seed / 50)


def trackio() -> None:
    import pandas as pd
    import trackio

    trackio.init(project=c.PROJECT, name="baseline-cosine", group="paper", config=c.CONFIG)
    for step in range(c.STEPS):
        row: dict[str, Any] = dict(numbers(step))
        if step % c.MEDIA == c.MEDIA - 1:
            images = [trackio.Image(c.picture(step + k)[0]) for k in range(2)]
            row |= {
                "val/samples": trackio.Image(c.picture(step)[0], caption="sample"),
                "val/mistakes": trackio.Table(dataframe=pd.DataFrame({"id": [0, 1], "image": images})),
                "weights/block1": trackio.Histogram(c.weights(step)),
                "audio/voice": trackio.Audio(c.sound(step // c.MEDIA), sample_rate=8000, caption="a tone"),
                "generated/text": trackio.Markdown(c.story(step)),
            }
        if step % c.MODEL == c.MODEL - 1:
            messages = [{"role": "user", "content": "Which leaf?"}, {"role": "assistant", "content": "oak"}]
            row["chat"] = trackio.Trace(messages=messages)
        trackio.log(row, step=step)
        if step == 150:
            trackio.alert("Loss is low", text="0.2")
        time.sleep(PAUSE_S)
    trackio.finish()
    for seed, (rate, width) in enumerate(c.SWEEP):
        settings = {"learning_rate": rate, "network": {"width": width}}
        trackio.init(project=c.PROJECT, name=f"sweep-{rate}-{width}", group="sweep", config=settings)
        for step in range(60):
            trackio.log({"train/loss": c.loss(step, rate, seed)}, step=step)
        trackio.finish()


def wandb() -> None:
    import wandb

    run = wandb.init(
        project=c.PROJECT, name="baseline-cosine", config=c.CONFIG, tags=c.TAGS, group="paper", notes=c.NOTES
    )
    run.define_metric("epoch")
    run.define_metric("val/*", step_metric="epoch")
    for step in range(c.STEPS):
        row: dict[str, Any] = dict(numbers(step))
        if step % c.EPOCH == c.EPOCH - 1:
            row["epoch"] = (step + 1) // c.EPOCH
        if step % c.MEDIA == c.MEDIA - 1:
            with wave.open(f"{step}.wav", "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(8000)
                file.writeframes((c.sound(step // c.MEDIA) * 32767).astype("int16").tobytes())
            pixels, place = c.picture(step)
            row |= {
                "val/samples": wandb.Image(pixels, caption="sample", boxes=c.boxes(place)),
                "weights/block1": wandb.Histogram(c.weights(step)),
                "audio/voice": wandb.Audio(f"{step}.wav", caption="a tone"),
                "page/attention": wandb.Html(c.HTML),
                "generated/text": c.story(step),
            }
        run.log(row, step=step)
        time.sleep(PAUSE_S)
    run.summary["test_accuracy"] = 0.931
    run.finish()


class Short:
    """A run that logs a loss, with a vendor's own client."""

    def __init__(self, tracker: str, name: str, again: bool = False) -> None:
        self._tracker = tracker
        if tracker == "tensorboard":
            from torch.utils.tensorboard import SummaryWriter

            # What was logged above this step goes, as the writer's documentation has it.
            self._writer = SummaryWriter(f"events/{name}", purge_step=51 if again else None)
        elif tracker == "mlflow":
            import mlflow

            mlflow.set_experiment(c.PROJECT)
            found = mlflow.search_runs(filter_string=f"run_name = '{name}'", output_format="list") if again else []
            mlflow.start_run(run_id=found[0].info.run_id) if found else mlflow.start_run(run_name=name)
            mlflow.log_param("learning_rate", 2e-3)
        elif tracker == "trackio":
            import trackio

            trackio.init(c.PROJECT, name=name, config={"learning_rate": 2e-3}, resume="must" if again else "never")
        else:
            import wandb

            identity: dict[str, Any] = {"id": name, "resume": "must" if again else "allow"} if name == "resumed" else {}
            self._run = wandb.init(project=c.PROJECT, name=name, config={"learning_rate": 2e-3}, **identity)

    def log(self, loss: float, step: int) -> None:
        if self._tracker == "tensorboard":
            self._writer.add_scalar("train/loss", loss, step)
        elif self._tracker == "wandb":
            self._run.log({"train/loss": loss}, step=step)
        else:
            vendor = __import__(self._tracker)
            (vendor.log_metrics if self._tracker == "mlflow" else vendor.log)({"train/loss": loss}, step=step)

    def end(self) -> None:
        if self._tracker == "tensorboard":
            self._writer.close()
        elif self._tracker == "wandb":
            self._run.finish()
        else:
            vendor = __import__(self._tracker)
            (vendor.end_run if self._tracker == "mlflow" else vendor.finish)()


def short(tracker: str, kind: str) -> None:
    run = Short(tracker, kind)
    for step in range(81 if kind == "resumed" else 40):
        run.log(c.loss(step), step)
        time.sleep(PAUSE_S)
    if kind == "failed":
        raise RuntimeError("CUDA out of memory")
    if kind == "killed":
        os.kill(os.getpid(), 9)
    run.end()
    run = Short(tracker, kind, again=True)
    for step in range(51, 120):
        run.log(c.loss(step) + 0.3, step)
    run.end()


if len(sys.argv) > 2:
    short(*sys.argv[1:])
else:
    {"tensorboard": tensorboard, "mlflow": mlflow, "trackio": trackio, "wandb": wandb}[sys.argv[1]]()
    for kind in ("failed", "killed", "resumed"):
        subprocess.run([sys.executable, __file__, sys.argv[1], kind], check=False, stdout=subprocess.DEVNULL)
