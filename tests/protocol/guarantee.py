"""The guarantee of docs/trust/guarantees.md, held against a world.

At least once, always. Exactly once with a sink that replaces its output of a (query, batch id), as long as no lock of
the batch was lost. A sink that skips a batch id it knows may also repeat records when isolation cut that batch.

Both are said of the end: from any world on, nothing more goes wrong, the queries are started again, except for one
that never comes back, and run until there is nothing left to do. That they come to such an end is a part of it: no
query is refused for ever, no record is left. Exceptions are taken record by record, which is more than the words ask
for: the records of a batch that nobody took are held to it as well.

Where a sink says different things of a record in different attempts, it may be in an output and given up, or in several
outputs, but never in none. Where it always says the same, that is what becomes of it.
"""

from __future__ import annotations

from tests.protocol.explored_world import Label, Steps, World
from tests.protocol.members import Consumer
from tests.protocol.requests import TOPIC_IDS, number_of_log
from tests.protocol.setting import Setting

LONGEST_END = 300
MOST_FAILURES = 6
LONGEST_STORY = 16


class Guarantee:
    """Finds what breaks the guarantee from a world on."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self._verdicts: dict[World, str] = {}

    def __repr__(self) -> str:
        return f"<Guarantee verdicts={len(self._verdicts)}>"

    def broken(self, world: World) -> str:
        """Empty if it holds."""
        if world.complaint:
            return world.complaint
        at = left_alone(self.steps.for_one_owner(world))
        path: list[World] = []
        while (verdict := self._verdicts.get(at)) is None:
            path.append(at)
            if at.complaint:
                verdict = at.complaint
            elif len(path) > LONGEST_END:
                verdict = "the queries come to no end"
            elif (failing := next((q for q in at.queries if q.failures > MOST_FAILURES), None)) is not None:
                verdict = f"query {failing.name} fails at every start"
            elif (following := self.next(at)) is None:
                verdict = at_the_end(at, self.steps)
            else:
                _, at = following
                continue
            break
        self._verdicts.update(dict.fromkeys(path, verdict))
        return verdict

    def story(self, world: World) -> list[str]:
        """The fair way from this world on, its first lines."""
        lines: list[str] = []
        at = left_alone(self.steps.for_one_owner(world))
        while not at.complaint and len(lines) < LONGEST_STORY and (following := self.next(at)) is not None:
            label, at = following
            lines.append(str(label))
        return lines

    def next(self, world: World) -> tuple[Label, World] | None:
        """One fair step: topics are resumed; the coordinator finds out what became of the topic; then the first query
        that has something to do does it; when none has, time passes."""
        if (found := self.steps.resumed(world) or self.steps.notices(world)) is not None:
            return found
        there = [(index, query) for index, query in enumerate(world.queries) if not query.departed]
        for index, query in there:
            if not query.up:
                return f"{query.name} is started", world.with_query(index, query.started())
            if query.wants(world.log_start, world.topic, world.partitions) is None:
                return f"{query.name} does: {query.phase}", self.steps.goes_on(world, index)
            label, after = self.steps.call(world, index)
            if after != world:
                return label, after
        silent = set(self.steps.coordinators.sessions(world.live)) - {query.member for _, query in there}
        after = self.steps.time_passes(world, frozenset(silent) or frozenset({"nobody"}))
        return None if after == world else ("a session timeout passes", after)


def left_alone(world: World) -> World:
    """The world in which no message under way arrives: the old coordinator, the ShareConsumer and stopped drivers are
    gone; a process whose entry of Spark's log somebody else has written is started again."""
    gone = Consumer(0, up=False, processed=world.consumer.processed)
    queries = tuple(
        (query.died() if query.up and query.at < len(query.offsets) else query)._replace(stopped=("", "", 0))
        for query in world.queries
    )
    return world._replace(queries=queries, flight=(), old=0, consumer=gone)


def at_the_end(world: World, steps: Steps) -> str:
    """The fault in the outputs when nothing is left to do; empty if there is none."""
    partitions = steps.coordinators.partitions(world.live)
    topic_id = TOPIC_IDS[world.topic]
    for index in range(world.partitions):
        if number_of_log(topic_id, index) not in partitions:
            return f"partition {index} of topic {topic_id} is not read"
    for partition in partitions.values():
        if partition.start_offset < steps.setting.records:
            return f"records are left: {partition!r}"
    return outputs(world, steps.setting)


def outputs(world: World, setting: Setting) -> str:
    """Of each record, in how many outputs it is."""
    processed = world.consumer.processed
    kept = _kept(world, setting)
    rolls = len(setting.sink) > 1 and not setting.replaces
    for offset in kept:
        if not setting.may_accept(offset % setting.records):
            written = [batch for query in world.queries for batch in (*query.replaced, *query.skipped)]
            if not (world.archived | world.counted) >> offset & 1:
                return f"record {offset}, which no sink ever accepts, was accepted"
            if any(batch >> offset & 1 for batch in written):
                return f"record {offset}, which no sink ever accepts, is in an output"
    if setting.replaces and (both := _given_up_and_written(world, setting)):
        return both
    for offset in (o for o in kept if not (world.archived | world.counted) >> o & 1):
        others = processed >> offset & 1
        replaced = sum(batch >> offset & 1 for query in world.queries for batch in query.replaced)
        skipped = sum(batch >> offset & 1 for query in world.queries for batch in query.skipped)
        if not replaced + others or not skipped + others:
            return f"record {offset} is in no output"
        lost = world.lost >> offset & 1 or rolls
        if replaced > 1 and not lost:
            return f"record {offset} is in {replaced} outputs of sinks that replace, and no lock was lost"
        if skipped > 1 and not lost and not world.cut >> offset & 1:
            return f"record {offset} is in {skipped} outputs of sinks that skip; no lock was lost, no batch was cut"
        if others and replaced and not (lost or world.lapsed >> offset & 1):
            return f"record {offset} is in a query's output and was accepted by a ShareConsumer that lost no lock"
    return ""


def _kept(world: World, setting: Setting) -> list[int]:
    """The records that the log had to the end, or to the end of their topic, and that tasks found in it."""
    first = world.topic * setting.records
    unread = world.before
    for query in world.queries:
        unread |= query.unread
    records = [*range(first), *range(first + world.log_start, first + setting.records)]
    for index in range(1, world.partitions):
        added = number_of_log(TOPIC_IDS[world.topic], index) * setting.records
        records += range(added, added + setting.records)
    return [record for record in records if not unread >> record & 1]


def _given_up_and_written(world: World, setting: Setting) -> str:
    """Where no attempt but the last leaves anything, a record is in an output or a dead letter."""
    for offset in _kept(world, setting):
        written = any(batch >> offset & 1 for query in world.queries for batch in query.replaced)
        if written and world.archived >> offset & 1 and not world.lost >> offset & 1:
            return f"record {offset} is in an output, and was given up"
    return ""
