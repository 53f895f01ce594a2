"""Machines that were resumed from one snapshot have one host name, boot id and runtime folder: their coordinators count
as one host's, and take a group from each other without a question."""

import pytest

from coordinator.protocol.errors import NotCoordinator
from coordinator.protocol.messages import AcquireRecords
from coordinator.service import open_state
from tests.support.host import Host, acquired

pytestmark = pytest.mark.broker


def test_copies_of_a_machine_hand_out_each_record_once(kafka, topic, unique, tmp_path, monkeypatch):
    """The fence decides which copy may write; the other copy refuses its members by name."""
    monkeypatch.setattr(open_state, "installation_id", lambda place: "of the machine that was copied")
    orders, group = topic("orders"), unique("group")
    kafka.produce(orders, [str(number) for number in range(20)], partition=0)
    with Host(kafka.bootstrap, tmp_path / "one") as one, Host(kafka.bootstrap, tmp_path / "two") as two:
        first = one.join(group, orders, "a")
        held = acquired(one, first)
        second = two.join(group, orders, "b")
        with pytest.raises(NotCoordinator):
            one.client.call(AcquireRecords(**first, max_records=10))
        held += acquired(two, second)
        first = one.rejoin(orders, first)
        with pytest.raises(NotCoordinator):
            two.client.call(AcquireRecords(**second, max_records=10))
        assert acquired(one, first) == []
        assert sorted(held) == list(range(20))
