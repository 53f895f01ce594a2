"""The times of many groups: the earliest one, and the groups whose time has come, without a look at every group."""

import random

import pytest

from coordinator.core.due_times import DueTimes
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import DescribeGroup, Heartbeat, LeaveGroup
from tests.support.group_driver import SESSION_MS
from tests.support.runtime_service import Service, join

GROUPS = [f"group-{number}" for number in range(20)]


@pytest.fixture
def service(tmp_path):
    service = Service(tmp_path / "state.db")
    for group_id in GROUPS:
        service.create(group_id)
    yield service
    service.store.close()


def test_times_are_those_that_were_set_last():
    times, expected, chance = DueTimes(), {}, random.Random(3)
    for _ in range(5_000):
        group_id, due_ms = f"g{chance.randrange(30)}", chance.choice([None, *range(40)])
        times.set(group_id, due_ms)
        expected[group_id] = due_ms
        known = {group: due for group, due in expected.items() if due is not None}
        assert times.earliest_ms() == min(known.values(), default=None)
        now_ms = chance.randrange(45)
        assert times.due(now_ms) == sorted(group for group, due in known.items() if due <= now_ms)
        assert len(times) == len(known)


def test_old_times_are_forgotten():
    times = DueTimes()
    for due_ms in range(1_000, 0, -1):
        times.set("early", 0)
        times.set("g", due_ms)
    assert list(times._ordered) == [(0, "early"), (1, "g")]


def test_a_round_looks_at_the_groups_of_its_requests_alone(service, monkeypatch):
    service.runtime.next_deadline_ms()
    looked_at = []
    of_group = ShareGroup.next_deadline_ms
    kept_up, keep_up = [], service.runtime._keep_up_log

    def deadline(group):
        looked_at.append(group.group_id)
        return of_group(group)

    def keep(group_id, now_ms, *, must):
        kept_up.append(group_id)
        keep_up(group_id, now_ms, must=must)

    monkeypatch.setattr(ShareGroup, "next_deadline_ms", deadline)
    monkeypatch.setattr(service.runtime, "_keep_up_log", keep)
    for _ in range(50):
        service.ask(DescribeGroup(group_id="group-7"), "group-7")
        service.runtime.next_deadline_ms()
    assert set(looked_at) == set(kept_up) == {"group-7"}
    assert len(looked_at) <= 4 * 50


def test_each_group_s_session_ends_in_its_time(service):
    due_ms = {}
    for group_id in GROUPS:
        service.now_ms += 10
        service.ask(Heartbeat(group_id=group_id, member_id="m1", member_epoch=1), group_id)
        due_ms[group_id] = service.now_ms + SESSION_MS + 1
    for group_id in GROUPS:
        assert service.runtime.next_deadline_ms() == due_ms[group_id]
        service.runtime.step(due_ms[group_id] - 1)
        assert service.runtime.groups[group_id].sessions
        service.runtime.step(due_ms[group_id])
        assert not service.runtime.groups[group_id].sessions


def test_the_next_deadline_is_that_of_all_groups_after_any_change(service):
    chance = random.Random(5)
    for _ in range(300):
        group_id = chance.choice(GROUPS)
        what = chance.randrange(4)
        if what == 0:
            service.now_ms += chance.randrange(20_000)
        group = service.runtime.groups.get(group_id)  # None: it was unloaded at rest
        has_member = group is not None and group.sessions
        if what == 1 and has_member:
            member = group.members["m1"]
            service.ask(LeaveGroup(group_id=group_id, member_id="m1", member_epoch=member.member_epoch), group_id)
        elif what == 2 and not has_member:
            service.ask(join(group_id=group_id), group_id)
        elif what == 3:
            service.runtime._drop(group_id, service.now_ms)
        service.runtime.step(service.now_ms)
        found = [due for group in service.runtime.groups.values() if (due := group.next_deadline_ms()) is not None]
        found += [log.upkeep_ms(service.runtime.cold_after_ms) for log in service.runtime._logs.values()]
        found += service.runtime._reload_ms.values()
        assert service.runtime.next_deadline_ms() == min(found)
