"""Checks the result of a run of tests.support.sink_chaos: every record is accepted or dead-lettered, and none both.

Rule: it reads topics and files alone, as an outsider does: the source topic, the dead letters, the output that
replaces, the archive, and the deliveries that the work wrote down.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from share_sink.archive.batches import archive_dataset
from tests.support.dead_letters import DeadLetter, read_dead_letters, timestamps
from tests.support.share_job import Output
from tests.support.sink_chaos import DLQ_PARTITIONS, SinkChaos, delay_ms, state_of

Place = tuple[int, int]
CLOCKS_MS = 5
LIMIT_MESSAGE = "Offset delivery count exceeded the threshold."
NEVER = ("StalePlan", "ForeignPlan", "FencedMemberEpoch", "SinkOutdated", "NoPlanToDecide", "NothingDecided")
NEVER_EITHER = ("InternalError", "DataLoss", "StaleReceipts", "ArchiveRowsMissing", "Offsets committed out of order")
"""Errors with which a query that is killed and started again never ends."""


@dataclass
class Reckoning:
    """``problems`` is empty if the promise was kept."""

    seed: int
    numbers: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.numbers}; problems: {self.problems or 'none'}"

    def expect(self, wrong: Any, what: str) -> None:
        """A problem, if there is anything wrong."""
        if len(wrong):
            self.problems.append(f"{len(wrong)} {what}: {sorted(wrong)[:5]}")


class _Found:
    """The topics' and files' contents, by the place of the record."""

    def __init__(self, chaos: SinkChaos) -> None:
        self.values = {place: (value or b"").decode() for place, (_, value, _) in chaos.produced.items()}
        output = chaos.job.output()
        rows = output.rows
        self.committed = Output(rows.sort_values("deliveryCount"))
        shown = (output.last_deliveries() if chaos.loses_locks else output).by_work().rows
        self.accepted = shown[shown["acknowledgement"] == "accept"]
        self.seen = chaos.job.seen()
        self.letters: dict[Place, list[DeadLetter]] = defaultdict(list)
        for letter in read_dead_letters(chaos.broker.bootstrap, chaos.dlq):
            self.letters[letter.origin[1:]].append(letter)


def reckon(chaos: SinkChaos) -> Reckoning:
    """The reckoning of a run."""
    result, found = Reckoning(chaos.seed), _Found(chaos)
    _whole(result, chaos, found)
    _dead_letters(result, chaos, found)
    _releases(result, chaos, found)
    _archive(result, chaos, found)
    ends = chaos.happened.errors
    result.expect([e[:300] for e in ends if any(name in e for name in (*NEVER, *NEVER_EITHER))], "ends by name")
    result.numbers |= {
        "seconds": round(chaos.happened.seconds),
        "kills": [victim for _, victim in chaos.happened.kills],
        "ends": len(ends),
        "batches": len(found.committed.rows.drop_duplicates(["query", "batch"])),
        "accepted by": Output(found.accepted).by_query(),
        "sights": len(found.seen),
    }
    return result


def reckon_by_count(chaos: SinkChaos) -> Reckoning:
    """For sinks that decide by deliveryCount: each record is accepted once or dead, as its last count requires."""
    result, found = Reckoning(chaos.seed), _Found(chaos)
    _whole(result, chaos, found)
    dead = {place for place, value in found.values.items() if _dies(value)}
    result.expect(dead ^ set(found.letters), "records that should be dead letters, or should not")
    ends = chaos.happened.errors
    result.expect([e[:300] for e in ends if any(name in e for name in (*NEVER, *NEVER_EITHER))], "ends by name")
    transient = found.seen[found.seen["text"].str.startswith("t")]
    attempts = transient.groupby(["query", "batch", "partition", "offset"])["deliveryCount"].nunique()
    result.numbers |= {
        "seconds": round(chaos.happened.seconds),
        "kills": [victim for _, victim in chaos.happened.kills],
        "replayed, and decided by the count": int((attempts > 1).sum()),
    }
    return result


def reckon_in_order(chaos: SinkChaos) -> Reckoning:
    """As :func:`reckon_by_count`; and each partition's accepted records, so each key's, are in the order of the log. If
    locks were lost, the output is judged as a target that is keyed by record shows it."""
    result, found = reckon_by_count(chaos), _Found(chaos)
    accepted = _places(found.accepted)
    keys = {place: key for place, (key, _, _) in chaos.produced.items()}
    for kind, name_of in (("partitions", lambda place: place[0]), ("keys", keys.get)):
        by_name: dict[Any, list[Place]] = defaultdict(list)
        for place in accepted:
            by_name[name_of(place)].append(place)
        result.expect([n for n, places in by_name.items() if places != sorted(places)], f"{kind} are out of order")
        result.numbers[kind] = len(by_name)
    holders = found.seen.groupby(["partition", "offset"])["query"].nunique()
    result.numbers["seen by both queries"] = int((holders > 1).sum())
    unaccounted = state_of(chaos).description.records.unaccounted
    result.expect([unaccounted] if unaccounted else (), "unaccounted")
    return result


def _dies(value: str) -> bool:
    """Whether a record is given up, by its kind and number."""
    return value[0] in "rp" or (value[0] == "t" and int(value[1:]) % 4 >= 2)


def _places(rows: pd.DataFrame) -> list[Place]:
    return [(int(p), int(o)) for p, o in zip(rows["partition"], rows["offset"], strict=True)]


def _whole(result: Reckoning, chaos: SinkChaos, found: _Found) -> None:
    """accepted and dead-lettered together are what was produced, and nothing is both, or accepted twice."""
    accepted = _places(found.accepted)
    dead = set(found.letters)
    result.expect(set(found.values) - set(accepted) - dead, "records are lost")
    result.expect(set(accepted) & dead, "records are accepted and dead-lettered")
    result.expect({place for place, times in Counter(accepted).items() if times > 1}, "records accepted twice")
    result.expect((set(accepted) | dead) - set(found.values), "records that nobody produced")
    archived = state_of(chaos).archived()
    result.expect([] if archived == len(dead) else [archived], f"archived, and {len(dead)} dead-lettered")
    result.numbers |= {"produced": len(found.values), "accepted": len(set(accepted)), "dead": len(dead)}


def _twice(places: list[Place]) -> bool:
    return len(set(places)) < len(places)


def _dead_letters(result: Reckoning, chaos: SinkChaos, found: _Found) -> None:
    """Each dead letter equals its original and has the right headers; which records have one depends on their kind."""
    counts = found.seen.groupby(["partition", "offset"])["deliveryCount"].agg(set).to_dict()
    sent = timestamps(chaos.broker.bootstrap, chaos.job.topics[0])
    for place, letters in found.letters.items():
        for letter in letters:
            if wrong := list(_wrong(chaos, place, letter, counts.get(place, set()), sent.get(place))):
                result.problems.append(f"dead letter of {place} ({found.values.get(place)}): {wrong}, {letter}")
    kinds = {place: found.values[place][0] for place in found.letters if place in found.values}
    rejected = {place for place, value in found.values.items() if value[0] == "r"}
    limited = {place for place, kind in kinds.items() if kind != "r"}
    result.expect({place for place in rejected if place not in kinds}, "rejected records without a dead letter")
    result.expect({place for place in limited if kinds[place] not in "tp"}, "accepted kinds with a dead letter")
    poison = {place for place, value in found.values.items() if value[0] == "p"}
    result.expect(poison - limited, "poison without a dead letter")
    result.numbers |= {
        "rejected": len(rejected),
        "at the limit": len(limited),
        "dead letters twice": sum(len(letters) - 1 for letters in found.letters.values()),
    }
    del result.problems[20:]


def _wrong(chaos: SinkChaos, place: Place, letter: DeadLetter, counts: set[int], sent: str | None) -> Iterator[str]:
    original = chaos.produced.get(place)
    if original != (letter.key, letter.value, letter.own_headers):
        yield f"not the original {original}"
    kind, number = (letter.value or b"?").decode()[0], (letter.value or b"??").decode()[1:]
    said = dict(letter.said)
    count = int(said.pop("delivery.count"))
    reason = f"record {number}"  # a release has it only if the row of the last attempt released, and no attempt vetoed
    allowed = {"r": (reason,), "t": (reason, LIMIT_MESSAGE)}.get(kind, (LIMIT_MESSAGE,))
    expected = {
        "topic": chaos.job.topics[0],
        "partition": str(place[0]),
        "offset": str(place[1]),
        "group": chaos.job.group,
        "message": said["message"] if said["message"] in allowed else allowed[0],
        "disposition": "rejected" if kind == "r" else "delivery_limit",
        "timestamp": sent,
    }
    if said != expected:
        yield f"not {expected}"
    if kind != "p" and count not in counts:  # the work never got to writing the poison's sights down
        yield f"count not among {counts}"
    if letter.partition != place[0] % DLQ_PARTITIONS:
        yield "in another partition"


def _releases(result: Reckoning, chaos: SinkChaos, found: _Found) -> None:
    """Each release that was committed was followed by a delivery with the next count, after its delay; a count was
    handed out once. A process that died with a plan which it never used has burnt a count."""
    of_a_query = found.seen["query"] + found.seen["batch"].astype(str)
    batches = of_a_query.groupby([found.seen[name] for name in ("partition", "offset", "deliveryCount")]).nunique()
    result.expect(list(batches[batches > 1].index), "deliveries of one count in two batches")
    first_sight = found.seen.groupby(["partition", "offset", "deliveryCount"])["at"].min()
    sights: dict[Place, dict[int, float]] = defaultdict(dict)
    for (partition, offset, count), at in first_sight.items():
        sights[partition, offset][count] = at
    rows = found.committed.rows
    early, skipped, gone, releases, burnt = [], [], [], 0, 0
    for (partition, offset), of_record in rows[rows["acknowledgement"] == "release"].groupby(["partition", "offset"]):
        place = int(partition), int(offset)
        releases += len(of_record)
        for count, at in zip(of_record["deliveryCount"], of_record["at"], strict=True):
            later = [each for each in sights[place] if each > count]
            if not later:
                if [int(letter.said["delivery.count"]) for letter in found.letters.get(place, ())] != [count]:
                    gone.append((place, count))
                continue
            back = min(later)
            if sights[place][back] - at < delay_ms(found.values[place]) - CLOCKS_MS:
                early.append((place, count, sights[place][back] - at))
            if back != count + 1:
                burnt += 1
                if not any(at <= end <= sights[place][back] for end in chaos.happened.ends):
                    skipped.append((place, count, back))
    result.expect(early, "came back before their delay")
    result.expect(skipped, "came back with a count beyond the next one, though nobody had died")
    result.expect(gone, "were released and neither came back nor are at the limit")
    result.numbers |= {"releases": releases, "counts burnt": burnt}


def _archive(result: Reckoning, chaos: SinkChaos, found: _Found) -> None:
    """All together hold each rejected record once, as it was."""
    rows = [row for path in chaos.archives.values() for row in archive_dataset(path).to_table().to_pylist()]
    places = [(row["partition"], row["offset"]) for row in rows]
    rejected = {place for place, value in found.values.items() if value[0] == "r"}
    result.expect(rejected ^ set(places), "rejected or archived, and not both")
    result.expect([1] if _twice(places) else (), "archive has rows twice")
    changed = [
        place
        for place, row in zip(places, rows, strict=True)
        if (row["key"], row["value"]) != chaos.produced.get(place, (None,))[:2]
    ]
    result.expect(changed, "archived rows that are not their originals")
