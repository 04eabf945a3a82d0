"""A page of chosen runs as files: no server, no network, wherever they lie (``trackers ui --export DIR``)."""

from __future__ import annotations

import contextlib
import hashlib
import html
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from trackers.analysis import report
from trackers.analysis.curves import PlottedRun
from trackers.analysis.tables import format_size, plain
from trackers.errors import NotFound, UsageError
from trackers.object_storage.addresses import is_address
from trackers.object_storage.store import Store
from trackers.plotting import html_page
from trackers.records import Media, MediaFile
from trackers.support import atomic_write, confined
from trackers.support.progress import ProgressReport
from trackers.ui import media

INDEX = "index.html"
FOLDER = "media"
SIGNED = '<meta name="generator" content="trackers">'
"""What an earlier export has in its page: such a directory may be written anew."""
ENDINGS = {kind: ending for ending, kind in reversed(media.TYPES.items())}
_PLAYED = '<{0} controls preload="none" src="{{}}" title="{{}}"></{0}>'
TAGS = {
    "image": '<img src="{}" alt="{}" loading="lazy">',
    "audio": _PLAYED.format("audio"),
    "video": _PLAYED.format("video"),
}


class Exported(msgspec.Struct):
    """What was written. page_bytes: of the page itself. media: number of files. lost: why others lack."""

    runs: int
    page_bytes: int
    media: int = 0
    media_bytes: int = 0
    lost: list[str] = []

    def __str__(self) -> str:
        files = f", {self.media:,} media files {format_size(self.media_bytes)}" if self.media else ""
        runs = f"{self.runs} run{'s' if self.runs != 1 else ''}"
        return f"{runs}: page {format_size(self.page_bytes)}{files}"


def export(runs: Sequence[PlottedRun], place: str, *, title: str = "") -> Exported:
    """Write the page of runs: results, curves, settings, and all media that a browser shows.

    Args:
        place: a directory, made if it isn't there, or a store's address (``s3://bucket/prefix``).

    Raises:
        UsageError: the directory holds something else, or can't be written.
    """
    target = Path(place)
    if not is_address(place) and target.exists():
        index = target / INDEX
        ours = False
        with contextlib.suppress(OSError), confined.open_file(index, root=target) as page:
            ours = SIGNED.encode() in page.read(2000)
        if not target.is_dir() or (any(target.iterdir()) and not ours):
            raise UsageError(f"{target} is there, and holds something else: give another --export")
    try:
        with tempfile.TemporaryDirectory(prefix="trackers-export-") as folder:
            done = _write(runs, Path(folder), title)
            _publish(Path(folder), place)
    except OSError as error:
        raise UsageError(f"{error.filename or place}: {error.strerror or error}") from None
    return done


def _write(runs: Sequence[PlottedRun], folder: Path, title: str) -> Exported:
    done = Exported(len(runs), 0)
    sizes: dict[str, int] = {}
    shown = "".join(_gallery(runs, folder / FOLDER, sizes, done.lost))
    done.media, done.media_bytes = len(sizes), sum(sizes.values())
    notes = f"<p>{html.escape(plain(str(done)).partition(': ')[0])}; media {format_size(done.media_bytes)}</p>"
    text = report.markdown(runs, when=time.strftime("%Y-%m-%d %H:%M:%S"), title=title)
    more = f"<h2>Media</h2>{notes}{shown}" if shown else ""
    html_page.save_report(runs, text, folder / INDEX, title=title, more=more)
    done.page_bytes = (folder / INDEX).stat().st_size
    return done


def _gallery(runs: Sequence[PlottedRun], folder: Path, sizes: dict[str, int], lost: list[str]) -> Iterator[str]:
    """HTML of each name's media, a row for each run, step by step; its files are written."""
    by_name: dict[str, dict[str, list[tuple[PlottedRun, Media]]]] = {}
    for run in runs:
        for record in run.data.media():
            if record.type in TAGS and run.data.run.directory:
                by_name.setdefault(record.name, {}).setdefault(run.label, []).append((run, record))
    told = ProgressReport("media", "files")
    for name, of_run in by_name.items():
        yield f"<h3>{html.escape(plain(name))}</h3>"
        for label, records in of_run.items():
            yield f'<p>{html.escape(plain(label))}</p><div class="media">'
            for run, record in records:
                for item in record.items:
                    yield _figure(run, record, item, folder, sizes, lost)
                    told(len(sizes), 0)
            yield "</div>"


def _figure(
    run: PlottedRun, record: Media, item: MediaFile, folder: Path, sizes: dict[str, int], lost: list[str]
) -> str:
    try:
        file = media.shown_file(item.file, item.format, record.type, Path(run.data.run.directory), "file", item.fps)
    except NotFound as error:
        lost.append(f"{run.label}: {record.name}: {error}")
        return ""
    if file.type == media.SAVED:
        lost.append(f"{run.label}: {record.name}: no browser shows {item.format}")
        return ""
    name = f"{hashlib.sha256(file.content).hexdigest()[:16]}.{ENDINGS[file.type]}"
    if name not in sizes:
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(file.content)
        sizes[name] = len(file.content)
    step = "" if record.step is None else f"step {record.step:,}"
    words = " · ".join(word for word in (step, plain((item.caption or "")[:300])) if word)
    kind = "image" if file.type.startswith("image/") else record.type
    tag = TAGS[kind].format(f"{FOLDER}/{name}", html.escape(words or record.name))
    return f"<figure>{tag}<figcaption>{html.escape(words)}</figcaption></figure>"


def _publish(folder: Path, place: str) -> None:
    """Put files where they belong, the page last."""
    names = sorted(
        (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()), key=lambda n: n == INDEX
    )
    if is_address(place):
        store = Store(place)
        for name in names:
            store.put(name, folder / name)
        return
    atomic_write.real(Path(place)).mkdir(parents=True, exist_ok=True)
    for name in names:
        if (target := Path(place, name)).parent != Path(place):
            confined.make_folder(target.parent, root=Path(place))
        confined.write_whole(target, (folder / name).read_bytes(), root=Path(place))
