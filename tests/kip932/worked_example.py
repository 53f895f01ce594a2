"""KIP-932, "Examples with share-group state": the example is played on the core and compared word for word.

``worked_example.txt`` has a step in each block: what is done, and, indented, what the KIP says of it and what the
core shows. ``update`` is what Kafka writes to its state topic; ``older`` what an earlier revision of the KIP
wrote to the log as a control record instead (``or``: what it might write as well). ``window`` is SPSO and SPEO
(exclusive here), ``states`` the records in it with their delivery counts, ``held`` who holds which.

``durable`` is what a share-partition leader knows after it has loaded what was written so far. It must come out alike
from the updates, from the older revision's records, and from what our core appended, taken in Kafka's terms:
without what is ACQUIRED, which only our own records say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from coordinator.core.log_records import PartitionInitialized, RunsChanged
from coordinator.core.record_codec import decode_record
from coordinator.core.record_state import RecordState
from coordinator.core.replay import replay
from coordinator.core.runs import Run
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.values import AcknowledgeType, SharePartitionKey
from tests.kip932.consumers import ShareConsumers
from tests.support.group_driver import TOPIC_ID

GOLDEN = Path(__file__).with_name("worked_example.txt").read_text("utf-8")
STEP_MS = 1_000
BATCH = re.compile(r"(\d+)(?:-(\d+))? ([A-Z]+) (\d+)")


class Written:
    """The durable state of a share partition in Kafka's terms: start offset, and by offset (state, delivery count)."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.states: dict[int, tuple[RecordState, int]] = {}

    def write(self, text: str) -> None:
        """``update`` or ``delta``: what it does not name stays; ``checkpoint``: all there is."""
        if found := re.search(r"(start|checkpoint) (\d+)", text):
            self.start_offset = int(found[2])
            self.states = {} if found[1] == "checkpoint" else self.states
        for first, last, state, count in BATCH.findall(text):
            self.put(int(first), int(last or first), RecordState[state], int(count))

    def put(self, first: int, last: int, state: RecordState, count: int) -> None:
        self.states.update(dict.fromkeys(range(first, last + 1), (state, count)))

    def loaded(self) -> str:
        """As the core loads it. A record that nothing is known of was not delivered: AVAILABLE 0."""
        group = ShareGroup("billing")
        replay(group, PartitionInitialized(topic_id=TOPIC_ID, partition=0, start_offset=self.start_offset))
        known = sorted((offset, said) for offset, said in self.states.items() if offset >= self.start_offset)
        runs = tuple((offset, offset, Run(state, count)) for offset, (state, count) in known)
        replay(group, RunsChanged(topic_id=TOPIC_ID, partition=0, runs=runs))
        partition = group.partitions[SharePartitionKey(TOPIC_ID, 0)]
        delivered = (run for run in partition.runs if run.run != Run(RecordState.AVAILABLE))
        return f"{partition.start_offset}: {_joined(delivered)}".rstrip(": ")


class Example:
    """Plays the steps, and writes the text anew as it should have been."""

    def __init__(self) -> None:
        self.group = ShareConsumers(end=1_000, partitions=0)
        self.by_column = {"update": Written(), "older": Written()}

    def play(self, text: str) -> str:
        return "\n\n".join("\n".join(self._step(block.splitlines())) for block in text.strip().split("\n\n")) + "\n"

    def _step(self, lines: list[str]) -> Iterator[str]:
        verb, *words = lines[0].split()
        yield getattr(self, f"_{verb}")(*words)
        either = ""
        for line in lines[1:]:
            column, said = line.split(maxsplit=1)
            if column in self.by_column:
                self.by_column[column].write(said)
            elif column == "or":
                other = Written()
                other.write(said)
                either = other.loaded()
            if column in ("update", "older", "or"):
                yield line
        yield from self._shown(either)

    def _shown(self, either: str) -> Iterator[str]:
        start, end = self.group.window()
        yield _line("window", f"{start} {end}")
        if states := self.group.states():
            yield _line("states", ", ".join(states))
            yield _line("held", ", ".join(self.group.held()))
        ours = self._appended().loaded()
        yield _line("durable", ours)
        for name, theirs in [(name, written.loaded()) for name, written in self.by_column.items()] + [("or", either)]:
            if theirs not in ("", ours):
                yield _line(f"by {name}", theirs)

    def _appended(self) -> Written:
        written = Written()
        for record in map(decode_record, self.group.log):
            if isinstance(record, PartitionInitialized):
                written.start_offset = record.start_offset
            elif isinstance(record, RunsChanged):
                for first, last, run in record.runs:
                    if run.state != RecordState.ACQUIRED:
                        written.put(first, last, run.state, run.delivery_count)
        return written

    # --- the verbs

    def _start(self, latest: str) -> str:
        self.group.ends, self.group.log_starts = {0: 1_000}, {0: 0}
        self.group.initialize(int(latest))
        return f"start {latest}"

    def _acquire(self, member: str, *offsets: str) -> str:
        """The core chooses which; it is told only how many. Locks are a second apart, so that they end one by
        one."""
        self.group.pass_time(STEP_MS)
        got = self.group.fetch(member, sum(last - first + 1 for first, last in map(_range, offsets)))
        return f"acquire {member} " + " ".join(f"{f}-{e}" if f < e else f"{f}" for f, e, _ in got)

    def _acknowledge(self, member: str, kind: str, offsets: str) -> str:
        first, last = _range(offsets)
        count = next(run.delivery_count for _, _, run in self.group.partition().runs.between(first, last))
        error = self.group.acknowledge(AcknowledgeType[kind], first, last, count=count, member=member)
        return f"acknowledge {member} {kind} {offsets}" + (f" {error}" if error != "NONE" else "")

    def _lock(self, *words: str) -> str:
        """Until the lock that was taken first is over."""
        due_ms = min(run.deadline_ms for _, _, run in self.group.partition().runs if run.deadline_ms is not None)
        self.group.pass_time(due_ms + 1 - self.group.now_ms)
        return " ".join(("lock", *words))


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _line(name: str, text: str) -> str:
    return f"  {name:<10}{text}"


def _joined(segments: Iterable[tuple[int, int, Run]]) -> str:
    ranges = ((f"{first}-{last}" if first < last else f"{first}", run) for first, last, run in segments)
    return ", ".join(f"{offsets} {run.state.name} {run.delivery_count}" for offsets, run in ranges)
