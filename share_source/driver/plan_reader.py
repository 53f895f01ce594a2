"""The reader of a streaming query, without ``latestOffset``, which differs between versions of Spark:
share_source.driver.reader has it for Spark 4.2 and newer, share_source.driver.reader_without_start for older ones.
Spark runs a reader in a Python process of its own on the driver's host (docs/trust/protocol.md, "One micro-batch").

The reader calls only the coordinator: it acquires, starts and completes plans, and cuts each plan into tasks. Executors
read the tasks' records from the brokers. Rule: everything that must survive a crash is in the coordinator's state or in
Spark's log, never in the reader."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from coordinator.client.client import CoordinatorClient
from coordinator.client.on_demand import OnDemand
from coordinator.client.session import MemberSession
from coordinator.config.resolved import GroupConfig
from coordinator.protocol.errors import DataLoss, ShareGroupError
from coordinator.protocol.messages import LatestOffsets, NextPlan, PartitionPlan, Plan, PlanReply, StartPlan
from coordinator.protocol.receipts import incarnation_of, receipt_digest
from coordinator.protocol.repeated_lines import LogOnce
from share_source.application import application
from share_source.driver.batch_bytes import BatchBytes
from share_source.driver.damaged_records import damaged_offsets, reject_damaged, without
from share_source.driver.idle_pace import IdlePace
from share_source.driver.left_out_lines import named_left_out, tell_breaker, warn_altered, warn_given_up, warn_left_out
from share_source.driver.plan_offset import PlanOffset, initial_offset, plan_offset
from share_source.driver.process_end import before_sigterm_ends, last_lines
from share_source.driver.query_lines import QueryCounts, log_started
from share_source.errors import UnreadableOffset
from share_source.executor.offset_ranges import PartitionRanges, plan_tasks
from share_source.executor.range_reader import ReadTask
from share_source.executor.task_reader import read_task
from share_source.held_back import tell_held_back
from share_source.options import SourceOptions
from share_spark.border import named_errors_first, named_errors_first_in
from share_spark.log import log_for_query
from share_spark.task_client import tell_task_error
from share_spark.task_plans import BATCH_ID, QUERY_ID, TaskPlan, endpoint_configs, note, offer_start

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)
_once = LogOnce(logger)

ACKNOWLEDGEMENT_MODE = "share.acknowledgement.mode"


def open_session(options: SourceOptions, member_id: str) -> MemberSession:
    """Find or start the coordinator, and join the group. Raises ShareGroupError if the group's configs or the
    subscription are wrong, or if the coordinator can't be reached or started."""
    servers, configs = options.bootstrap_servers, options.coordinator_configs
    client = CoordinatorClient.connect(servers, options.kafka_config, configs=configs)
    name, pid = application()
    return MemberSession(
        client,
        options.group_id,
        member_id,
        topics=options.topics,
        topic_pattern=options.topic_pattern,
        assign=options.assign,
        configs=options.group_configs,
        starting_offsets=options.starting_offsets,
        member_name=options.member_name,
        client_id=options.kafka_config.get("client.id", "") or name,
        client_pid=pid,
    )


class TaskPartition(InputPartition):
    """One Spark task's part of a plan. ``plan``: the plan that is named in the task's signals."""

    def __init__(self, task: ReadTask, plan: TaskPlan | None = None) -> None:
        super().__init__(None)
        self.task, self.plan = task, plan

    def __repr__(self) -> str:
        return f"<TaskPartition {self.task.partitions!r}>"


class PlanReader(DataSourceStreamReader):
    """The stream reader without its ``latestOffset``. Spark may repeat calls; docs/trust/protocol.md has the order."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._new_member_id = ""
        self._session: MemberSession | None = None
        self._available_now = False
        self._until: dict[str, dict[str, int]] | None = None
        self._began_ms: int | None = None
        self._acquired: PlanOffset | None = None
        self._tasks_of: tuple[str, list[InputPartition]] | None = None
        self._counts = QueryCounts()
        self._pace = IdlePace()
        self._batch_bytes = BatchBytes(options.max_bytes_per_trigger)
        self._once = LogOnce(logger)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Returns the offset of a new query, with a new member id; repeated calls return the same one. The reader does
        not join yet: if the query is replayed, its log names another member."""
        self._new_member_id = self._new_member_id or uuid.uuid4().hex
        return initial_offset(self._options.group_id, self._new_member_id)

    def _next_offset(self, start: dict[str, Any], most: int | None) -> dict[str, Any]:
        """Complete ``start``, whose batch is committed. Then acquire the next plan, of up to ``most`` records. Returns
        the plan's offset, or ``start`` if there is nothing to acquire. Raises ShareGroupError if the checkpoint is
        wrong (the errors of PlanOffset.parse), or if the coordinator refuses the request."""
        with self._telling_the_group():
            offset = PlanOffset.parse(start, self._options.group_id, starts_at=start)
            session = self._joined_as(offset.member_id)
            reply = self._within_the_rate(session, offset.plan_id, self._batch_bytes.most(most))
            warn_given_up(self._options.group_id, reply.given_up)
            self._warn_altered(offset.plan_id, reply)
            self._counts.add(reply)
            tell_breaker(self._once, reply.breaker)
            group_id, acquired = self._options.group_id, bool(reply.plan.plan_id)
            tell_held_back(self._once, "the query", group_id, reply, acquired=acquired)
            if not reply.plan.plan_id:
                self._pace.nothing()
                return start
            self._pace.busy()
            end = plan_offset(offset.group_id, offset.member_id, reply.plan)
            self._acquired = PlanOffset.parse(end, self._options.group_id)
            return end

    @contextmanager
    def _telling_the_group(self) -> Iterator[None]:
        """A context in which a named error, which ends the query, reaches the group as well."""
        try:
            yield
        except ShareGroupError as error:
            if self._session is not None:
                self._session.tell_ending(error)
            raise

    def _warn_altered(self, plan_id: str, reply: PlanReply) -> None:
        """Log altered start offsets once. The coordinator repeats them until the next plan is acquired."""
        told = [each._replace(start_offset=None) for each in reply.altered]  # the offset moves on
        if self._once.changes("altered", told) and told:
            warn_altered(self._options.group_id, plan_id, reply.altered, reply.altered_total)

    def _within_the_rate(self, session: MemberSession, start: str, most: int | None) -> PlanReply:
        """As :meth:`_next_plan`. An AvailableNow run, which would end without records, waits while the group's rate is
        used up."""
        reply = self._next_plan(session, start, most)
        while reply.retry_ms and self._available_now:
            time.sleep(reply.retry_ms / 1000)
            told = {"given_up": reply.given_up, "outcomes": reply.outcomes}  # only the first answer has them
            reply = msgspec.structs.replace(self._next_plan(session, start, most), **told)
        return reply

    def _next_plan(self, session: MemberSession, start: str, most: int | None) -> PlanReply:
        """Complete ``start``, and return the coordinator's reply. While the coordinator must read more of the log to
        complete the plan, the reader asks again."""
        while True:
            reply = self._ask_next(session, start, most)
            if not reply.undecided_left:
                return reply
            logger.warning(
                "share group %s, plan %s: the batch is committed, and no sink decided some of its offsets. Before the "
                "coordinator releases them, it checks that the log has a record at each: %d offset(s) left to check",
                *(self._options.group_id, start, reply.undecided_left),
            )

    def _ask_next(self, session: MemberSession, start: str, most: int | None) -> PlanReply:
        wait_ms = 0 if self._available_now else self._pace.wait_ms()
        return session.call(
            lambda who: NextPlan(
                **who, start=start, max_records=most, wait_ms=wait_ms, until=self._until, began_ms=self._began_ms
            )
        )

    @named_errors_first
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Returns the tasks of the plan in ``end``. Member and plan come from ``end`` alone, since Spark replays batch
        0 with a new ``start``.

        Raises:
            DataLoss: the log lost records of the plan, and failOnDataLoss is set.
            RefusedOption: the group is ordered, and an option would cut its partitions.
            PlanDiffersFromLog: the group's plan differs from the plan in Spark's log; nothing was changed.
            ShareGroupError: the checkpoint is wrong (see PlanOffset.parse), or the coordinator refuses the request."""
        self._pace.busy()
        offset = PlanOffset.parse(end, self._options.group_id, starts_at=start)
        if not offset.plan_id or start == end:
            return []
        if self._tasks_of is None or self._tasks_of[0] != offset.plan_id:
            with self._telling_the_group():
                self._tasks_of = (offset.plan_id, self._start_plan(offset))
        return self._tasks_of[1]

    def _start_plan(self, offset: PlanOffset) -> list[InputPartition]:
        session = self._joined_as(offset.member_id)
        reply = session.call(
            lambda who: StartPlan(
                **who,
                plan_id=offset.plan_id,
                fail_on_data_loss=self._options.fail_on_data_loss,
                acknowledgement_mode=self._options.group_configs.get(ACKNOWLEDGEMENT_MODE, "").strip(),
                logged=offset.partitions(),
                acquired_here=offset == self._acquired,
            )
        )
        warn_left_out(self._options.group_id, offset.plan_id, reply.left_out)
        self._warn_altered(offset.plan_id, reply)
        if reply.data_loss:
            count, ranges = sum(entry.count for entry in reply.data_loss), named_left_out(reply.data_loss)
            loss = DataLoss(group_id=self._options.group_id, count=count, ranges=ranges)
            if self._options.fail_on_data_loss:
                raise loss
            logger.warning("%s", loss)
        self._options.check_order(ordered=reply.ordered)
        partitions, level = reply.plan.partitions, reply.isolation_level or session.isolation_level
        if offset != self._acquired:
            partitions = self._without_damage(session, reply.plan, level)
        plan_id = reply.plan.plan_id or offset.plan_id
        self._batch_bytes.measure(self._task(self._ranges_of(partitions, plan_id), level))
        tasks = self._tasks(partitions, plan_id, level, ordered=reply.ordered)
        plan = self._plan_of_tasks(session, plan_id)
        return [TaskPartition(task, plan) for task in tasks]

    def _plan_of_tasks(self, session: MemberSession, plan_id: str) -> TaskPlan:
        found = session.on_demand
        configs = endpoint_configs(self._options.coordinator_configs) if found is None else found.configs
        return TaskPlan(
            group_id=session.group_id,
            member_id=session.member_id,
            member_epoch=session.member_epoch,
            plan_id=plan_id,
            configs=dict(configs),
            cluster_id="" if found is None else found.cluster_id,
            state_store="" if found is None else found.state_store,
        )

    def _without_damage(self, session: MemberSession, plan: Plan, level: str) -> tuple[PartitionPlan, ...]:
        """Returns the plan's partitions without the unreadable offsets, which are rejected first: a task of an earlier
        attempt may have failed on them, and tasks stage nothing of what they read. Raises ShareGroupError if the
        coordinator refuses the outcomes."""
        damaged = damaged_offsets(self._task(self._ranges_of(plan.partitions, plan.plan_id), level))
        if not damaged:
            return plan.partitions
        reject_damaged(session, plan.partitions, damaged)
        return without(plan.partitions, damaged)

    def _ranges_of(self, partitions: Iterable[PartitionPlan], plan_id: str) -> tuple[PartitionRanges, ...]:
        group_id, incarnation = self._options.group_id, incarnation_of(plan_id)
        return tuple(
            PartitionRanges(
                p.topic, p.partition, p.ranges, p.topic_id, receipt_digest(group_id, incarnation, p.topic_id)
            )
            for p in partitions
        )

    def _tasks(
        self, partitions: Iterable[PartitionPlan], plan_id: str, isolation_level: str, *, ordered: bool
    ) -> list[ReadTask]:
        options = self._options
        cut = plan_tasks(
            self._ranges_of(partitions, plan_id),
            min_partitions=options.min_partitions,
            max_records_per_partition=options.max_records_per_partition,
            parallelism=os.cpu_count() or 1,
            ordered=ordered,
        )
        # A task without ranges leaves the note by which the sink of an empty batch knows its plan.
        return [self._task(of_task, isolation_level) for of_task in cut or [()]]

    def _task(self, partitions: tuple[PartitionRanges, ...], isolation_level: str) -> ReadTask:
        options = self._options
        return ReadTask(
            group_id=options.group_id,
            partitions=partitions,
            kafka_config=options.kafka_config,
            isolation_level=isolation_level,
            include_headers=options.include_headers,
            fail_on_data_loss=options.fail_on_data_loss,
            poll_timeout_ms=options.poll_timeout_ms,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task, on an executor: no state of the reader is used. Raises as
        share_source.executor.task_reader.read_task."""
        assert isinstance(partition, TaskPartition)
        if partition.plan is not None:
            _leave_note(partition.plan, partition.task.kafka_config)
        plans = [] if partition.plan is None else [partition.plan]
        return named_errors_first_in(_telling_groups(plans, read_task(partition.task)))

    def commit(self, end: dict[str, Any]) -> None:
        """Completes nothing, since Spark calls this too late or never: the next ``latestOffset(start=end)`` tells that
        the batch is committed. But the call shows that the query had a batch, perhaps of another source, so the next
        wait is short."""
        self._pace.busy()

    @named_errors_first
    def stop(self) -> None:
        """Stop the heartbeats, and log what this process did. The session is left to its timeout, so that a query that
        restarts within it keeps its batch. Raises UnreadableOffset if Spark calls this after it has read an offset that
        is no JSON."""
        error = sys.exc_info()[1]
        with last_lines():
            if self._session is not None and self._session.close():
                member_id = self._session.member_id
                logger.info("query ended: group=%s member=%s %s", self._options.group_id, member_id, self._counts)
        if isinstance(error, json.JSONDecodeError):  # Spark's runner parses the log before it calls the reader
            raise UnreadableOffset(offset=error.doc[:200], reason=f"it is no JSON, {error}") from None

    def _joined_as(self, member_id: str) -> MemberSession:
        if self._session is not None and self._session.member_id != member_id:
            self._session.close()
            self._session = None
        if self._session is None:
            log_for_query(group=self._options.group_id, member=member_id)
            self._session = open_session(self._options, member_id)
            before_sigterm_ends(self.stop)
            log_started(self._options, self._session, is_new=member_id == self._new_member_id)
            self._options.check_order(ordered=GroupConfig.parse(self._session.joined.configs).is_ordered)
        if self._available_now and self._until is None:
            reply = self._session.call(lambda who: LatestOffsets(**who))
            self._until, self._began_ms = reply.ends, reply.now_ms
        return self._session


def _telling_groups(plans: list[TaskPlan], items: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a task's records. A named error reaches the group as well."""
    try:
        yield from items
    except ShareGroupError as error:
        tell_task_error(plans, error)
        raise


def _leave_note(plan: TaskPlan, kafka_config: Mapping[str, str]) -> None:
    """Note which plan the batch is, for the signals of tasks on this host, and offer to start a coordinator on demand
    that passes the signals on. A failure is logged; it fails no task."""
    context = TaskContext.get()
    query_id = context.getLocalProperty(QUERY_ID) if context else None
    batch_id = context.getLocalProperty(BATCH_ID) if context else None
    if not query_id or not batch_id:
        return
    try:
        note(query_id, batch_id, plan)
        if plan.state_store == "kafka":  # the state is nowhere but in a file of the driver's host otherwise
            here = OnDemand(
                bootstrap_servers=kafka_config.get("bootstrap.servers", ""),
                kafka_config=kafka_config,
                cluster_id=plan.cluster_id,
                state_store=plan.state_store,
                configs=plan.configs,
            )
            offer_start(here.key, partial(_start, here))
    except Exception as error:  # noqa: BLE001 - a note never fails a task
        _log_without_note(f"{type(error).__name__}: {error}")


def _start(on_demand: OnDemand) -> None:
    try:
        on_demand.connect().close()
    except Exception as error:  # noqa: BLE001 - the thread waits for the next task
        _log_without_note(f"{type(error).__name__}: {error}")


def _log_without_note(reason: str) -> None:
    """Log, once per process and reason, that tasks on this host can't send signals."""
    if _once.changes("note", reason):
        logger.warning("sharegroup.progress() has no effect on this host: %s", reason)
