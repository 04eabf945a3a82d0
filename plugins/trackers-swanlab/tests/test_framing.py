"""The log format's frames, as the files have them that another writer made."""

import pytest
from hypothesis import given
from trackers_swanlab.framing import LevelDbFramer

from tests.backends.wandb.test_datastore import PAYLOADS, framed
from trackers.formats.leveldb_log import HEADER
from trackers.formats.wandb_datastore import MAGIC


@pytest.mark.slow
@given(PAYLOADS)
def test_frames_of_payloads_of_any_size(payloads: list[bytes]) -> None:
    framer = LevelDbFramer(HEADER.size)
    assert HEADER.pack(*MAGIC) + b"".join(map(framer.frame, payloads)) == framed(payloads)
    assert framer.length == len(framed(payloads))
