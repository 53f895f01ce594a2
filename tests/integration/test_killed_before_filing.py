"""SIGKILL of a coordinator between a dead letter and its filing: the next one writes the dead letters again, and each
record is ARCHIVED once. The process is a real one that stops, by a fault which Python loads at its start, where it
would file."""

import contextlib

import pytest

from coordinator.client.client import CoordinatorClient
from coordinator.dead_letters.record_format import Origin, parse_headers
from coordinator.protocol.errors import UnknownMemberId
from coordinator.protocol.messages import Heartbeat
from tests.support.coordinator_process import kill_coordinators
from tests.support.kafka_log import messages_of
from tests.support.rejecting import Rejecting, origins
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.broker]

RECORDS = 200
FAULT = """
import pathlib, threading
from coordinator.service.dead_letters import group_backlog

def mark_written(*_, **__):
    pathlib.Path({reached!r}).touch()
    threading.Event().wait()

group_backlog.mark_written = mark_written
"""


def test_a_kill_before_the_filing_doubles_dead_letters_and_no_origin(
    kafka, topic, unique, tmp_path, monkeypatch, runtime
):
    orders, queue, reached = topic(), topic("dlq", partitions=2), tmp_path / "reached"
    kafka.produce(orders, [str(n) for n in range(RECORDS)])
    fault = tmp_path / "sitecustomize.py"
    fault.write_text(FAULT.format(reached=str(reached)))
    monkeypatch.syspath_prepend(tmp_path)  # coordinators have the path of who starts them
    with contextlib.closing(CoordinatorClient.connect(kafka.bootstrap)) as client:
        group = Rejecting(kafka.bootstrap, "", unique("group"), orders, client=client, dlq_topic_name=queue)
        expected = {Origin(orders, 0, n, group.group, 1) for n in range(RECORDS)}
        group.reject_all(RECORDS)
        wait_until(reached.exists, what="the dead letters are written")
        assert origins(messages_of(kafka.bootstrap, queue)) == dict.fromkeys(expected, 1)
        assert (group.archiving(), group.archived()) == (RECORDS, 0)
        assert kill_coordinators()
        fault.unlink()

        with contextlib.suppress(UnknownMemberId):  # it held nothing, so the next coordinator does not know it
            group.ask(Heartbeat, member_epoch=group.epoch)

        group.wait_filed(RECORDS)
    letters = messages_of(kafka.bootstrap, queue)
    assert origins(letters) == dict.fromkeys(expected, 2)
    assert all(letter.value() == str(parse_headers(letter.headers()).origin.offset).encode() for letter in letters)
