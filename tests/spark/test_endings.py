"""A query that keeps ending says why: its group's doctor begins with the named error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sharegroup import Admin
from sharegroup.__main__ import run
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker]

REJECTS = {"acknowledgement": "'reject'", "reason": "'no customer'"}


def first_finding(kafka: Any, group: str, capsys: Any) -> str:
    capsys.readouterr()
    run(["doctor", "--bootstrap-server", kafka.bootstrap, "--group", group, "--json"])
    found = [each for each in json.loads(capsys.readouterr().out) if each["group_id"] == group]
    return f"{found[0]['rule']}: {found[0]['what']}" if found else ""


def test_a_lost_dead_letter_topic_is_the_doctors_first_line(kafka, job, start, capsys):
    orders, dlq = kafka.create_topic(), kafka.create_topic()
    billing = job(orders)
    sink = billing.sink_options(**{"errors.deadletterqueue.topic.name": dlq})
    spec = billing.query("a", columns=REJECTS, sink="sharegroup", sink_options=sink)
    kafka.produce(orders, ["1"])
    query = start(spec)
    query.wait(lambda: given_up(kafka, billing.group) == 1, "the first record has its dead letter")
    kafka.delete_topic(dlq)
    kafka.produce(orders, ["2"])
    query.wait_over()
    named = f": DeadLetterTopicMissing: Dead letter topic {dlq} "

    def is_told() -> bool:
        finding = first_finding(kafka, billing.group, capsys)
        return finding.startswith("query-keeps-ending: Query ") and named in finding

    wait_until(is_told, what="the doctor names the error first")
    kafka.create_topic(dlq)
    query = start(spec)
    query.wait(lambda: given_up(kafka, billing.group) == 2, "the second record has its dead letter")
    run(["doctor", "--bootstrap-server", kafka.bootstrap, "--group", billing.group, "--json"])
    assert "query-keeps-ending" not in capsys.readouterr().out


def test_a_tasks_error_is_the_first_line_once_no_process_runs(kafka, job, start, capsys):
    orders = kafka.create_topic()
    kafka.produce(orders, ["1"])
    billing = job(orders, **{"share.session.timeout.ms": "6000"})
    columns = {"acknowledgement": "'acept'"}
    start(billing.query("a", columns=columns, sink="sharegroup", sink_options=billing.sink_options())).wait_over()
    ended = ": UnknownOutcome: The row of "
    wait_until(lambda: ended in first_finding(kafka, billing.group, capsys), what="the doctor names the task's error")


def given_up(kafka: Any, group: str) -> int:
    """How many records of the group have been given up, and have their dead letters."""
    with Admin({"bootstrap.servers": kafka.bootstrap}) as admin:
        partitions = admin.describe_groups([group])[group].partitions
    return sum(each.given_up for each in partitions)
