"""Somebody else writes to the state topic: no group is lost by it, nor kept from being loaded."""

import logging

import pytest

from coordinator.dead_letters import record_format as dead_letters
from coordinator.protocol.errors import StateTransactionOpen
from coordinator.service.brokers.cluster import EARLIEST, LATEST
from coordinator.service.stores.kafka import log_reader
from coordinator.service.stores.kafka.partition_count import groups_of
from coordinator.service.stores.kafka.pruning import Pruning
from coordinator.state_log.record_keys import (
    GroupOwnerKey,
    GroupRecordKey,
    GroupSnapshotKey,
    ShareSnapshotKey,
    encode_key,
)
from coordinator.state_log.value_version import versioned
from share_sink.redrive.dlq_reader import REDRIVES
from tests.support.state_records import TOPIC_ID
from tests.support.state_topics import taken
from tests.support.store_writes import append, snapshot
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

NEVER_MS = 24 * 3_600_000
GROUPS = ("billing", "shipping")
STRAYS = [
    (None, b"hello"),
    (b"", b"hello"),
    (b"hello", b"hello"),
    (b"some-uuid", None),
    (encode_key(ShareSnapshotKey("nobody", TOPIC_ID, 0)), None),  # it names a group, of which there is nothing
    (b"large", bytes(5_000_000)),
]


def test_records_of_foreign_writers_are_skipped_counted_and_pruned(kafka, log_topic, open_at, caplog):
    before = open_at()
    for group_id in GROUPS:
        taken(before, group_id)
    append(before, {group_id: [b"a"] for group_id in GROUPS})
    keys, values = zip(*STRAYS, strict=True)
    kafka.produce(
        log_topic.name, values, keys=keys, partition=0, headers=[("from", b"a mirror")], message_max_bytes=9_000_000
    )
    after = open_at()
    with caplog.at_level(logging.WARNING):
        for group_id in GROUPS:
            assert taken(after, group_id) == [b"a"]
    (line,) = [record.getMessage() for record in caplog.records if "passed over" in record.getMessage()]
    assert f"{log_topic.name}-0 has {len(STRAYS) - 1} record(s) that belong to no share group" in line
    assert sorted(groups_of(log_topic, 0)) == sorted([*GROUPS, "nobody"])
    for group_id in GROUPS:
        snapshot(after, group_id, [b"s"])
    # A commit is answered before its marker is written: until then nothing behind it counts.
    wait_until(
        lambda: log_topic.offset(0, LATEST, read_committed=True) == log_topic.offset(0, LATEST), what="all is committed"
    )
    pruning = Pruning(log_topic, lambda: [after], interval_ms=NEVER_MS)
    pruning.prune()
    pruning.close()
    first = after._open["billing"].log.needed_offset
    earliest = log_topic.cluster.offsets([(log_topic.name, 0)], EARLIEST)[log_topic.name, 0]
    assert earliest == first, "the foreign records are gone"


@pytest.mark.parametrize("header", [dead_letters.TOPIC, REDRIVES])
def test_copies_with_a_groups_own_keys_are_passed_over_and_counted(kafka, log_topic, open_at, caplog, header):
    """A dead letter topic or a redrive named the state topic: what a member wrote into its own record's key becomes no
    state of another group."""
    before = open_at()
    taken(before)
    append(before, {"billing": [b"a"]})
    forged = [
        (encode_key(GroupSnapshotKey("billing", 10**9)), versioned(b"")),
        (encode_key(GroupRecordKey("billing", 1)), b"garbage"),
        (encode_key(GroupOwnerKey("billing")), b"garbage"),
    ]
    keys, values = zip(*forged, strict=True)
    kafka.produce(log_topic.name, values, keys=keys, partition=0, headers=[(header, b"x")])
    append(before, {"billing": [b"b"]})
    after = open_at()
    with caplog.at_level(logging.WARNING):
        assert taken(after) == [b"a", b"b"]
    (line,) = [record.getMessage() for record in caplog.records if "passed over" in record.getMessage()]
    assert f"{log_topic.name}-0 has 3 record(s) that are dead letters or were redriven" in line


@pytest.mark.slow
def test_an_open_transaction_is_named_with_the_command_that_aborts_it(kafka, log_topic, open_at):
    served = open_at()
    taken(served)
    append(served, {"billing": [b"a"]})
    foreign = kafka.open_transaction(log_topic.name, [b"hello"], partition=0)
    late = open_at()
    late.claim("shipping")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_reader, "OPEN_S", 1.0)
        for _ in range(2):
            with pytest.raises(StateTransactionOpen, match="so share group shipping waits") as raised:
                list(late.load("shipping"))
    append(served, {"billing": [b"b"]})
    said = raised.value.fields
    arguments = ["--bootstrap-server", said["addresses"], "abort", "--topic", said["topic"]]
    arguments += ["--partition", str(said["partition"]), "--start-offset", str(said["offset"])]
    kafka.run_tool("org.apache.kafka.tools.TransactionsCommand", *arguments)
    del foreign

    def loaded():
        try:
            return taken(late)
        except StateTransactionOpen:
            return None

    assert wait_until(loaded, what="the transaction is over") == [b"a", b"b"]
    assert taken(late, "shipping") == []
