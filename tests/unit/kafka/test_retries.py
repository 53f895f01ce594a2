"""Retries of calls to the brokers end with an answer, or at their deadline."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from tenacity import retry_if_exception_type, retry_if_result, wait_fixed

from coordinator.kafka.librdkafka import NO_ANSWER
from coordinator.kafka.retries import retry_after, retry_until
from coordinator.protocol.errors import BrokerNotReachable
from coordinator.service.brokers.cluster import KafkaCluster
from tests.support.ports import free_ports

LONG_S = 3_600.0


def failing(times: int) -> Callable[[], int]:
    """A call that raises ``times`` errors, then returns how often it was made."""
    made = []

    def call() -> int:
        made.append(None)
        if len(made) <= times:
            raise ConnectionError(len(made))
        return len(made)

    return call


def test_a_call_is_retried_until_it_is_answered() -> None:
    retries = retry_until(LONG_S, wait_fixed(0), retry_if_exception_type(ConnectionError))
    assert retries(failing(3)) == 4


def test_an_error_that_no_retry_mends_is_raised_at_once() -> None:
    with pytest.raises(ConnectionError, match="1"):
        retry_until(LONG_S, wait_fixed(0), retry_if_exception_type(TimeoutError))(failing(3))


def test_no_attempt_begins_after_the_deadline() -> None:
    paused: list[object] = []
    retries = retry_until(1.0, wait_fixed(LONG_S), retry_if_exception_type(ConnectionError))
    with pytest.raises(ConnectionError, match="1"):
        retries.copy(before_sleep=paused.append)(failing(3))
    assert paused == []


def test_the_last_result_is_returned_at_the_deadline() -> None:
    assert retry_until(0.0, wait_fixed(0), retry_if_result(lambda found: found < 5))(failing(0)) == 1


def test_the_least_number_of_attempts_is_made_even_after_the_deadline() -> None:
    retries = retry_until(0.0, wait_fixed(0), retry_if_result(lambda found: found < 5), least=3)
    answers = [4, 3, 2, 1, 0]
    assert retries(answers.pop) == 2


def test_a_call_is_repeated_once_after_each_pause() -> None:
    retries = retry_after((0.0, 0.0), retry_if_exception_type(ConnectionError))
    assert retries(failing(2)) == 3
    with pytest.raises(ConnectionError, match="3"):
        retries(failing(3))
    assert retry_after((), retry_if_result(bool))(failing(0)) == 1


def cluster_with_a_topic(controllers: list[int], topic_id: str) -> KafkaCluster:
    """A cluster of broker 3 that names these controllers, one a listing, and topic orders."""
    described = SimpleNamespace(topic_id=topic_id, partitions=[None])
    topics = {"orders": SimpleNamespace(error=None)}
    cluster = KafkaCluster("nowhere:1", {}, 15_000)
    cluster._admin = SimpleNamespace(
        list_topics=lambda timeout: SimpleNamespace(controller_id=controllers.pop(0), brokers={3: None}, topics=topics),
        describe_topics=lambda names, request_timeout: {"orders": SimpleNamespace(result=lambda: described)},
        poll=lambda timeout: 0,
    )
    return cluster


@pytest.mark.parametrize(("controllers", "gives_ids"), [([-1] * 6 + [3], True), ([9, 9, 3], True), ([9] * 3, False)])
def test_topic_ids_are_missing_after_three_looks_without_a_controller(
    controllers: list[int], gives_ids: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.service.brokers.cluster.MAX_RETRY_PAUSE_S", 0.01)
    cluster = cluster_with_a_topic(controllers, "bG9zdCBpZHMgYXJlIGJhZA")
    assert cluster.gives_topic_ids() is gives_ids
    assert not controllers
    assert cluster.gives_topic_ids() is gives_ids


@pytest.mark.parametrize("code", sorted(NO_ANSWER))
def test_a_broker_that_does_not_answer_has_not_refused(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.service.brokers.cluster.FIRST_ATTEMPT_S", 0.01)
    answers: list[object] = [KafkaException(KafkaError(code)), "an answer"]

    def ask(admin: AdminClient, left_s: float) -> object:
        if isinstance(answer := answers.pop(0), KafkaException):
            raise answer
        return answer

    assert KafkaCluster("localhost:1", {}, 5_000)._retried("describe topics", ask) == "an answer"


def test_a_client_that_gets_no_answer_for_long_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [1_000.0]
    cluster = KafkaCluster("localhost:1", {}, 5_000)
    monkeypatch.setattr("coordinator.service.brokers.cluster.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(cluster._outage, "_clock", lambda: now_s[0])
    cluster._made_s, first = now_s[0], cluster._admin

    def ask(admin: AdminClient, left_s: float) -> object:
        now_s[0] += 5.0
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    for _ in range(6):
        with pytest.raises(BrokerNotReachable):
            cluster._retried("describe topics", ask)
        assert cluster._admin is first
    with pytest.raises(BrokerNotReachable):
        cluster._retried("describe topics", ask)
    assert cluster._admin is not first


@pytest.mark.slow
def test_a_call_keeps_its_client_which_another_call_replaces() -> None:
    """Without the client librdkafka would give no answer, or _DESTROY."""
    cluster = KafkaCluster(f"127.0.0.1:{free_ports(1)[0]}", {}, 5_000)
    codes: list[int] = []

    def ask(admin: AdminClient, left_s: float) -> object:
        if codes:
            return "an answer"
        answers = admin.describe_topics(TopicCollection(["orders"]), request_timeout=0.5)
        cluster._admin = cluster._new_admin()
        del admin
        try:
            return answers["orders"].result(LONG_S)
        except KafkaException as error:
            codes.append(error.args[0].code())
            raise

    assert cluster._retried("describe topics", ask) == "an answer"
    assert codes == [KafkaError._TIMED_OUT]


@pytest.mark.parametrize(("topic_id", "gives_ids"), [("A" * 22, False), ("bG9zdCBpZHMgYXJlIGJhZA", True)])
def test_a_topic_without_an_id_shows_a_cluster_without_topic_ids(topic_id: str, gives_ids: bool) -> None:
    assert cluster_with_a_topic([3], topic_id).gives_topic_ids() is gives_ids
