"""A headless Chromium, driven through chromedriver as https://www.w3.org/TR/webdriver2/ says."""

from __future__ import annotations

import atexit
import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromedriver")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage")  # fmt: skip


def missing() -> list[str]:
    """The programs that aren't installed; Debian: apt-get install chromium chromium-driver."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


class Browser:
    """One window. It and all that was started for it lasts as long as the test process.

    Args:
        folder: where the browser keeps its files.
    """

    def __init__(self, folder: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "TRACKERS_TEST"}  # it is no test's
        self._driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True, cwd=folder, env=environment
        )
        assert self._driver.stdout is not None
        line = next(line for line in self._driver.stdout if "started successfully" in line)
        port = re.search(r"port (\d+)", line)
        assert port is not None, line
        wanted = {
            "goog:chromeOptions": {"args": [*FLAGS, f"--user-data-dir={folder / 'profile'}"]},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        address = f"http://127.0.0.1:{port[1]}/session"
        self._session = f"{address}/{ask(address, {'capabilities': {'alwaysMatch': wanted}})['sessionId']}"
        atexit.register(self._end)

    def reset(self, width: int, height: int) -> None:
        """Be a window of this size that has seen nothing."""
        self.visit("about:blank")
        self._command("Emulation.clearDeviceMetricsOverride", {})
        self._command("Emulation.setEmulatedMedia", {"features": []})
        self._command("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"})
        ask(f"{self._session}/window/rect", {"width": width, "height": height})
        self.console()

    def open(self, path: Path) -> None:
        """Load a file."""
        ask(f"{self._session}/url", {"url": path.resolve().as_uri()})

    def visit(self, address: str) -> None:
        """Load an address."""
        ask(f"{self._session}/url", {"url": address})

    def emulate(self, width: int, height: int, *, dark: bool = False, media: str = "") -> None:
        """Be a screen of this size, also one that no window is as narrow as, light or dark; or paper ("print")."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._command("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._command("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]})

    def save_to(self, folder: Path) -> None:
        """Put files that a page saves into a folder."""
        self._command("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})

    def _command(self, name: str, given: Any) -> None:
        ask(f"{self._session}/goog/cdp/execute", {"cmd": name, "params": given})

    def script(self, source: str, *arguments: Any) -> Any:
        """What a function's body returns."""
        return ask(f"{self._session}/execute/sync", {"script": source, "args": arguments})

    def console(self) -> list[str]:
        """What the console says since it was last asked."""
        return [entry["message"] for entry in ask(f"{self._session}/se/log", {"type": "browser"})]

    def drag(self, selector: str, from_x: int, to_x: int) -> None:
        """Press the mouse, move it and let go, in pixels from the middle of what the selector finds."""
        found = ask(f"{self._session}/element", {"using": "css selector", "value": selector})
        moves: list[dict[str, Any]] = [
            {"type": "pointerMove", "duration": 0, "x": from_x, "y": 0, "origin": found},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerMove", "duration": 50, "x": to_x, "y": 0, "origin": found},
            {"type": "pointerUp", "button": 0},
        ]
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": moves}
        ask(f"{self._session}/actions", {"actions": [mouse]})

    def photograph(self, path: Path) -> None:
        """The window as a png."""
        path.write_bytes(base64.b64decode(ask(f"{self._session}/screenshot")))

    def _end(self) -> None:
        request = urllib.request.Request(self._session, method="DELETE")
        with contextlib.suppress(OSError):
            urllib.request.urlopen(request, timeout=30).close()
        self._driver.terminate()
        self._driver.wait()


def ask(url: str, body: Any = None) -> Any:
    """chromedriver's answer."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=60) as response:
        return json.load(response)["value"]


_windows: list[Browser] = []


@contextlib.contextmanager
def browser(folder: Path, *, width: int = 1400, height: int = 1000) -> Iterator[Browser]:
    """The window of the test process, as if it were new.

    Args:
        folder: where the browser keeps its files, if this is the first to ask.
        width: in pixels.
        height: in pixels.
    """
    if not _windows:
        _windows.append(Browser(folder))
    _windows[0].reset(width, height)
    yield _windows[0]
    _windows[0].visit("about:blank")
