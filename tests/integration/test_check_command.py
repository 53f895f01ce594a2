"""`sharegroup check` with a broker: all that load() and the sink find, and nothing is started or changed."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.admin import AdminClient

from sharegroup.__main__ import run
from tests.support.kafka_broker import KafkaBroker

pytestmark = pytest.mark.broker


@pytest.fixture
def checked(tmp_path, kafka, capsys, runtime):
    """The exit status and the lines of a check. In its runtime folder no other test's coordinator comes or goes."""

    def check(source=None, sink=None):
        arguments = []
        for option, given in (("--options", source), ("--sink-options", sink)):
            if given is not None:
                path = tmp_path / f"{option}.json"
                path.write_text(
                    json.dumps({"kafka.bootstrap.servers": kafka.bootstrap, "kafka.group.id": "g", **given})
                )
                arguments += [option, str(path)]
        status = run(["check", *arguments])
        assert not list(runtime.iterdir()), "no coordinator was started"
        return status, capsys.readouterr().out.splitlines()

    return check


def test_check_prints_one_line_for_each_right_option(checked, topic, tmp_path, kafka):
    orders, dead_letters = topic("orders", partitions=3), topic("dlq")
    status, lines = checked(
        {"subscribe": orders, "share.delivery.count.limit": 7},
        {"archive.path": str(tmp_path / "archive"), "errors.deadletterqueue.topic.name": dead_letters},
    )
    assert status == 0, lines
    assert all(line.startswith("ok     ") for line in lines)
    text = "\n".join(lines)
    assert f"source: topic {orders} has 3 partition(s), and may be read" in text
    assert f"source: the leaders of 3 partition(s) answer at {kafka.bootstrap}" in text
    assert "source: the group gets share.delivery.count.limit=7" in text
    assert "the state topic share-group-state" in text
    assert f"sink: dead letter topic {dead_letters} exists, and may be written" in text
    assert "sink: archive.path can be written" in text


def test_check_prints_the_topics_that_a_pattern_matches(checked, topic):
    name = topic("orders")
    status, lines = checked({"subscribePattern": f"{name}|none"})
    assert (status, lines[2]) == (0, f"ok     source: subscribePattern matches 1 topic(s) now: {name}")
    assert checked({"subscribePattern": "none"})[1][2].startswith("note   source: subscribePattern=none matches no ")


def test_check_names_errors_that_only_the_cluster_shows(checked, topic, unique):
    orders, missing = topic("orders"), unique("missing")
    status, lines = checked(
        {"subscribe": missing}, {"errors.deadletterqueue.topic.name": missing, "kafka.group.id": "g"}
    )
    assert status == 1
    wrong = [line for line in lines if line.startswith("wrong")]
    assert [line.split(": ")[1] for line in wrong] == ["UnknownTopic", "DeadLetterTopicMissing"], lines
    status, lines = checked({"subscribe": orders}, {"kafka.group.id": "other"})
    assert status == 1
    assert lines[-2].startswith("wrong  sink: RowsOfAnotherGroup: ")


def test_a_broker_that_makes_topics_is_led_to_make_none(checked):
    """A state topic that the broker makes would keep records for a week: no coordinator takes it."""
    with KafkaBroker(heap="512m", auto_create_topics_enable="true") as broker:
        orders = broker.create_topic("orders", 1)
        at = {"kafka.bootstrap.servers": broker.bootstrap, "errors.deadletterqueue.topic.name": "missing"}
        _, lines = checked({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": orders}, at)
        assert any("the first coordinator creates it" in line for line in lines), lines
        checked({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "absent"})
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        made = {name for name in admin.list_topics(timeout=30).topics if not name.startswith("__")}
        assert made == {orders}, "only Kafka's own"
