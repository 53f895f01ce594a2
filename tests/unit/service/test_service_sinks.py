"""Sinks at the service: opened, staged, and what the log is read for before undecided records are released."""

import pytest

from coordinator.protocol.errors import (
    BatchNotNamed,
    BrokerNotReachable,
    ConfigOutOfBounds,
    DeadLetterTopicMissing,
    DeadLetterTopicNotAuthorized,
    DeadLetterTopicSubscribed,
    GroupIdNotFound,
    InvalidRequest,
    NeverDelivered,
    NoneHeld,
    NoPlanToDecide,
    NothingDecided,
    StaleReceipts,
)
from coordinator.protocol.messages import DescribeGroup, OpenSink, OutcomesStaged
from coordinator.protocol.values import AcknowledgeType
from coordinator.service.runtime.runtime import CoordinatorRuntime
from coordinator.service.runtime.transaction import Access
from coordinator.service.stores.sqlite_store import SqliteStore
from tests.support.faulty_store import FaultyStore
from tests.support.group_driver import AT_ONCE, UNSET
from tests.support.one_partition import one_partition
from tests.support.running_service import held
from tests.support.service_sinks import EXPLICIT, begin, stage, states

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
IMPLICIT = {"share.acknowledgement.mode": "implicit"}
DLQ = {"errors.deadletterqueue.topic.name": "dlq.orders"}


def open_sink(running, group_id="billing", **configs):
    return running.service.handle(OpenSink(group_id=group_id, configs=configs))


def load_again(running, tmp_path):
    """Lets another process take the state over: it has everything that was answered."""
    running.runtime.close()
    running.store = FaultyStore(SqliteStore(tmp_path / "state.db"))
    engine = CoordinatorRuntime(running.store, on_change=running.news.notify)
    running.runtime = one_partition(engine)
    running.service._runtime = running.runtime


def away(*args, **how):
    raise BrokerNotReachable(addresses="fake:9092", timeout_ms=1, reason="_TRANSPORT")


# --- a sink opens


def test_opening_a_sink_returns_incarnation_and_topic_ids_and_sets_configs(running, cluster):
    cluster.add("dlq.orders", 3)
    begin(running)
    opened = open_sink(running, **DLQ, **EXPLICIT, **{"errors.deadletterqueue.copy.record.enable": "false"})
    topic_id = cluster.found["orders"].topic_id
    assert opened.incarnation and opened.topics == {topic_id: "orders"}
    assert (opened.old_topics, opened.ends) == ((), {topic_id: {"0": 10}})
    assert (opened.dead_letter_topic, opened.dead_letter_partitions) == ("dlq.orders", 3)
    assert not opened.copy_record
    configs = running.service.handle(DescribeGroup(group_id="billing")).configs
    assert configs["errors.deadletterqueue.topic.name"] == "dlq.orders"
    assert configs["share.acknowledgement.mode"] == "explicit"


def test_opening_a_sink_returns_the_changed_group_configs_once(running):
    begin(running, **UNSET, **EXPLICIT, **{"share.isolation.base": "50"})
    changed = {"share.isolation.base": "60", "share.release.backoff.ms": "5", **EXPLICIT}
    assert open_sink(running, **changed).replaced == {"share.isolation.base": "50", "share.release.backoff.ms": ""}
    assert open_sink(running, **changed).replaced == {}


def test_a_sink_that_sets_nothing_new_writes_nothing(running):
    begin(running, **EXPLICIT)
    appends = running.store.appends
    opened = open_sink(running, **EXPLICIT)
    assert running.store.appends == appends
    assert (opened.dead_letter_topic, opened.dead_letter_partitions) == ("", 0)


def test_a_sink_asks_as_those_do_that_take_no_group(running, monkeypatch):
    begin(running)
    asked = []
    right = running.runtime.call

    def call(group_id, transaction, access=Access.SERVE):
        asked.append(access)
        return right(group_id, transaction, access)

    monkeypatch.setattr(running.runtime, "call", call)
    open_sink(running, **EXPLICIT)
    assert asked == [Access.SERVE, Access.SERVE], "neither claimed, nor looked at as another's"


DLQ_TOPIC = "errors.deadletterqueue.topic.name"


@pytest.mark.parametrize(
    ("configs", "error"),
    [
        ({"share.release.backoff.ms": "-1"}, ConfigOutOfBounds),
        ({DLQ_TOPIC: "dlq.missing"}, DeadLetterTopicMissing),
        ({DLQ_TOPIC: "dlq.readonly"}, DeadLetterTopicNotAuthorized),
        ({DLQ_TOPIC: "orders"}, DeadLetterTopicSubscribed),
    ],
)
def test_a_sink_that_is_refused_when_it_opens_sets_nothing(running, cluster, configs, error):
    cluster.add("dlq.readonly")
    cluster.read_only.add("dlq.readonly")
    begin(running, **UNSET)
    with pytest.raises(error):
        open_sink(running, **EXPLICIT, **configs)
    assert running.service.handle(DescribeGroup(group_id="billing")).configs == {}, "nothing was set"


# --- staging


def test_outcomes_are_staged_durably_and_take_effect_with_the_next_plan(running, cluster, tmp_path):
    cluster.add("dlq.orders")
    number = begin(running, **DLQ)
    staged = stage(running, (0, 3, 1, RELEASE), (4, 5, 1, REJECT))
    assert staged == OutcomesStaged(staged=6, attempt=0, plan_id=number, member_id="m1")
    assert states(running) == ["0-9 ACQUIRED 1"]
    load_again(running, tmp_path)
    assert held(running.next(number)) == {("orders", 0): [(0, 3)]}
    assert states(running) == ["0-3 ACQUIRED 2", "4-5 ARCHIVING 1", "6-9 ACKNOWLEDGED 1"]
    (partition,) = running.partitions().values()
    assert (partition.archiving, partition.lag, partition.archived_total) == (2, 6, 0)


def test_stale_rows_and_lost_replacements_are_logged_once_a_batch(running, cluster, caplog):
    caplog.set_level("INFO", "coordinator")
    number = second_batch(running, cluster)
    staged = stage(running, (8, 9, 1, REJECT), (10, 11, 1, ACCEPT), query_id="q", batch_id=7, lost_replacements=2)
    assert staged == OutcomesStaged(
        staged=2, stale=2, stale_sample=("orders-0@8 (1)",), attempt=0, plan_id=number, member_id="m1"
    )
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("outcomes staged")]
    assert told == [
        "outcomes staged with losses: group=billing query=q batch=7 staged=2 stale=2 own_content_not_written=2 "
        "contradicting=0"
    ]
    caplog.clear()
    stage(running, (14, 15, 1, ACCEPT))
    assert not [record for record in caplog.records if record.getMessage().startswith("outcomes staged")]


def second_batch(running, cluster):
    """m1 has completed 0 to 9, and reads 10 to 19 in a batch; its plan's number."""
    number = begin(running)
    cluster.move("orders", 20)
    number = running.next(number).plan_id
    running.start(number)
    return number


def test_refusals_are_named_and_stage_nothing(running, cluster):
    with pytest.raises(GroupIdNotFound, match=r"A sink's kafka.group.id must be that of its source"):
        stage(running, (0, 1, 1, ACCEPT))
    number = second_batch(running, cluster)
    appends = running.store.appends
    with pytest.raises(StaleReceipts):
        stage(running, (9, 10, 1, REJECT), fail_on_stale=True)
    with pytest.raises(NoneHeld):
        stage(running, (2, 3, 1, REJECT))
    with pytest.raises(NeverDelivered):
        stage(running, (10, 10, 1, ACCEPT), (1_000_010, 1_000_010, 1, REJECT))
    with pytest.raises(InvalidRequest):
        stage(running, (12, 12, 1, REJECT), (10, 11, 1, REJECT))
    assert running.store.appends == appends
    running.next(number)
    with pytest.raises(NoPlanToDecide):
        stage(running, (0, 1, 1, ACCEPT))


def test_rows_of_a_recreated_topics_predecessor_decide_nothing(running, cluster):
    """m1 still works on the old topic's records when m2 has the new one's; each row counts for the topic that its
    receipt names, however late its sink is opened."""
    running.join("m1", starting_offsets="earliest", configs={**AT_ONCE, **EXPLICIT})
    running.join("m2", starting_offsets="earliest", configs={**AT_ONCE, **EXPLICIT})
    old = running.next(member="m1")
    running.start(old.plan_id, "m1")
    cluster.delete("orders")
    cluster.add("orders", end=10)
    new = running.next(member="m2")
    running.start(new.plan_id, "m2")
    assert held(new) == {("orders", 0): [(0, 9)]}, "the new topic's"
    opened = open_sink(running)
    before, now = old.partitions[0].topic_id, new.partitions[0].topic_id
    assert (opened.topics, opened.old_topics) == ({before: "orders", now: "orders"}, (before,))
    stage(running, (0, 9, 1, ACCEPT), query_id="q1", topic_id=before)
    stage(running, (0, 4, 1, ACCEPT), query_id="q2", topic_id=now)
    assert held(running.next(new.plan_id, "m2")) == {("orders", 0): [(5, 9)]}, "what m2's sink passed over comes again"


# --- explicit mode


def test_undecided_gaps_are_archived_before_undecided_records_are_released(running, cluster):
    cluster.gaps = {0, 1, 5}
    number = begin(running, **EXPLICIT)
    stage(running, (2, 3, 1, ACCEPT))
    assert held(running.next(number)) == {("orders", 0): [(4, 4), (6, 9)]}
    assert states(running) == ["4-4 ACQUIRED 2", "5-5 ARCHIVED 1", "6-9 ACQUIRED 2"]


def test_records_that_a_sink_decided_are_not_read(running, cluster, monkeypatch):
    asked = []
    right = cluster.absent
    monkeypatch.setattr(
        cluster, "absent", lambda where, offsets, **how: asked.extend(offsets) or right(where, offsets, **how)
    )
    number = begin(running, **EXPLICIT)
    stage(running, (0, 3, 1, ACCEPT), (6, 8, 1, RELEASE))
    running.next(number)
    assert asked == [4, 5, 9]


def test_in_implicit_mode_nothing_is_read(running, cluster, monkeypatch):
    monkeypatch.setattr(cluster, "absent", lambda *a, **k: pytest.fail("the log was read"))
    number = begin(running)
    stage(running, (2, 3, 1, ACCEPT))
    running.next(number)
    assert running.start_offsets() == {("orders", 0): 10}


def test_while_the_log_cannot_be_read_nothing_is_released(running, cluster, monkeypatch):
    number = begin(running, **EXPLICIT)
    stage(running, (2, 3, 1, ACCEPT))
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "absent", away)
        with pytest.raises(BrokerNotReachable):
            running.next(number)
    assert states(running) == ["0-9 ACQUIRED 1"]
    assert held(running.next(number)) == {("orders", 0): [(0, 1), (4, 9)]}


def test_gaps_of_an_explicit_batch_are_read_after_a_change_of_mode(running, cluster):
    cluster.gaps = {9}
    number = begin(running, **EXPLICIT)
    stage(running, (0, 4, 1, ACCEPT))
    running.join(process="later", configs=IMPLICIT)
    assert held(running.next(number)) == {("orders", 0): [(5, 8)]}


def test_a_batch_that_no_sink_decided_is_not_read_whole(running, cluster, monkeypatch):
    monkeypatch.setattr(cluster, "absent", lambda *a, **k: pytest.fail("all of it was read"))
    number = begin(running, **EXPLICIT)
    with pytest.raises(NothingDecided):
        running.next(number)


def test_an_undecided_batch_stays_while_the_log_is_unreadable(running, cluster, monkeypatch):
    number = begin(running, **EXPLICIT)
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "existing", away)
        with pytest.raises(BrokerNotReachable):
            running.next(number)
    assert states(running) == ["0-9 ACQUIRED 1"]


def test_a_batch_in_which_the_log_has_nothing_is_completed(running, cluster):
    cluster.gaps = set(range(10))
    number = begin(running, **EXPLICIT)
    assert running.next(number).plan_id == ""
    assert running.start_offsets() == {("orders", 0): 10}


def test_a_commit_that_names_no_plan_is_refused_in_explicit_mode(running):
    number = begin(running, **EXPLICIT)
    with pytest.raises(BatchNotNamed, match=r"outputOnReplay=replaces.*foreachBatch's own\s+thread"):
        stage(running)
    for harmless in ({"replaces": True}, {"has_target": False}):
        assert stage(running, **harmless) == OutcomesStaged()
    with pytest.raises(NothingDecided):
        running.next(number)


# --- the limit on rejects


def test_a_sink_that_sets_nothing_still_checks_the_dead_letter_topic(running, cluster):
    """It was deleted since."""
    cluster.add("dlq.orders")
    begin(running, **DLQ)
    cluster.delete("dlq.orders")
    with pytest.raises(DeadLetterTopicMissing):
        open_sink(running)
