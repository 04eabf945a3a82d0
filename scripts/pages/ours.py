"""The training of `make pages`, logged with this package to all trackers: ``python ours.py TRACKERS``."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import content as c

import trackers

TRACKERS = sys.argv[1]


def long_run(pause_s: float) -> None:
    run = trackers.init(
        TRACKERS, project=c.PROJECT, name="baseline-cosine", group="paper", job_type="train", config=c.CONFIG,
        tags=c.TAGS, notes=c.NOTES,
    )  # fmt: skip
    run.define_metric("epoch")
    run.define_metric("val/*", step_metric="epoch")
    run.define_metric("val/accuracy", summary="max")
    data = trackers.Artifact("leaves", "dataset", description="Leaves, measured", metadata={"rows": 60})
    data.add_dir(str(c.data_files()))
    run.log_artifact(data)
    print("the data are ready")
    for step in range(c.STEPS):
        now = c.loss(step)
        shown = float("nan") if step in (37, 38) else now
        row = {"train/loss": shown, "train/optim/grad_norm": 1 / (1 + step / 50), "learning_rate": c.rate(step)}
        run.log(row, step=step)
        if step % c.EPOCH == c.EPOCH - 1:
            epoch = (step + 1) // c.EPOCH
            run.log({"epoch": epoch, "val/loss": now * 1.1, "val/accuracy": 1 - now / 3}, step=step)
            print(f"epoch {epoch} loss {now:.4f}")
        if step % c.MEDIA == c.MEDIA - 1:
            pictures = []
            for k in range(3):
                pixels, place = c.picture(step + k)
                masks = {"found": {"mask_data": c.mask(place), "class_labels": c.CLASSES}} if k == 2 else None
                pictures.append(
                    trackers.Image(pixels, caption=f"sample {k}: leaf 0.9", boxes=c.boxes(place), masks=masks)
                )
            rows = [[k, trackers.Image(c.picture(step + k)[0]), "leaf", 0.9 - k / 10] for k in range(4)]
            media = {
                "val/samples": pictures,
                "val/mistakes": trackers.Table(columns=["id", "image", "label", "score"], data=rows),
                "weights/block1": trackers.Histogram(c.weights(step)),
                "audio/voice": trackers.Audio(c.sound(step // c.MEDIA), sample_rate=8000, caption="a tone"),
                "plots/residuals": c.figure(step),
                "page/attention": trackers.Html(c.HTML),
                "generated/text": c.story(step),
                "single": trackers.Image(c.picture(step)[0], caption="one alone"),
            }
            run.log(media, step=step)
        if step % c.MODEL == c.MODEL - 1:
            model = trackers.Artifact("detector", "model", metadata={"val_accuracy": 1 - now / 3})
            model.add_dir(str(c.model_files(step)))
            run.log_artifact(model, aliases=["best"] if step == c.STEPS - 1 else [])
            with run.span("evaluate", inputs={"question": "Which leaf?"}, kind="chain") as outer:
                with run.span("chat", inputs=[{"role": "user", "content": "Which leaf?"}], kind="llm") as inner:
                    inner.outputs = "oak"
                    inner.set({"gen_ai.request.model": "small-1", "gen_ai.usage.input_tokens": 40,
                               "gen_ai.usage.output_tokens": 3})  # fmt: skip
                outer.outputs = "oak"
        if step == 150:
            run.alert("Loss is low", f"{now:.3f}", level="INFO")
        time.sleep(pause_s)
    run.log({"final/test_accuracy": 0.931, "final/best_step": 180})
    run.finish()


def sweep() -> None:
    for seed, (rate, width) in enumerate(c.SWEEP):
        name = f"sweep-{rate}-{width}"
        settings = {"learning_rate": rate, "network": {"width": width}, "batch_size": 64}
        run = trackers.init(TRACKERS, project=c.PROJECT, name=name, config=settings, group="sweep", tags=["sweep"])
        for step in range(60):
            run.log({"train/loss": c.loss(step, rate, seed)}, step=step)
        run.log({"final/test_accuracy": 0.8 + seed / 50})
        run.finish()


def failed() -> None:
    run = trackers.init(TRACKERS, project=c.PROJECT, name="failed", config=c.CONFIG, group="paper")
    for step in range(40):
        run.log({"train/loss": c.loss(step)}, step=step)
    raise RuntimeError("CUDA out of memory")


def killed() -> None:
    run = trackers.init(TRACKERS, project=c.PROJECT, name="killed", config=c.CONFIG, group="paper")
    for step in range(40):
        run.log({"train/loss": c.loss(step)}, step=step)
    os.kill(os.getpid(), 9)


def resumed() -> None:
    settings = {"learning_rate": 2e-3, "note": "first"}
    run = trackers.init(TRACKERS, project=c.PROJECT, name="resumed", id="resumed1", resume="allow", config=settings)
    for step in range(81):
        run.log({"train/loss": c.loss(step)}, step=step)
    run.finish()
    run = trackers.init(TRACKERS, project=c.PROJECT, name="resumed", id="resumed1", resume="must", step=50)
    for step in range(51, 120):
        run.log({"train/loss": c.loss(step) + 0.3}, step=step)
    run.log({"final/test_accuracy": 0.9})
    run.finish()


KINDS = {"long": lambda: long_run(0.05), "sweep": sweep, "failed": failed, "killed": killed, "resumed": resumed}

if len(sys.argv) > 2:
    KINDS[sys.argv[2]]()
else:
    for kind in KINDS:
        subprocess.run([sys.executable, __file__, TRACKERS, kind], check=False, stdout=subprocess.DEVNULL)
