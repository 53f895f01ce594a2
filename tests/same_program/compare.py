"""Runs a program on both sides. The table of all traces is the golden file, and the docs have the numbers of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from share_consumer import fetching, silent_partitions
from tests.same_program import differences, errors, logs, members, outcomes
from tests.same_program.world import NATIVE, OURS, PATIENCE_S, World
from tests.support.kafka_broker import KafkaBroker

Program = Callable[[World], None]
MODULES = (outcomes, members, logs, errors, differences)
GOLDEN = Path(__file__).with_name("traces.md")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "do" / "share-consumer.md"
BEGIN, END = "<!-- side by side: python -m tests.same_program -->", "<!-- end of side by side -->"
HEADER = (
    "`0×2` is the record at offset 0, delivered for the second time; `p0` is partition 0.\n\n"
    "| program | native | ours | |\n| --- | --- | --- | --- |\n"
)
SHOWN = 400
"""The table cuts a trace after this number of characters; the tests compare all of it."""


@dataclass(frozen=True)
class Traces:
    """The traces of a program on both sides."""

    program: Program
    native: tuple[str, ...]
    ours: tuple[str, ...]

    @property
    def are_equal(self) -> bool:
        return self.native == self.ours

    @property
    def row(self) -> str:
        """The program's row in the golden file."""
        promise = " ".join((self.program.__doc__ or "").split()).rstrip(".")
        verdict = "equal" if self.are_equal else differences.REASONS.get(self.program, "**differs**")
        ours = "the same" if self.are_equal else _shown(self.ours)
        name = self.program.__name__.replace("_", " ")
        return f"| {name}: {promise[0].lower()}{promise[1:]} | {_shown(self.native)} | {ours} | {verdict} |"


def _shown(trace: Iterable[str]) -> str:
    text = "; ".join(trace).replace("|", "\\|")
    return text if len(text) <= SHOWN else f"{text[:SHOWN].rpartition(';')[0]}; …"


def run(program: Program, broker: KafkaBroker) -> Traces:
    """The traces of one program on both sides, at the same time: most of it is waiting. On a slow machine, too, our
    polls have whole acquisitions, and no broker is given up."""

    def trace(side: str) -> tuple[str, ...]:
        with World(broker, side) as world:
            program(world)
        return tuple(world.trace)

    with (
        mock.patch.object(fetching, "PART_S", PATIENCE_S),
        mock.patch.object(silent_partitions, "PATIENCE_S", PATIENCE_S),
        ThreadPoolExecutor(2) as sides,
    ):
        native, ours = sides.map(trace, (NATIVE, OURS))
    return Traces(program, native, ours)


def check(program: Program, broker: KafkaBroker) -> None:
    """The traces are equal, or differ as they are meant to; the golden file has them."""
    traces = run(program, broker)
    if program in differences.REASONS:
        assert not traces.are_equal, f"no difference any more: {traces.ours}"
    else:
        assert traces.ours == traces.native
    assert traces.row in rows(), f"{GOLDEN.name} lacks this row (python -m tests.same_program):\n{traces.row}"


def rows() -> list[str]:
    """The rows of the golden file."""
    return GOLDEN.read_text(encoding="utf-8").splitlines()[HEADER.count("\n") :]


def golden(rows: Iterable[str]) -> str:
    """The golden file with these rows."""
    return HEADER + "".join(row + "\n" for row in rows)


def page(rows: Sequence[str]) -> str:
    """The docs' page, with the numbers of the programs that are equal and that differ."""
    equal = sum(row.endswith("| equal |") for row in rows)
    part = f"{equal} programs have equal traces, {len(rows) - equal} differ on purpose.\n"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(f"{BEGIN}\n")
    return f"{before}{BEGIN}\n{part}{END}{rest.partition(END)[2]}"
