"""The admin client on a real broker: groups of standalone coordinators, of one on demand, and of a state topic that no
coordinator serves; reset and deletion, seen by Kafka's own tools' records."""

import contextlib
import json

import pytest

from coordinator.client import on_demand
from coordinator.client.client import CoordinatorClient
from coordinator.protocol.errors import GroupIdNotFound, GroupNotEmpty, MembersNotKnown
from coordinator.protocol.messages import JoinGroup, LeaveGroup, NextPlan
from sharegroup import Admin
from tests.support.coordinator_process import kill_coordinators

pytestmark = pytest.mark.broker


def member(client, group_id, topic):
    """The member joins, acquires all records and leaves; the group is EMPTY, and has them AVAILABLE."""
    joined = client.call(
        JoinGroup(
            group_id=group_id, member_id="m1", process_id="p1", topics=(topic,), starting_offsets="earliest", query=True
        )
    )
    who = {"group_id": group_id, "member_id": "m1", "member_epoch": joined.member_epoch}
    assert client.call(NextPlan(**who)).plan.plan_id
    return who


def leave(client, who):
    client.call(LeaveGroup(**who))


def test_a_group_on_demand_is_administered_with_and_without_coordinator(kafka, topic, unique, runtime, monkeypatch):
    orders, group_id = topic(), unique("group")
    kafka.produce(orders, [str(n) for n in range(20)])
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(contextlib.closing(CoordinatorClient.connect(kafka.bootstrap)))
        admin = stack.enter_context(Admin({"bootstrap.servers": kafka.bootstrap}))
        who = member(client, group_id, orders)
        listed = admin.list_groups()
        assert next((g.state, listed.read_from) for g in listed.groups if g.group_id == group_id) == ("STABLE", "")
        asked, is_running = [], on_demand.OnDemand.is_running
        monkeypatch.setattr(on_demand.OnDemand, "is_running", lambda found: asked.append(found) or is_running(found))
        assert all(admin.describe_groups([group_id])[group_id].state == "STABLE" for _ in range(5))
        assert asked == [], "a coordinator that answers is not asked whether it runs"
        with pytest.raises(GroupNotEmpty):
            admin.reset_offsets(group_id, "latest", execute=True)
        leave(client, who)
        assert admin.reset_offsets(group_id, 7, execute=True).executed
        (audited,) = runtime.glob("audit-*.log")
        assert json.loads(audited.read_text().splitlines()[-1])["message"].endswith(f'changed=[["{orders}-0","0","7"]]')
        admin.alter_configs(group_id, {"share.session.timeout.ms": "600000"}, execute=True)
        kill_coordinators()

        listed = admin.list_groups(only_ids=True)
        assert listed.read_from == "state topic share-group-state"
        assert next(g.state for g in listed.groups if g.group_id == group_id) == "UNKNOWN"
        offsets = admin.list_offsets(group_id)
        assert [(p.start_offset, p.lag) for p in offsets.partitions] == [(7, 13)]
        assert [run.state for run in admin.all_in_flight(group_id)] == ["AVAILABLE"]
        assert admin.describe_groups([group_id, "none"])["none"].state == "DEAD"

        with pytest.raises(MembersNotKnown):  # the coordinator that this starts has not heard that the member left
            admin.delete_group(group_id, execute=True)
        with pytest.raises(MembersNotKnown):
            admin.reset_offsets(group_id, 9)
        assert admin.reset_offsets(group_id, 9, execute=True, force=True).executed
        who = member(client, group_id, orders)
        with pytest.raises(GroupNotEmpty):
            admin.delete_group(group_id, execute=True)
        leave(client, who)
        admin.delete_group(group_id, execute=True)
        with pytest.raises(GroupIdNotFound):
            admin.list_offsets(group_id)
        assert group_id not in [g.group_id for g in admin.list_groups().groups]
        kill_coordinators()
        assert group_id not in [g.group_id for g in admin.list_groups().groups], "it is gone from the topic, too"
