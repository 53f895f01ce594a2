"""Rules of the Kafka store, each switched off: a scenario that passes with the rule has to fail without it.

The rules are ◆ in docs/trust/protocol.md. The scenarios are those of test_kafka_store.py and
test_kafka_store_faults.py, told in a few lines.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.core.commands import CreateGroup
from coordinator.protocol.errors import CoordinatorNotAvailable, GroupTakenOver, StateRecordUnreadable
from coordinator.protocol.messages import DescribeGroup, OpenSink
from coordinator.service.handlers.open_sink import open_sink
from coordinator.service.runtime.runtime import CoordinatorRuntime
from coordinator.service.runtime.transaction import Access, one
from coordinator.service.stores.store import StoreFenced, StoreOutcomeUnknown
from tests.mistakes.store import MISTAKES
from tests.support.fake_cluster import FakeCluster
from tests.support.one_partition import one_partition
from tests.support.state_topics import Hosts, in_mid_write, taken
from tests.support.store_writes import append

pytestmark = pytest.mark.broker

Patch = pytest.MonkeyPatch


# --- the scenarios


def the_newest_claimant_wins(hosts: Hosts) -> None:
    """docs/learn/concepts.md, Where a group lives: a fenced owner raises an error by name, and takes nothing back."""
    old, new = hosts("one"), hosts("two")
    taken(old)
    append(old, {"billing": [b"a"]})
    assert taken(new) == [b"a"]
    with pytest.raises(StoreFenced):
        append(old, {"billing": [b"late"]})
    with pytest.raises(GroupTakenOver):
        taken(old, claim=False)
    append(new, {"billing": [b"b"]})
    assert taken(new) == [b"a", b"b"]


def a_sink_takes_no_group_back(hosts: Hosts) -> None:
    """docs/learn/concepts.md, Where a group lives: a running query's sinks take no group back either, whatever they
    set."""
    old, new = one_partition(CoordinatorRuntime(hosts("one"))), one_partition(CoordinatorRuntime(hosts("two")))
    sink = OpenSink(group_id="billing", configs={"errors.deadletterqueue.max.reject.ratio": "0.5"})
    try:
        old.call("billing", one(CreateGroup(incarnation="i", topic_ids=True)), Access.CLAIM)
        new.call("billing", one(DescribeGroup(group_id="billing")), Access.CLAIM)
        for _ in range(2):
            with pytest.raises(GroupTakenOver):
                open_sink(old, FakeCluster(), sink)
        assert not new.call("billing", one(DescribeGroup(group_id="billing"))).configs
        open_sink(new, FakeCluster(), sink)
    finally:
        old.close()
        new.close()


def no_answer_comes_from_memory(hosts: Hosts) -> None:
    """docs/trust/guarantees.md, What a takeover keeps: the owner that was replaced answers nothing, no heartbeat
    either."""
    old, new = hosts("one"), hosts("two")
    taken(old)
    append(old, {"billing": [b"a"]})
    taken(new)
    old._open["billing"].confirmed_s -= 60.0
    assert old.must_prove("billing")
    with pytest.raises(StoreFenced):
        append(old, {"billing": []})


def what_is_in_doubt_is_settled_by_the_load(hosts: Hosts) -> None:
    """docs/trust/protocol.md, Who takes part: after an append in doubt the group is loaded again, behind a new
    fence."""
    store = hosts("one")
    taken(store)
    append(store, {"billing": [b"a"]})
    writer = store._open["billing"].writer
    in_mid_write(writer, *store._open["billing"].log.keyed([b"in doubt"], 1)[0])
    assert taken(store) == [b"a"]
    append(store, {"billing": [b"b"]})
    assert taken(store) == [b"a", b"b"]


def a_load_reads_committed_records_only(hosts: Hosts) -> None:
    """Issue 5: load read_committed."""
    store = hosts("one")
    taken(store)
    append(store, {"billing": [b"a"]})
    writer = store._open["billing"].writer
    in_mid_write(writer, *store._open["billing"].log.keyed([b"aborted"], 1)[0])
    writer._producer.abort_transaction(30)
    append(store, {"billing": [b"b"]})
    assert taken(store) == [b"a", b"b"]


SCENARIOS: list[Callable[[Hosts], None]] = [
    the_newest_claimant_wins,
    a_sink_takes_no_group_back,
    no_answer_comes_from_memory,
    what_is_in_doubt_is_settled_by_the_load,
    a_load_reads_committed_records_only,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_scenario_holds(scenario, open_at):
    scenario(open_at)


@pytest.mark.slow
@pytest.mark.parametrize(("mistake", "scenario"), MISTAKES, ids=lambda each: getattr(each, "__name__", each))
def test_the_mistake_is_found(mistake, scenario, open_at, monkeypatch):
    mistake(monkeypatch)
    found = (AssertionError, pytest.fail.Exception, StateRecordUnreadable, StoreOutcomeUnknown, CoordinatorNotAvailable)
    with pytest.raises(found):
        {each.__name__: each for each in SCENARIOS}[scenario](open_at)
