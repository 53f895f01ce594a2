"""An administrator is told the effects of an action, or why it is refused; a query is told who altered its offsets."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.core.commands import administer
from coordinator.core.commands.administer import AlterStartOffsets
from coordinator.core.log_records import RunsChanged
from coordinator.core.looks.view import altered_since
from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from coordinator.protocol.admin_messages import Altered, DecideRecords, DeleteGroup, Effect
from coordinator.protocol.errors import (
    GroupNotEmpty,
    InvalidRequest,
    MembersNotKnown,
    NotInFlight,
    RecordsHeld,
    ShareGroupError,
    UnknownSharePartition,
)
from coordinator.protocol.values import Disposition
from tests.support.group_driver import TOPIC_ID, GroupDriver, durable_state, fetched, started_plan
from tests.support.quarantine import quarantined_record


def by_hand(group: GroupDriver, decision: str, first: int, last: int, **fields: Any) -> Altered:
    asked = {"topic": "orders", "partition": 0, "reason": "a broken record", "execute": False, **fields}
    return group.run(DecideRecords(group_id="billing", decision=decision, first=first, last=last, **asked))


@pytest.mark.parametrize(
    ("decision", "offset", "fields", "error", "text"),
    [
        ("archive", 7, {}, RecordsHeld, r"held by member m1 \(not known\) of share group"),
        ("archive", 7, {"reason": " "}, InvalidRequest, "^A record is archived by .* stands in its dead letter.$"),
        ("archive", 500, {}, NotInFlight, "billing"),
        ("retry", 7, {}, InvalidRequest, "^'retry' is no decision: it is archive or release.$"),
        ("release", 7, {"topic": "payments"}, UnknownSharePartition, "billing .* payments-0"),
    ],
)
def test_an_action_by_hand_that_cannot_be_done_is_refused(
    decision: str, offset: int, fields: dict[str, str], error: type[ShareGroupError], text: str
) -> None:
    group, _ = started_plan()
    with pytest.raises(error, match=text):
        by_hand(group, decision, offset, offset, **fields)


@pytest.mark.parametrize("decision", ["archive", "release"])
def test_a_reversed_range_is_refused_and_changes_nothing(decision: str) -> None:
    group, _ = started_plan()
    before = durable_state(group.group)
    with pytest.raises(InvalidRequest, match=r"^7-3 is no range of offsets.$"):
        by_hand(group, decision, 7, 3, execute=True)
    assert durable_state(group.group) == before


@pytest.mark.parametrize("most", [2, 3])
def test_the_effects_of_an_action_by_hand_name_the_first_runs(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(administer, "MOST_EFFECTS", most)
    group, plan = quarantined_record(records=10)
    group.next(plan)
    group.ends[0] = 15
    group.join("c1", query=False)
    assert fetched(group, 5) == [(10, 14, 1)]
    assert by_hand(group, "release", 0, 14) == Altered(
        executed=False,
        effects=(
            Effect(what="orders-0 offsets 0 to 0", before="AVAILABLE in quarantine, 5 tries", after="AVAILABLE"),
            Effect(what="orders-0 offsets 1 to 9", before="ACQUIRED", after="AVAILABLE"),
            Effect(what="orders-0 offsets 10 to 14", before="ACQUIRED", after="AVAILABLE"),
        )[:most],
        notes=(
            "15 of 15 record(s) become available now, out of quarantine, with 0 tries.",
            administer.HELD_UNTIL.format(count=14),
            *(["1 more runs are changed alike."] if most == 2 else []),
        ),
    )


def test_a_refused_reset_says_what_forcing_it_does() -> None:
    group, plan = started_plan()
    group.complete(plan)
    reset = AlterStartOffsets(starts=((TOPIC_ID, 0, 0),), execute=True)
    with pytest.raises(GroupNotEmpty, match=f"^Share group billing has 1 member.*: {administer.DELIVERED_AGAIN}$"):
        group.run(reset)
    group.crash()
    with pytest.raises(MembersNotKnown, match=f"group billing, .* Or force the action: {administer.GOES_ON}$"):
        group.run(reset)
    with pytest.raises(MembersNotKnown, match=r"ask again after that\.$"):
        group.run(DeleteGroup(group_id="billing", execute=True))
    unknown = r"^Share group billing has no state of T9-0\. sharegroup groups --describe lists its share partitions\.$"
    with pytest.raises(UnknownSharePartition, match=unknown):
        group.run(AlterStartOffsets(starts=(("T9", 0, 0),), execute=True, force=True))


def test_a_deletion_of_offsets_counts_the_dead_letters_that_it_drops() -> None:
    """Those of a partition that only gets a new start offset are delivered again."""
    group = GroupDriver(records=10, partitions=3)
    for partition in range(3):
        waits = (0, 1 + partition, Run(RecordState.ARCHIVING, 1, disposition=Disposition.REJECTED))
        group.append([RunsChanged(topic_id=TOPIC_ID, partition=partition, runs=(waits,))])
    starts = ((TOPIC_ID, 0, None), (TOPIC_ID, 1, None), (TOPIC_ID, 2, 0))
    told = group.run(AlterStartOffsets(starts=starts, execute=False, drop_dead_letters=True)).notes
    again = administer.WAITING_AGAIN.format(count=4)
    assert told == (administer.AGAIN, again, administer.NO_DEAD_LETTER.format(count=2 + 3))


def test_a_query_learns_of_no_start_offset_altered_before_its_plan() -> None:
    group = GroupDriver(records=10, partitions=2)
    group.run(AlterStartOffsets(starts=((TOPIC_ID, 0, 0),), execute=True, by="alice"))
    group.join()
    group.acquire()
    group.run(AlterStartOffsets(starts=((TOPIC_ID, 1, 0),), execute=True, force=True, by="bob"))
    total, altered = altered_since(group.group, 1)
    assert (total, [(each.partition, each.by) for each in altered]) == (1, [(1, "bob")])
