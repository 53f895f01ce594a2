"""The doctor watches whether dead letters are written: a backlog that is being written is no finding."""

import pytest

from coordinator.protocol.messages import GroupDescription, PartitionDescription
from sharegroup.doctor.dead_letters_watch import WATCHED_S, watch_dead_letters
from sharegroup.doctor.findings import GroupFacts
from sharegroup.doctor.rules import examine

TOPICS = frozenset({"dlq", "orders"})
DLQ = {"errors.deadletterqueue.topic.name": "dlq"}


def described(archiving, archived):
    partition = PartitionDescription(
        topic="orders", topic_id="T", partition=0, start_offset=0, end_offset=10, lag=0, acquired=0,
        archiving=archiving, archived_total=archived,
    )  # fmt: skip
    return GroupDescription(group_id="billing", state="STABLE", incarnation="i", partitions=(partition,), configs=DLQ)


def watched(*looks):
    """Runs a watch whose looks see these, the last one again and again; the pauses are added up."""
    pauses, left = [], list(looks)
    description, stand_still = watch_dead_letters(lambda: left.pop(0) if len(left) > 1 else left[0], pauses.append)
    return description, stand_still, sum(pauses)


def test_where_no_record_waits_nothing_is_watched():
    assert watched(described(0, 7))[1:] == (False, 0)


@pytest.mark.parametrize(
    "later",
    [described(2, 8), described(3, 8), described(0, 10)],
    ids=["one is written", "one is written and another comes", "all are written"],
)
def test_a_backlog_that_is_being_written_is_no_finding(later):
    description, stand_still, took_s = watched(described(3, 7), described(3, 7), later)
    assert (description, stand_still) == (later, False)
    assert took_s < WATCHED_S / 2
    facts = GroupFacts(
        description=description, topics=frozenset({"dlq", "orders"}), dead_letters_stand_still=stand_still
    )
    assert [finding.rule for finding in examine(facts)] == []


def test_a_backlog_that_only_grows_is_a_finding_after_five_seconds():
    description, stand_still, took_s = watched(described(3, 7), described(4, 7))
    assert stand_still and took_s == pytest.approx(WATCHED_S)
    facts = GroupFacts(
        description=description, topics=frozenset({"dlq", "orders"}), dead_letters_stand_still=stand_still
    )
    assert "dead-letters-wait" in [finding.rule for finding in examine(facts)]
