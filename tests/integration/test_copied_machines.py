"""Machines that were resumed from one snapshot have one host name, boot id and runtime folder: their coordinators count
as one host's, and take a group from each other without a question."""

import pytest

from coordinator.protocol.errors import NotCoordinator
from coordinator.protocol.messages import AcquireRecords
from coordinator.service import open_state
from tests.support.host import Host, acquired
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker
LASTS = {"share_session_timeout_ms": "600000", "share_record_lock_duration_ms": "600000"}


def test_copies_of_a_machine_hand_out_each_record_once(kafka, topic, unique, tmp_path, monkeypatch):
    """The fence decides which copy may write; the other copy refuses its members by name."""
    monkeypatch.setattr(open_state, "installation_id", lambda place: "of the machine that was copied")
    orders, group = topic("orders"), unique("group")
    kafka.produce(orders, [str(number) for number in range(20)], partition=0)
    with Host(kafka.bootstrap, tmp_path / "one") as one, Host(kafka.bootstrap, tmp_path / "two") as two:
        first = one.join(group, orders, "a", **LASTS)
        held = wait_until(lambda: acquired(one, first))
        second = two.join(group, orders, "b")
        with pytest.raises(NotCoordinator):
            one.client.call(AcquireRecords(**first, max_records=10))
        held += wait_until(lambda: acquired(two, second))
        assert sorted(held) == list(range(20))
        assert acquired(one, one.join(group, orders, "c")) == [], "the members of the other copy hold all records"
