"""Names of objects: pieces, what leads on from where, and which files are sent how."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackers.object_storage.layout import FIXED, GROWING, HEARTBEAT, SMALL, Piece, chain, kind, newest_attempt, path_of


def test_piece_is_its_name() -> None:
    """A piece's name says where it begins and ends, and has the digest of what is in it."""
    piece = Piece.of(40, b"abc\n")
    assert Piece.parse(str(piece)) == piece
    assert (piece.begin, piece.end) == (40, 44)
    assert piece.holds(b"abc\n")
    assert not piece.holds(b"abd\n")


@pytest.mark.parametrize(
    "name",
    ["@1-2-0123456789ab", "@000000000005-000000000004-0123456789ab", "@000000000000-999999999999-0123456789ab",
     "000000000000-000000000004-0123456789ab", "@000000000000-000000000004-XYZ"],
)  # fmt: skip
def test_what_is_no_piece(name: str) -> None:
    """Too short, backwards, of an impossible length, without its sign, without a digest."""
    assert Piece.parse(name) is None


@pytest.mark.slow
@given(st.lists(st.integers(1, 50), min_size=1, max_size=12), st.data())
def test_chain_covers_what_pieces_cover(lengths: list[int], data: st.DataObject) -> None:
    """From any place, also with pieces that overlap and some that lack, it leads on as far as there is no gap."""
    ends = [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    whole = [Piece(a, b, "0" * 12) for a in ends for b in ends if a < b]
    pieces = data.draw(st.lists(st.sampled_from(whole), unique=True))
    begin = data.draw(st.integers(0, ends[-1]))
    found = chain(pieces, begin)
    at = begin
    for piece in found:
        assert piece.begin <= at < piece.end
        at = piece.end
    covered = begin
    while any(piece.begin <= covered < piece.end for piece in pieces):
        covered += 1
    assert at == covered


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("streams/rank-0.1.jsonl", GROWING), ("streams/rank-0.1.jsonl.zst", SMALL), ("run.json", SMALL),
        ("media/13/13db.npy", FIXED), ("relay.lease", HEARTBEAT), ("run.lease", None), ("delivery/json.json", SMALL),
        ("delivery/storage.json", None), (".hidden", None), ("json/media.0.part", None), ("a/../b", None),
        ("console/0.1.stdout.0", None), ("streams/console-0.1.jsonl", GROWING), ("streams/@x", None),
        ("delivery/.mlflow.7.tmp", None),
    ],
)  # fmt: skip
def test_how_a_file_is_sent(path: str, expected: str | None) -> None:
    """Streams in pieces, media once, small files as they change; locks, temporary and hidden files stay here."""
    assert kind(path) == expected


@pytest.mark.parametrize(
    "name", ["../evil", "a/../../b", "/etc/passwd", "a//b", ".versions", "@claims/000001", "x/.y", "a\0b", ""]
)
def test_object_that_is_no_file_of_a_run(name: str) -> None:
    """Names that lead elsewhere, hidden ones and claims aren't copied."""
    assert path_of(name, 1) is None


def test_newest_attempt_is_that_of_the_ranks() -> None:
    """Other writers' streams don't begin an attempt; archived ones count."""
    assert newest_attempt(["rank-0.1.jsonl", "rank-3.2.jsonl.zst", "node-0.7.jsonl", "rank-0.x.jsonl"]) == 2
    assert newest_attempt([]) == 0
