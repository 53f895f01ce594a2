"""The facts that the doctor asks for: what can't be asked is left out, and ends no command."""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import TimeoutError as FutureTimeoutError
from types import SimpleNamespace

import pytest

from coordinator.protocol.admin_messages import GroupListing, GroupsListed, InFlightPage
from coordinator.protocol.errors import GroupIdNotFound, InvalidRequest
from coordinator.protocol.messages import GroupDescription, PartitionDescription
from coordinator.protocol.wire import TokenHolder
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC
from sharegroup.__main__ import run
from sharegroup.doctor import command, facts
from tests.support.command_line import mistake

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


class Known:
    """An Admin whose group `billing` nobody consumes; `deleted` is in its list, and is deleted before the look."""

    def __init__(self, *_):
        """Takes what Admin takes."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Ends the context, and closes nothing."""

    def list_groups(self, *, only_ids=False):
        names = ("billing", "deleted")
        return GroupsListed(groups=tuple(GroupListing(group_id=name, state="EMPTY") for name in names))

    def describe_groups(self, group_ids):
        return {
            name: GroupDescription(
                group_id=name,
                state="EMPTY" if name == "billing" else "DEAD",
                incarnation="i",
                partitions=(WAITS,) if name == "billing" else (),
            )
            for name in group_ids
        }

    def in_flight(self, group_id, **_):
        return InFlightPage()

    def all_in_flight(self, group_id):
        return iter(())

    def plans(self, group_id):
        return ()


@pytest.fixture(autouse=True)
def cluster(monkeypatch):
    partitions = {0: SimpleNamespace(isrs=[1])}
    topics = {name: SimpleNamespace(partitions=partitions) for name in ("orders", STATE_TOPIC)}
    metadata = SimpleNamespace(topics=topics, cluster_id="c")
    monkeypatch.setattr(facts, "new_client", lambda *_: Brokers())
    monkeypatch.setattr(facts, "cluster_metadata", lambda *_: metadata)
    monkeypatch.setattr(facts, "Admin", Known)
    monkeypatch.setattr(facts.Examination, "_stores", lambda self: ())
    monkeypatch.setattr(command, "opened", lambda *_: contextlib.nullcontext(Known()))


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
