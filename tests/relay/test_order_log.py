"""The changes between streams in few bytes answer what a plain list of them would."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from trackers.relay.delivery.merge_order import OrderLog, Switch

STREAMS = ("rank-0.1", "node-0.1", "rank-0.2")


@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from(STREAMS), st.integers(-30, 100)), max_size=30),
    st.integers(0, 160),
    st.integers(0, 160),
)
def test_answers_are_those_of_a_plain_list(moves: list[tuple[int, str, int]], seq: int, cut: int) -> None:
    """Whatever comes, streams that were cut and step back included: the same index, ends and bounds."""
    plain: list[Switch] = []
    kept = OrderLog()
    place, at = 0, dict.fromkeys(STREAMS, 50)
    for ahead, stream, further in moves:
        place += ahead
        at[stream] = max(0, at[stream] + further)
        plain.append(Switch(place, stream, at[stream]))
        kept.append(plain[-1])
    if cut % 3 == 0:
        assert kept.cut(cut) == any(switch.seq > cut for switch in plain)
        plain = [switch for switch in plain if switch.seq <= cut]
    assert list(kept) == plain
    assert kept.at(seq) == sum(switch.seq <= seq for switch in plain) - 1
    for index, here in enumerate(plain):
        later = [switch.start for switch in plain[index + 1 :] if switch.stream == here.stream]
        assert kept.next_start(index) == (later[0] if later else None)
        assert kept.bound(index) == (min(later) if later else None)
        last = {switch.stream: place for place, switch in enumerate(plain[:index])}
        assert kept.last_before(index) == sorted(last.values())


def test_month_of_samples_takes_little_memory() -> None:
    """Half a million changes, as a month of samples each ten seconds makes: below fifty bytes each."""
    kept = OrderLog()
    for number in range(500_000):
        kept.append(Switch(3 * number + 1, STREAMS[number % 2], 100 * number))
    held = sum(sys.getsizeof(value) for value in vars(kept).values())
    assert held < 50 * 500_000
    assert kept[kept.at(900_001)] == Switch(900_001, STREAMS[0], 100 * 300_000)
    assert kept.last_before(400_000) == [399_998, 399_999]
