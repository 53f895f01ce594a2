"""What the core refuses by name, what it passes over, and what crosses to the other side of the seam."""

from __future__ import annotations

import pickle
from typing import get_args

import msgspec
import pytest

from coordinator.core.commands import AlterConfigs, CreateGroup, InitializePartitions, PartitionStart, TopicPartitions
from coordinator.core.describe import describe_group
from coordinator.core.record_state import TRANSITIONS, Event, RecordState, move
from coordinator.core.records import PlanCompleted, Record, RunsChanged, UnreadableRecord, decode_record, encode_record
from coordinator.core.runs import Run
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.errors import (
    ConfigOutOfBounds,
    FencedMemberEpoch,
    ForeignPlan,
    InvalidRecordState,
    InvalidRequest,
    RemoteError,
    ShareGroupError,
    StalePlan,
    UnknownMemberId,
    error_from_wire,
)
from coordinator.protocol.messages import (
    AckBatch,
    Acknowledge,
    Done,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    PartitionAcks,
)
from coordinator.protocol.values import SharePartitionKey
from coordinator.protocol.wire import (
    Endpoint,
    Health,
    LaunchSettings,
    decode_answer,
    decode_request,
    encode,
    encode_error,
)
from tests.support.group_driver import SESSION_MS, TOPIC_ID, GroupDriver, fetched, started_plan

ACCEPT, RENEW = 1, 4
MOVES = [(state, event) for state in RecordState for event in Event]


@pytest.mark.parametrize(("state", "event"), MOVES, ids=lambda value: value.name.lower())
def test_a_move_is_in_the_table_or_refused(state: RecordState, event: Event) -> None:
    if (state, event) in TRANSITIONS:
        assert move(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(InvalidRecordState, match=f"{state.name} can't {event.value}"):
            move(state, event)


def test_the_states_have_the_bytes_that_the_kips_give_them() -> None:
    assert [int(state) for state in RecordState] == [0, 1, 2, 3, 4, 5]


def acknowledged(group: GroupDriver, *batches: AckBatch, member: str = "c1", partition: int = 0) -> dict[str, str]:
    acks = (PartitionAcks(topic_id=TOPIC_ID, partition=partition, batches=batches),)
    epoch = group.epochs[member]
    command = Acknowledge(group_id="billing", member_id=member, member_epoch=epoch, partitions=acks)
    return dict(group.run(command).errors)


def batch(first: int, last: int, *types: int, count: int = 1) -> AckBatch:
    return AckBatch(first=first, last=last, delivery_count=count, types=types)


def held() -> GroupDriver:
    """c1 holds 0 to 9."""
    group = GroupDriver(records=10)
    group.join("c1", query=False)
    fetched(group, 10)
    return group


@pytest.mark.parametrize(
    "nonsense", [batch(5, 4, ACCEPT), batch(0, 9, ACCEPT, ACCEPT), batch(0, 0, 9), batch(5, 10, ACCEPT)], ids=str
)
def test_an_acknowledgement_that_makes_no_sense_changes_nothing(nonsense: AckBatch) -> None:
    group = held()
    assert acknowledged(group, batch(0, 3, ACCEPT), nonsense) == {"T:0": "INVALID_REQUEST"}
    assert group.dump() == ["[0..9] ACQUIRED 1 0 1"]


def test_a_partition_that_is_not_the_groups_is_refused_by_itself() -> None:
    group = held()
    unknown = PartitionAcks(topic_id="?", partition=3, batches=(batch(0, 0, ACCEPT),))
    known = PartitionAcks(topic_id=TOPIC_ID, partition=0, batches=(batch(0, 9, ACCEPT),))
    command = Acknowledge(group_id="billing", member_id="c1", member_epoch=1, partitions=(unknown, known))
    assert group.run(command).errors == {"?:3": "INVALID_REQUEST"}
    assert group.partition().start_offset == 10


def test_below_the_log_start_only_the_holder_gives_anything_up() -> None:
    group = held()
    group.join("c2", query=False)
    group.move_log_start(5)
    assert acknowledged(group, batch(0, 4, ACCEPT), member="c2") == {}
    assert acknowledged(group, batch(0, 4, RENEW)) == {}
    assert group.dump() == ["[0..9] ACQUIRED 1 0 1"], "still its holder's"
    assert acknowledged(group, batch(0, 7, ACCEPT)) == {}
    assert group.dump() == ["[8..9] ACQUIRED 1 0 1"]
    assert (group.partition().archived_total, group.partition().start_offset) == (5, 8)


def test_what_reaches_over_the_start_offset_of_an_empty_window_holds_nothing() -> None:
    group = held()
    acknowledged(group, batch(0, 9, ACCEPT))
    for first, last in ((9, 10), (10, 10), (8, 12)):
        assert acknowledged(group, batch(first, last, ACCEPT)) == {"T:0": "INVALID_RECORD_STATE"}
    assert acknowledged(group, batch(0, 9, ACCEPT)) == {}, "done long ago: harmless"


def test_an_offset_is_acknowledged_once_in_whatever_order() -> None:
    for batches in (
        (batch(0, 4, ACCEPT), batch(4, 9, ACCEPT)),
        (batch(4, 9, ACCEPT), batch(0, 4, ACCEPT)),
        (batch(6, 9, ACCEPT), batch(0, 2, ACCEPT), batch(5, 7, ACCEPT)),
        (batch(0, 9, ACCEPT), batch(3, 4, ACCEPT)),
    ):
        group = held()
        assert acknowledged(group, *batches) == {"T:0": "INVALID_RECORD_STATE"}
        assert group.dump() == ["[0..9] ACQUIRED 1 0 1"]
    assert acknowledged(group, batch(6, 9, ACCEPT), batch(0, 2, ACCEPT), batch(3, 5, ACCEPT)) == {}


@pytest.mark.parametrize("number", ["j.1", "i.x", "i.", "1", "i.1.1"])
def test_a_number_of_another_incarnation_is_refused(number: str) -> None:
    group, _ = started_plan()
    with pytest.raises(ForeignPlan) as refused:
        group.use(number)
    assert refused.value.fields == {"plan_id": number, "group_id": "billing", "incarnation": "i"}


def test_the_beginning_of_a_query_that_went_on_is_refused_by_name() -> None:
    group, plan = started_plan()
    group.complete(plan)
    with pytest.raises(StalePlan, match=r"Plan \(initial\) of member m1 .* last completed plan is i\.1"):
        group.acquire("")
    with pytest.raises(StalePlan, match=r"Plan i\.1 of member m1 is refused: it is completed"):
        group.use(plan)
    with pytest.raises(StalePlan, match=r"Plan i\.7 of member m1 .*\(that is i\.1\)"):
        group.use("i.7")
    group.join("m2")
    with pytest.raises(StalePlan, match=r"\(that is none\)"):
        group.use(plan, "m2")
    with pytest.raises(StalePlan, match=r"Plan i\.1 of member m2 .* last completed plan is none"):
        group.acquire(plan, "m2")


def test_the_next_plan_is_refused_by_name_while_the_one_before_is_not_completed() -> None:
    group, plan = started_plan()
    group.ends[0] = 200
    group.complete(plan)
    following = group.acquire(plan).plan.plan_id
    group.use(following)
    with pytest.raises(StalePlan, match=r"Plan i\.1 of member m1 .* plan i\.2 was delivered and not completed"):
        group.acquire(plan)


def test_an_incarnation_may_hold_dots() -> None:
    group = ShareGroup("billing")
    group.incarnation = "2026.1"
    assert group.plan_id(group.plan_id_text(7)) == 7
    assert (group.plan_id(""), group.plan_id_text(0)) == (0, "")


def test_a_member_that_is_unknown_gone_or_of_another_epoch_is_told_apart() -> None:
    group = GroupDriver()
    group.join()
    with pytest.raises(UnknownMemberId, match="Member m9 of share group billing"):
        group.run(Heartbeat(group_id="billing", member_id="m9", member_epoch=1))
    with pytest.raises(FencedMemberEpoch) as fenced:
        group.run(Heartbeat(group_id="billing", member_id="m1", member_epoch=2))
    assert fenced.value.fields == {"member_id": "m1", "group_id": "billing", "current_epoch": 1, "member_epoch": 2}
    group.pass_time(SESSION_MS + 1)
    with pytest.raises(UnknownMemberId, match="Member m1 of share group billing"):
        group.run(Heartbeat(group_id="billing", member_id="m1", member_epoch=1))
    with pytest.raises(FencedMemberEpoch):
        group.run(Heartbeat(group_id="billing", member_id="m1", member_epoch=0))


def test_a_process_that_was_fenced_is_told_which_epoch_it_had() -> None:
    group = GroupDriver()
    group.join(process="first")
    group.join(process="second")
    for epoch, had in ((None, "older"), (1, "1")):
        again = JoinGroup(group_id="billing", member_id="m1", process_id="first", member_epoch=epoch)
        with pytest.raises(
            FencedMemberEpoch, match=f"Member m1 of share group billing .*member epoch is 2, ours was {had}"
        ):
            group.run(again)


def test_a_config_that_is_refused_is_not_appended() -> None:
    group = GroupDriver()
    before = list(group.log)
    with pytest.raises(ConfigOutOfBounds):
        group.run(AlterConfigs(configs={"share.delivery.count.limit": "11"}))
    group.run(AlterConfigs(configs={}))
    assert (group.log, group.group.configs) == (before, {})


def test_what_a_member_came_with_is_kept() -> None:
    group = GroupDriver()
    came_with = {
        "topics": ("orders",),
        "topic_pattern": "o.*",
        "assign": {"orders": (0, 2)},
        "starting_offsets": "earliest",
        "client_id": "job",
        "client_host": "host",
    }
    group.run(JoinGroup(group_id="billing", member_id="m1", process_id="p", query=False, **came_with))
    group.crash()
    member = group.group.members["m1"]
    assert {name: getattr(member, name) for name in came_with} == came_with
    assert (member.process_id, member.query) == ("p", False)


def test_what_is_known_of_topics_and_start_offsets_is_not_written_again() -> None:
    group = GroupDriver(records=10, partitions=2)
    before = list(group.log)
    topics = (TopicPartitions(topic="orders", topic_id=TOPIC_ID, partitions=2),)
    starts = tuple(PartitionStart(topic_id=TOPIC_ID, partition=p, start_offset=5) for p in (0, 1))
    group.run(InitializePartitions(topics=topics, starts=starts))
    assert group.log == before
    assert group.partition(1).start_offset == 0


def test_a_group_is_created_once() -> None:
    group = GroupDriver()
    before = list(group.log)
    group.run(CreateGroup(incarnation="another", topic_ids=False))
    assert (group.log, group.group.incarnation) == (before, "i")


def test_a_group_that_does_not_exist_is_dead_and_has_nothing_to_keep() -> None:
    group = ShareGroup("billing")
    dead = describe_group(group)
    assert (dead.state, dead.incarnation) == ("DEAD", "")
    assert list(group.snapshot()) == []
    assert group.next_deadline_ms() is None


@pytest.mark.parametrize(("first", "last", "state"), [(5, 4, RecordState.ACQUIRED), (2, 3, RecordState.AVAILABLE)])
def test_damaged_state_is_never_served(first: int, last: int, state: RecordState) -> None:
    partition = SharePartition(SharePartitionKey(TOPIC_ID, 0), 3)
    with pytest.raises(ValueError, match=f"can't hold {first}-{last} as {state.name}"):
        partition.apply([(first, last, Run(state))])
    assert len(partition.runs) == 0


def test_an_error_is_the_same_one_on_the_other_side() -> None:
    error = UnknownMemberId(member_id="m1", group_id="billing")
    with pytest.raises(UnknownMemberId, match="Member m1 of share group billing"):
        decode_answer(encode_error(error))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.fields, str(again)) == (UnknownMemberId, error.fields, str(error))


def test_an_error_that_this_side_does_not_know_keeps_its_text() -> None:
    error = error_from_wire("QuotaExceeded", {"limit": 3}, "no more than 3")
    assert isinstance(error, RemoteError)
    assert str(error) == "The coordinator answered QuotaExceeded: no more than 3"
    assert "limit" in str(error_from_wire("QuotaExceeded", {"limit": 3}))
    assert issubclass(RemoteError, ShareGroupError)


def test_a_request_that_cannot_be_understood_is_refused_by_name() -> None:
    assert decode_request("Health", encode(Health())) == Health()
    with pytest.raises(InvalidRequest, match="knows no request 'Destroy'"):
        decode_request("Destroy", b"{}")
    for body in (b"{", b'{"type": "Heartbeat"}', b"\xff\xfe"):
        with pytest.raises(InvalidRequest, match="Heartbeat can't be understood"):
            decode_request("Heartbeat", body)


def test_no_secret_is_in_a_repr() -> None:
    endpoint = Endpoint(host="localhost", port=1, token="s3cret", pid=2)
    settings = LaunchSettings(
        bootstrap_servers="broker:9092",
        kafka_config={"sasl.password": "s3cret"},
        cluster_id="c",
        state_store="sqlite",
        endpoint_path="e",
        log_path="l",
        configs={},
    )
    assert "s3cret" not in repr(endpoint) + repr(settings)
    assert "localhost:1" in repr(endpoint) and "broker:9092" in repr(settings)


def test_what_is_appended_is_in_offset_order_however_it_was_named() -> None:
    group = held()
    acknowledged(group, batch(8, 9, ACCEPT), batch(2, 3, ACCEPT), batch(5, 5, ACCEPT))
    last = decode_record(group.log[-1])
    assert isinstance(last, RunsChanged)
    assert [run[:2] for run in last.runs] == [(2, 3), (5, 5), (8, 9)]


def test_a_completion_says_how_many_records_it_accepted() -> None:
    group, plan = started_plan()
    group.ends[0] = 130
    group.complete(group.next(plan).plan.plan_id)
    completed = [record for record in map(decode_record, group.log) if isinstance(record, PlanCompleted)]
    assert [record.records for record in completed] == [100, 30]


def test_a_completion_counts_the_records_of_all_partitions() -> None:
    group = GroupDriver(partitions=3)
    group.ends = {0: 5, 1: 10, 2: 20}
    group.join()
    group.complete(group.next().plan.plan_id)
    completed = decode_record(group.log[-1])
    assert isinstance(completed, PlanCompleted)
    assert completed.records == 35


def test_a_member_that_never_came_cannot_leave() -> None:
    group = GroupDriver()
    with pytest.raises(UnknownMemberId, match="Member m9 of share group billing"):
        group.run(LeaveGroup(group_id="billing", member_id="m9", member_epoch=1))
    group.join()
    assert group.run(LeaveGroup(group_id="billing", member_id="m1", member_epoch=1)) == Done()


def test_a_heartbeat_is_answered_as_a_join_is() -> None:
    group = GroupDriver()
    joined = group.run(JoinGroup(group_id="billing", member_id="m1", process_id="p"))
    assert joined == Joined(
        member_epoch=1,
        incarnation="i",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=5_000,
        isolation_level="read_uncommitted",
    )
    assert group.run(Heartbeat(group_id="billing", member_id="m1", member_epoch=1)) == joined


def test_what_reaches_over_the_start_offset_counts_from_there() -> None:
    group = held()
    acknowledged(group, batch(0, 4, ACCEPT))
    assert acknowledged(group, batch(4, 5, ACCEPT)) == {}
    assert group.dump() == ["[6..9] ACQUIRED 1 0 1"]


def test_partitions_are_acknowledged_in_one_request() -> None:
    group = GroupDriver(records=10, partitions=3)
    group.join("c1", query=False)
    fetched(group, 30)
    acks = tuple(PartitionAcks(topic_id=TOPIC_ID, partition=p, batches=(batch(0, p, ACCEPT),)) for p in range(3))
    command = Acknowledge(group_id="billing", member_id="c1", member_epoch=1, partitions=acks)
    assert group.run(command).errors == {}
    assert [group.partition(p).start_offset for p in range(3)] == [1, 2, 3]


def test_a_record_that_cannot_be_read_says_whose_and_why() -> None:
    with pytest.raises(UnreadableRecord) as unreadable:
        decode_record(encode_record(PlanCompleted(plan_id=1, member_id="m1", records=2))[:-1], "billing")
    assert unreadable.value.fields == {"group_id": "billing", "reason": "Input data was truncated"}


def test_a_record_of_a_newer_version_is_not_read_in_part() -> None:
    """What it says beside what is known may be what matters."""
    newer = msgspec.msgpack.encode({"type": "SessionEnded", "member_id": "m1", "why": "moved"})
    with pytest.raises(UnreadableRecord, match="unknown field `why`"):
        decode_record(newer)


def defaults(record: type[Record]) -> dict[str, object]:
    return {field.name: field.default for field in msgspec.structs.fields(record) if not field.required}


def test_what_a_stored_record_leaves_out_has_the_value_that_it_always_had() -> None:
    """A value that is the default is not written: the default can't change while records are stored."""
    assert {record.__name__: left_out for record in get_args(Record) if (left_out := defaults(record))} == {
        "PartitionInitialized": {"log_start": 0, "archived": (), "end_offset": None},
        "MemberJoined": {
            "fenced_processes": (),
            "query": True,
            "topics": (),
            "topic_pattern": None,
            "assign": None,
            "starting_offsets": None,
            "client_id": "",
            "client_host": "",
            "seen_ms": 0,
        },
        "PlanAcquired": {"trial": False, "explicit": False, "ranges": (), "reported_topic_ids": ()},
        "PlanStarted": {
            "explicit": False,
            "data_loss": (),
            "left_out": (),
            "unreported_losses": (),
            "reported_topic_ids": (),
        },
        "EvidenceCleared": {"member_id": None},
        "PlanKept": {
            "data_loss": (),
            "unreported_losses": (),
            "left_out": (),
            "ranges": (),
            "reclaims": 0,
            "superseded_plans": (),
            "explicit": False,
            "explicit_attempts": (),
            "replaces": None,
        },
        "ProgressKept": {
            "member_id": None,
            "evidence": False,
            "decides": False,
            "decided": 0,
            "rejected": 0,
            "query_id": "",
            "forgotten_epoch": 0,
        },
        "PlanStaged": {
            "partitions": (),
            "decided": 0,
            "rejected": 0,
            "attempt": None,
            "explicit": None,
            "replaces": None,
            "query_id": "",
        },
    }
    assert [record.__name__ for record in get_args(Record) if not record.durable] == [
        "Swept",
        "SessionRenewed",
        "SessionEnded",
        "LocksRenewed",
        "DeadlinesPassed",
        "DeadlinesExtended",
    ]
