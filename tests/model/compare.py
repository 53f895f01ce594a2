"""The core against the naive model, offset by offset; and the invariants that need no model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple

from coordinator.core.record_state import HELD, RecordState
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import LeftOut
from coordinator.protocol.values import SharePartitionKey
from tests.model.choice import ChoiceModel
from tests.model.state import AVAILABLE, KNOWN, PARTITIONS, Key, Plan
from tests.support.group_driver import TOPIC_ID, GroupDriver

COUNTS = ("accepted", "removed", "deleted", "skipped", "repeated")


def index_of(topic_id: str, partition: int) -> int:
    """The model's number of a share partition: those of topics of one name follow on each other."""
    return int(topic_id[len(TOPIC_ID) :] or 0) * PARTITIONS + partition


def topic_id_of(topic: int) -> str:
    return f"{TOPIC_ID}{topic or ''}"


def share_partition_key(index: int) -> SharePartitionKey:
    """The core's name of it."""
    return SharePartitionKey(topic_id_of(index // PARTITIONS), index % PARTITIONS)


class Comparison:
    """Both sides after a step; it remembers the start offsets, and what was handed out."""

    def __init__(self, core: GroupDriver, model: ChoiceModel) -> None:
        self.core = core
        self.model = model
        self.spso = dict.fromkeys(model.partitions, 0)
        self.receipts: dict[tuple[Key, int], tuple[str, int, str]] = {}

    def forget_group(self) -> None:
        """The group was deleted: receipts of before are of another group."""
        self.spso.clear()
        self.receipts.clear()

    def handed_out(self, chosen: dict[Key, int], holder: tuple[str, int, str]) -> None:
        """A receipt (an offset and its delivery count) goes to one process, in one plan."""
        for receipt in chosen.items():
            assert self.receipts.setdefault(receipt, holder) == holder, f"{receipt} was handed out before"

    def take_over_backoffs(self) -> None:
        """The core chooses how long a released record waits, within the retry policy's bounds."""
        for (index, offset), (now_ms, least_ms, most_ms) in self.model.backing_off.items():
            held = self.core.partition(index).runs.at(offset)
            assert held is not None
            at_ms = held.run.not_before_ms
            assert at_ms is not None and least_ms <= at_ms - now_ms <= most_ms, f"{index}:{offset} waits until {at_ms}"
            record = self.model.at((index, offset))
            record.not_before_ms, record.delay_ms = at_ms, at_ms - now_ms
        self.model.backing_off.clear()
        for name, (now_ms, low_ms, high_ms) in self.model.pausing.items():
            breaker = self.core.group.members[name].breaker
            assert breaker is not None and low_ms <= breaker.until_ms <= high_ms, f"{name} pauses: {breaker}"
            self.model.pause(self.model.members[name], now_ms, breaker.until_ms)
        self.model.pausing.clear()

    def compare(self) -> None:
        group = self.core.group
        assert set(group.members) == set(self.model.members)
        assert set(group.partitions) == set(map(share_partition_key, self.model.partitions))
        for index, naive in self.model.partitions.items():
            partition = self.core.partition(index)
            assert partition.start_offset >= self.spso.get(index, 0), "the start offset fell"
            self.spso[index] = partition.start_offset
            assert (partition.start_offset, partition.end_offset) == (naive.start, naive.end)
            assert partition.log_start == naive.log_start
            assert {kind: count for kind, count in enumerate(partition.counts.archived) if count} == +naive.archived
            without = enumerate(partition.counts.without_dead_letter)
            assert {kind: n for kind, n in without if n} == +naive.without_dead_letter
            for name in COUNTS:
                assert getattr(partition.counts, name) == getattr(naive, name), f"{partition!r}: {name}"
            assert not partition.unaccounted, f"{partition!r} does not account for {partition.unaccounted} offsets"
            self._compare_runs(index)  # a run has one holder, and so has each of its offsets
            end = self.core.ends[index]
            assert partition.lag(end) == self.model.lag(index, end)
        self._compare_dropped(group)
        for name, member in self.model.members.items():
            theirs = group.members[name]
            mine = (
                member.epoch,
                member.deadline_ms,
                member.completed,
                member.evidence,
                member.decides,
                member.query_id,
                astuple(member.breaker) if member.breaker.released else None,
            )
            sessions = (theirs.member_epoch, theirs.session_deadline_ms)
            facts = (theirs.completed or 0, theirs.evidence, theirs.decides, theirs.query_id, theirs.breaker)
            assert mine == (*sessions, *facts), name
        assert set(group.plans) == set(self.model.plans), "plans live while a run carries their number"
        assert group.last_plan_id == self.model.last_plan_id
        waiting = {name: (each.until_ms, each.topic_ids) for name, each in group.waiting.items()}
        assert waiting == {name: (ms, (topic_id_of(topic),)) for name, (ms, topic) in self.model.waits.items()}
        assert (group.decided, group.rejected) == (self.model.decided, self.model.rejected)
        self._compare_losses(group)

    def _compare_dropped(self, group: ShareGroup) -> None:
        """Share partitions that are no more stay counted, each of their offsets once."""
        dropped = group.dropped
        assert {name: getattr(dropped, name) for name in COUNTS if getattr(dropped, name)} == +self.model.dropped
        archived = {kind: count for kind, count in enumerate(dropped.archived) if count}
        assert archived == +self.model.dropped_archived
        assert not dropped.left, f"{dropped.left} offsets of dropped share partitions are not accounted for"

    def _compare_runs(self, index: int) -> None:
        partition, members, plans = (self.core.partition(index), self.core.group.members, self.core.group.plans)
        records, start = self.model.partitions[index].records, partition.start_offset
        if self.model.ordered:
            self._check_one_holder(index)
        locks = self.core.group.locks
        known = below = acquired = archiving = 0
        last_before, run_before = -1, None
        for first, last, run in partition.runs:
            assert last_before < first <= last, "runs overlap"
            assert first > last_before + 1 or run != run_before, "equal neighbours are not merged"
            last_before, run_before = last, run
            ((_, _, run),) = locks.shown([(first, last, run)])
            for offset in range(first, last + 1):
                record = records.get(offset)
                assert record is not None, f"{index}:{offset} should not be known"
                assert run == KNOWN(record), f"{index}:{offset} {run} {record}"
            known += last - first + 1
            if first < start:
                below += min(last + 1, start) - first
            if run[0] is RecordState.ARCHIVING:
                archiving += last - first + 1
                assert first in partition.runs._archiving, f"nobody would write the dead letter of {first}-{last}"
            assert (run.progress is not None) == (run.state == RecordState.IN_PROGRESS), f"{first}-{last} {run}"
            if run[0] in HELD:
                acquired += last - first + 1
                plan = plans[run.plan_id or 0]
                has_holder = members[plan.member_id].active or run.progress is not None
                assert has_holder, f"{first}-{last} is held by {plan.member_id}, which is gone"
                assert (run.deadline_ms is None) == plan.query, f"{first}-{last} {run}"
            else:
                assert run.deadline_ms is None, f"{first}-{last} has a lock, and no holder"
        assert known == len(records), "an offset is missing"
        assert known - below == partition.end_offset - start, "an offset of the window was skipped"
        assert acquired == partition.acquired_count
        assert archiving == partition.archiving_count

    def _check_one_holder(self, index: int) -> None:
        """In an ordered group, one member holds records of a partition, and none after one that waits."""
        plans = self.core.group.plans
        runs = self.core.partition(index).runs
        held = [segment for segment in runs if segment.run.state in HELD]
        holders = {plans[segment.run.plan_id or 0].member_id for segment in held}
        assert len(holders) < 2, f"{index} is held by {holders}"

    def _compare_losses(self, group: ShareGroup) -> None:
        """Compares the records that the log lost, and the members to whom each loss is still to be reported."""
        lost = sorted(set(self.model.unreported_losses))
        assert keys_of(group.unreported_losses) == lost, "lost while nobody held it"
        for before, after in zip(group.unreported_losses, group.unreported_losses[1:], strict=False):
            ends = (before.topic_id, before.partition, before.last + 1)
            assert ends < (after.topic_id, after.partition, after.first), "neighbours are one entry"
        for name, member in self.model.members.items():
            plan = group.members[name].newest
            assert (plan is None) == (member.newest is None)
            if plan is not None and member.newest is not None:
                assert keys_of(plan.unreported_losses) == sorted(set(member.newest.unreported_losses)), (
                    "lost while nobody read it"
                )
                assert keys_of(plan.lost_if_completed) == sorted(set(member.newest.lost_if_completed)), (
                    "lost, though the batch completes"
                )
                if plan.plan_id != group.members[name].completed:
                    assert keys_of(plan.data_loss) == sorted(set(member.newest.told))

    def compare_words(self) -> None:
        """Compares the group's answers to the service. They are slow to compute, so this is not done after each step of
        a walk."""
        group, model, now_ms = self.core.group, self.model, self.core.now_ms
        records = [r for p in model.partitions.values() for r in p.records.values()]
        deadlines = [m.deadline_ms for m in model.members.values() if m.deadline_ms is not None]
        deadlines += [r.deadline_ms for r in records if r.deadline_ms is not None]
        due_ms = group.next_deadline_ms()
        assert not deadlines or (due_ms is not None and due_ms <= min(deadlines) + 1), "a deadline would be missed"
        waits = any(r.state == AVAILABLE and (r.not_before_ms or 0) > now_ms for r in records)
        lives = any(m.deadline_ms is not None for m in model.members.values())
        assert group.may_rest(now_ms) == (not lives and not waits and not any(r.state in HELD for r in records))


def keys_of(lost: Iterable[LeftOut]) -> list[Key]:
    lost = list(lost)
    assert all(out.count == out.last - out.first + 1 for out in lost), "so few are not summed up"
    return sorted(
        (index_of(out.topic_id, out.partition), offset) for out in lost for offset in range(out.first, out.last + 1)
    )


def check_reclaimed(before: list[Key], plan: Plan, kept: dict[Key, int], left_out: Iterable[LeftOut]) -> None:
    """A batch leaves a record out only if its reclaim lists it."""
    out = keys_of(left_out)
    assert not set(out) & set(kept), "left out, and in the batch"
    assert len(out) == len(set(out)), "left out twice"
    assert set(out) <= set(before)
    assert set(before) <= {*out, *kept, *plan.told}, "left out, and not said"
