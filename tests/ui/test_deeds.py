"""What the page changes: by the code of the commands, asked for by its own page alone, taken back by a button."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import trackers
from tests import browser as chromium
from tests.analysis.support import write_run
from tests.ui.support import Site, command, site, until
from trackers.editing import delivering, trash
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import observe
from trackers.object_storage import addresses
from trackers.support import run_requests
from trackers.training import stopping
from trackers.ui import deeds
from trackers.ui.server import UNKNOWN_ADDRESS

OWN = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/json"}
needs_browser = pytest.mark.skipif(bool(chromium.missing()), reason="needs chromium and chromedriver")


@pytest.fixture(autouse=True)
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two runs in the test's own directory; and the ids of those whose edits were given to a delivery."""
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        write_run(f"r{number}", [(1, 1, {"loss": 1.0})], status="finished", project="p")
    found: list[str] = []
    monkeypatch.setattr(delivering, "deliver_later", lambda run: found.append(run.path.name))
    return found


def post(found: Site, what: str, deed: Any, **headers: str) -> tuple[int, Any]:
    """Status and answer of a deed, with the page's own token unless another is given."""
    parts = urlsplit(found.address)
    own = {} if "X-Trackers-Token" in headers else {"X-Trackers-Token": found.ask("may")["token"]}
    given = {**OWN, **own, **headers}
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    content = deed if isinstance(deed, bytes) else json.dumps(deed).encode()
    connection.request(
        "POST", f"{parts.path}do/{what}", content, {name: value for name, value in given.items() if value}
    )
    answer = connection.getresponse()
    try:
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def identity(name: str) -> Any:
    """What a run's identity says, with its edits."""
    return RunDirectory(Path(f"runs/p/{name}")).read_info()


def test_runs_are_changed_and_changed_back(sent: list[str]) -> None:
    """Name, tags, notes, group, star: in the journal, as `trackers edit` writes it; what isn't given stays."""
    with site(runs=2) as found:
        key, other = found.key("r0"), found.key("r1")
        given = {"runs": [key], "name": "baseline", "tags": ["a", "b"], "notes": "lr is too high", "group": "g"}
        assert post(found, "edit", given)[1] == {"done": {key: ["group", "name", "notes", "tags"]}, "problems": []}
        assert post(found, "edit", {"runs": [key, other], "add": ["starred"], "drop": ["b"]})[0] == 200
        info = identity("r0")
        assert (info.name, info.tags, info.notes, info.group) == ("baseline", ["a", "starred"], "lr is too high", "g")
        assert identity("r1").tags == ["starred"]
        assert sent == ["r0", "r0", "r1"]
        until(lambda: [row["name"] for row in found.rows() if row["key"] == key] == ["baseline"])
        for _ in range(2):
            assert post(found, "undo", {"runs": [key]})[0] == 200
        info = identity("r0")
        assert (info.name, info.tags, info.notes, info.group) == ("r0", [], "", "")


def test_starred_runs_come_first() -> None:
    """Whatever the order."""
    with site(runs=2) as found:
        for sort in (False, True):
            last = found.rows(descending=sort)[-1]["key"]
            post(found, "edit", {"runs": [last], "add": ["starred"]})
            until(lambda: found.rows(descending=sort)[0]["key"] == last)  # noqa: B023 - called at once
            post(found, "undo", {"runs": [last]})
            until(lambda: found.rows(descending=sort)[-1]["key"] == last)  # noqa: B023


def test_deleted_runs_come_back() -> None:
    """A deleted run lies in the trash of `trackers rm`, and its undo brings it back; no other place is named."""
    with site(runs=2) as found:
        key = found.key("r0")
        status, done = post(found, "remove", {"runs": [key]})
        assert (status, done["problems"]) == (200, [])
        assert [entry.note.id for entry in trash.in_trash(Path("runs"))] == ["r0"]
        until(lambda: len(found.rows()) == 1)
        assert post(found, "restore", {"runs": ["/etc"]})[0] == 404
        assert post(found, "restore", {"runs": [done["done"][key]]})[0] == 200
        assert until(lambda: found.key("r0")) == key


def test_running_run_stays() -> None:
    """What `trackers rm` refuses is refused here, with its reason, and the others are removed."""
    write_run("r2", [(1, 1, {"loss": 1.0})], status="running", project="p")
    with site(runs=3) as found:
        keys = [found.key(name) for name in ("r2", "r1")]
        _, done = post(found, "remove", {"runs": keys})
        assert list(done["done"]) == keys[1:]
        assert "r2" in done["problems"][0]


def test_run_that_goes_on_is_asked_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `trackers stop` asks it; the answer says what training made of it. One that has ended is named."""
    monkeypatch.setattr(stopping, "READ_S", 0.0)
    run = trackers.init("json", project="p", id="goes-on", mode="offline", options={"TRACKER_RELAY": False})
    with site(runs=3) as found:
        keys = [found.key(name) for name in ("goes-on", "r0")]
        status, done = post(found, "stop", {"runs": keys, "reason": "the loss\nrises", "checkpoint": True})
        assert (status, list(done["done"])) == (200, keys[:1])
        assert "training has never looked" in done["done"][keys[0]]
        assert "r0" in done["problems"][0]
    assert any(run.should_checkpoint for _ in range(20))
    assert any(run.should_stop for _ in range(20))
    run.finish()
    status = observe(RunDirectory(Path(run.dir)))
    assert status.name == "stopped"
    assert "(the page): the loss rises" in status.reason


@pytest.mark.parametrize("what", ["edit", "undo", "stop", "remove"])
def test_copy_of_a_stores_run_is_left(what: str) -> None:
    """What is done to a copy reaches nobody: it is refused, as the commands refuse it, and the copy stays."""
    Path("runs", addresses.COPY_MARKER).touch()
    with site(runs=2) as found:
        key = found.key("r0")
        _, said = post(found, what, {"runs": [key], "add": ["a"]} if what == "edit" else {"runs": [key]})
    assert said["done"] == {}
    assert "is a copy of a store's run, and can't be changed" in said["problems"][0]
    assert identity("r0").tags == []


REFUSED = [
    {"X-Trackers-Token": ""},
    {"X-Trackers-Token": "x"},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    {"Origin": "https://127.0.0.1:PORT"},
    {"Origin": "http://["},
    {"Host": "evil.example"},
]


@pytest.mark.parametrize("headers", REFUSED, ids=str)
def test_other_sites_change_nothing(headers: dict[str, str]) -> None:
    """Without the page's own token, or from another site, a deed is refused."""
    with site(runs=2) as found:
        port = str(urlsplit(found.address).port)
        headers = {name: value.replace("PORT", port) for name, value in headers.items()}
        assert post(found, "remove", {"runs": [found.key("r0")]}, **headers)[0] == 403
    assert identity("r0").name == "r0"


def test_stranger_learns_nothing_of_deeds() -> None:
    """Without the token of the address a deed is answered as any question: not whether there are deeds, nor why not."""
    with site(runs=2) as found:
        stranger = Site(f"http://127.0.0.1:{urlsplit(found.address).port}/guessed/")
        for headers in REFUSED:
            status, said = post(stranger, "view", {"view": "x"}, **{"X-Trackers-Token": "x", **headers})
            assert (status, said) == (404, {"error": UNKNOWN_ADDRESS})


WRONG = [b"", b"[]", b'{"runs": 1}', b'{"other": 1}', b'{"runs": ["a", "b"], "name": "n"}', b'{"view": ""}']


@pytest.mark.parametrize("content", WRONG)
def test_what_can_not_be_read_is_refused(content: bytes) -> None:
    """A deed that is none is one line; so is one that nobody knows, and one that is too long."""
    with site(runs=2) as found:
        status, said = post(found, "view" if b"view" in content else "edit", content)
        assert (status, "error" in said) == (400, True)
        assert post(found, "burn", {})[0] == 404
        assert post(found, "edit", b"", **{"Content-Length": str(10**9)})[0] == 413


def test_read_only_page_changes_nothing() -> None:
    """--read-only, as any address that other machines reach, gives no token and refuses."""
    with command("--port", "0", "--read-only") as (_, found):
        assert found.ask("may")["token"] == ""
        assert post(found, "edit", {"runs": [found.key("r0")], "name": "x"})[0] == 403
    with command("--port", "0", "--host", "0.0.0.0") as (_, found):
        parts = urlsplit(found.address)
        assert Site(f"http://127.0.0.1:{parts.port}{parts.path}").ask("may")["token"] == ""


def test_views_are_kept_in_the_projects_directory() -> None:
    """By name: kept, replaced, forgotten; a damaged file has none, and a link isn't followed."""
    with site(runs=2) as found:
        for address in ("tab=charts", "tab=charts&smooth=0.5"):
            post(found, "view", {"view": "mine", "address": address, "project": "p"})
        assert json.loads(Path("runs/p/views.json").read_text()) == {"mine": "tab=charts&smooth=0.5"}
        post(found, "view", {"view": "all", "address": "by=group"})
        assert found.ask("views") == {"views": {"all": "by=group"}}
        assert post(found, "view", {"view": "mine", "project": "p"})[1] == {"views": {}}
        Path("runs/p/views.json").write_text("[")
        assert found.ask("views", project="p") == {"views": {}}
        assert "a view has a name" in post(found, "view", {"view": "x" * 999, "address": "a"})[1]["error"]
        for number in range(deeds.MOST_VIEWS):
            last = post(found, "view", {"view": str(number), "address": "a"})
        assert f"{deeds.MOST_VIEWS} views are saved" in last[1]["error"]  # "all" is one of them


@pytest.mark.parametrize("project", ["p", ""])
@pytest.mark.parametrize("is_there", [True, False])
def test_view_is_not_kept_through_a_link(project: str, is_there: bool, tmp_path: Path) -> None:
    """A link that somebody else left in the directory gives way to the file; what it points to stays, or isn't made."""
    victim, views = tmp_path / "victim.json", Path("runs", project, "views.json")
    if is_there:
        victim.write_text("mine")
    views.symlink_to(victim)
    with site(runs=2) as found:
        assert post(found, "view", {"view": "v", "address": "x", "project": project})[0] == 200
        assert found.ask("views", project=project) == {"views": {"v": "x"}}
    assert not views.is_symlink()
    assert (victim.read_text() if victim.exists() else "") == ("mine" if is_there else "")


@pytest.mark.slow
@needs_browser
def test_page_edits_deletes_and_keeps_views(tmp_path: Path) -> None:
    """Rename in the form, undo by the button; delete asks once more; views are kept, and the last is back."""
    with chromium.browser(tmp_path) as window, site(runs=2) as found:
        key = found.key("r0")
        window.visit(f"{found.address}#tab=run&run={key}")
        until(lambda: window.script("return Boolean(document.querySelector('.edit'))"))
        window.script("const box = document.querySelector('.edit'); box.open = true;"
                      "box.querySelector('input').value = 'new';"
                      "box.querySelector('form').requestSubmit()")  # fmt: skip
        until(lambda: identity("r0").name == "new")
        until(lambda: window.script("return document.querySelector('main h1').innerText === 'new'"))
        window.script("document.querySelector('.done button').click()")
        until(lambda: identity("r0").name == "r0")
        window.visit("about:blank")
        window.visit(f"{found.address}#tab=runs&sel={key}&sort=name")
        until(lambda: window.script("return document.querySelectorAll('tbody tr').length === 2"))
        for _ in range(2):
            window.script("document.querySelector('.edit').open = true; document.querySelector('.edit .bad').click()")
        until(lambda: window.script("return document.querySelectorAll('tbody tr').length === 1"))
        window.script("document.querySelector('.done button').click()")
        until(lambda: window.script("return document.querySelectorAll('tbody tr').length === 2"))
        run = trackers.init("json", project="p", id="goes-on", mode="offline", options={"TRACKER_RELAY": False})
        window.visit("about:blank")
        until(lambda: len(found.rows()) == 3)
        window.visit(f"{found.address}#tab=run&run={found.key('goes-on')}")
        until(lambda: window.script("return Boolean(document.querySelector('.stop'))"))
        window.script("const box = document.querySelector('.stop'); box.open = true;"
                      "box.querySelector('input').value = 'enough';"
                      "box.querySelector('form').requestSubmit()")  # fmt: skip
        until(lambda: window.script("return document.querySelector('.done')?.innerText.startsWith('asked to stop:')"))
        assert [asked.reason for asked in run_requests.read(Path(run.dir))] == ["enough"]
        run.finish()
        window.visit("about:blank")
        window.visit(f"{found.address}#tab=runs&sel={key}&sort=name")
        until(lambda: window.script("return document.querySelectorAll('tbody tr').length === 3"))
        window.script("const views = document.getElementById('views'); views.value = '+';"
                      "views.dispatchEvent(new Event('change'))")  # fmt: skip
        window.script("document.querySelector('dialog input').value = 'mine';"
                      "document.querySelector('dialog form').requestSubmit()")  # fmt: skip
        until(lambda: Path("runs/views.json").is_file())
        assert "sort=name" in json.loads(Path("runs/views.json").read_text())["mine"]
        window.visit("about:blank")
        window.visit(found.address)
        until(lambda: window.script("return location.hash.includes('sort=name')"))
        mine = "return [...document.getElementById('views').options].some(one => one.value === '=mine')"
        until(lambda: window.script(mine))
        assert window.console() == []
