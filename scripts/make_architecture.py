"""Draw docs/pictures/architecture.svg: how a value travels from `log` to a store, and from a source to a plot.

    python scripts/make_architecture.py

Uses the standard library alone; a test compares the picture with what this draws.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs/pictures/architecture.svg"

WIDTH, HEIGHT = 1240, 740
PROCESS, FILE, PLACE, PAPER = "#dbeafe", "#fef3c7", "#e5e7eb", "#ffffff"
INK, PALE, LINE = "#1f2328", "#59636e", "#3b5b8c"
FONT = "font-family='DejaVu Sans, Verdana, sans-serif'"
SIZE, LEADING = 12, 17


class Drawing:
    """Boxes with lines of text, and arrows, in pixels from the upper left corner."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def box(self, place: tuple[int, int, int, int], text: str, *, fill: str, dashed: bool = False) -> None:
        """A box at (x, y, width, height). The first line of the text is its title."""
        x, y, width, height = place
        dash = " stroke-dasharray='5 4'" if dashed else ""
        self._parts.append(
            f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='6' fill='{fill}' stroke='{PALE}'{dash}/>"
        )
        for number, line in enumerate(text.splitlines()):
            self.text(x + 10, y + 19 + number * LEADING, line, bold=number == 0)

    def text(self, x: int, y: int, text: str, *, bold: bool = False, size: float = SIZE, pale: bool = False) -> None:
        """One line, from x on, its baseline at y."""
        weight = " font-weight='bold'" if bold else ""
        colour = PALE if pale else INK
        self._parts.append(
            f"<text x='{x}' y='{y}' {FONT} font-size='{size}'{weight} fill='{colour}'>{escape(text)}</text>"
        )

    def arrow(self, *points: tuple[int, int], both: bool = False) -> None:
        """A line through points, with a head at its end, or at both."""
        path = " ".join(f"{x},{y}" for x, y in points)
        heads = " marker-start='url(#head)'" * both + " marker-end='url(#head)'"
        self._parts.append(f"<polyline points='{path}' fill='none' stroke='{LINE}' stroke-width='1.8'{heads}/>")

    def svg(self) -> str:
        """The picture as a file's text."""
        head = (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' "
            f"width='{WIDTH}' height='{HEIGHT}'>",
            "<defs><marker id='head' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='8' markerHeight='8' "
            f"orient='auto-start-reverse'><path d='M0,0 L10,5 L0,10 z' fill='{LINE}'/></marker></defs>",
            f"<rect width='{WIDTH}' height='{HEIGHT}' fill='{PAPER}'/>",
        )
        return "\n".join((*head, *self._parts, "</svg>")) + "\n"


def writing(draw: Drawing) -> None:
    """The upper half, from left to right."""
    draw.text(20, 32, "Writing: from log to a tracker's store", bold=True, size=16)
    draw.box(
        (20, 130, 290, 92),
        "training process, rank 0\n"
        'run.log({"loss": 0.5}, step=3)\n'
        "training/run.py, training/recorder.py\n"
        "journal/stream.py: one write(2) per call",
        fill=PROCESS,
    )
    draw.box(
        (20, 382, 290, 92),
        "training processes, every rank\n"
        'run.log({"loss": Mean(total, count)})\n'
        "ranks/contribution.py,\n"
        "ranks/transport.py",
        fill=PROCESS,
    )

    draw.box(
        (370, 56, 278, 308),
        "run's directory: runs/PROJECT/ID/\nrun.json, media/",
        fill=PAPER,
        dashed=True,
    )
    draw.box(
        (385, 102, 240, 44),
        "delivery/wandb.json, …\ncursor and state of each tracker",
        fill=FILE,
    )
    draw.box(
        (385, 154, 240, 44),
        "streams/rank-0.1.jsonl\nwhat rank 0 logged, attempt 1",
        fill=FILE,
    )
    draw.box(
        (385, 206, 240, 44),
        "streams/node-0.1.jsonl\nenvironment, end of a killed run",
        fill=FILE,
    )
    draw.box(
        (385, 258, 240, 44),
        "streams/sampler-0.1.jsonl\nsamples of GPUs and host",
        fill=FILE,
    )
    draw.box(
        (385, 310, 240, 44),
        "streams/reducer-0.1.jsonl\nvalues of all ranks",
        fill=FILE,
    )
    draw.box(
        (385, 404, 240, 62),
        "launch's directory: .ranks/…\nparts of values, one stream for\neach rank",
        fill=FILE,
    )

    draw.box(
        (710, 56, 270, 432),
        "relay: processes beside training",
        fill=PAPER,
        dashed=True,
    )
    draw.box(
        (725, 90, 240, 100),
        "deliveries: a process per tracker\n"
        "relay/delivery: read after the cursor\n"
        "→ Tracker.write → commit it\n"
        "backends/: wandb, mlflow, …",
        fill=PROCESS,
    )
    draw.box(
        (725, 200, 240, 58),
        "supervisor: relay/supervisor.py\nstarts and restarts the others,\nwatches training",
        fill=PROCESS,
    )
    draw.box(
        (725, 266, 240, 44),
        "sampler: relay/sampling\nhardware/: NVML, amdsmi, host",
        fill=PROCESS,
    )
    draw.box(
        (725, 318, 240, 148),
        "aggregator: relay/aggregation\ncombines the parts of all ranks\n(reductions.py: Mean, Max, …)",
        fill=PROCESS,
    )

    draw.box(
        (1040, 90, 180, 150),
        "stores\nW&B\ntrackio\nMLflow\nTensorBoard\nJSON, CSV, session,\nprogress, benchmark",
        fill=PLACE,
    )
    draw.text(1040, 262, "console runs inside the", pale=True)
    draw.text(1040, 262 + LEADING, "training process", pale=True)

    draw.arrow((310, 176), (385, 176))
    draw.arrow((310, 430), (385, 430))
    draw.arrow((625, 124), (725, 124), both=True)
    draw.arrow((625, 176), (725, 176))
    draw.arrow((725, 228), (625, 228))
    draw.arrow((725, 282), (625, 282))
    draw.arrow((725, 332), (625, 332))
    draw.arrow((625, 434), (725, 434))
    draw.arrow((965, 140), (1040, 140))
    draw.text(653, 168, "all streams", pale=True, size=9)


def reading(draw: Drawing) -> None:
    """The lower half, from right to left."""
    draw.text(20, 540, "Reading: from a source to a plot, in the process of the command", bold=True, size=16)
    draw.box(
        (1000, 560, 220, 96),
        "sources\na run's directory, the stores,\n.wandb files, console logs,\nTrainer states, CSV, …",
        fill=PLACE,
    )
    draw.box(
        (735, 560, 215, 96),
        "readers, one per scheme\nReader.read → records\nreaders/boundary.py checks,\ncache.py keeps columns",
        fill=PROCESS,
    )
    draw.box(
        (490, 560, 195, 96),
        "run's data\ntrackers.load(SOURCE):\nreaders/run_data.py,\nevery point, Arrow",
        fill=PROCESS,
    )
    draw.box(
        (260, 560, 180, 96),
        "analysis\ncurves, compare, best,\ndiff, sql, report,\ngpu-report",
        fill=PROCESS,
    )
    draw.box(
        (20, 560, 190, 96),
        "plotting\npresets.py → Picture →\npng, svg, pdf, html\nor the terminal",
        fill=PROCESS,
    )
    draw.arrow((1000, 608), (950, 608))
    draw.arrow((735, 608), (685, 608))
    draw.arrow((490, 608), (440, 608))
    draw.arrow((260, 608), (210, 608))
    draw.arrow((1206, 240), (1206, 560))
    draw.arrow((638, 364), (638, 510), (1060, 510), (1060, 560))
    draw.box(
        (735, 684, 485, 44),
        "trackers copy: copying/\nrecords → a journal in a cache → a delivery, as above → another store",
        fill=PROCESS,
    )
    draw.arrow((842, 656), (842, 684))
    draw.text(20, 700, "blue: code in a process", pale=True)
    draw.text(200, 700, "yellow: files of a run", pale=True)
    draw.text(375, 700, "grey: outside", pale=True)


def picture() -> str:
    """The whole picture, as SVG."""
    draw = Drawing()
    writing(draw)
    reading(draw)
    return draw.svg()


if __name__ == "__main__":
    PICTURE.write_text(picture(), "utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size:,} bytes")
