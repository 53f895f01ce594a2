"""Sinks at the service: opened, staged, and what the log is read for before undecided records are released."""

import pytest

from coordinator.protocol.errors import (
    AcknowledgementModeDiffers,
    BatchNotNamed,
    BatchReclaimed,
    BrokerNotReachable,
    ConfigOutOfBounds,
    CoordinatorNotAvailable,
    DeadLetterTopicMissing,
    DeadLetterTopicNotAuthorized,
    DeadLetterTopicSubscribed,
    GroupIdNotFound,
    InvalidRequest,
    NeverDelivered,
    NoneHeld,
    NoPlanToDecide,
    NothingDecided,
    StalePlan,
    StaleReceipts,
    TooManyRejects,
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
RATIO = {"errors.deadletterqueue.max.reject.ratio": "0.5"}
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


def test_a_sink_of_an_unknown_group_is_refused_and_creates_no_group(running):
    for _ in range(2):
        with pytest.raises(GroupIdNotFound):
            open_sink(running, "nobody", **EXPLICIT)
    with pytest.raises(InvalidRequest):
        open_sink(running, "")


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


def test_a_sinks_configs_are_checked_before_any_is_set(running):
    begin(running, **UNSET)
    with pytest.raises(ConfigOutOfBounds):
        open_sink(running, **EXPLICIT, **{"share.release.backoff.ms": "-1"})
    assert running.service.handle(DescribeGroup(group_id="billing")).configs == {}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("dlq.missing", DeadLetterTopicMissing),
        ("dlq.readonly", DeadLetterTopicNotAuthorized),
        ("orders", DeadLetterTopicSubscribed),
    ],
)
def test_an_unusable_dead_letter_topic_is_found_when_the_sink_opens(running, cluster, name, error):
    cluster.add("dlq.readonly")
    cluster.read_only.add("dlq.readonly")
    begin(running, **UNSET)
    with pytest.raises(error):
        open_sink(running, **{"errors.deadletterqueue.topic.name": name})
    assert running.service.handle(DescribeGroup(group_id="billing")).configs == {}, "nothing was set"


def test_a_dead_letter_topic_is_made_where_that_is_allowed(running, cluster):
    begin(running)
    opened = open_sink(running, **DLQ, **{"errors.deadletterqueue.auto.create.topics.enable": "true"})
    assert (opened.dead_letter_partitions, cluster.found["dlq.orders"].partitions) == (1, 1)


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


def test_a_staging_that_the_store_refused_is_neither_answered_nor_kept(running):
    number = begin(running)
    running.store.fault = "refuse"
    with pytest.raises(CoordinatorNotAvailable):
        stage(running, (0, 9, 1, REJECT))
    running.next(number)
    assert states(running) == []
    (partition,) = running.partitions().values()
    assert (partition.start_offset, partition.archived_total) == (10, 0)


def test_stale_rows_and_lost_replacements_are_logged_once_a_batch(running, cluster, caplog):
    caplog.set_level("INFO", "coordinator")
    number = second_batch(running, cluster)
    staged = stage(running, (8, 9, 1, REJECT), (10, 11, 1, ACCEPT), query_id="q", batch_id=7, lost_replacements=2)
    assert staged == OutcomesStaged(
        staged=2, stale=2, stale_sample=("orders-0@8 (1)",), attempt=0, plan_id=number, member_id="m1"
    )
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("staged:")]
    assert told == ["staged: group=billing query=q batch=7 staged=2 stale=2 lost_replacements=2 contradicting=0"]
    caplog.clear()
    stage(running, (14, 15, 1, ACCEPT))
    assert not [record for record in caplog.records if record.getMessage().startswith("staged:")]


def second_batch(running, cluster):
    """m1 has completed 0 to 9, and reads 10 to 19 in a batch; its plan's number."""
    number = begin(running)
    cluster.move("orders", 20)
    number = running.next(number).plan_id
    running.start(number)
    return number


def test_refusals_are_named_and_stage_nothing(running, cluster):
    with pytest.raises(GroupIdNotFound, match=r"a sink's kafka.group.id is its source's"):
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


def test_a_batch_without_a_sink_is_given_back_and_fails_by_name(running, tmp_path):
    number = begin(running, **EXPLICIT)
    for count in (2, 3, 4):
        with pytest.raises(NothingDecided, match=r"the batch was given back as it was"):
            running.next(number)
        load_again(running, tmp_path)
        (run,) = running.runs()
        assert (run.state, run.failures, run.releases, run.plan_id) == ("AVAILABLE", 0, 0, "")
        running.join(starting_offsets="earliest", process=f"restart {count}")
        plan = running.next(number)
        assert [(r.first, r.last, r.delivery_count) for r in plan.partitions[0].ranges] == [(0, 9, count)]
        number = plan.plan_id
        running.start(number)


@pytest.mark.parametrize("who", ["the query is started again", "another query is started"])
def test_undecided_records_come_again_after_a_change_of_mode(running, tmp_path, who):
    """Spark committed the batch, with 0 to 4 in its output; the mode is implicit when the plan is completed."""
    number = begin(running, **EXPLICIT)
    stage(running, (0, 4, 1, ACCEPT), query_id="q")
    running.join("m2" if who == "another query is started" else "m1", process="later", configs=IMPLICIT)
    load_again(running, tmp_path)
    running.join("m1", process="last")
    again = running.next(number)
    assert held(again) == {("orders", 0): [(5, 9)]}
    running.start(again.plan_id)
    assert held(running.next(again.plan_id)) == {}, "this batch began in implicit mode: it is accepted"


def test_gaps_of_an_explicit_batch_are_read_after_a_change_of_mode(running, cluster):
    cluster.gaps = {9}
    number = begin(running, **EXPLICIT)
    stage(running, (0, 4, 1, ACCEPT))
    running.join(process="later", configs=IMPLICIT)
    assert held(running.next(number)) == {("orders", 0): [(5, 8)]}


@pytest.mark.parametrize("replaces", [False, True])
def test_a_replays_outcomes_count_alone_where_the_target_replaces(running, tmp_path, replaces):
    """The first attempt rejected what the second accepted and wrote; a process loads both."""
    number = begin(running)
    stage(running, (0, 4, 1, REJECT), (5, 9, 1, ACCEPT), replaces=replaces)
    running.join(process="later")
    running.start(number)
    stage(running, (0, 9, 2, ACCEPT), replaces=replaces)
    load_again(running, tmp_path)
    running.join(process="last")
    again = running.next(number)
    assert held(again) == ({} if replaces else {("orders", 0): [(0, 4)]})


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


def test_a_repeated_request_gets_records_after_the_plan_was_returned(running):
    """The answer was lost on its way: nobody fails, and the records come again."""
    number = begin(running, **EXPLICIT)
    with pytest.raises(NothingDecided):
        running.next(number)
    assert held(running.next(number)) == {("orders", 0): [(0, 9)]}
    with pytest.raises(StalePlan):
        running.start(number)


def test_a_batch_in_which_the_log_has_nothing_is_completed(running, cluster):
    cluster.gaps = set(range(10))
    number = begin(running, **EXPLICIT)
    assert running.next(number).plan_id == ""
    assert running.start_offsets() == {("orders", 0): 10}


def test_a_sink_without_rows_keeps_its_query_from_failing(running):
    number = begin(running, **EXPLICIT)
    assert stage(running, plans={number: running.epochs["m1"]}).plan_id == number
    assert held(running.next(number)) == {("orders", 0): [(0, 9)]}


def test_a_commit_that_names_no_plan_decides_over_no_query(running):
    """A neighbour without a sink reads in implicit mode; its records are accepted."""
    number = begin(running)
    running.join("m2", configs=EXPLICIT)
    appends = running.store.appends
    assert stage(running, replaces=True, acknowledgement_mode="") == OutcomesStaged()
    assert running.store.appends == appends
    assert held(running.next(number)) == {}
    assert states(running) == []


def test_a_commit_that_names_no_plan_is_refused_in_explicit_mode(running):
    number = begin(running, **EXPLICIT)
    with pytest.raises(BatchNotNamed, match=r"outputOnReplay=replaces.*foreachBatch's own\s+thread"):
        stage(running)
    for harmless in ({"replaces": True}, {"has_target": False}):
        assert stage(running, **harmless) == OutcomesStaged()
    with pytest.raises(NothingDecided):
        running.next(number)


def test_a_commit_of_a_process_that_was_replaced_is_refused(running):
    number = begin(running, **EXPLICIT)
    replaced = running.epochs["m1"]
    running.join(process="its successor")
    running.start(number)
    with pytest.raises(BatchReclaimed, match=number):
        stage(running, plans={number: replaced})
    stage(running, (0, 9, 2, ACCEPT), plans={number: replaced})  # a host of the sink's tasks has an older note alone


@pytest.mark.parametrize("rows", [[(0, 9, 1, ACCEPT)], []])
def test_a_sink_that_names_another_mode_than_its_batch_has_is_refused(running, rows):
    number = begin(running)
    appends = running.store.appends
    with pytest.raises(AcknowledgementModeDiffers, match=r"=explicit.*acquired with implicit.*on the source"):
        stage(running, *rows, plans={number: running.epochs["m1"]}, acknowledgement_mode="explicit")
    assert running.store.appends == appends
    stage(running, *rows, plans={number: running.epochs["m1"]}, acknowledgement_mode="implicit")


# --- the limit on rejects


def test_too_many_rejects_go_back_and_the_accepted_records_stay_accepted(running, cluster, tmp_path):
    cluster.move("orders", 200)
    running.join(starting_offsets="earliest", configs={**AT_ONCE, **RATIO})
    number = running.next().plan_id
    running.start(number)
    stage(running, (0, 149, 1, REJECT))
    with pytest.raises(TooManyRejects, match=r"150 of the last 200 records were rejected.*went back"):
        running.next(number)
    load_again(running, tmp_path)
    running.join(process="restart")
    again = running.next(number)
    assert [(r.first, r.last, r.delivery_count) for r in again.partitions[0].ranges] == [(0, 149, 2)]
    running.start(again.plan_id)
    stage(running, (0, 19, 2, REJECT))
    running.next(again.plan_id)
    (partition,) = running.partitions().values()
    assert (partition.accepted, partition.archived_total, partition.lag) == (180, 20, 0)


def test_rejects_of_several_commits_are_judged_by_the_whole_batch(running, cluster):
    cluster.move("orders", 200)
    running.join(starting_offsets="earliest", configs={**AT_ONCE, **RATIO})
    number = running.next().plan_id
    running.start(number)
    for first in range(0, 80, 20):
        stage(running, (first, first + 19, 1, REJECT))
    running.next(number)
    (partition,) = running.partitions().values()
    assert (partition.accepted, partition.archived_total) == (120, 80)


def test_a_sink_that_sets_nothing_still_checks_the_dead_letter_topic(running, cluster):
    """It was deleted since."""
    cluster.add("dlq.orders")
    begin(running, **DLQ)
    cluster.delete("dlq.orders")
    with pytest.raises(DeadLetterTopicMissing):
        open_sink(running)
