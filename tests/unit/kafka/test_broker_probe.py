"""Whether brokers answer: a refused connection, silence, and an error that is an answer."""

import socket
import time
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordinator.kafka import broker_probe
from coordinator.kafka.broker_probe import PATIENCE_S, brokers_answer
from tests.support.fenced_broker import fenced_broker
from tests.support.waiting import wait_until


@pytest.mark.parametrize("listens", [False, True])
def test_brokers_that_refuse_or_are_silent_are_away_within_seconds(listens):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if listens:
            listener.listen()
        began_s = time.monotonic()
        answer = brokers_answer({"bootstrap.servers": f"127.0.0.1:{listener.getsockname()[1]}"})
        assert [answer(), time.monotonic() - began_s < PATIENCE_S + 20] == [False, True]


@pytest.mark.parametrize(
    ("error", "is_answer"),
    [
        (None, True),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, True),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, True),
        (KafkaError._TRANSPORT, False),
        (KafkaError._TIMED_OUT, False),
    ],
)
def test_an_error_of_a_broker_is_an_answer(monkeypatch, error, is_answer):
    class Brokers:
        def describe_topics(self, topics, **more):
            found = Future()
            if error is None:
                found.set_result(None)
            else:
                found.set_exception(KafkaException(KafkaError(error)))
            return dict.fromkeys(topics.topic_names, found)

    monkeypatch.setattr(broker_probe, "new_client", lambda *given: Brokers())
    assert brokers_answer({})() == is_answer


def test_a_cluster_whose_brokers_are_all_fenced_ends_no_process():
    with fenced_broker() as broker:
        answers = brokers_answer({"bootstrap.servers": broker.address})
        wait_until(answers, what="the broker answers")
        broker.is_fenced = True
        wait_until(lambda: (answers(), broker.told)[1], what="an answer without brokers has come")
