"""The reader of W&B's offline files."""

from __future__ import annotations

import math
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackers.backends.wandb import datastore_writer
from trackers.errors import NotFound
from trackers.formats import wandb_datastore as wandb_format
from trackers.formats.leveldb_log import BLOCK_BYTES, CHUNK, FIRST, HEADER, LAST, MIDDLE, WHOLE, Damage
from trackers.formats.wandb_datastore import MAGIC


def framed(payloads: list[bytes]) -> bytes:
    """A .wandb file with these payloads, as LevelDB's log format describes it."""
    out = bytearray(HEADER.pack(*MAGIC))
    for payload in payloads:
        begun = False
        while True:
            room = BLOCK_BYTES - len(out) % BLOCK_BYTES
            if room < CHUNK.size:
                out += bytes(room)
                room = BLOCK_BYTES
            part, payload = payload[: room - CHUNK.size], payload[room - CHUNK.size :]
            kind = (LAST if begun else WHOLE) if not payload else (MIDDLE if begun else FIRST)
            out += CHUNK.pack(zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            begun = True
            if not payload:
                break
    return bytes(out)


def read(content: bytes) -> list[bytes]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "run-x.wandb")
        path.write_bytes(content)
        return list(wandb_format.payloads(path))


PAYLOADS = st.lists(
    st.one_of(st.binary(max_size=40), st.integers(0, 3 * BLOCK_BYTES).map(lambda size: b"x" * size)), max_size=8
)


@pytest.mark.slow
@given(PAYLOADS)
def test_payloads_come_back_whatever_their_size(payloads: list[bytes]) -> None:
    """Records of any size, over any number of blocks, are read as they were written."""
    assert read(framed(payloads)) == payloads


@pytest.mark.slow
@given(PAYLOADS, st.data())
def test_payloads_of_a_cut_file_are_its_complete_ones(payloads: list[bytes], data: st.DataObject) -> None:
    """A file cut anywhere gives a prefix of its records, and all that end before the cut."""
    content = framed(payloads)
    cut = data.draw(st.integers(0, len(content)))
    found = read(content[:cut])
    assert found == payloads[: len(found)]
    whole = sum(len(framed(payloads[: count + 1])) <= cut for count in range(len(payloads)))
    assert len(found) == whole


@pytest.mark.slow
@given(PAYLOADS, st.data())
def test_repair_leaves_the_complete_records(payloads: list[bytes], data: st.DataObject) -> None:
    """A file cut anywhere loses its torn record by the repair, nothing else, and a whole file stays as it is."""
    content = framed(payloads)
    cut = data.draw(st.integers(0, len(content)))
    whole = [len(framed(payloads[:count])) for count in range(len(payloads) + 1)]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "run-x.wandb")
        path.write_bytes(content[:cut])
        before = list(wandb_format.payloads(path))
        assert datastore_writer.repair(path) == (cut > HEADER.size and cut not in whole)
        assert list(wandb_format.payloads(path)) == before
        assert path.stat().st_size == max([size for size in whole if size <= cut], default=cut)
        assert not datastore_writer.repair(path)


@pytest.mark.slow
@given(PAYLOADS.filter(bool), st.data())
def test_payloads_end_before_a_damaged_one(payloads: list[bytes], data: st.DataObject) -> None:
    """A changed byte never gives a record that wasn't written."""
    content = bytearray(framed(payloads))
    place = data.draw(st.integers(HEADER.size, len(content) - 1))
    content[place] ^= 0xFF
    found = read(bytes(content))
    assert found == payloads[: len(found)]


@pytest.mark.parametrize("size", [10, 500, 40_000, 100_000])
def test_records_around_a_damaged_one_are_read(size: int, tmp_path: Path) -> None:
    """Wherever one bit of a record changes, the others are read, and its bytes are counted."""
    payloads = [bytes([number]) * size for number in range(1, 9)]
    ends = [len(framed(payloads[:count])) for count in range(len(payloads) + 1)]
    content, path = framed(payloads), tmp_path / "run-x.wandb"
    for place in [*range(ends[2], ends[2] + 12), ends[2] + size // 2, ends[3] - 1]:
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        damage = Damage()
        assert [found for found, _ in wandb_format.scan(path, damage=damage)] == payloads[:2] + payloads[3:], place
        assert damage.first is not None
        assert ends[2] <= damage.first <= place
        assert size <= damage.skipped_bytes <= ends[3] - ends[2]
        assert damage.cut_bytes == 0


@pytest.mark.parametrize("size", [10, 40_000])
def test_cut_record_is_no_damage(size: int, tmp_path: Path) -> None:
    """A last record that lacks its end is counted by itself; a whole file has neither."""
    content, path = framed([b"x" * size, b"y" * size]), tmp_path / "run-x.wandb"
    begin = len(framed([b"x" * size]))
    for end in [begin, begin + 1, begin + CHUNK.size, begin + CHUNK.size + 1, len(content) - 1, len(content)]:
        path.write_bytes(content[:end])
        damage = Damage()
        assert len(list(wandb_format.scan(path, damage=damage))) == (2 if end == len(content) else 1)
        assert (damage.first, damage.skipped_bytes) == (None, 0)
        assert damage.cut_bytes == (0 if end == len(content) else end - begin)


def test_payloads_of_a_foreign_file_are_an_error(tmp_path: Path) -> None:
    """What isn't a .wandb file, or isn't there, is said to be so."""
    (tmp_path / "a").write_bytes(b"something else entirely")
    with pytest.raises(NotFound, match=r"isn't a \.wandb file"):
        list(wandb_format.payloads(tmp_path / "a"))
    with pytest.raises(NotFound, match="no such file"):
        list(wandb_format.payloads(tmp_path / "b"))


def test_offline_file_that_was_overwritten_counts_as_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One that is no file of W&B's any more stops no later delivery, and is named once; an emptied one is there."""
    places = [tmp_path / f"offline-run-{number}-r/run-r.wandb" for number in (1, 2, 3)]
    contents = (b"something else entirely", b"", HEADER.pack(*MAGIC))
    for path, content in zip(places, contents, strict=True):
        path.parent.mkdir()
        path.write_bytes(content)
    for _ in range(2):
        assert datastore_writer.offline_files(tmp_path, "r") == places[1:]
    (message,) = caplog.messages
    assert message.startswith(f"{places[0]} was overwritten")
    assert "--verify" in message


@pytest.mark.slow
@pytest.mark.processes
def test_history_of_a_file_that_the_real_client_wrote(tmp_path: Path) -> None:
    """Rows that wandb wrote offline are read with their steps, names and non-finite values."""
    import wandb

    quiet = wandb.Settings(console="off", silent=True, x_disable_stats=True)
    run = wandb.init(project="p", id="abcd1234", mode="offline", dir=str(tmp_path), settings=quiet)
    big = {f"metric/{number}.x": number + 0.5 for number in range(3000)}
    for step in (0, 4, 5):
        run.log({"loss": math.inf, "bad": math.nan, "text": "é", **big, "_timestamp": 12.5}, step=step)
    run.finish()

    (path,) = datastore_writer.offline_files(tmp_path / "wandb", "abcd1234")
    datastore_writer.await_writers([path])  # finish may return before the client's service has written the last rows
    rows = list(datastore_writer.history(path))
    assert [row["_step"] for row in rows] == [0, 4, 5]
    assert rows[0]["loss"] == math.inf
    assert math.isnan(rows[0]["bad"])
    assert (rows[0]["text"], rows[0]["_timestamp"]) == ("é", 12.5)
    assert {name: rows[2][name] for name in big} == big
    kinds = {record.WhichOneof("record_type") for record in wandb_format.records(path)}
    assert {"run", "history", "summary", "exit"} <= kinds
    assert datastore_writer.last_step(path) == 5
    assert datastore_writer.offline_files(tmp_path / "wandb", "other") == []
