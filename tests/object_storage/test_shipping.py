"""A run is sent to a store whole, once, whatever fails, and to nobody else's place."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import pytest

from tests.object_storage.support import Failing, Lying, contents, grow, names, run_directory, store
from trackers.errors import Fatal, Unavailable
from trackers.object_storage import growing, layout, mirror
from trackers.object_storage.shipping import Sender, claim_attempt
from trackers.object_storage.store import Store

HOME = "p/abc"


def copied(tmp_path: Path) -> dict[str, bytes]:
    """The files of the run as a reader gets them."""
    root = tmp_path / "copy"
    mirror.copy(f"file://{tmp_path}/store", root)
    return contents(root / HOME)


def test_run_is_copied_as_it_is(tmp_path: Path) -> None:
    """Streams, identity and media; leases stay here."""
    run = run_directory(tmp_path / "run")
    Sender(store(tmp_path), run, HOME).finish()
    assert copied(tmp_path) == contents(run)
    assert not any("run.lease" in name for name in names(store(tmp_path)))


def test_half_a_line_waits(tmp_path: Path) -> None:
    """What a writer is just writing is sent when it is complete."""
    run = run_directory(tmp_path / "run")
    before = (run / "streams/rank-0.1.jsonl").read_bytes()
    with (run / "streams/rank-0.1.jsonl").open("ab") as file:
        file.write(b'{"kind":"me')
    sender = Sender(store(tmp_path), run, HOME)
    sender.send()
    assert copied(tmp_path)["streams/rank-0.1.jsonl"] == before


def test_last_piece_grows_until_it_is_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred sendings leave a few objects, each a complete part of the stream."""
    monkeypatch.setattr("trackers.object_storage.growing.PIECE_BYTES", 2000)
    run = run_directory(tmp_path / "run")
    sender = Sender(store(tmp_path), run, HOME)
    for _ in range(100):
        grow(run, 3)
        sender.send()
    pieces = [name for name in names(store(tmp_path)) if "/streams/" in name]
    size = (run / "streams/rank-0.1.jsonl").stat().st_size
    assert len(pieces) == -(-size // 2000) or len(pieces) <= size // 2000 + 1
    assert copied(tmp_path) == contents(run)


def test_nothing_new_sends_nothing(tmp_path: Path) -> None:
    """A run that rests costs one question a sending, whose the next attempt is, and no object."""
    run = run_directory(tmp_path / "run")
    sender = Sender(store(tmp_path), run, HOME)
    assert sender.send() > 0
    assert sender.send() == 0


class Busy(Store):
    """A store during whose requests training goes on: what it was asked to write, by name, in order."""

    def __init__(self, where: str, run: Path) -> None:
        super().__init__(where)
        self.run = run
        self.written: list[tuple[str, bytes | Path]] = []

    def put(self, name: str, content: bytes | Path) -> str:
        self.written.append((name.removeprefix(f"{HOME}/"), content))
        version = super().put(name, content)
        grow(self.run, 3)
        return version


def test_sending_ends_though_the_stream_grows_during_each_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call sends what was there when it began, a long backlog in several pieces: each byte once."""
    run = run_directory(tmp_path / "run")
    busy = Busy(f"file://{tmp_path}/store", run)
    sender = Sender(busy, run, HOME)
    path = run / "streams/rank-0.1.jsonl"
    for _ in range(20):
        size = path.stat().st_size
        busy.written.clear()
        sender.send()
        pieces = [name for name, _ in busy.written if name.startswith("streams/")]
        assert len(pieces) == 1
        assert path.stat().st_size - size <= len(busy.written) * 3 * 40
    monkeypatch.setattr(growing, "MOST_BYTES", 500)
    monkeypatch.setattr(growing, "PIECE_BYTES", 400)
    monkeypatch.setattr(layout, "MOST_BYTES", 500)
    grow(run, 200)
    size = path.stat().st_size
    busy.written.clear()
    sender.send()
    sent = b"".join(content for name, content in busy.written[1:] if name.startswith("streams/"))  # type: ignore[misc]
    assert size - 100 <= path.read_bytes().find(sent) + len(sent) < size + 500
    busy.run = tmp_path / "nowhere"
    (busy.run / "streams").mkdir(parents=True)
    sender.finish()
    assert copied(tmp_path) == contents(run)


def test_sign_of_life_goes_first_and_amid_what_takes_long(tmp_path: Path) -> None:
    """A backlog of pieces and media: readers see at once that the run is there and lives, and go on seeing it; before
    an upload of minutes they are told how long it may take."""
    run = run_directory(tmp_path / "run")
    holder = {"token": "t", "host": "node7", "count": 3, "allow_s": 0.0}
    (run / "relay.lease").write_text(json.dumps(holder))
    for number in range(5):
        (run / f"media/13/{number}.npy").write_bytes(b"picture")
    busy = Busy(f"file://{tmp_path}/store", run)
    sender = Sender(busy, run, HOME, heartbeat_s=0.0)
    sender.send()
    names = [name for name, _ in busy.written]
    assert names[:3] == ["relay.lease", "relay.lease", "run.json"]
    assert names.count("relay.lease") >= 8
    sender.heartbeat_s, sender.bytes_s = 20.0, 10.0
    busy.written.clear()
    (run / "media/13/large.npy").write_bytes(b"x" * 5000)
    sender.send()
    (before,) = [content for name, content in busy.written if name == "relay.lease"]
    assert json.loads(before) == {**holder, "allow_s": 500.0}  # type: ignore[arg-type]
    (run / "relay.lease").write_text("{")
    (run / "media/13/other.npy").write_bytes(b"x" * 5000)
    assert sender.send() > 0


def test_another_process_goes_on_from_what_the_store_has(tmp_path: Path) -> None:
    """Nothing is remembered here: a new sender lists, and sends only what lacks."""
    run = run_directory(tmp_path / "run")
    Sender(store(tmp_path), run, HOME).send()
    grow(run, 5)
    sent = Sender(store(tmp_path), run, HOME).send()
    assert sent <= 2  # the stream, and run.json, whose content isn't known
    assert copied(tmp_path) == contents(run)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(12))
def test_failures_lose_and_double_nothing(seed: int, tmp_path: Path) -> None:
    """A third of all requests fails, half of those after they were carried out; senders die in between."""
    chance = random.Random(seed)
    where = f"file://{tmp_path}/store"
    run = run_directory(tmp_path / "run")
    sender = None
    for _ in range(25):
        grow(run, chance.randrange(4))
        if chance.random() < 0.2:
            grow(run, 2, name="sampler-0.1")
        try:
            if sender is None or chance.random() < 0.3:
                sender = Sender(Failing(where, chance.randrange(2**32)), run, HOME)
            sender.send()
        except Unavailable:
            pass
        for name, content in copied(tmp_path).items():
            if name.startswith("streams/"):  # what a reader has is at any time a beginning of what was written
                assert (run / name).read_bytes().startswith(content)
    Sender(store(tmp_path), run, HOME).finish()
    assert copied(tmp_path) == contents(run)


class Silent(Store):
    """A store whose next requests to write are carried out, and whose answers are lost. lost: of which, by name."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.lost: list[str] = []
        self.part = ""

    def _note(self, name: str) -> None:
        if self.part and self.part in name:
            self.lost.append(name)
            self.part = ""
            raise Unavailable("the answer was lost")

    def put(self, name: str, content: bytes | Path) -> str:
        version = super().put(name, content)
        self._note(name)
        return version

    def create(self, name: str, content: bytes) -> bool:
        created = super().create(name, content)
        self._note(name)
        return created


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_piece_whose_answer_was_lost_is_there_once(grows: bool, again: bool, tmp_path: Path) -> None:
    """By the same process or another, as it was or longer: a reader has each byte once, and one object is left."""
    run = run_directory(tmp_path / "run")
    silent = Silent(f"file://{tmp_path}/store")
    sender = Sender(silent, run, HOME)
    sender.send()
    grow(run, 3)
    silent.part = "rank-0.1.jsonl/@"
    with pytest.raises(Unavailable, match="lost"):
        sender.send()
    assert copied(tmp_path) == contents(run)  # it is there, though nobody was told
    if grows:
        grow(run, 2)
    if again:
        sender = Sender(silent, run, HOME)
    sender.send()
    assert copied(tmp_path) == contents(run)
    sender.finish()
    (left,) = [name for name in names(silent) if "rank-0.1.jsonl/@" in name]
    assert (left in silent.lost) is not grows
    assert copied(tmp_path) == contents(run)


@pytest.mark.parametrize("asked_again", [False, True])
def test_claim_whose_answer_was_lost_is_this_process_s(asked_again: bool, tmp_path: Path) -> None:
    """Asked again, by the sender or by the client itself, the store says that somebody has it: that is this one."""
    run = run_directory(tmp_path / "run")
    silent = Silent(f"file://{tmp_path}/store")
    sender = Sender(silent, run, HOME)
    if asked_again:
        assert silent.create(f"{HOME}/{layout.claim(1)}", f"{identity(run)} here\n".encode())
    else:
        silent.part = "@claims"
        with pytest.raises(Unavailable, match="lost"):
            sender.send()
    sender.send()
    assert copied(tmp_path) == contents(run)
    other = run_directory(tmp_path / "other")
    (other / "streams/rank-0.1.jsonl").write_text('{"kind":"start","host":"b"}\n')
    with pytest.raises(Fatal, match="attempt 1 was begun on"):
        Sender(store(tmp_path), other, HOME).send()


def identity(run: Path) -> str:
    """What a claim of attempt 1 says of whose it is."""
    return hashlib.sha256((run / "streams/rank-0.1.jsonl").read_bytes().partition(b"\n")[0] + b"\n").hexdigest()


def test_store_that_loses_objects_is_given_them_again(tmp_path: Path) -> None:
    """What it said it had taken is looked for at the end, three times; then that is said."""
    run = run_directory(tmp_path / "run")
    where = f"file://{tmp_path}/store"
    Sender(Lying(where, 3), run, HOME).finish()
    assert copied(tmp_path) == contents(run)
    other = run_directory(tmp_path / "other")
    with pytest.raises(Unavailable, match="lost objects that it had accepted"):
        Sender(Lying(where, 1000), other, "p/other").finish()


def test_outage_is_made_up_for_in_bounded_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What gathered while the store was away is sent in parts of bounded length, also where a line is longer."""
    monkeypatch.setattr("trackers.object_storage.growing.MOST_BYTES", 4096)
    run = run_directory(tmp_path / "run", lines=500)
    with (run / "streams/rank-0.1.jsonl").open("ab") as file:
        file.write(b'{"text":"' + b"x" * 20_000 + b'"}\n')
    Sender(store(tmp_path), run, HOME).finish()
    sizes = [one.size for one in store(tmp_path).objects() if "/streams/" in one.name]
    assert max(sizes) <= 4096
    assert copied(tmp_path) == contents(run)


def test_attempt_is_one_process_s(tmp_path: Path) -> None:
    """Two machines that begin the same attempt: the second is told who has it, and the store keeps the first's."""
    run = run_directory(tmp_path / "a" / "abc")
    Sender(store(tmp_path), run, HOME).send()
    other = run_directory(tmp_path / "b" / "abc")
    (other / "streams/rank-0.1.jsonl").write_text('{"kind":"start","host":"b"}\n')
    with pytest.raises(Fatal, match="attempt 1 was begun on"):
        Sender(store(tmp_path), other, HOME).send()
    assert copied(tmp_path) == contents(run)
    Sender(store(tmp_path), run, HOME).send()  # the first one, begun again, still has it


def test_run_that_goes_on_elsewhere_is_left_alone(tmp_path: Path) -> None:
    """A machine that was thought dead and comes back doesn't write over what its successor does."""
    run = run_directory(tmp_path / "a" / "abc")
    sender = Sender(store(tmp_path), run, HOME)
    sender.send()
    other = tmp_path / "b"
    mirror.fetch_runs(f"file://{tmp_path}/store", other, "p", "abc")
    grow(other / HOME, 1, begin=True, name="rank-0.2")
    claim_attempt(store(tmp_path), other / HOME, HOME, 2)
    grow(run, 4)
    (run / "run.json").write_text('{"id": "old"}\n')
    with pytest.raises(Fatal, match="goes on elsewhere, as attempt 2: 4 records that weren't sent before lie in"):
        sender.send()
    assert copied(tmp_path)["run.json"] == b'{"id": "abc"}\n'


def test_changed_stream_is_named(tmp_path: Path) -> None:
    """A stream whose beginning isn't what was sent is no continuation of it."""
    run = run_directory(tmp_path / "run")
    Sender(store(tmp_path), run, HOME).send()
    path = run / "streams/rank-0.1.jsonl"
    head, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(head + b"\n" + rest.replace(b"metrics", b"METRICS") + b'{"more":1}\n')
    with pytest.raises(Fatal, match="was changed"):
        Sender(store(tmp_path), run, HOME).send()


def test_claim_is_named_by_attempt(tmp_path: Path) -> None:
    """Which can be created once."""
    run = run_directory(tmp_path / "run")
    Sender(store(tmp_path), run, HOME).send()
    assert f"{HOME}/{layout.claim(1)}" in set(names(store(tmp_path)))
    assert not store(tmp_path).create(f"{HOME}/{layout.claim(1)}", b"other")


def test_end_removes_pieces_that_longer_ones_replaced(tmp_path: Path) -> None:
    """Which a process that was killed between the two requests leaves; what a reader needs stays."""
    run = run_directory(tmp_path / "run")
    where = store(tmp_path)
    Sender(where, run, HOME).send()
    before = {one.name: where.get(one.name, 10**6) for one in where.objects() if "/@0" in one.name}
    grow(run, 3)
    Sender(where, run, HOME).send()
    for name, content in before.items():
        where.put(name, content)
    Sender(where, run, HOME).finish()
    (left,) = [name for name in names(where) if "/@0" in name]
    assert left not in before
    assert copied(tmp_path) == contents(run)
