"""Log one rich training by this package and by each vendor's own client, and photograph the pages side by side.

    python scripts/make_pages.py                     all, into build/pages/index.html
    python scripts/make_pages.py mlflow trackio      these trackers' pages
    python scripts/make_pages.py --again             the pages anew, over the runs of the last time
    python scripts/make_pages.py --docs              and docs/pictures/page-*.png anew

The gallery has a row for each page: the vendor's own client on the left, this package on the right. W&B has no page
that opens without its servers: what its client would upload is compared there, field by field, from the ``.wandb``
files. Needs the `all` extra, torch, and the programs chromium and chromedriver (Debian: apt-get install chromium
chromium-driver). A C compiler adds two GPUs (a stand-in for the driver). Takes some minutes; nothing it starts stays.
"""

from __future__ import annotations

import argparse
import html
import os
import shutil
import subprocess
import sys
import urllib.request
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import make_pictures
from make_pictures import ROOT, Browser, ask, server, until

sys.path.insert(0, str(ROOT))

from tests.fakes.gpu_drivers import standin

PAGES = Path(__file__).parent / "pages"
TRACKERS = ("tensorboard", "mlflow", "trackio", "wandb")
PROJECT = "leaves"
SWEPT = "sweep-0.0005-96"
"""A run that both sides list: MLflow folds the baseline of its own client below its parent."""
WIDTH, HEIGHT, MOST_LOOKS = 1400, 1000, 60

Shot = tuple[str, str, str]
"""What a page is called, its address below the server's, and a word that it has once it shows what it is about."""


def environment_of(folder: Path, gpus: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRACK", "MLFLOW_", "WANDB_"))}
    return kept | gpus | {
        "HOME": str(folder), "TRACKIO_DIR": str(folder / "trackio"), "BROWSER": "true", "HF_HUB_OFFLINE": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
        "TENSORBOARD_DIR": str(folder / "events"), "WANDB_MODE": "offline", "WANDB_SILENT": "true",
        "TRACKER_FINISH_TIMEOUT": "300", "TRACKER_SAMPLE_INTERVAL": "2", "PYTHONPATH": str(ROOT),
        "GRADIO_SERVER_PORT": "{port}", "MPLBACKEND": "Agg", "TRACKER_AGENT": "n",
    }  # fmt: skip


def train(folder: Path, kind: str, trackers: list[str], gpus: dict[str, str]) -> dict[str, str]:
    """Run the training in a folder of its own: ``kind`` is "native" or "ours"."""
    folder.mkdir(parents=True)
    environment = environment_of(folder, gpus)
    runs = {name: value for name, value in environment.items() if name != "GRADIO_SERVER_PORT"}
    commands = [["ours.py", ",".join(trackers)]] if kind == "ours" else [["native.py", name] for name in trackers]
    for script, arguments in commands:
        with open(folder / f"{kind}.log", "ab") as log:
            command = [sys.executable, str(PAGES / script), arguments]
            done = subprocess.run(command, env=runs, cwd=folder, stdout=log, stderr=log, check=False)
        if done.returncode:
            print(f"{script} {arguments}: exit code {done.returncode}, see {log.name}")
    return environment


def photograph(tracker: str, folder: Path, environment: dict[str, str], browser: Browser, to: Path) -> dict[str, str]:
    """Photograph a tracker's pages over the runs of a folder; their names and files."""
    programs = Path(sys.executable).parent
    commands = {
        "tensorboard": [f"{programs}/tensorboard", "--logdir", logdir(folder), "--host", "127.0.0.1", "--port",
                        "{port}", "--reload_interval", "5"],
        "mlflow": [f"{programs}/mlflow", "server", "--backend-store-uri", environment["MLFLOW_TRACKING_URI"],
                   "--workers", "1", "--host", "127.0.0.1", "--port", "{port}"],
        "trackio": [f"{programs}/trackio", "show", "--project", PROJECT, "--host", "127.0.0.1"],
    }  # fmt: skip
    taken = {}
    with server(commands[tracker], environment, folder) as url:
        if tracker == "mlflow":
            until(lambda: answers(f"{url}/health"), "MLflow")
        for name, address, word in ADDRESSES[tracker](url):
            browser.resize(WIDTH, HEIGHT)
            browser.open(address)
            if tracker == "mlflow":
                browser.script(QUIET_MLFLOW)
                browser.open(address)
            if name == "files":  # its address is its server's
                until(lambda: browser.script(FILES), "the tab of the files")
            settle(browser, name, word)
            file = to / f"{tracker}-{name.replace(' ', '-')}-{folder.name}.png"
            browser.photograph_now().quantize(64).save(file, optimize=True)
            taken[name] = file.name
    return taken


QUIET_MLFLOW = """
localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true');
localStorage.setItem('mlflow.assistant.panelOpen_v1', 'false');
"""

FILES = """
const tabs = [...document.querySelectorAll('nav *, a, button')].filter(e => !e.children.length);
const tab = tabs.find(e => e.innerText?.trim() == 'Files');
tab?.click();
return Boolean(tab);
"""

SETTLED = r"""
const texts = root => [...root.childNodes].flatMap(node =>
    node.nodeType == Node.TEXT_NODE ? [node.data]
    : node.nodeType != Node.ELEMENT_NODE || getComputedStyle(node).display == 'none' ? []
    : node.tagName == 'SLOT' ? node.assignedNodes().flatMap(one => one.data ?? texts(one))
    : texts(node.shadowRoot ?? node));
const shown = document.body ? texts(document.body).join(' ').replace(/\s+/g, ' ') : '';
return document.readyState == 'complete' && shown.includes(arguments[0]) && shown.replace(/\d+/g, '0');
"""
"""What a page shows, also in its elements' own trees (TensorBoard's), but for how long ago things were; false before it
shows what it is about."""


def settle(browser: Browser, name: str, word: str) -> None:
    """Wait until a page shows a word, and nothing more for a few seconds; at most a minute."""
    seen: list[str] = []

    def same() -> bool:  # or it asks its server for ever
        seen.append(browser.script(SETTLED, word))
        if len(seen) > MOST_LOOKS:
            print(f"{name}: not settled")
        return (bool(seen[-1]) and seen[-4:] == [seen[-1]] * 4) or len(seen) > MOST_LOOKS

    until(same, name, pause_s=1)


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=10).close()  # noqa: S310 - loopback
    except OSError:
        return False
    return True


def logdir(folder: Path) -> str:
    """What is given to TensorBoard: what is printed for it, or the vendor's writer's folder."""
    own = folder / "events" / PROJECT
    return str(own if own.is_dir() else folder / "events")


def tensorboard_pages(url: str) -> list[Shot]:
    names = {"time series": "learning_rate", "scalars": "train", "hparams": "Trial ID", "text": "step",
             "images": "step", "histograms": "weights"}  # fmt: skip
    return [(name, f"{url}/#{name.replace(' ', '')}", word) for name, word in names.items()]


def mlflow_pages(url: str) -> list[Shot]:
    api = f"{url}/api/2.0/mlflow"
    experiment = ask(f"{api}/experiments/get-by-name?experiment_name={PROJECT}")["experiment"]["experiment_id"]
    wanted = {"experiment_ids": [experiment], "filter": "attributes.run_name = 'baseline-cosine'"}
    run = ask(f"{api}/runs/search", wanted)["runs"][0]["info"]["run_id"]
    base = f"{url}/#/experiments/{experiment}"
    one = f"{base}/runs/{run}"
    training = "workflowType=machine_learning"
    return [
        ("experiment", base, PROJECT), ("runs", f"{base}/runs?{training}", SWEPT),
        ("models", f"{base}/models?{training}", "baseline-cosine"), ("overview", f"{one}?{training}", "About this run"),
        ("charts", f"{one}/model-metrics?{training}", "train"),
        ("system", f"{one}/system-metrics?{training}", "Add chart"),
        ("artifacts", f"{one}/artifacts?{training}", "config.json"),
        ("traces", f"{one}/traces?{training}", "Which leaf"),
        ("compare charts", f"{base}/runs?compareRunsMode=CHART&{training}", SWEPT),
        ("evaluation", f"{base}/runs?compareRunsMode=ARTIFACT&{training}", SWEPT),
    ]  # fmt: skip


def trackio_pages(url: str) -> list[Shot]:
    pages = {"metrics": ("", "loss"), "system": ("system", "utilization"), "media": ("media", "Images"),
             "traces": ("traces", "Which leaf"), "runs": ("runs", "baseline-cosine"), "reports": ("reports", "Alerts"),
             "files": ("", "Files"), "artifacts": ("artifacts", "rtifacts")}  # fmt: skip
    return [(name, f"{url}/{path}?project={PROJECT}", word) for name, (path, word) in pages.items()]


ADDRESSES = {"tensorboard": tensorboard_pages, "mlflow": mlflow_pages, "trackio": trackio_pages}


def wandb_fields(folder: Path) -> dict[str, list[str]]:
    """What a client left for W&B, by kind of record: names with how often they come; values of the environment."""
    from trackers.formats.wandb_datastore import records

    found: dict[str, Counter[str]] = {}
    for file in sorted(folder.rglob("*.wandb")):
        for record in records(file):
            kind = record.WhichOneof("record_type")
            into = found.setdefault(kind, Counter())
            part = getattr(record, kind)
            if kind in ("history", "summary", "stats"):
                for item in part.update if kind == "summary" else part.item:
                    into[".".join(getattr(item, "nested_key", ())) or item.key] += 1
            elif kind == "environment":
                for field, value in part.ListFields():
                    into[f"{field.name}: {str(value)[:200]}"] += 1
            else:
                into.update(field.name for field, _ in part.ListFields())
    return {kind: [f"{name} × {count}" for name, count in sorted(names.items())] for kind, names in found.items()}


def compared(left: dict[str, list[str]], right: dict[str, list[str]]) -> tuple[str, str]:
    """What each side's files have, what only this one has first, as HTML."""

    def shown(own: dict[str, list[str]], other: dict[str, list[str]]) -> str:
        parts = []
        for kind in sorted({*own, *other}):
            names = {line.rpartition(" × ")[0] for line in other.get(kind, ())}
            apart = [line for line in own.get(kind, ()) if line.rpartition(" × ")[0] not in names]
            both = [line for line in own.get(kind, ()) if line not in apart]
            lines = [*(f"only here: {line}" for line in apart), *both]
            parts.append(f"<b>{kind}</b><pre>{html.escape(chr(10).join(lines))}</pre>")
        return "".join(parts)

    return shown(left, right), shown(right, left)


def page_of(rows: list[tuple[str, str, str, str, str]]) -> str:
    """The gallery: tracker, page, words, left and right (a file's name, or HTML)."""

    def cell(shown: str) -> str:
        return f"<a href='{shown}'><img src='{shown}' loading=lazy></a>" if shown.endswith(".png") else shown

    parts = [
        f"<h2>{html.escape(tracker)}: {html.escape(name)}</h2><p>{html.escape(words)}</p>"
        f"<div class=pair><div>{cell(left)}</div><div>{cell(right)}</div></div>"
        for tracker, name, words, left, right in rows
    ]
    style = "body{font:15px sans-serif;margin:20px}img{width:100%;border:1px solid #ccc}.pair{display:grid;"
    style += "grid-template-columns:1fr 1fr;gap:16px}pre{white-space:pre-wrap;font-size:12px}"
    return (
        f"<!doctype html><meta charset=utf-8><title>Pages</title><style>{style}</style>"
        "<h1>Left the vendor's own client, right this package</h1>" + "\n".join(parts)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trackers", nargs="*", metavar="tracker", help=f"of {', '.join(TRACKERS)}; default all")
    parser.add_argument("--again", action="store_true", help="photograph the runs of the last time")
    parser.add_argument("--only", choices=("native", "ours"), help="train and photograph this side alone")
    parser.add_argument("--docs", action="store_true", help="also put the documentation's pictures of these pages anew")
    parser.add_argument("--to", type=Path, default=ROOT / "build" / "pages", help="the folder of the gallery")
    asked = parser.parse_args()
    names = asked.trackers or list(TRACKERS)
    missing = [program for program in ("chromium", "chromedriver") if shutil.which(program) is None]
    if missing:
        raise SystemExit(f"needs {' and '.join(missing)}: apt-get install chromium chromium-driver")
    to = asked.to.resolve()
    to.mkdir(parents=True, exist_ok=True)
    make_pictures.WAIT_S = 600  # four servers start while others train
    sides = [asked.only] if asked.only else ["native", "ours"]
    gpus = gpu_stand_in(to)
    taken: dict[tuple[str, str], dict[str, str]] = {}
    fields: dict[str, dict[str, list[str]]] = {}
    for side in sides:
        folder = to / side
        if not asked.again:
            shutil.rmtree(folder, ignore_errors=True)
            train(folder, side, names, gpus)
        with ExitStack() as stack:
            environment = environment_of(folder, gpus)
            driver = stack.enter_context(server(["chromedriver", "--port={port}"], environment, folder))
            browser = Browser(driver, to / f"profile-{side}")
            stack.callback(browser.close)
            for tracker in names:
                if tracker == "wandb":
                    fields[side] = wandb_fields(folder)
                else:
                    taken[tracker, side] = photograph(tracker, folder, environment, browser, to)
    if fields:
        for side, shown in zip(
            ("native", "ours"), compared(fields.get("native", {}), fields.get("ours", {})), strict=True
        ):
            taken["wandb", side] = {"files": shown}
    rows: list[tuple[str, str, str, str, str]] = []
    for tracker in names:
        pages: dict[str, Any] = {**taken.get((tracker, "native"), {}), **taken.get((tracker, "ours"), {})}
        for name in pages:
            left, right = (taken.get((tracker, side), {}).get(name, "") for side in ("native", "ours"))
            rows.append((tracker, name, WORDS.get((tracker, name), ""), left, right))
    (to / "index.html").write_text(page_of(rows))
    if asked.docs:
        to_docs(to)
    print(f"{to / 'index.html'}: {len(rows)} pairs of pages")


WORDS: dict[tuple[str, str], str] = {
    (
        "tensorboard",
        "time series",
    ): "Training's curves alone: results are columns of HPARAMS, and no charts of one dot. `epoch`, at "
    "training's steps, and `learning_rate` have no slash, and so are before train, as with the vendor's writer. What "
    "was above the step of a resume is gone.",
    ("tensorboard", "scalars"): "The machine's samples are the last group (~system).",
    ("tensorboard", "hparams"): "Every run is a row, not the sweep alone; results and what differs come first.",
    ("tensorboard", "text"): "Tags, notes, status, artifacts and environment are one card, trackers/run.",
    ("tensorboard", "images"): "Boxes and masks are drawn into the picture, with their labels; captions are texts.",
    ("tensorboard", "histograms"): "The same.",
    ("mlflow", "experiment"): "The same. The breadcrumb leads to Training runs.",
    (
        "mlflow",
        "runs",
    ): "The failed run is FAILED and the killed one KILLED: by MLflow's client they are finished, and running "
    "for ever. With MLFLOW_NESTED=y a group is a parent run, as on the left.",
    (
        "mlflow",
        "models",
    ): "Artifacts of type model, with the metrics that the run had then. Their files lie in the run.",
    (
        "mlflow",
        "overview",
    ): "Tags can be filtered one by one. System metrics, first on both sides, have MLflow's names: 42 of 51 here, "
    "18 of 23 there.",
    (
        "mlflow",
        "charts",
    ): "Results are bars that compare runs. MLflow sorts sections by their names: final stands before train, "
    "as for anyone who names a metric so; docs/choosing-trackers.md says what was tried.",
    ("mlflow", "system"): "MLflow's names, and more of them: clocks, energy, the process.",
    (
        "mlflow",
        "artifacts",
    ): "All that was logged; the same table as one file for the evaluation view, and each version of it.",
    ("mlflow", "traces"): "The same traces, with tokens.",
    ("mlflow", "compare charts"): "The resumed run has both lines in MLflow on either side: it forgets no point.",
    ("mlflow", "evaluation"): "Tables of one name are one file, which the view compares.",
    ("trackio", "metrics"): "200 rows for 200 steps on both sides. What was above the step of the resume is gone.",
    (
        "trackio",
        "system",
    ): "trackio's names for GPUs, processor and memory; no list of settings as curves (count_logical).",
    ("trackio", "media"): "Boxes and masks are drawn into the pictures; those of one step in their order.",
    ("trackio", "traces"): "Spans with status and latency.",
    ("trackio", "runs"): "The same steps; the resumed run has 120 rows for 120 steps. Artifacts are linked.",
    ("trackio", "reports"): "Each run's results are a report, before the texts.",
    ("trackio", "files"): "By run: environment, names of samples, what training printed.",
    ("trackio", "artifacts"): "Data and models, with versions. The left side logs none.",
    (
        "wandb",
        "files",
    ): "W&B has no page without its servers: what its client would upload, by kind of record; first what only this "
    "side has. The left side writes media as nested keys, the right one as one value: the server gets the same. Its "
    "page is asked to draw no charts of gpu/*.",
}
"""What differs, and why."""

DOCS = {
    "page-tensorboard.png": ("tensorboard", "hparams"), "page-mlflow.png": ("mlflow", "runs"),
    "page-trackio.png": ("trackio", "metrics"),
}  # fmt: skip
"""Pictures of docs/pictures."""
DOCS_BYTES = 150_000


def to_docs(folder: Path) -> None:
    """Copy this package's side of some pages into the documentation."""
    for name, (tracker, page) in DOCS.items():
        source = folder / f"{tracker}-{page.replace(' ', '-')}-ours.png"
        if source.exists():
            if source.stat().st_size > DOCS_BYTES:
                raise SystemExit(f"{source} has {source.stat().st_size:,} bytes, more than {DOCS_BYTES:,}")
            shutil.copy(source, make_pictures.PICTURES / name)


def gpu_stand_in(folder: Path) -> dict[str, str]:
    """The variables under which two GPUs seem to be here; none without a C compiler."""
    if standin.compiler() is None:
        return {}
    libraries = folder / "drivers"
    if not libraries.is_dir():
        standin.build(libraries)
    drivers = standin.Drivers(libraries, folder / "knobs")
    drivers.set(count=2)
    return drivers.environment("new")


if __name__ == "__main__":
    main()
