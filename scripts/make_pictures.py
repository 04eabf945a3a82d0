"""Draw the photographs in docs/pictures.

    python scripts/make_pictures.py              all
    python scripts/make_pictures.py one-run      one demo run in TensorBoard, MLflow and trackio
    python scripts/make_pictures.py ui           twelve demo runs in `trackers ui`: table and curves
    python scripts/make_pictures.py logged       three classifiers in `trackers ui`: tables, media, spans

Trains examples/digits.py, or scikit-learn's classifiers, in a temporary directory, starts the servers on loopback, and
photographs them with headless Chromium. Needs the `all` extra, scikit-learn, and the programs chromium and chromedriver
(Debian: apt-get install chromium chromium-driver). Takes about a minute each; nothing it starts stays.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
BYTES_MAX = 400_000

NAMES = ("train_loss", "val_accuracy", "val_loss")
SHOWN = "^train_loss|^val_"
"""What is typed into each tool's own filter, so that all three show the same curves."""

WIDTH, SCALE = 1400, 8 / 7
"""A window's width in CSS pixels, and pixels for each: the picture is WIDTH * SCALE pixels wide."""

WAIT_S = 120
LINE, INK, PALE, BACKGROUND = "#077a9d", "#1f2328", "#59636e", "#ffffff"

RATES, SEEDS = (0.1, 0.03, 0.01), range(4)
VIEWS = {
    "ui-charts.png": ("tab=charts&sel={runs}&keys=loss+accuracy+norm+rate&band=config.learning_rate", "light", 985),
    "ui-runs.png": ("tab=runs&sel={runs}&sort=result.best_val_loss&asc=1", "dark", 610),
}
"""Pictures of `trackers ui`: the page's state, its colours, its window's height in CSS pixels."""

CLASSIFIERS = """
import sys, warnings, numpy, trackers
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
warnings.simplefilter("ignore")  # that it has not converged is the point
digits = load_digits()
steps, where = {"baseline": (2, 1), "wider": (8, 2), "deeper": (30, 3)}[sys.argv[1]]
run = trackers.init("json", project="digits", name=sys.argv[1])
for step in (100, 200, 300):
    model = LogisticRegression(max_iter=steps * step // 100).fit(digits.data[:400], digits.target[:400])
    rows, read = [], []
    for number in range(400, 440):
        odds = model.predict_proba(digits.data[number : number + 1])[0]
        label, answer = int(digits.target[number]), int(odds.argmax())
        picture = trackers.Image(numpy.uint8(digits.images[number] * 15.9))
        rows.append([number, picture, label, answer, float(-numpy.log(odds[label])), label == answer])
        if number < 404:
            read.append(trackers.Image(numpy.uint8(digits.images[number] * 15.9), caption=f"{label}, read as {answer}"))
    table = trackers.Table(columns=["id", "image", "label", "answer", "loss", "correct"], data=rows)
    tone = numpy.sin(numpy.arange(8000) * where * step / 2000)
    run.log({"predictions": table, "samples/read": read, "speech": trackers.Audio(tone, sample_rate=8000)}, step=step)

@run.span(kind="tool")
def calculator(text):
    return {"3 * 7": 21}[text]

with run.span("answer", kind="agent", inputs={"question": "what is 3 times seven?"}) as answer:
    with run.span("search", kind="retriever", inputs="seven") as search:
        numpy.linalg.eigvals(numpy.random.rand(200, 200))
        search.outputs = "seven is 7"
    with run.span("plan", kind="chain"):
        for text in ("3 * seven", "3 * 7"):
            with run.span("chat", kind="llm", inputs=text) as chat:
                numpy.linalg.eigvals(numpy.random.rand(250, 250))
                chat.set({"gen_ai.usage.input_tokens": 13, "gen_ai.usage.output_tokens": 3})
                chat.outputs = text
            try:
                answer.outputs = calculator(text)
            except KeyError:
                pass
run.finish()
"""
"""Three runs with a table, pictures, a sound, and a trace in which a call fails."""
LOGGED = {
    "ui-tables.png": ("tab=tables&sel={runs}&table=predictions&ta={a}&tb={b}", "light", 560),
    "ui-media.png": ("tab=media&sel={runs}", "light", 850),
    "ui-spans.png": ("tab=run&run={a}", "light", 1400),
}
"""As VIEWS; of the last one only the spans are kept."""

CHROMIUM_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    f"--force-device-scale-factor={SCALE}",
)

BOTTOM = """
const [name, selector] = arguments;
const parts = root => [...root.querySelectorAll('*')].flatMap(e => e.shadowRoot ? [e, ...parts(e.shadowRoot)] : [e]);
const seen = parts(document).filter(e => e.getClientRects().length);
const named = seen.some(e => [...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim() == name));
const charts = seen.filter(e => e.matches(selector));
return named && charts.length == 3 ? Math.max(...charts.map(e => e.getBoundingClientRect().bottom)) : 0;
"""
"""Where the lowest of three drawn charts ends, in CSS pixels; 0 while `name` or a chart is missing."""


FOLD = """
const header = [...document.querySelectorAll('[role=button][aria-expanded=true], button[aria-expanded=true]')]
    .find(e => e.textContent.trim().startsWith(arguments[0]));
header?.click();
return Boolean(header);
"""
"""Folds the section whose title begins so; false while there is none."""

KEYS = """
return fetch('api/runs?' + new URLSearchParams({query: '{"most": 100}'})).then(answer => answer.json()).then(
    found => found.rows.length == arguments[0] && found.rows.every(row => row.status == 'finished')
        && found.rows.map(row => row.key));
"""
"""The keys of the runs of the live page; false before all have ended."""

SPANS = """
const box = document.querySelector('.spans');
box?.scrollIntoView({block: 'start'});
const place = box?.getBoundingClientRect();
return place?.height > 40 && [place.left, place.top, place.right, Math.min(place.bottom, innerHeight)];
"""
"""Where the spans of a run are, in CSS pixels; false before they are there."""

HOME_KEY = "\ue011"


class Browser:
    """A headless Chromium, driven through chromedriver as https://www.w3.org/TR/webdriver2/ says."""

    def __init__(self, driver: str, profile: Path) -> None:
        self._driver = driver
        flags = [*CHROMIUM_FLAGS, f"--user-data-dir={profile}", f"--window-size={WIDTH},1000"]
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": flags}}}}
        self._session = f"{driver}/session/{ask(f'{driver}/session', wanted)['value']['sessionId']}"

    def open(self, url: str) -> None:
        """Load a page anew, also where only what follows "#" differs."""
        for address in ("about:blank", url):
            ask(f"{self._session}/url", {"url": address})

    def script(self, source: str, *arguments: Any) -> Any:
        return ask(f"{self._session}/execute/sync", {"script": source, "args": arguments})["value"]

    def type(self, selector: str, text: str) -> None:
        """Type into a field, as soon as it is there."""
        found = until(lambda: self._find(selector), f"the field {selector}")
        ask(f"{self._session}/element/{found}/value", {"text": text})

    def _find(self, selector: str) -> str | None:
        found = ask(f"{self._session}/elements", {"using": "css selector", "value": selector})["value"]
        return next(iter(found[0].values())) if found else None

    def photograph(self, charts: str, below: int = 16) -> Image.Image:
        """The page down to `below` CSS pixels under its charts.

        Taken when all of NAMES are drawn and two photographs in a row are the same.
        """
        bottom = until(lambda: min(self.script(BOTTOM, name, charts) for name in NAMES), f"three charts ({charts})")
        image = self.steady()
        bottom = min(self.script(BOTTOM, name, charts) for name in NAMES)
        return image.crop((0, 0, image.width, min(image.height, round((bottom + below) * SCALE))))

    def resize(self, width: int, height: int) -> None:
        ask(f"{self._session}/window/rect", {"width": width, "height": height})

    def steady(self) -> Image.Image:
        """The page, once two photographs in a row are the same."""
        before = b""

        def same() -> bytes | None:
            nonlocal before
            data = self._screen()
            equal, before = data == before, data
            return data if equal else None

        return Image.open(io.BytesIO(until(same, "a page that stands still", pause_s=1))).convert("RGB")

    def photograph_now(self) -> Image.Image:
        """The page as it is."""
        return Image.open(io.BytesIO(self._screen())).convert("RGB")

    def _screen(self) -> bytes:
        return base64.b64decode(ask(f"{self._session}/screenshot")["value"])

    def close(self) -> None:
        urllib.request.urlopen(urllib.request.Request(self._session, method="DELETE"), timeout=WAIT_S).close()


def ask(url: str, body: Any = None) -> Any:
    """A JSON answer; with a body it is a POST."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{url}: {error.read().decode(errors='replace')[:500]}") from error


def until(what: Callable[[], Any], name: str, pause_s: float = 0.2) -> Any:
    """The first true answer; ends the program when there is none for WAIT_S seconds."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if answer := what():
            return answer
        time.sleep(pause_s)
    raise SystemExit(f"waited {WAIT_S} s for {name}")


@contextmanager
def server(command: Sequence[str], environment: dict[str, str], folder: Path) -> Iterator[str]:
    """Run a server on a free loopback port, named {port} in its command and environment; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    filled = [part.format(port=port) for part in command]
    settings = {name: value.replace("{port}", str(port)) for name, value in environment.items()}
    with open(folder / f"{Path(command[0]).name}.log", "wb") as log:
        process = subprocess.Popen(
            filled, env=settings, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )

    def answers() -> bool:
        if process.poll() is not None:
            raise SystemExit(f"{' '.join(filled)} ended: {Path(log.name).read_text()[-2000:]}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(answers, command[0])
        yield f"http://127.0.0.1:{port}"
    finally:
        # Its workers are in its session too.
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def photograph_all(folder: Path) -> list[tuple[str, str, Image.Image]]:
    """Make the run and photograph it: (tool, command that shows it, image) for each tool."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRACKER", "MLFLOW_"))}
    environment |= {"HOME": str(folder), "TRACKIO_DIR": str(folder / "trackio"), "BROWSER": "true"}
    environment |= {"MLFLOW_DISABLE_TELEMETRY": "true", "HF_HUB_OFFLINE": "1"}
    store, events = f"sqlite:///{folder / 'mlflow.db'}", folder / "events"
    demo = [sys.executable, str(ROOT / "examples" / "digits.py"), "--tracker", "tensorboard,mlflow,trackio"]
    demo += ["--tracker-project", "digits", "--tracker-run-name", "first", "--tracker-finish-timeout", str(WAIT_S)]
    place = {"TENSORBOARD_DIR": str(events), "MLFLOW_TRACKING_URI": store, "PYTHONPATH": str(ROOT)}
    subprocess.run(demo, env=environment | place, cwd=folder, check=True)

    environment["GRADIO_SERVER_PORT"] = "{port}"
    programs = Path(sys.executable).parent
    with ExitStack() as stack:

        def start(*command: str) -> str:
            return stack.enter_context(server(command, environment, folder))

        tensorboard = start(
            f"{programs}/tensorboard", "--logdir", str(events / "digits"), "--host", "127.0.0.1", "--port", "{port}"
        )
        mlflow = start(
            f"{programs}/mlflow", "server", "--backend-store-uri", store,
            "--workers", "1", "--host", "127.0.0.1", "--port", "{port}",
        )  # fmt: skip
        trackio = start(
            f"{programs}/trackio", "show", "--project", "digits", "--host", "127.0.0.1", "--color-palette", LINE
        )
        driver = start("chromedriver", "--port={port}")
        browser = Browser(driver, folder / "profile")
        stack.callback(browser.close)
        return [
            ("TensorBoard", "tensorboard --logdir …", photograph_tensorboard(browser, tensorboard)),
            ("MLflow", "mlflow ui --backend-store-uri …", photograph_mlflow(browser, mlflow)),
            ("trackio", "trackio show --project digits", photograph_trackio(browser, trackio)),
        ]


def photograph_ui(folder: Path) -> dict[str, Image.Image]:
    """Make twelve runs, and photograph the live page over them, by the names of the pictures."""
    environment = ui_environment(folder) | {"TRACKER_PROJECT": "digits", "TRACKER_FINISH": "background"}
    for rate in RATES:
        for seed in SEEDS:
            demo = [sys.executable, str(ROOT / "examples" / "digits.py"), "--steps", "300", "--eval-interval", "20"]
            demo += ["--learning-rate", str(rate), "--seed", str(seed), "--tracker", "json"]
            name = {"TRACKER_RUN_NAME": f"rate{rate}-seed{seed}"}
            subprocess.run(demo, env=environment | name, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    with live_page(folder, environment, len(RATES) * len(SEEDS)) as (browser, address, found):
        return {
            name: photograph_view(browser, f"{address}#{state.format(runs='%2C'.join(found))}&theme={theme}", height)
            for name, (state, theme, height) in VIEWS.items()
        }


def photograph_logged(folder: Path) -> dict[str, Image.Image]:
    """Make three runs, and photograph what they logged besides numbers."""
    environment = ui_environment(folder)
    for name in ("baseline", "wider", "deeper"):
        subprocess.run([sys.executable, "-c", CLASSIFIERS, name], env=environment, cwd=folder, check=True)
    pictures = {}
    with live_page(folder, environment, 3) as (browser, address, found):
        for name, (state, theme, height) in LOGGED.items():
            filled = state.format(runs="%2C".join(found), a=found[1], b=found[2])
            pictures[name] = photograph_view(browser, f"{address}#{filled}&theme={theme}", height)
        left, top, right, bottom = (round(place * SCALE) for place in until(lambda: browser.script(SPANS), "spans"))
        pictures["ui-spans.png"] = browser.steady().crop((left, top, right, bottom))
    return pictures


def ui_environment(folder: Path) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRACKER")}
    return environment | {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": str(ROOT)}


@contextmanager
def live_page(folder: Path, environment: dict[str, str], count: int) -> Iterator[tuple[Browser, str, list[str]]]:
    """A browser, the live page's address, and the keys of its ``count`` runs, the newest first."""
    with ExitStack() as stack:
        page = [sys.executable, "-m", "trackers", "ui", "--no-open", "--port", "{port}"]
        stack.enter_context(server(page, environment, folder))
        printed = folder / f"{Path(sys.executable).name}.log"
        address = until(lambda: re.search(r"http://\S+", printed.read_text()), "the page's address")[0]
        driver = stack.enter_context(server(["chromedriver", "--port={port}"], environment, folder))
        browser = Browser(driver, folder / "profile")
        stack.callback(browser.close)
        browser.open(address)
        yield browser, address, until(lambda: browser.script(KEYS, count), f"{count} runs")


def photograph_view(browser: Browser, address: str, height: int) -> Image.Image:
    browser.resize(WIDTH, height)
    browser.open(address)
    until(
        lambda: browser.script("return document.querySelectorAll('tbody tr, canvas, img').length > 2"),
        "a page with content",
    )
    return browser.steady()


def photograph_tensorboard(browser: Browser, url: str) -> Image.Image:
    browser.open(url)
    plain = {"timeSeriesSettingsPaneOpened": False, "stepSelectorEnabled": False, "ignoreOutliers": False}
    browser.script("localStorage.setItem('_tb_global_settings', arguments[0])", json.dumps(plain))
    browser.open(f"{url}/?smoothing=0&tagFilter={SHOWN.replace('|', '%7C')}#timeseries")
    return browser.photograph("scalar-card")


def photograph_mlflow(browser: Browser, url: str) -> Image.Image:
    api = f"{url}/api/2.0/mlflow"
    experiment = ask(f"{api}/experiments/get-by-name?experiment_name=digits")["experiment"]["experiment_id"]
    run = ask(f"{api}/runs/search", {"experiment_ids": [experiment]})["runs"][0]["info"]["run_id"]
    browser.open(f"{url}/version")
    browser.script(
        "localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true');"
        "localStorage.setItem('mlflow.assistant.panelOpen_v1', 'false')"
    )
    browser.open(f"{url}/#/experiments/{experiment}/runs/{run}/model-metrics?workflowType=machine_learning")
    browser.type("input[placeholder='Search metric charts']", SHOWN)
    # Below the logged pictures the curves would need scrolling; Plotly shows its tools always where no mouse is.
    until(lambda: browser.script(FOLD, "samples/misread"), "the section of logged pictures")
    browser.script("document.head.appendChild(document.createElement('style')).textContent = '.modebar {opacity: 0}'")
    return browser.photograph(".js-plotly-plot")


def photograph_trackio(browser: Browser, url: str) -> Image.Image:
    browser.open(f"{url}/?project=digits")
    browser.type("input[placeholder^='e.g., loss']", SHOWN)
    browser.type("input[type='range']", HOME_KEY)  # no smoothing
    return browser.photograph(".vega-embed", below=44)  # their legend


def compose(panels: Sequence[tuple[str, str, Image.Image]]) -> Image.Image:
    """One picture: the call that logged, then a captioned panel for each tool."""
    width = round(WIDTH * SCALE)
    title, caption, code = (font(name, size) for name, size in (("Sans-Bold", 34), ("Sans-Bold", 32), ("Mono", 26)))
    above, head = 168, 76
    picture = Image.new("RGB", (width, above + sum(image.height + head for _, _, image in panels)), BACKGROUND)
    draw = ImageDraw.Draw(picture)
    draw.text((24, 12), "One run, logged once", INK, title)
    draw.text((24, 68), 'run = trackers.init("tensorboard,mlflow,trackio", project="digits")', PALE, code)
    draw.text((24, 106), 'run.log({"train_loss": loss, "val_loss": …, "val_accuracy": …}, step=step)', PALE, code)
    top = above
    for number, (tool, command, image) in enumerate(panels, 1):
        draw.text((24, top + 22), f"{number}  {tool}", INK, caption)
        draw.text((width - 24, top + 28), command, PALE, code, anchor="ra")
        top += head
        picture.paste(image, (0, top))
        draw.rectangle((0, top, width - 1, top + image.height - 1), outline="#d1d9e0", width=2)
        top += image.height
    return picture


def font(style: str, size: int) -> ImageFont.FreeTypeFont:
    name = f"DejaVu{style}.ttf" if style.startswith("Sans") else f"DejaVuSans{style}.ttf"
    try:
        return ImageFont.truetype(name, size)
    except OSError as error:
        raise SystemExit(f"no font {name}: apt-get install fonts-dejavu-core") from error


def main() -> None:
    missing = [program for program in ("chromium", "chromedriver") if shutil.which(program) is None]
    if missing:
        raise SystemExit(f"needs {' and '.join(missing)}: apt-get install chromium chromium-driver")
    asked = sys.argv[1:] or ["one-run", "ui", "logged"]
    for kind in asked:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            if kind == "one-run":
                save({"one-run.png": compose(photograph_all(Path(folder)))})
            elif kind == "ui":
                save(photograph_ui(Path(folder)))
            elif kind == "logged":
                save(photograph_logged(Path(folder)))
            else:
                raise SystemExit(f"unknown picture {kind!r}: one-run, ui or logged")


def save(pictures: dict[str, Image.Image]) -> None:
    """Write pictures with few colours, which are enough for screens and curves, and a third of the bytes."""
    for name, picture in pictures.items():
        data = io.BytesIO()
        picture.quantize(64 if name == "one-run.png" else 256, dither=Image.Dither.NONE).save(
            data, "PNG", optimize=True
        )
        if data.tell() > BYTES_MAX:
            raise SystemExit(f"{name} has {data.tell():,} bytes, more than {BYTES_MAX:,}")
        PICTURES.mkdir(parents=True, exist_ok=True)
        (PICTURES / name).write_bytes(data.getvalue())
        print(f"{name}: {picture.width} x {picture.height} pixels, {data.tell():,} bytes")


if __name__ == "__main__":
    main()
