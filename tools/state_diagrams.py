"""State diagrams, drawn from the transition tables of the core.

A move between two states that had none before fails here until the diagram's ``edges`` has a place for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from coordinator.core import isolation, plan_state, record_state
from coordinator.core.isolation import Stage
from coordinator.core.plan_state import PlanState
from coordinator.core.record_state import RecordState
from tools.picture import BLUE, GREEN, RED, YELLOW, Picture

BOX_WIDTH, BOX_HEIGHT = 156, 52


@dataclass(frozen=True)
class Edge:
    """Where a move from one state to another is drawn, and where the first line of its events stands. An edge that
    ends in the line of another one has neither an arrow head nor a label."""

    path: str
    x: int
    y: int
    anchor: str = "middle"
    in_one_line: bool = False
    arrow: bool = True
    labelled: bool = True


def joins(path: str) -> Edge:
    """An edge that ends in the line of another one with the same events."""
    return Edge(path, 0, 0, arrow=False, labelled=False)


@dataclass(frozen=True)
class Box:
    """Where a state is drawn, its colour, and the small line under its name."""

    x: int
    y: int
    fill: str
    note: str = ""


@dataclass(frozen=True)
class Diagram:
    """A transition table as a picture: a box for each state, an arrow for each pair of states with a move."""

    title: str
    width: int
    height: int
    transitions: Mapping[tuple[Any, Any], Any]
    boxes: Mapping[Any, Box]
    edges: Mapping[tuple[Any, Any], Edge]

    def draw(self) -> Picture:
        """Return the picture of the states, drawn from the transitions.

        Raises:
            KeyError: a move of the table has no edge, or one of its states no box.
        """
        picture = Picture(self.width, self.height, self.title)
        events: dict[tuple[Enum, Enum], list[str]] = {}
        for (before, event), after in self.transitions.items():
            events.setdefault((before, after), []).append(event.value)
        reached = {state for move in events for state in move}
        for state in sorted(reached, key=list(self.boxes).index):
            box = self.boxes[state]
            picture.box(box.x - BOX_WIDTH / 2, box.y - BOX_HEIGHT / 2, BOX_WIDTH, BOX_HEIGHT, box.fill)
            picture.text(box.x, box.y - 3 if box.note else box.y + 5, state.name, style="head")
            if box.note:
                picture.text(box.x, box.y + 16, box.note, style="faint")
        for move, names in events.items():
            edge = self.edges[move]
            picture.path(edge.path, arrow=edge.arrow)
            if not edge.labelled:
                continue
            picture.lines(edge.x, edge.y, [", ".join(names)] if edge.in_one_line else names, edge.anchor)
        return picture


S = RecordState

RECORD = Diagram(
    "The states of a record and what moves it from one to another",
    1080,
    660,
    record_state.TRANSITIONS,
    {
        S.AVAILABLE: Box(210, 235, YELLOW, "0"),
        S.ACQUIRED: Box(500, 235, BLUE, "1"),
        S.IN_PROGRESS: Box(500, 420, BLUE, "5"),
        S.ACKNOWLEDGED: Box(880, 85, GREEN, "2, terminal"),
        S.ARCHIVING: Box(880, 275, RED, "3"),
        S.ARCHIVED: Box(880, 600, RED, "4, terminal"),
    },
    {
        (S.AVAILABLE, S.ACQUIRED): Edge("M288,224 H420", 355, 214, in_one_line=True),
        (S.ACQUIRED, S.AVAILABLE): Edge("M422,246 H290", 355, 266),
        (S.ACQUIRED, S.ACKNOWLEDGED): Edge("M578,222 L802,98", 664, 140, "end"),
        (S.ACQUIRED, S.ARCHIVING): Edge("M578,240 L800,272", 690, 202, "start"),
        (S.ACQUIRED, S.ARCHIVED): Edge("M560,261 L812,572", 768, 550, "end"),
        (S.ACQUIRED, S.ACQUIRED): Edge("M480,209 C470,150 530,150 520,207", 500, 152, in_one_line=True),
        (S.ACQUIRED, S.IN_PROGRESS): Edge("M500,261 V392", 508, 335, "start"),
        (S.IN_PROGRESS, S.IN_PROGRESS): Edge("M480,446 C470,505 530,505 520,448", 500, 507),
        (S.IN_PROGRESS, S.AVAILABLE): Edge("M422,412 L246,263", 312, 348, "end"),
        (S.IN_PROGRESS, S.ACKNOWLEDGED): Edge("M578,440 H1010 V85 H960", 1000, 200, "end"),
        (S.IN_PROGRESS, S.ARCHIVING): Edge("M578,410 L806,303", 742, 368, "start"),
        (S.IN_PROGRESS, S.ARCHIVED): joins("M578,425 H693"),
        (S.AVAILABLE, S.AVAILABLE): Edge("M132,224 C80,215 80,255 130,246", 82, 231, "end"),
        (S.AVAILABLE, S.ACKNOWLEDGED): Edge("M210,209 V75 H800", 480, 65, in_one_line=True),
        (S.AVAILABLE, S.ARCHIVING): Edge("M235,261 V525 H850 V303", 340, 517, in_one_line=True),
        (S.AVAILABLE, S.ARCHIVED): Edge("M210,261 V610 H800", 480, 630, in_one_line=True),
        (S.ARCHIVING, S.ARCHIVED): Edge("M900,301 V572", 910, 500, "start"),
    },
)


P = PlanState

PLAN = Diagram(
    "The states of a query's plan and what moves it from one to another",
    1080,
    540,
    plan_state.TRANSITIONS,
    {
        P.ACQUIRED: Box(260, 190, YELLOW, "not read yet"),
        P.STARTED: Box(570, 190, BLUE, "delivery has begun"),
        P.COMPLETED: Box(880, 190, GREEN, "batch committed"),
        P.SUPERSEDED: Box(470, 380, RED, "nothing of it is left"),
        P.REPLACED: Box(880, 450, RED, "always refused"),
    },
    {
        (P.ACQUIRED, P.ACQUIRED): Edge("M182,180 C130,165 130,215 180,202", 134, 172, "end"),
        (P.ACQUIRED, P.STARTED): Edge("M338,180 H490", 414, 170),
        (P.STARTED, P.ACQUIRED): Edge("M492,202 H340", 416, 222),
        (P.STARTED, P.STARTED): Edge("M550,164 C540,105 600,105 590,162", 610, 100, "start"),
        (P.ACQUIRED, P.COMPLETED): Edge("M260,164 V50 H880 V162", 570, 40),
        (P.STARTED, P.COMPLETED): Edge("M648,190 H800", 726, 180),
        (P.COMPLETED, P.COMPLETED): Edge("M910,164 C900,105 960,105 940,162", 962, 110, "start"),
        (P.COMPLETED, P.REPLACED): Edge("M880,216 V422", 870, 330, "end"),
        (P.ACQUIRED, P.SUPERSEDED): Edge("M272,216 V380 H390", 280, 345, "start"),
        (P.SUPERSEDED, P.SUPERSEDED): Edge("M450,406 C440,465 500,465 490,408", 470, 470),
        (P.SUPERSEDED, P.STARTED): Edge("M500,354 L556,218", 542, 290, "start"),
        (P.SUPERSEDED, P.ACQUIRED): Edge("M440,354 L320,218", 376, 264, "start"),
        (P.SUPERSEDED, P.REPLACED): Edge("M548,390 L800,440", 690, 386),
        (P.ACQUIRED, P.REPLACED): Edge("M236,216 V505 H860 L872,478", 540, 525),
    },
)


I = Stage  # noqa: E741

ISOLATION = Diagram(
    "The stages of isolation and what moves a record from one to another",
    1080,
    500,
    isolation.TRANSITIONS,
    {
        I.NORMAL: Box(200, 130, GREEN, "in any batch"),
        I.SLICED: Box(560, 130, YELLOW, "in smaller batches"),
        I.QUARANTINED: Box(200, 330, YELLOW, "alone, not failed yet"),
        I.FAILED_ALONE: Box(560, 330, YELLOW, "waits for evidence"),
        I.TRIAL: Box(920, 330, BLUE, "alone, with evidence"),
        I.GIVEN_UP: Box(920, 130, RED, "to the dead letters"),
    },
    {
        (I.NORMAL, I.NORMAL): Edge("M180,104 C170,45 230,45 220,102", 240, 70, "start"),
        (I.NORMAL, I.SLICED): Edge("M278,130 H480", 380, 120),
        (I.SLICED, I.SLICED): Edge("M540,104 C530,45 590,45 580,102", 600, 70, "start"),
        (I.NORMAL, I.QUARANTINED): Edge("M180,156 V302", 190, 200, "start"),
        (I.SLICED, I.QUARANTINED): Edge("M500,156 L270,302", 318, 292, "start"),
        (I.NORMAL, I.FAILED_ALONE): Edge("M270,156 L500,302", 0, 0, labelled=False),
        (I.SLICED, I.FAILED_ALONE): Edge("M575,156 V302", 585, 235, "start"),
        (I.QUARANTINED, I.FAILED_ALONE): Edge("M278,335 H480", 380, 355),
        (I.FAILED_ALONE, I.FAILED_ALONE): Edge("M600,304 C600,265 665,280 640,310", 660, 285, "start"),
        (I.FAILED_ALONE, I.TRIAL): Edge("M638,320 H840", 740, 310),
        (I.TRIAL, I.FAILED_ALONE): Edge("M842,340 H640", 740, 362),
        (I.TRIAL, I.GIVEN_UP): Edge("M920,304 V158", 930, 225, "start"),
        (I.QUARANTINED, I.SLICED): joins("M240,356 V420"),
        (I.FAILED_ALONE, I.SLICED): joins("M580,356 V420"),
        (I.TRIAL, I.SLICED): Edge("M940,356 V420 H30 V25 H515 V102", 420, 412),
        (I.QUARANTINED, I.NORMAL): joins("M200,356 V455"),
        (I.FAILED_ALONE, I.NORMAL): joins("M540,356 V455"),
        (I.TRIAL, I.NORMAL): Edge("M900,356 V455 H60 V130 H120", 420, 475),
    },
)
