"""Draw the pictures of the docs, docs/pictures/*.svg. Standard library, and the transition tables of the core.

python tools/draw_pictures.py            draws them
python tools/draw_pictures.py --check    exit 1 if one is stale

The state diagrams are drawn from the transition tables of the core (:mod:`tools.state_diagrams`). The steps of the two
stories are ``BATCH`` and ``CRASH``, the parts and the arrows between them stand in ``parts``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.generated_files import write_or_check  # noqa: E402
from tools.picture import BLUE, FAINT, GREEN, LINE_HEIGHT, PAPER, RED, YELLOW, Picture  # noqa: E402
from tools.state_diagrams import ISOLATION, PLAN, RECORD  # noqa: E402

# --- the parts


def parts() -> Picture:
    """Processes and topics, and what passes between them."""
    picture = Picture(1080, 580, "The parts: driver, coordinator, executors, and the topics of the Kafka cluster")
    frames = {
        "executors": (30, 130, 590, 160),
        "driver’s host": (740, 40, 320, 360),
        "Kafka cluster": (30, 440, 1030, 120),
    }
    for title, (x, y, width, height) in frames.items():
        picture.box(x, y, width, height, PAPER, FAINT)
        picture.text(x + 14, y + 22, title, "start", "faint")
    for x, y, width, height, fill, head, lines in (
        (245, 40, 150, 50, GREEN, "your output", ()),
        (50, 172, 150, 84, BLUE, "source tasks", ("read the ranges",)),
        (245, 172, 150, 84, YELLOW, "your code", ("a model, a service",)),
        (440, 172, 160, 84, BLUE, "sink tasks", ("accept, release,", "reject by row")),
        (
            765,
            80,
            270,
            150,
            BLUE,
            "your query (Spark driver)",
            ("reader: asks for each batch", "sink: commits the outcomes"),
        ),
        (765, 300, 270, 80, BLUE, "coordinator", ("who holds which offsets;", "here, or on hosts of its own")),
        (50, 476, 150, 64, GREEN, "your topics", ()),
        (430, 476, 190, 64, RED, "dead letter topic", ("if you name one",)),
        (765, 476, 270, 64, YELLOW, "share-group-state", ("the groups’ state",)),
    ):
        picture.box(x, y, width, height, fill)
        top = y + height / 2 + 5 - len(lines) * LINE_HEIGHT / 2
        picture.text(x + width / 2, top, head, style="head")
        picture.lines(x + width / 2, top + LINE_HEIGHT, lines)
    for path, x, y, text, anchor in (
        ("M765,160 H622", 692, 150, "offset ranges", "middle"),
        ("M602,214 H763", 692, 232, "outcomes", "middle"),
        ("M202,214 H243", 0, 0, "", "middle"),
        ("M397,214 H438", 0, 0, "", "middle"),
        ("M320,172 V92", 328, 122, "rows", "start"),
        ("M165,476 V258", 175, 370, "records", "start"),
        ("M480,258 V474", 470, 370, "rejected records", "end"),
        ("M765,340 H570 V474", 668, 330, "records given up", "middle"),
        ("M840,232 V298", 832, 270, "next batch", "end"),
        ("M960,298 V232", 968, 270, "ranges", "start"),
        ("M840,382 V474", 832, 420, "append", "end"),
        ("M960,474 V382", 968, 420, "load", "start"),
    ):
        picture.path(path)
        if text:
            picture.text(x, y, text, anchor)
    return picture


# --- stories: messages between the parts

LANES = {"executors": 100, "Spark": 330, "reader": 550, "coordinator": 790, "state store": 1020}
LANE_TITLES = {
    "executors": "executors",
    "Spark": "Spark (driver)",
    "reader": "reader (Python)",
    "coordinator": "coordinator",
    "state store": "state store",
}


@dataclass(frozen=True)
class Say:
    """An arrow from one lane to another."""

    sender: str
    receiver: str
    text: str


@dataclass(frozen=True)
class Note:
    """A box on a lane: an event there, or the state after it."""

    lane: str
    lines: tuple[str, ...]
    fill: str = YELLOW


@dataclass(frozen=True)
class Crash:
    """A red line over some lanes."""

    first: str
    last: str
    text: str


Step = Say | Note | Crash

BATCH: tuple[Step, ...] = (
    Say("Spark", "reader", "latestOffset(start)"),
    Say("reader", "coordinator", "next plan, after start"),
    Say("coordinator", "state store", "append plan i.1"),
    Note("coordinator", ("0-3999 ACQUIRED", "count 1, plan i.1"), BLUE),
    Say("coordinator", "reader", "plan i.1: 0-3999:1"),
    Say("reader", "Spark", "end = plan i.1"),
    Note("Spark", ("offsets/0 is written:", "the plan is in Spark's log")),
    Say("Spark", "reader", "partitions(start, end)"),
    Say("reader", "coordinator", "start plan i.1"),
    Say("coordinator", "state store", "append “started”"),
    Say("coordinator", "reader", "0-3999, count 1"),
    Say("reader", "Spark", "tasks"),
    Say("Spark", "executors", "tasks"),
    Note("executors", ("read 0-3999", "from the brokers")),
    Say("executors", "Spark", "rows; the sink writes"),
    Note("Spark", ("commits/0 is written:", "batch 0 is done")),
    Say("Spark", "reader", "latestOffset(plan i.1)"),
    Say("reader", "coordinator", "next plan, after i.1"),
    Say("coordinator", "state store", "append i.1 done, plan i.2"),
    Note("coordinator", ("0-3999 ACKNOWLEDGED", "the start offset is 4000"), GREEN),
    Note("coordinator", ("4000-7999 ACQUIRED", "count 1, plan i.2"), BLUE),
    Say("coordinator", "reader", "plan i.2: 4000-7999:1"),
)

CRASH: tuple[Step, ...] = (
    Note("coordinator", ("4000-7999 ACQUIRED", "count 1, plan i.2, started"), BLUE),
    Note("executors", ("read 4000-7999", "as batch 1")),
    Crash("executors", "reader", "the driver dies in the middle of batch 1"),
    Note("coordinator", ("no heartbeats; m1’s session", "still runs, its locks hold"), YELLOW),
    Note("Spark", ("restart: batch 1 is in", "offsets/, not in commits/")),
    Say("Spark", "reader", "partitions(start, end)"),
    Note("reader", ("end says: member m1,", "plan i.2")),
    Say("reader", "coordinator", "join as m1"),
    Say("coordinator", "state store", "append m1, epoch 2"),
    Note("coordinator", ("the process of epoch 1", "is refused from now on"), YELLOW),
    Say("reader", "coordinator", "reclaim plan i.2"),
    Say("coordinator", "state store", "append the reclaim"),
    Note("coordinator", ("4000-7999 ACQUIRED, count 2", "failures 1, still plan i.2"), BLUE),
    Say("coordinator", "reader", "4000-7999, count 2"),
    Say("reader", "Spark", "tasks"),
    Say("Spark", "executors", "tasks"),
    Note("executors", ("read 4000-7999 again,", "as batch 1 again")),
    Say("executors", "Spark", "rows; the sink replaces"),
    Note("Spark", ("commits/1 is written:", "batch 1 is done")),
    Say("Spark", "reader", "latestOffset(plan i.2)"),
    Say("reader", "coordinator", "next plan, after i.2"),
    Say("coordinator", "state store", "append i.2 done, plan i.3"),
    Note("coordinator", ("4000-7999 ACKNOWLEDGED", "the start offset is 8000"), GREEN),
)
NOTE_WIDTH = 240
TOP = 56


def story(title: str, steps: tuple[Step, ...]) -> Picture:
    """A sequence of steps, top to bottom."""
    picture = Picture(1140, 0, title)
    bottom = TOP
    drawn: list[str] = []
    lane_parts, picture.parts = picture.parts, drawn
    for step in steps:
        bottom = _draw(picture, step, bottom)
    picture.parts = lane_parts
    picture.height = bottom + 24
    for lane, x in LANES.items():
        picture.text(x, 32, LANE_TITLES[lane], style="head")
        picture.path(f"M{x},44 V{picture.height - 12}", arrow=False, style="lane")
    picture.parts += drawn
    return picture


def _draw(picture: Picture, step: Step, y: int) -> int:
    """Draw the step below ``y``; return the y at which it ends."""
    if isinstance(step, Say):
        return _draw_arrow(picture, step, y)
    if isinstance(step, Crash):
        left, right = LANES[step.first] - 90, LANES[step.last] + 90
        width = len(step.text) * 8.6
        picture.box((left + right - width) / 2, y + 10, width, 20, PAPER, PAPER)
        picture.text((left + right) / 2, y + 26, step.text, style="red")
        picture.path(f"M{left},{y + 34} H{right}", arrow=False, style="red")
        return y + 44
    x = LANES[step.lane]
    width = min(NOTE_WIDTH, 186 if step.lane == "executors" else NOTE_WIDTH)
    height = len(step.lines) * LINE_HEIGHT + 10
    picture.box(x - width / 2, y + 8, width, height, step.fill, FAINT)
    picture.lines(x, y + 26, step.lines)
    return y + 8 + height


def _draw_arrow(picture: Picture, step: Say, y: int) -> int:
    start, end = LANES[step.sender], LANES[step.receiver]
    gap = 4 if end > start else -4
    picture.path(f"M{start + gap},{y + 32} H{end - gap}")
    picture.text((start + end) / 2, y + 24, step.text)
    return y + 36


# --- all of them


def render() -> dict[str, str]:
    """Return the SVG of each picture by its path under the root."""
    return {
        "docs/pictures/parts.svg": parts().svg(),
        "docs/pictures/states.svg": RECORD.draw().svg(),
        "docs/pictures/plan.svg": PLAN.draw().svg(),
        "docs/pictures/isolation.svg": ISOLATION.draw().svg(),
        "docs/pictures/batch.svg": story("One micro-batch, from acquire to completion", BATCH).svg(),
        "docs/pictures/crash.svg": story("A crash in the middle of a batch, and its replay", CRASH).svg(),
    }


if __name__ == "__main__":
    sys.exit(write_or_check(render(), sys.argv[1:], "drawn"))
