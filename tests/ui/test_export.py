"""The page that needs no server: it opens from a folder, moved elsewhere, with its media."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests import browser as chromium
from tests.analysis.support import T0, said_in_one_line, write_run
from tests.ui.support import until
from trackers.analysis.curves import open_runs
from trackers.errors import UsageError
from trackers.records import Media, MediaFile
from trackers.ui.export import export

HOSTILE = '"><script>alert(1)</script>'


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
        items = [MediaFile(format="npy", file=f"media/{name}.npy", caption=HOSTILE) for name in "ab"]
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
        assert window.console() == []
