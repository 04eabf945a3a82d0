"""OpenTelemetry: the spans of a run, and its samples of language models, to a receiver of OTLP over HTTP.

OpenTelemetry's own SDK encodes and sends. A span that is sent again has the ids that it had: receivers that keep spans
by their ids have it once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from trackers.backends.shared import media_files
from trackers.errors import DeliveryError, Refused, Rejected, Unavailable
from trackers.formats import conversations
from trackers.records import Media, Record, Span
from trackers.support.failpoints import failpoint
from trackers.tracker import Cursor, RunInfo, State, Status
from trackers_otlp import spans
from trackers_otlp.precheck import OtlpPrecheck, endpoint

BATCH_SPANS = 512
"""https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/: OTEL_BSP_MAX_EXPORT_BATCH_SIZE."""
BATCH_CHARS = 4 << 20
"""Of texts in a request: the collector's receiver takes 20 MiB (config/confighttp, max_request_body_size)."""

_logger = logging.getLogger("trackers.otlp")


class OtlpTracker(OtlpPrecheck):
    """Spans at an OTLP endpoint."""

    accepts = frozenset({Span, Media})
    batch_records = 200

    def __init__(self) -> None:
        self._limited = False

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """See :class:`trackers.tracker.Tracker`."""
        self._info, self._address = info, endpoint(str(info.option("TRACKER_OTLP_ENDPOINT", "")))
        state["url"] = self._shown = self._address.partition("?")[0]
        self._answers: list[Any] = []
        self._resource = spans.resource(info)
        self._exporter = _exporter(self._address, self._answers)
        return None

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """See :class:`trackers.tracker.Tracker`.

        Raises:
            Unavailable, Refused, Rejected: by what the receiver answers.
        """
        waiting: list[Any] = []
        size = 0
        for record in records:
            for span in self._spans(record):
                made = spans.entity(span, self._resource)
                length = sum(len(value) for value in made.attributes.values() if isinstance(value, str))
                if waiting and (len(waiting) >= BATCH_SPANS or size + length > BATCH_CHARS):
                    self._send(waiting)
                    waiting, size = [], 0
                waiting.append(made)
                size += length
        if waiting:
            self._send(waiting)

    def _spans(self, record: Record) -> Iterator[Span]:
        if isinstance(record, Span):
            yield record
        elif isinstance(record, Media):
            for columns, rows in media_files.samples(self._info, record):
                yield from conversations.as_spans(record, self._info.id, columns, rows)

    def _send(self, made: Sequence[Any]) -> None:
        self._answers.clear()
        own = logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        before, own.disabled = own.disabled, True  # it would say each try; the delivery says a failure once
        try:
            self._exporter.export(made)
        finally:
            own.disabled = before
        failpoint("otlp.spans.after")
        if not self._answers:
            raise Rejected("OpenTelemetry's exporter can't send it: more than 64 MiB, or nothing that it can encode")
        answer = self._answers[-1]
        if answer is None:
            raise Unavailable(f"no answer from {self._shown}")
        if answer.status_code != 200:
            self._limited = answer.status_code == 429
            raise _error(answer, self._shown)
        rejected, why = _rejected(answer.content)
        why = why or "no reason given"
        if rejected >= len(made):
            raise Rejected(f"{self._shown} rejected it: {why}")
        if rejected:
            words = "%s rejected %d of %d spans (%s): `trackers spans %s` has them"
            _logger.warning(words, self._shown, rejected, len(made), why, self._info.id)

    def limited(self) -> bool:
        """See :class:`trackers.tracker.Tracker`."""
        limited, self._limited = self._limited, False
        return limited

    def close(self, status: Status) -> None:
        """See :class:`trackers.tracker.Tracker`."""
        self._exporter.shutdown()


def _exporter(address: str, answers: list[Any]) -> Any:
    """OpenTelemetry's exporter. answers: where each of the receiver's answers is put, None where none came.

    Keys, certificates, compression and the time that a request may take are those of OpenTelemetry's own variables. It
    follows no redirect: headers with keys would go to an address that nobody named.
    """
    import requests
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    class Session(requests.Session):
        def send(self, request: Any, **options: Any) -> Any:
            answers.append(None)
            answers[-1] = super().send(request, **options)
            return answers[-1]

        def get_redirect_target(self, resp: Any) -> None:
            return None

    return OTLPSpanExporter(endpoint=address, session=Session())


def _error(answer: Any, address: str) -> DeliveryError:
    """What an answer that isn't 200 means (https://opentelemetry.io/docs/specs/otlp/#failures-1)."""
    code = answer.status_code
    words = f"{address} answered {code} {answer.reason or ''}".rstrip()
    if 300 <= code < 400:
        return Refused(f"{words}, elsewhere: set TRACKER_OTLP_ENDPOINT to the address that takes spans")
    if code in (401, 403):
        return Refused(f"{words}: export OTEL_EXPORTER_OTLP_HEADERS with a key")
    if code in (404, 405):
        return Refused(f"{words}: is TRACKER_OTLP_ENDPOINT the address of a receiver of OTLP over HTTP?")
    if code in (400, 413, 422):
        return Rejected(f"{words}: {answer.text[:200]}")
    return Unavailable(f"{words}")


def _rejected(content: bytes) -> tuple[int, str]:
    """How many spans of a request an answer says were rejected, and why."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    answer = ExportTraceServiceResponse()
    try:
        answer.ParseFromString(content)
    except DecodeError:  # a receiver that answers with JSON, or a page: 200 says that it took them
        return 0, ""
    return answer.partial_success.rejected_spans, answer.partial_success.error_message
