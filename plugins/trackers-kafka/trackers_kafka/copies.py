"""``trackers copy RUN kafka:HOST:PORT/TOPIC``: what the tracker keeps, and where a copy is read back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trackers.copying.destinations import CopyPlace, CopyTarget
from trackers.copying.verify import Capabilities
from trackers.errors import UsageError
from trackers.tracker import RunInfo
from trackers_kafka.precheck import TOPIC, check_place


class KafkaCopies(CopyTarget):
    """A topic."""

    scheme = "kafka"
    form = "HOST:PORT/TOPIC"
    keeps = Capabilities(files=False, media=frozenset())

    @classmethod
    def place(cls, where: str) -> CopyPlace:
        """Brokers and topic, for the tracker's options."""
        servers, _, topic = where.partition("/")
        try:
            check_place(servers, topic or TOPIC)
        except UsageError as error:
            raise UsageError(f"kafka:{where:.200} is no place: kafka:HOST:PORT/TOPIC ({error})") from None
        options = {"KAFKA_SERVERS": servers, "KAFKA_TOPIC": topic or TOPIC}
        return CopyPlace(text=f"kafka:{servers}/{topic or TOPIC}", options=options)

    @classmethod
    def source(cls, place: CopyPlace, info: RunInfo, state: Mapping[str, Any], run: Path) -> str:
        """The source that names the copy."""
        return f"{place.text}#{info.id}"
