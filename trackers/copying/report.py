"""Report of a copy, run by run: counts and checksums of both sides."""

from __future__ import annotations

from typing import Any

import msgspec

from trackers.copying.verify import ContentDigest


class CopyReport(msgspec.Struct, kw_only=True):
    """One run's copy.

    source, destination: sources that name the run on both sides; name: the run's. want: what the source holds, as
    the destination keeps such things; there: what was read back. differences: each as one line. rejected: records
    that the destination refused. said: what it had to say. error: why the copy didn't come to its end, or "".
    """

    source: str
    destination: str = ""
    name: str = ""
    want: ContentDigest = msgspec.field(default_factory=ContentDigest)
    there: ContentDigest = msgspec.field(default_factory=ContentDigest)
    differences: list[str] = []
    rejected: int = 0
    said: list[str] = []
    error: str = ""
    running: bool = False

    @property
    def agrees(self) -> bool:
        """Both sides hold the same."""
        return not (self.error or self.differences or self.rejected)

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.source} → {self.destination or 'nowhere'}"]
        if self.error:
            return f"{lines[0]}\n  failed: {self.error}"
        for label, tally in (("source", self.want), ("there", self.there)):
            parts = [f"{tally.values:,} values of {len(tally.metrics):,} metrics, checksum {tally.checksum}"]
            counts = {"text": tally.texts, "image, table or histogram": tally.media, "artifact file": tally.files}
            parts += [f"{word}s: {sum(found.values()):,}" for word, found in counts.items() if found]
            parts += [f"results: {len(tally.results):,}"] if tally.results else []
            lines.append(f"  {label:<7} {', '.join(parts)}, {tally.status or 'running'}")
        if self.rejected:
            lines.append(f"  {self.rejected:,} records were refused")
        lines += [f"  differs: {line}" for line in self.differences[:20]]
        if len(self.differences) > 20:
            lines.append(f"  and {len(self.differences) - 20} more differences")
        lines += [f"  {text}" for text in self.said]
        return "\n".join([*lines, f"  {'agrees' if self.agrees else 'DIFFERS'}"])

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        sides = {
            side: {
                "metrics": len(tally.metrics),
                "values": tally.values,
                "checksum": tally.checksum,
                "texts": sum(tally.texts.values()),
                "media": tally.media,
                "artifact_files": sum(tally.files.values()),
                "results": len(tally.results),
                "status": tally.status or "running",
            }
            for side, tally in (("source", self.want), ("destination", self.there))
        }
        return {
            "source": self.source,
            "destination": self.destination,
            "name": self.name,
            "agrees": self.agrees,
            "sides": sides,
            "differences": self.differences,
            "rejected": self.rejected,
            "said": self.said,
            "error": self.error,
        }
