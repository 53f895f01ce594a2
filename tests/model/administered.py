"""The naive model with an administrator who decides records by hand, and deletes offsets and groups."""

from __future__ import annotations

from dataclasses import replace

from tests.model.choice import ChoiceModel
from tests.model.queues import give_back_after
from tests.model.state import ARCHIVING, AVAILABLE, HELD, REJECTED, TERMINAL, Partition, Record, Refused


class AdministeredModel(ChoiceModel):
    """ChoiceModel, with decisions by hand and deletions."""

    def decide_by_hand(self, index: int, first: int, last: int, decision: str, reason: str) -> None:
        """Given up, unless a member holds one of them; or available now, as if nobody had tried them."""
        partition = self.partitions[index]
        chosen = {
            (index, o): r
            for o, r in partition.records.items()
            if first <= o <= last and r.state not in (*TERMINAL, ARCHIVING)
        }
        if decision == "archive":
            if not chosen or any(record.state in HELD for record in chosen.values()):
                raise Refused("held, or not in flight")
            for key, record in chosen.items():
                self.give_up(key, record, REJECTED, reason)
        else:
            anew = {
                k: Record(AVAILABLE, r.count, plan_id=None if r.quarantined else r.plan_id) for k, r in chosen.items()
            }
            changed = {k: r for k, r in chosen.items() if replace(r, reason="") != anew[k]}
            of_consumer = any(r.deadline_ms is not None and k[1] >= partition.log_start for k, r in changed.items())
            if not changed:
                raise Refused("not in flight")
            for key, record in changed.items():
                anew[key].reason = reason
                if record.state in HELD and key[1] < partition.log_start:
                    self.log_lost(key, record.plan_id)
                    self.archive(key, record)
                else:
                    self.met["released by hand, and held"] += record.state in HELD
                    partition.records[key[1]] = anew[key]
            if self.ordered and of_consumer:
                give_back_after(partition, last)
        self.settle()

    def delete_offsets(self, indexes: list[int], *, force: bool, now_ms: int) -> None:
        """Nothing of the share partitions is left but what was handed out, so that no receipt of before fits later."""
        members = [member for member in self.members.values() if not member.query]
        if any(m.deadline_ms or m.unheard_until_ms >= now_ms for m in members):
            raise Refused("subscribers")
        if not force and any(key[0] in indexes for key, _ in self.waiting_for_dead_letters()):
            raise Refused("dead letters")
        self.ends_before |= {index: self.drop(index) for index in indexes}
        for plan in self.plans.values():
            plan.said = {key: said for key, said in plan.said.items() if key[0] not in indexes}
        self.met["offsets deleted"] += 1
        self.settle()

    def begin_anew(self, starts: dict[int, int]) -> None:
        """Share partitions get their start offsets, perhaps for the second time."""
        for index, start in starts.items():
            highest = max((count for key, count in self.handed.items() if key[0] == index), default=0)
            end = max(start, self.ends_before.pop(index, 0) if highest else 0)
            again = range(start, end)
            records = {offset: Record(AVAILABLE, highest) for offset in again}
            self.partitions[index] = Partition(records, start, end)
            self.handed |= {(index, offset): highest for offset in again}

    def check_deletable(self, *, force: bool, now_ms: int) -> None:
        """The group has no members, and no dead letter waits, unless by force."""
        if any(m.deadline_ms or m.unheard_until_ms >= now_ms for m in self.members.values()):
            raise Refused("members")
        if not force and self.waiting_for_dead_letters():
            raise Refused("dead letters")
        self.met["group deleted"] += 1

    def forget_group(self) -> None:
        """As a group that never was; only what the walk has met, and which topic there is, stays."""
        met, topic = self.met, self.topic
        self.__init__({})  # type: ignore[misc]
        self.met, self.topic, self.assignment_epoch = met, topic, 0
