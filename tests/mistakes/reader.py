"""The source: the reader of a query, its session, and its triggers."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit

from coordinator.client import session
from coordinator.client.connection import CALL_TIMEOUT_S
from coordinator.client.session import MemberSession, RequestOf
from coordinator.core.commands import complete_plan
from coordinator.protocol.errors import BrokerNotReachable, FencedMemberEpoch
from coordinator.protocol.messages import JoinGroup, StartPlan
from coordinator.service.brokers.topic_doubts import TopicDoubts
from coordinator.service.runtime import transactions
from share_source.driver import damaged_records, plan_reader, reader
from share_source.driver.reader import ShareGroupStreamReader
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, Seeds, mistake
from tests.simulation import session as simulated_session


@mistake(
    rules.EPOCH_OUTLIVES_SESSION,
    tests=("share_source/test_source_reader::test_a_fenced_reader_fails_by_name_and_never_rejoins_by_itself",),
)
def a_fenced_reader_joins_again(patch: Patch) -> None:
    def call(self: MemberSession, request_of: RequestOf[Any]) -> Any:
        try:
            return self._call(request_of)
        except FencedMemberEpoch:
            self._fenced = None
            again = JoinGroup(group_id=self.group_id, member_id=self.member_id, process_id="again")
            self._joined = self._client.call(again)
            return self._call(request_of)

    patch.setattr(MemberSession, "call", call)


@mistake(
    rules.EPOCH_OUTLIVES_SESSION,
    tests=("share_source/test_source_reader::test_a_fenced_reader_fails_by_name_and_never_rejoins_by_itself",),
)
def a_fenced_reader_asks_on(patch: Patch) -> None:
    right = MemberSession._call

    def call(self: MemberSession, request_of: RequestOf[Any]) -> Any:
        self._fenced = None
        return right(self, request_of)

    patch.setattr(MemberSession, "_call", call)


@mistake(
    rules.EPOCH_OUTLIVES_SESSION,
    tests=("share_source/test_source_reader::test_a_lapsed_reader_comes_back_naming_its_epoch",),
)
def a_lapsed_reader_comes_back_as_a_new_process(patch: Patch) -> None:
    def again(self: MemberSession) -> None:
        self._joined = self._client.call(JoinGroup(group_id="billing", member_id=self.member_id, process_id="again"))

    patch.setattr(MemberSession, "_join_again", again)


@mistake(
    rules.HEARTBEAT_HAS_ITS_OWN_TIMEOUT,
    tests=(
        "share_source/test_source_reader::test_a_heartbeat_has_a_timeout_of_its_own_well_below_the_session",
        "share_source/test_source_reader::test_the_join_of_a_lapsed_session_waits_no_longer_than_a_heartbeat",
    ),
    simulator=(Seeds("stalls"),),
)
def wait_for_a_heartbeat_as_long_as_for_any_answer(patch: Patch) -> None:
    """In the product's session and in the simulator's."""
    for each in (session, simulated_session):
        patch.setattr(each, "heartbeat_timeout_s", lambda joined: CALL_TIMEOUT_S)


@mistake(rules.OUTAGE_IS_RIDDEN_OUT, simulator=(Seeds("stalls"),))
def fail_while_brokers_do_not_answer(patch: Patch) -> None:
    patch.setattr(BrokerNotReachable, "retriable", False)


@mistake(
    rules.PARTITIONS_IS_IDEMPOTENT,
    tests=("share_source/test_source_reader::test_partitions_is_asked_for_once_per_process_and_end",),
)
def ask_for_a_plan_at_each_call(patch: Patch) -> None:
    def partitions(self: ShareGroupStreamReader, start: Any, end: Any) -> Any:
        return self._start_plan(plan_reader.PlanOffset.parse(end, self._options.group_id))

    patch.setattr(ShareGroupStreamReader, "partitions", partitions)


@mistake(
    rules.PLAN_IS_THE_LOGGED_ONE,
    tests=(
        "core/test_logged_plan::test_a_replay_of_another_plan_fails_before_a_record_is_read",
        "core/test_logged_plan::test_the_reader_sends_its_log_with_the_start",
    ),
)
def start_without_the_log(patch: Patch) -> None:
    def start(**fields: Any) -> StartPlan:
        return StartPlan(**{**fields, "logged": None})

    patch.setattr(plan_reader, "StartPlan", start)


@mistake(
    rules.DATA_LOSS_FAILS_ONCE,
    tests=("share_source/test_source_reader::test_data_loss_fails_the_query_once_and_a_restart_continues",),
)
def never_fail_for_a_loss(patch: Patch) -> None:
    def start_plan(self: ShareGroupStreamReader, offset: Any) -> Any:
        session = self._joined_as(offset.member_id)
        reply = session.call(lambda who: plan_reader.StartPlan(**who, plan_id=offset.plan_id, fail_on_data_loss=True))
        return [
            plan_reader.TaskPartition(task)
            for task in self._tasks(reply.plan.partitions, offset.plan_id, session.isolation_level, ordered=False)
        ]

    patch.setattr(ShareGroupStreamReader, "_start_plan", start_plan)


@mistake(
    rules.AVAILABLE_NOW_DRAINS,
    tests=("share_source/test_source_reader::test_available_now_drains_the_records_present_at_its_start",),
)
def available_now_has_no_end(patch: Patch) -> None:
    right = transactions.bounds
    patch.setattr(transactions, "bounds", lambda partitions, facts, until: right(partitions, facts, None))


@mistake(
    rules.AVAILABLE_NOW_DRAINS,
    tests=("share_source/test_source_reader::test_available_now_drains_the_records_present_at_its_start",),
)
def available_now_is_not_known(patch: Patch) -> None:
    patch.setattr(ShareGroupStreamReader, "prepareForTriggerAvailableNow", lambda self: None)


@mistake(
    rules.AVAILABLE_NOW_DRAINS,
    tests=("share_source/test_source_reader::test_available_now_does_not_wait_for_the_locks_of_others",),
)
def available_now_until_everything_is_acknowledged(patch: Patch) -> None:
    """An answer that is not `start` as long as anything is not delivered to completion."""
    right = ShareGroupStreamReader.latestOffset

    def latest(self: ShareGroupStreamReader, start: Any, limit: Any) -> Any:
        end = right(self, start, limit)
        group = self._session._client.group  # type: ignore[union-attr]
        undone = any(run.state in (0, 1) for _, _, run in group.partition().runs)
        return {**end, "asked": start.get("asked", 0) + 1} if undone else end

    patch.setattr(ShareGroupStreamReader, "latestOffset", latest)


ONCE_A_RUN = ("share_source/test_source_reader::test_available_now_delivers_a_released_record_once",)


@mistake(rules.AVAILABLE_NOW_RELEASES_ONCE, tests=(*ONCE_A_RUN,))
def a_release_without_a_delay_does_not_say_when(patch: Patch) -> None:
    right = complete_plan.query_released

    def released(run: Any, config: Any, not_before_ms: int | None, disposition: Any, **how: Any) -> Any:
        after = right(run, config, not_before_ms, disposition, **how)
        return after._replace(not_before_ms=after.not_before_ms if config.share_release_backoff_ms else None)

    patch.setattr(complete_plan, "query_released", released)


@mistake(
    rules.TRIGGER_ONCE_IS_REFUSED, tests=("share_source/test_source_reader::test_trigger_once_is_refused_by_name",)
)
def take_trigger_once(patch: Patch) -> None:
    patch.setattr(reader, "ReadAllAvailable", type("Never", (ReadLimit,), {}))


@mistake(
    rules.DAMAGE_IS_REJECTED_FIRST,
    tests=("share_source/test_source_reader::test_what_a_replay_cannot_read_is_rejected_and_never_accepted",),
)
def leave_out_of_the_tasks_what_cannot_be_read(patch: Patch) -> None:
    """The coordinator is not notified, and the completion accepts records that no task has read."""
    patch.setattr(plan_reader, "reject_damaged", lambda *_: None)


@mistake(
    rules.LOOK_FOR_DAMAGE_ENDS,
    tests=("share_source/test_damaged_records::test_a_driver_looks_through_damaged_batches_for_a_minute_at_most",),
)
def look_for_damage_without_an_end(patch: Patch) -> None:
    patch.setattr(damaged_records, "MOST_S", 1e9)


@mistake(
    rules.TOPIC_IS_GONE_AFTER_A_DOUBT,
    tests=(
        "brokers/test_topic_doubts::test_a_topic_is_deleted_only_when_it_was_missing_for_a_minute",
        "brokers/test_topic_doubts::test_a_doubt_ends_when_the_topic_is_shown",
        "service/test_offsets_by_partition::test_a_reset_of_all_topics_names_one_that_is_only_missing",
    ),
)
def take_a_missing_topic_for_deleted_at_once(patch: Patch) -> None:
    patch.setattr(TopicDoubts, "missing", lambda self, topic_ids: frozenset(topic_ids))


@mistake(
    rules.TOPIC_IS_GONE_AFTER_A_DOUBT, tests=("brokers/test_topic_doubts::test_a_doubt_ends_when_the_topic_is_shown",)
)
def doubt_on_when_the_topic_is_shown(patch: Patch) -> None:
    patch.setattr(TopicDoubts, "shown", lambda *_: None)
