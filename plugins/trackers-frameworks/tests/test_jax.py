"""The metric writer with real JAX, Flax and clu."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from trackers_frameworks.jax import TrackersWriter

import trackers
from tests.frameworks.support import config, directories, only, recorded, series
from trackers.errors import UsageError

pytestmark = pytest.mark.usefixtures("local_runs")


@pytest.fixture
def clu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """clu's writers. Its package imports TensorFlow for one of them, which is too large here: that one is left out."""
    stub = ModuleType("clu.metric_writers.tf.summary_writer")
    stub.SummaryWriter = type("SummaryWriter", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "clu.metric_writers.tf.summary_writer", stub)
    import clu.metric_writers

    return clu.metric_writers


def train(writer: Any) -> list[float]:
    """Two epochs of a Flax model; the losses."""
    model = nn.Dense(1)
    features = jax.random.normal(jax.random.key(0), (8, 3))
    target = features.sum(1, keepdims=True)
    variables = model.init(jax.random.key(1), features)
    optimizer = optax.sgd(0.1)
    state = optimizer.init(variables)

    @jax.jit
    def update(variables: Any, state: Any) -> Any:
        loss, slopes = jax.value_and_grad(lambda v: jnp.mean((model.apply(v, features) - target) ** 2))(variables)
        changes, state = optimizer.update(slopes, state)
        return optax.apply_updates(variables, changes), state, loss

    losses = []
    writer.write_hparams({"learning_rate": 0.1, "epochs": 2})
    for step in (1, 2):
        variables, state, loss = update(variables, state)
        writer.write_scalars(step, {"fit/loss": loss, "one": jnp.ones((1,))})
        writer.write_histograms(step, {"kernel": variables["params"]["kernel"]}, num_buckets={"kernel": 4})
        losses.append(float(loss))
    writer.flush()
    return losses


def test_training_is_recorded() -> None:
    """Scalars on the device, histograms and hyperparameters of a training are there; the run ends with the writer."""
    with TrackersWriter(project="mnist", name="first") as writer:
        losses = train(writer)
    stored = only()
    assert series(stored, "fit/loss") == list(zip((1, 2), losses, strict=True))
    assert series(stored, "one") == [(1, 1.0), (2, 1.0)]
    assert config(stored) == {"learning_rate": 0.1, "epochs": 2}
    assert (stored.name, stored.status) == ("first", "finished")
    media = trackers.load(str(directories()[0])).media()
    assert [(one.name, one.type, one.step, sum(one.items[0].data["counts"])) for one in media] == [
        ("kernel", "histogram", 1, 3), ("kernel", "histogram", 2, 3),
    ]  # fmt: skip


def test_interface_is_clus(clu: Any) -> None:
    """Each method of clu's interface is there with clu's parameters."""
    for name, method in vars(clu.MetricWriter).items():
        if not name.startswith("_"):
            theirs, ours = inspect.signature(method), inspect.signature(getattr(TrackersWriter, name))
            assert [(one.name, one.kind, one.default) for one in theirs.parameters.values()] == [
                (one.name, one.kind, one.default) for one in ours.parameters.values()
            ], name


def test_clus_wrappers_take_the_writer(clu: Any) -> None:
    """Multi- and async writers and ``write_values`` pass everything on; other writers' values are the same."""
    from clu import values

    writer = clu.AsyncMultiWriter([clu.LoggingWriter(), TrackersWriter()])
    with clu.ensure_flushes(writer):
        losses = train(writer)
        clu.write_values(
            writer, 3,
            {"text": values.Text("good"), "scalar": values.Scalar(2.5), "image": values.Image(np.zeros((2, 4, 5, 3)))},
        )  # fmt: skip
    writer.close()
    stored = only()
    assert [value for _, value in series(stored, "fit/loss")] == losses
    assert series(stored, "scalar") == [(3, 2.5)]
    assert stored.texts == {"text": [(3, "good")]}
    (image,) = [one for one in trackers.load(str(directories()[0])).media() if one.name == "image"]
    assert len(image.items) == 2


def test_media_and_summaries() -> None:
    """Images, videos and sounds, alone and in batches; arrays for plug-ins are kept as files."""
    writer = TrackersWriter()
    writer.write_images(1, {"image": jnp.ones((4, 5, 3)), "images": np.zeros((2, 4, 5, 1))})
    writer.write_videos(1, {"video": np.zeros((3, 4, 5, 3), np.uint8)})
    writer.write_audios(1, {"audio": np.zeros((2, 100, 1))}, sample_rate=8000)
    writer.write_summaries(2, {"tensor": jnp.arange(3)}, metadata={"plugin": "mine"})
    writer.close()
    loaded = trackers.load(str(directories()[0]))
    assert {one.name: (one.type, len(one.items)) for one in loaded.media()} == {
        "image": ("image", 1), "images": ("image", 2), "video": ("video", 1), "audio": ("audio", 2),
    }  # fmt: skip
    (artifact,) = loaded.artifacts()
    assert np.load(Path(directories()[0], artifact.files[0].file)).tolist() == [0, 1, 2]
    assert artifact.metadata["summary"] == "{'plugin': 'mine'}"


def test_ends_of_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """A block that raises is a failed run; the user's run stays open; a fault of ours is one line."""
    with pytest.raises(TypeError, match="str"), TrackersWriter():
        jnp.sum("not an array")
    assert directories() == []
    broken = TrackersWriter()
    broken.write_scalars(1, {"loss": 1.0})
    with pytest.raises(TypeError, match="str"), broken:
        jnp.sum("not an array")
    assert only().status == "failed"
    run = trackers.init("json", project="p")
    writer = TrackersWriter()
    train(writer)
    writer.write_images(3, {"odd": "no image", "image": np.zeros((4, 4, 3))})
    writer.close()
    assert not run.finished
    run.finish()
    assert len(series(recorded()[1], "fit/loss")) == 2
    assert [one.name for one in trackers.load(str(directories()[1])).media()][-1] == "image"
    assert sum("training goes on" in line for line in capsys.readouterr().err.splitlines()) == 1
    with pytest.raises(UsageError, match="unknown tracker 'jsn'"):
        TrackersWriter("jsn").write_scalars(1, {"loss": 1.0})


def test_other_processes_record_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several processes process 0 alone records."""
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    train(TrackersWriter())
    assert directories() == []


def test_module_needs_neither_jax_nor_clu() -> None:
    """The writer can be imported and used where neither is installed."""
    code = "import sys, trackers_frameworks.jax; print('jax' in sys.modules, 'clu' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False False\n"
