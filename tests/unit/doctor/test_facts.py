"""The facts that the doctor asks for, and whether dead letters are written: what can't be asked is left out."""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import TimeoutError as FutureTimeoutError
from types import SimpleNamespace

import pytest

from coordinator.protocol.errors import GroupIdNotFound, InvalidRequest
from coordinator.protocol.messages import GroupDescription, PartitionDescription
from coordinator.protocol.wire import TokenHolder
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC
from sharegroup.__main__ import run
from sharegroup.doctor import command, facts
from sharegroup.doctor.dead_letters_watch import WATCHED_S, watch_dead_letters
from sharegroup.doctor.findings import GroupFacts
from sharegroup.doctor.rules import examine
from tests.support.command_line import mistake
from tests.support.known_groups import KnownGroups

AT = ["doctor", "--bootstrap-server", "localhost:9092"]
WAITS = PartitionDescription(
    topic="orders", topic_id="T", partition=0, start_offset=0, end_offset=0, lag=7, acquired=0, archived_total=0
)


class Late:
    """The answer of a broker that does not come in time."""

    def result(self, timeout_s):
        raise FutureTimeoutError


class Brokers:
    """An AdminClient whose brokers answer nothing in time."""

    def list_offsets(self, asked, **_):
        return {at: Late() for at in asked}

    def describe_configs(self, resources, **_):
        return {resource: Late() for resource in resources}


KNOWN = KnownGroups({"billing": "EMPTY", "deleted": "DEAD"}, partitions=(WAITS,))
"""Nobody consumes `billing`; `deleted` is in the list, and is deleted before the look."""


@pytest.fixture(autouse=True)
def cluster(monkeypatch):
    partitions = {0: SimpleNamespace(isrs=[1])}
    topics = {name: SimpleNamespace(partitions=partitions) for name in ("orders", STATE_TOPIC)}
    metadata = SimpleNamespace(topics=topics, cluster_id="c")
    monkeypatch.setattr(facts, "new_client", lambda *_: Brokers())
    monkeypatch.setattr(facts, "cluster_metadata", lambda *_: metadata)
    monkeypatch.setattr(facts, "Admin", lambda *_: KNOWN)
    monkeypatch.setattr(facts.Examination, "_stores", lambda self: ())
    monkeypatch.setattr(command, "opened", lambda *_: contextlib.nullcontext(KNOWN))


def test_facts_that_no_broker_returns_in_time_are_left_out(capsys):
    assert run([*AT, "--group", "billing", "--json"]) == 1
    assert [each["rule"] for each in json.loads(capsys.readouterr().out)] == ["nobody-consumes"]


def test_a_group_that_is_deleted_meanwhile_is_skipped_unless_named(capsys):
    assert run([*AT, "--json"]) == 1
    assert [each["group_id"] for each in json.loads(capsys.readouterr().out)] == ["billing"]
    assert mistake([*AT, "--group", "deleted"], capsys).startswith(f"sharegroup: {GroupIdNotFound.__name__}: ")


def test_a_standalone_coordinator_alone_is_asked_for_its_open_keys():
    def unknown():
        raise InvalidRequest(what="This coordinator knows no request WhoAmI.")

    holder = TokenHolder(name="", rights=("read",), open_keys=("share.coordinator.source.topics",))
    for config, answer, expected in (
        ({facts.ENDPOINT: "localhost:9394"}, lambda: holder, holder.open_keys),
        ({facts.ENDPOINT: "localhost:9394"}, unknown, ()),
        ({}, unknown, ()),
    ):
        examination = object.__new__(facts.Examination)
        examination._config, examination._admin = config, SimpleNamespace(who_am_i=answer)
        assert examination._open_keys() == expected


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
