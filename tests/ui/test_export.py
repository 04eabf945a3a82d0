"""The page that needs no server: it opens from a folder, moved elsewhere, with its media."""

from __future__ import annotations

import http.server
import shutil
import threading
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from tests import browser as chromium
from tests.analysis.support import T0, said_in_one_line, write_run
from tests.ui.support import until
from trackers.analysis.curves import open_runs
from trackers.errors import UsageError
from trackers.records import Media, MediaFile, Record, Text
from trackers.ui.export import export

HOSTILE = '"><script>alert(1)</script>'
LONG = f"{HOSTILE} a seven that was taken for a one"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs with pictures, one of them in both; and one that can't be shown."""
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        rows = [(step, step, {"loss": 1 / (1 + step + number)}) for step in range(9)]
        path = write_run(f"r{number}", rows, config={"lr": number}, project="p")
        (path / "media").mkdir(exist_ok=True)
        np.save(path / "media/a.npy", np.full((8, 8), 100, np.uint8))
        np.save(path / "media/b.npy", np.full((8, 8), number, np.uint8))
        items = [MediaFile(format="npy", file=f"media/{name}.npy", caption=LONG) for name in "ab"]
        items.append(MediaFile(format="npy", file="../../../secret.npy"))
        media = [Media(name=HOSTILE, type="image", items=items, step=step, time=T0) for step in (1, 2)]
        write_run(f"r{number}", rows, config={"lr": number}, project="p", more=media)


def test_files_are_told_with_their_sizes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each picture is written once; what isn't the run's own is left out; a second export replaces it."""
    for _ in range(2):
        done = export(open_runs(["p"]), "page")
        assert (done.runs, done.media, len(done.lost)) == (2, 3, 4)
        files = [path for path in Path("page").rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) == done.page_bytes + done.media_bytes
        assert sorted(path.parent.name for path in files) == ["media"] * 3 + ["page"]
    assert str(done).startswith("2 runs: page ")
    assert "<h1>Report of 2 runs</h1>" in Path("page/index.html").read_text()
    export(open_runs(["r0"]), "page")
    assert "<h1>Report of 1 run</h1>" in Path("page/index.html").read_text()
    export(open_runs(["p"]), "page")
    text = Path("page/index.html").read_text()
    assert "<script>alert" not in text
    assert "http:" not in text.replace("http://www.w3.org", "")


def test_other_directory_stays() -> None:
    """What isn't an export is never written to."""
    Path("mine").mkdir()
    Path("mine/index.html").write_text("<p>my page")
    with pytest.raises(UsageError, match="mine is there, and holds something else"):
        export(open_runs(["p"]), "mine")
    assert [path.name for path in Path("mine").iterdir()] == ["index.html"]


def test_store_gets_the_same_files(tmp_path: Path) -> None:
    """An address of a store takes the files, the page last."""
    export(open_runs(["p"]), "page")
    export(open_runs(["p"]), f"file://{tmp_path}/store")
    names = [
        sorted(str(path.relative_to(top)) for path in Path(top).rglob("*") if path.is_file())
        for top in ("page", "store")
    ]
    assert names[0] == names[1]


def test_wrong_run_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As of every command."""
    _, text = said_in_one_line(["ui", "q", "--export", "page"], capsys, monkeypatch)
    assert "no run 'q'" in text
    assert not Path("page").exists()


def markup(address: str) -> list[str]:
    """Texts that would run a script or ask this address, should one place take them as they are."""
    return [
        HOSTILE, f'<img src="{address}" onerror="document.title=1">',
        f"<svg onload=document.title=1><image href={address}>",
        "</script><script>document.title=1</script>", f"</style><style>@import '{address}'</style>",
        f"![x]({address})", f"![x](//{address.partition('//')[2]})", f"[x]({address})",
        "[x](javascript:document.title=1)",
        f"<{address}>", f"```\n![x]({address})\n", f"\n\n# x\n\n![x]({address})", f"![x][r]\n\n[r]: {address}",
        f"| a | ![x]({address}) |", f"&lt;img src={address}&gt;", f"\\![x]({address})", f"*![x]({address})*",
        f'--><meta http-equiv=refresh content="0;url={address}"><base href={address}>', "__proto__", "<plaintext>",
    ]  # fmt: skip


def write_hostile(number: int, texts: list[str]) -> None:
    """A run with each text in each place that one has: names, settings, results, media, texts, identity."""
    rows = [(step, step, {"loss": 1.0, **dict.fromkeys(texts, 1.0 * number)}) for step in range(3)]
    config = {text: f"{text}{number}" for text in texts} | {
        "list": texts,
        "inner": {text: {text: text} for text in texts},
    }
    path = write_run(f"h{number}", rows, project="h")
    (path / "media").mkdir(exist_ok=True)
    for name in ("x.png", "x.svg", "x.html"):
        (path / "media" / name).write_text(texts[1])
    files = [("png", "png"), ("PNG", "svg"), ("svg", "svg"), ("html", "html"), *((text, "html") for text in texts)]
    more: list[Record] = [
        Media(name=text, type=kind, step=1, time=T0, items=[
            MediaFile(format=form, file=f"media/x.{ending}", caption=text) for form, ending in files])
        for text in texts for kind in ("image", "audio", "video", "html")
    ]  # fmt: skip
    more.append(Text(values={text: text for text in texts}, step=1, time=T0))
    write_run(
        f"h{number}", rows, project="h", config=config, summary={text: text for text in texts} | {"best": 1.0 * number},
        more=more, name=" ".join(texts), notes="\n".join(texts), tags=texts, group=texts[0], argv=texts,
    )  # fmt: skip


class Elements(HTMLParser):
    """The elements of a page, and what their attributes load, follow or run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()
        self.leads: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count one."""
        self.names[tag] += 1
        leading = ("src", "href", "action", "data", "srcdoc", "http-equiv")
        self.leads |= {f"{name}={value}" for name, value in attrs if name.startswith("on") or name in leading}


def test_texts_of_a_run_are_no_markup_of_the_page() -> None:
    """Whatever names, settings, notes and media hold, the page has its own elements alone, and leads nowhere."""
    for number in range(2):
        write_hostile(number, markup("http://127.0.0.1:9/x"))
    export(open_runs(["h"]), "page", title=HOSTILE)
    page = Elements()
    page.feed(Path("page/index.html").read_text())
    assert (page.names["script"], page.names["style"], page.names["meta"], page.names["link"]) == (2, 1, 4, 1)
    assert not set(page.names) & {"a", "svg", "iframe", "object", "embed", "base", "form", "plaintext", "input"}
    files = {f"src=media/{path.name}" for path in Path("page/media").iterdir()}
    assert page.leads == {"http-equiv=Content-Security-Policy", "href=data:,", *files}
    assert {path.suffix for path in Path("page/media").iterdir()} == {".png"}


@pytest.mark.slow
@pytest.mark.skipif(bool(chromium.missing()), reason="needs chromium and chromedriver")
def test_page_asks_nobody_and_runs_its_own_script_alone(tmp_path: Path) -> None:
    """In a browser no request leaves, also of markup that were in the page as it is: its policy refuses that."""
    asked: list[str] = []

    class Listening(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listening) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        texts = markup(f"http://127.0.0.1:{server.server_port}/x")
        for number in range(2):
            write_hostile(number, texts)
        export(open_runs(["h"]), "page", title="ours")
        with chromium.browser(tmp_path) as window:
            for planted in ("", "".join(texts[:5])):
                text = Path("page/index.html").read_text()
                Path("page/index.html").write_text(text.replace("</h1>", f"</h1>{planted}", 1))
                window.open(Path("page/index.html"))
                assert int(window.script("return document.body.dataset.drawn")) >= 1
                assert window.script("return document.title") == "ours"
                assert any("Content Security Policy" in line for line in window.console()) is bool(planted)
        server.shutdown()
    assert asked == []


@pytest.mark.slow
@pytest.mark.skipif(bool(chromium.missing()), reason="needs chromium and chromedriver")
@pytest.mark.parametrize(("width", "dark"), [(1400, False), (390, True)])
def test_page_opens_from_a_folder(width: int, dark: bool, tmp_path: Path) -> None:
    """From file://, moved, without a word on the console: charts drawn, every picture loaded, nothing too wide."""
    export(open_runs(["p"]), "page")
    shutil.move("page", "moved elsewhere")
    with chromium.browser(tmp_path) as window:
        window.emulate(width, 900, dark=dark)
        window.open(Path("moved elsewhere/index.html"))
        assert int(window.script("return document.body.dataset.drawn")) >= 1
        window.script("document.querySelectorAll('.media img').forEach(one => { one.loading = 'eager'; })")
        every = "[...document.querySelectorAll('.media img')]"
        until(lambda: window.script(f"return {every}.every(one => one.complete)"))
        assert window.script(f"return {every}.map(one => one.naturalWidth)") == [8] * 8
        assert window.script("return document.documentElement.scrollWidth <= innerWidth")
        wide = "[...document.querySelectorAll('.media figure')].map(one => one.offsetWidth)"
        assert set(window.script(f"return {wide}")) == {144}  # a caption wraps below its picture: 9 rem at least
        assert window.console() == []


def test_links_that_somebody_else_put_there_lead_nowhere(tmp_path: Path) -> None:
    """In a directory that others can write to: no file gets a name that is known before, nor lies behind a link."""
    export(open_runs(["p"]), "page")
    (tmp_path / "victim").mkdir()
    precious = tmp_path / "victim/precious.txt"
    precious.write_text("precious")
    Path("page/.index.html.new").symlink_to(precious)
    Path("page/index.html").write_bytes(Path("page/index.html").read_bytes())
    export(open_runs(["p"]), "page")
    shutil.rmtree("page/media")
    Path("page/media").symlink_to(precious.parent)
    with pytest.raises(UsageError, match="is a link"):
        export(open_runs(["p"]), "page")
    assert precious.read_text() == "precious"
    assert [path.name for path in precious.parent.iterdir()] == [precious.name]
