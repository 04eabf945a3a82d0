"""``wandb.plot`` and ``wandb.sklearn``: the tables and charts that W&B's own make, and pictures of them elsewhere."""

from __future__ import annotations

import inspect
import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trackers
from tests import forked
from tests.helpers import T0, Driver, run_info, stream
from trackers import media
from trackers.as_wandb import plots, sklearn_plots
from trackers.backends.shared import charts
from trackers.backends.tensorboard.tracker import TensorboardTracker
from trackers.backends.trackio.tracker import TrackioTracker
from trackers.backends.wandb import datastore_writer
from trackers.backends.wandb.tracker import WandbTracker
from trackers.formats import wandb_datastore
from trackers.records import Media, Metrics, Record, decode
from trackers.tracker import RunInfo
from trackers.training import wandb_arguments

pytestmark = pytest.mark.heavy

SCRIPT = """
import sys
import numpy as np
from sklearn import cluster, linear_model, naive_bayes, tree
if sys.argv[1] == "theirs":
    import wandb
    wandb.init(project="p", mode="offline", settings=wandb.Settings(x_disable_stats=True, console="off"))
else:
    import trackers as wandb
    wandb.init("wandb", project="p", inline=True)
# scikit-learn's current releases have no attribute by which W&B's check would know a clusterer.
cluster.KMeans._estimator_type = "clusterer"
rng = np.random.default_rng(0)
table = wandb.Table(columns=["a", "b", "c"], data=[[1, 2.5, "x"], [3, 4.5, "y"]])
labels = rng.integers(0, 3, 60)
scores = rng.random((60, 3))
wandb.log({
    "line": wandb.plot.line(table, "a", "b", stroke="c", title="L"),
    "split/scatter": wandb.plot.scatter(table, "a", "b", title="S", split_table=True),
    "bar": wandb.plot.bar(table, "c", "b"),
    "histogram": wandb.plot.histogram(table, "b", title="H"),
    "series": wandb.plot.line_series([0, 1, 2], [[1, 2, 3], [4, 5, 6]], keys=["p", "q"], title="T", xname="step"),
    "series2": wandb.plot.line_series([[0, 1], [2, 3]], [[1, 2], [4, 5]]),
    "pr": wandb.plot.pr_curve(labels, scores, labels=["n", "o", "p"]),
    "pr_some": wandb.plot.pr_curve(labels, scores, classes_to_plot=[0, 2], interp_size=5, title="P"),
    "roc": wandb.plot.roc_curve(labels, scores),
    "roc_words": wandb.plot.roc_curve([("a", "b", "c")[n] for n in labels], scores),
    "cm": wandb.plot.confusion_matrix(probs=scores, y_true=labels.tolist()),
    "cm_named": wandb.plot.confusion_matrix(preds=[0, 1, 1], y_true=[1, 1, 0], class_names=["n", "p", "q"]),
    "own": wandb.plot_table("me/mine", table, {"x": "a"}, {"title": "O"}),
    "viz": wandb.visualize("wandb/metrics/v1", table),
    "inside": {"deep": wandb.plot.bar(table, "c", "b")},
})
X = rng.random((80, 4))  # of three features W&B's check makes no chart
y = (X[:, 0] + rng.random(80) / 4 > 0.6).astype(int)
model = linear_model.LogisticRegression().fit(X, y)
part = slice(0, 60), slice(60, 80)
S = wandb.sklearn
S.plot_confusion_matrix(y, model.predict(X), ["no", "yes"])
S.plot_confusion_matrix(y, model.predict(X), normalize=True)
S.plot_roc(y, model.predict_proba(X), ["no", "yes"])
S.plot_precision_recall(y, model.predict_proba(X), ["no", "yes"])
S.plot_feature_importances(tree.DecisionTreeClassifier(random_state=0).fit(X, y), ["a", "b", "c", "d"])
S.plot_feature_importances(model)
S.plot_class_proportions(y[part[0]], y[part[1]], ["no", "yes"])
S.plot_calibration_curve(model, X, y, "Logistic")
S.plot_summary_metrics(model, X[part[0]], y[part[0]], X[part[1]], y[part[1]])
S.plot_learning_curve(model, X, y)
target = X @ np.array([1.0, 2.0, 3.0, 4.0]) + rng.random(80)
line = linear_model.LinearRegression().fit(X, target)
S.plot_summary_metrics(line, X, target, X, target)
S.plot_outlier_candidates(line, X, target)
np.random.seed(5)
S.plot_residuals(line, X, target)
found = cluster.KMeans(3, random_state=0, n_init=1).fit(X)
S.plot_silhouette(found, X, found.labels_, ["a", "b", "c"])
S.plot_elbow_curve(found, X, cluster_ranges=[2, 3])
wandb.finish()
"""


def recorded(home: Path, whose: str) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    """What a .wandb file says of charts, and the tables of its rows in their order."""
    home.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "WANDB_MODE": "offline"}
    forked.run([sys.executable, "-c", SCRIPT, whose], cwd=home, check=True, env=environment)
    (path,) = home.rglob("offline-run-*/*.wandb")
    described: dict[str, Any] = {}
    tables: list[tuple[str, Any]] = []
    for record in wandb_datastore.records(path):
        if record.WhichOneof("record_type") == "config":
            for item in record.config.update:
                if list(item.nested_key)[:1] == ["_wandb"]:
                    described["/".join(item.nested_key)] = json.loads(item.value_json)
        elif record.WhichOneof("record_type") == "history":
            for name, value in sorted(_flat(wandb_datastore.tree(record.history.item))):
                table = json.loads((path.parent / "files" / value["path"]).read_text())
                tables.append((name, table))
    return described, tables


def _flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            if value.get("_type") == "table-file":
                yield prefix + name, value
            else:
                yield from _flat(value, f"{prefix}{name}/")


def test_charts_and_their_tables_equal_those_of_the_real_wandb(tmp_path: Path) -> None:
    """The same script with both: names, columns and rows of every table, and what says how it is drawn."""
    described, tables = recorded(tmp_path / "theirs", "theirs")
    ours, own = recorded(tmp_path / "ours", "ours")
    assert len(described) > 25
    # W&B's client joins nested names by ".", ours by "/".
    assert {name.replace("inside.", "inside/"): _keys(value) for name, value in described.items()} == {
        name: _keys(value) for name, value in ours.items()
    }
    assert len(tables) == len(own)
    for (name, wanted), (other, found) in zip(tables, own, strict=True):
        assert name.replace("inside.", "inside/") == other
        assert wanted["columns"] == found["columns"], name
        if name != "elbow_curve":  # it has times
            assert found["data"] == wanted["data"], name


def _keys(value: Any) -> Any:
    return json.loads(json.dumps(value).replace("inside.deep", "inside/deep"))


@pytest.mark.parametrize("ours", [plots, sklearn_plots], ids=["plot", "sklearn"])
def test_signatures_equal_those_of_the_real_wandb(ours: Any) -> None:
    """Names, order, kinds and defaults of the arguments."""
    import wandb
    import wandb.sklearn

    theirs = wandb.plot if ours is plots else wandb.sklearn
    for name in theirs.__all__:
        wanted, found = (inspect.signature(getattr(module, name)).parameters for module in (theirs, ours))
        assert list(wanted) == list(found), name
        for key, parameter in wanted.items():
            assert (parameter.kind, parameter.default) == (found[key].kind, found[key].default), f"{name}({key})"


def test_wrong_arguments_raise_nothing_and_are_said(caplog: pytest.LogCaptureFixture) -> None:
    """After hours of training a chart that can't be made is a line, and nothing is logged."""
    wandb_arguments.printed_messages.clear()
    assert plots.confusion_matrix(preds=[1], y_true=[1, 2]) is None
    assert plots.line("no table", "x", "y") is None  # type: ignore[arg-type]
    assert plots.pr_curve([0, 1], None) is None
    assert plots.line_series([1, 2], [[1, 2]], keys=["a", "b"]) is None
    sklearn_plots.plot_elbow_curve(object(), [[1]])
    sklearn_plots.plot_feature_importances(None)
    said = [record.message for record in caplog.records]
    assert len(said) == 6
    assert "confusion_matrix: no chart is recorded: UsageError: 1 predictions for 2 true labels" in said[0]


TABLE = media.Table(columns=["a", "b", "c"], data=[[1, 2.5, "x"], [3, 4.5, "y"], [5, None, "x"]])
DRAWN = {
    "line": plots.line(TABLE, "a", "b", stroke="c", title="L"),
    "scatter": plots.scatter(TABLE, "a", "b"),
    "bar": plots.bar(TABLE, "c", "b"),
    "histogram": plots.histogram(TABLE, "b"),
    "series": plots.line_series([0, 1], [[1, 2], [3, 4]]),
    "matrix": plots.confusion_matrix(preds=[0, 1, 1], y_true=[1, 1, 0]),
}


@pytest.mark.parametrize("library", ["matplotlib", "PIL"])
@pytest.mark.parametrize("name", DRAWN)
def test_charts_are_drawn_the_same_each_time(
    name: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a picture for trackers without charts; the same bytes again, so that a delivery can be repeated."""
    if library == "PIL":
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    store = media.RunMedia(tmp_path)
    (item,) = DRAWN[name].items(store)
    info = RunInfo(id="r", name="r", project="p", directory=str(tmp_path))
    drawn = charts.picture(info, item)
    assert drawn is not None
    assert drawn.startswith(b"\x89PNG")
    assert charts.picture(info, item) == drawn


def test_chart_that_isnt_known_or_lacks_its_columns_has_no_picture(tmp_path: Path) -> None:
    """The table is kept all the same."""
    info = RunInfo(id="r", name="r", project="p", directory=str(tmp_path))
    for chart in (plots.plot_table("me/mine", TABLE, {"x": "a"}), plots.line(TABLE, "nothing", "b"), TABLE):
        (item,) = chart.items(media.RunMedia(tmp_path))
        assert charts.picture(info, item) is None


def test_objects_molecules_and_graphs_are_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is kept as it was given; a wrong one is an error where it is made."""
    monkeypatch.chdir(tmp_path)
    Path("model.obj").write_text("v 0 0 0")
    Path("water.pdb").write_text("ATOM")
    box = trackers.box3d(center=(0, 0, 0), size=(2, 2, 2), orientation=(1, 0, 0, 0), color=(1, 0, 0), label="b")
    graph = trackers.Graph()
    graph.add_edge(graph.add_node(id=1, name="in"), graph.add_node(id=2, name="out"))
    run = trackers.init("json", project="p", mode="offline", options={"TRACKER_RELAY": False})
    run.log(
        {
            "model": trackers.Object3D("model.obj"),
            "points": trackers.Object3D(np.zeros((2, 3))),
            "cloud": trackers.Object3D.from_point_cloud(points=[[0, 0, 0]], boxes=[box]),
            "molecule": trackers.Molecule(Path("water.pdb"), caption="water"),
            "graph": graph,
            "joined": trackers.JoinedTable(TABLE, TABLE, "a"),
            "eval": trackers.EvalTable(columns=["q", "score"], data=[[1, 2]], score_columns=["score"]),
        }
    )
    run.finish()
    lines = Path(run.dir, "streams/rank-0.1.jsonl").read_bytes().splitlines()
    found = {record.name: record for line in lines if isinstance(record := decode(line), Media)}
    assert {name: (record.type, record.items[0].format) for name, record in found.items()} == {
        "model": ("object3d", "obj"),
        "points": ("object3d", "pts.json"),
        "cloud": ("object3d", "pts.json"),
        "molecule": ("molecule", "pdb"),
        "graph": ("graph", "json"),
        "joined": ("table", "json"),
        "eval": ("table", "json"),
    }
    cloud = json.loads(Path(run.dir, found["cloud"].items[0].file).read_text())
    assert sorted(cloud["boxes"][0]["corners"])[0] == [-1.0, -1.0, -1.0]
    assert json.loads(Path(run.dir, found["graph"].items[0].file).read_text())["edges"] == [[1, 2]]
    assert found["joined"].items[0].data["columns"][:2] == ["0.a", "0.b"]
    with pytest.raises(ValueError, match="known kind"):
        trackers.Molecule("model.obj")
    with pytest.raises(ValueError, match="n x 3, 4 or 6"):
        trackers.Object3D(np.zeros((2, 2)))


def test_box_equals_that_of_the_real_wandb() -> None:
    """Turned by a quaternion, with label and score."""
    import wandb

    given: dict[str, Any] = {"center": (1, 2, 3), "size": (1, 2, 4), "orientation": (0.5, 0.1, 0.7, 0.3)}
    theirs = wandb.box3d(**given, color=(1, 0, 0), score=0.5)
    ours = trackers.box3d(**given, color=(1, 0, 0), score=0.5)
    assert np.allclose(theirs["corners"], ours["corners"])
    assert {**theirs, "corners": 0} == {**ours, "corners": 0}


def chart_records(info: RunInfo) -> list[Record]:
    """Two rows, each with a chart and a number."""
    store = media.RunMedia(Path(info.directory))
    given: list[Record] = []
    for step in (1, 2):
        given.append(media.record("eval/line", plots.line(TABLE, "a", "b", title="L"), step, T0 + step, store))
        given.append(Metrics(step=step, time=T0 + step, values={"loss": 1.0 / step}))
    return stream(given)


def test_chart_is_in_w_and_bs_rows_once_however_often_it_is_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the name of its table, though cursor and state were lost; W&B's configuration says how it is drawn."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    info = run_info(tmp_path / "run")
    records = chart_records(info)
    Driver(WandbTracker, info).deliver(records)
    Driver(WandbTracker, info).deliver(records)
    files = datastore_writer.offline_files(tmp_path / "run/wandb", info.id)
    rows = [row for path in files for row in datastore_writer.history(path)]
    names = [{name.partition(".")[0] for name in row if name[0] != "_"} for row in rows]
    assert names == [{"eval/line_table", "global_step", "loss"}] * 2
    said = [
        "/".join(item.nested_key)
        for path in files
        for record in wandb_datastore.records(path)
        if record.WhichOneof("record_type") == "config"
        for item in record.config.update
    ]
    assert "_wandb/visualize/eval/line" in said


def test_tensorboard_shows_a_chart_as_a_picture_beside_its_table(tmp_path: Path) -> None:
    """The same bytes each time, so that a delivery that is repeated leaves the same file."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    info = run_info(tmp_path / "run")
    Driver(TensorboardTracker, info).deliver(chart_records(info))
    (path,) = tmp_path.rglob("*tfevents*")
    found = EventAccumulator(str(path.parent), size_guidance={"tensors": 0}).Reload()
    strings = found.Tensors("eval/line/chart")[0].tensor_proto.string_val
    assert (strings[0], strings[1]) == (b"600", b"400")
    assert strings[2].startswith(b"\x89PNG")
    assert len(found.Tensors("eval/line")) == 2


def test_trackio_shows_a_chart_as_a_picture_and_keeps_objects(tmp_path: Path) -> None:
    """Beside the table; what trackio can't show is a file of the run that the row names."""
    place = Path(os.environ["TRACKIO_DIR"])
    info = run_info(tmp_path / "run")
    store = media.RunMedia(Path(info.directory))
    cloud = media.record("cloud", media.Object3D(np.zeros((2, 3))), 3, T0 + 3, store)
    records = [*chart_records(info), *stream([cloud], first_seq=5)]
    Driver(TrackioTracker, info).deliver(records)
    database = sqlite3.connect(place / f"{info.project}.db")
    rows = [json.loads(row) for (row,) in database.execute("SELECT metrics FROM metrics ORDER BY id")]
    database.close()
    assert rows[0]["eval/line"]["_type"] == "trackio.table"
    assert rows[0]["eval/line/chart"]["_type"] == "trackio.image"
    assert rows[-1]["cloud"].startswith("object3d: ")
    assert list((place / "media").rglob("*.pts.json"))
