"""A coordinator counts the requests that it passes on to another host, says whom it asks, and hands over the groups
that only other hosts ask for."""

import logging
from types import SimpleNamespace

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

from coordinator.protocol.errors import CoordinatorNotAvailable
from coordinator.protocol.host_errors import OwnedElsewhere
from coordinator.protocol.rights import Caller
from coordinator.service.hosts import hosts
from coordinator.service.hosts.gateway import OwnerAway
from coordinator.service.metrics.counters import Counters
from coordinator.service.requests.asker import Asker
from coordinator.service.requests.decoding import Head
from coordinator.service.runtime.transaction import FromAnotherHost
from coordinator.service.stores.kafka.ownership import LivingOwner, this_process
from coordinator.state_log.owner_record import Owner
from coordinator.state_log.owner_state import OwnerState

OWNER = Owner(installation_id="far", process="p", host="far-host", pid=7, tenure="t", answers=1)
ASKER = Asker(Caller(), "peer", "5")


class Groups:
    """Serves those in ``mine``, and loads those in ``again`` again soon."""

    def __init__(self):
        self.mine, self.again = set(), set()

    def tenure(self, group_id):
        return "mine" if group_id in self.mine else ""

    def holds(self, group_id):
        return group_id in self.mine or group_id in self.again

    def hand_over(self, group_id, tenure):
        if self.tenure(group_id) == tenure:
            self.mine.remove(group_id)


class Passing:
    """Stands for the gateway: ``answers`` are the outcomes of requests that are passed on."""

    def __init__(self, transport, me):
        self.answers = []

    def owner_of(self, group_id):
        return None

    def pass_on(self, group_id, owner, name, body, **_):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Asked:
    """Stands for the requests of other hosts."""

    def __init__(self, transport, groups, me, handle):
        self.handle = handle


@pytest.fixture
def here(monkeypatch):
    """The hosts as this one knows them, and what it has counted."""
    monkeypatch.setattr(hosts, "Gateway", Passing)
    monkeypatch.setattr(hosts, "OwnerRequests", Asked)
    registry = CollectorRegistry()

    def answer(name, body, asker):
        return b"the answer"

    transport, groups, living = SimpleNamespace(now_s=lambda: 0.0), Groups(), LivingOwner(this_process("near"))
    found = hosts.Hosts(transport, groups, living, answer, Counters(registry), idle_s=300.0)
    found.count = lambda name, **labels: registry.get_sample_value(f"share_coordinator_{name}_total", labels)
    return found


def elsewhere():
    raise OwnedElsewhere.by("billing", OWNER)


def asked(here, handle=elsewhere):
    return here.answered("Heartbeat", pa.py_buffer(b"{}"), Head(group_id="billing"), ASKER, handle)


def test_requests_to_another_host_are_counted_and_it_is_named_once(here, caplog):
    caplog.set_level(logging.INFO)
    here.gateway.answers = [b"1", b"2", CoordinatorNotAvailable(group_id="billing", reason="no answer")]
    assert [asked(here), asked(here)] == [b"1", b"2"]
    with pytest.raises(CoordinatorNotAvailable):
        asked(here)
    assert here.count("passed_on_requests", result="answered") == 2
    assert here.count("passed_on_requests", result="failed") == 1
    (line,) = caplog.messages
    assert (
        line == "requests are passed on over Kafka: group=billing to its owner, the coordinator on far-host (process 7)"
    )


def test_requests_of_another_host_are_counted(here):
    assert here.requests.handle("Heartbeat", b"{}", ASKER) == b"the answer"
    assert here.count("requests_of_other_hosts", request="Heartbeat") == 1


@pytest.mark.parametrize("found", [OwnerState.SILENT, OwnerState.MOVED])
def test_members_of_a_group_are_unknown_whose_owner_is_silent(here, found):
    """An owner that says that it does not serve the group any more has put it to rest, with no member."""
    calls = [elsewhere, lambda: b"a copy"]
    here.gateway.answers = [OwnerAway(found, 3)]
    assert asked(here, lambda: calls.pop(0)()) == b"a copy"
    assert here.is_unknown("billing") is (found is OwnerState.SILENT)
    here._groups.mine.add("billing")
    assert not here.is_unknown("billing")
    asked(here, lambda: b"mine")
    here._groups.mine.clear()
    assert not here.is_unknown("billing"), "it was this process's since"


def test_members_of_a_group_are_known_whose_silent_owner_answers_again(here):
    calls = [elsewhere, lambda: b"a copy", elsewhere]
    here.gateway.answers = [OwnerAway(OwnerState.SILENT, 3), b"the owner's"]
    asked(here, lambda: calls.pop(0)())
    assert asked(here, lambda: calls.pop(0)()) == b"the owner's"
    assert not here.is_unknown("billing")


def asked_by_another(here, name="Heartbeat", group_id="billing", tenure="mine"):
    """Whether the group is this process's after such a request of another host."""
    origin = FromAnotherHost(tenure=tenure, not_after_ms=0, group_id=group_id)
    here.requests.handle(name, b"{}", ASKER._replace(origin=origin))
    return group_id in here._groups.mine


def test_a_group_that_only_other_hosts_ask_for_is_handed_over(here):
    here._groups.mine.update(("billing", "mail"))
    asked(here, lambda: b"mine")
    here._transport.now_s = lambda: 300.0
    assert asked_by_another(here), "a member of this host has asked within the time"
    here._transport.now_s = lambda: 300.1
    assert asked_by_another(here, "DescribeGroup"), "a look is no member"
    assert asked_by_another(here, tenure="an earlier one")
    assert not asked_by_another(here)
    assert "mail" in here._groups.mine, "another group stays"


def test_a_group_that_this_host_s_members_ask_for_stays(here):
    here._groups.mine.add("billing")
    for now_s in (0.0, 299.0, 598.0):
        here._transport.now_s = lambda now_s=now_s: now_s
        asked(here, lambda: b"mine")
        assert asked_by_another(here)


def test_a_group_that_is_loaded_again_meanwhile_stays(here):
    def fails():
        here._groups.mine.clear()
        raise CoordinatorNotAvailable(group_id="billing", reason="its append is in doubt")

    here._groups.mine.add("billing")
    here._groups.again.add("billing")
    with pytest.raises(CoordinatorNotAvailable):
        asked(here, fails)
    here._groups.mine.add("billing")
    assert asked_by_another(here)
