"""``trackers ui``: a live page over runs."""

from __future__ import annotations

import atexit
import html
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from trackers.cli.common import RunsDir, SourcesArgument, printable, resolve_conditions
from trackers.cli.roots import runs_root

LEADING = (
    '<!DOCTYPE html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>trackers</title>'
    '<meta http-equiv="refresh" content="0;url={address}"><a href="{address}">the runs</a>\n'
)
"""A page that leads to another."""


def ui(
    sources: SourcesArgument = None,
    port: Annotated[int | None, typer.Option(help="Port; 0: any free one. Default 7007, or any if taken.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on. Others than this machine's own can be reached.")] = (
        "127.0.0.1"
    ),
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Only show: nothing can be renamed, tagged, deleted or kept as a view.")
    ] = False,
    export: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            help="Write a page of these runs, with their media, that needs no server, to a directory or s3://….",
        ),
    ] = "",
    no_open: Annotated[bool, typer.Option("--no-open", help="Don't open a browser.")] = False,
    directory: RunsDir = None,
) -> None:
    """Show runs in a browser, live: table, curves, configuration, media, messages. Ctrl-C ends it.

    Runs can be renamed, tagged, grouped, noted and deleted there, each with an undo, and stopped, unless --read-only is
    given or another --host: what `trackers edit`, `trackers rm` and `trackers stop` do.

    --export writes a page to share: results, curves, settings and media, as files that a browser opens from a folder,
    an object store or a static host.

    Example: trackers ui; trackers ui digits tb:events --port 7008; trackers ui digits --export page
    """
    if export:
        _export(sources or [str(runs_root(directory))], directory, export)
        return
    from trackers.journal.naming import none_in
    from trackers.journal.run_directory import run_paths
    from trackers.ui.catalogue import Catalogue
    from trackers.ui.server import Server

    catalogue = Catalogue(resolve_conditions(sources or [], directory), runs_root(directory))
    with Server(catalogue, host, port, read_only=read_only) as server:
        catalogue.open()
        print(server.address, flush=True)
        if not sources and not run_paths(runs_root(directory)):
            said = printable(none_in(runs_root(directory)), 4096)
            print(f"trackers: {said}; the page shows runs as they begin", file=sys.stderr)
        if host not in ("127.0.0.1", "::1", "localhost"):
            print(f"trackers: whoever reaches {printable(host)} and has this address sees the runs", file=sys.stderr)
        if not no_open:
            threading.Thread(target=_open, args=[server.address], daemon=True).start()
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            pass
        finally:
            catalogue.close()


def _export(sources: list[str], directory: Path | None, place: str) -> None:
    from trackers.analysis.curves import open_runs
    from trackers.ui.export import INDEX, export

    done = export(open_runs(resolve_conditions(sources, directory), directory), place)
    for reason in done.lost[:5]:
        print(f"trackers: left out: {printable(reason)}", file=sys.stderr)
    if len(done.lost) > 5:
        print(f"trackers: and {len(done.lost) - 5:,} more were left out", file=sys.stderr)
    print(f"Saved {printable(place.rstrip('/'))}/{INDEX}; {done}")


def _open(address: str) -> None:
    """Open a browser where a person sits in front of this machine; a terminal's browser would take the terminal.

    Other users see a browser's command line, so it gets a file that only this user can read, which leads to the page.
    """
    import tempfile
    import webbrowser

    seen = sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if seen and "SSH_CONNECTION" not in os.environ:
        folder = tempfile.mkdtemp(prefix="trackers-ui-")  # 0700
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        page = Path(folder, "page.html")
        page.touch(mode=0o600)
        page.write_text(LEADING.format(address=html.escape(address)), encoding="utf-8")
        webbrowser.open(page.as_uri())
