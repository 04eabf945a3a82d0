"""Colours of runs by their identity."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trackers.metrics.styles import COLOURS, identity_of, styles_of

IDENTITIES = st.lists(st.integers(0, 2**32 - 1), unique=True, max_size=60)


@given(IDENTITIES, st.randoms())
def test_style_depends_on_which_runs_there_are_not_on_their_order(identities: list[int], source: object) -> None:
    """All are distinct, colours before dashes, and in any order each run has the same one."""
    styles = styles_of(identities)
    assert len(set(styles)) == len(styles)
    assert max(styles, default=0) < len(COLOURS) * -(-max(1, len(styles)) // len(COLOURS))
    shuffled = list(identities)
    source.shuffle(shuffled)  # type: ignore[attr-defined]
    assert dict(zip(shuffled, styles_of(shuffled), strict=True)) == dict(zip(identities, styles, strict=True))


def test_run_has_the_colour_that_its_id_asks_for() -> None:
    """Alone and beside others that ask for others."""
    alone = {name: styles_of([identity_of(name)])[0] for name in ("a", "b", "c")}
    assert set(alone.values()) <= set(range(len(COLOURS)))
    assert styles_of([5, 16 + 5, 6]) == [5, 7, 6]
