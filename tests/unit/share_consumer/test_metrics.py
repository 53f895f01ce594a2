"""ShareConsumer.metrics(): Java's names, and Java's arithmetic of windows."""

from __future__ import annotations

import re
import threading
from math import isnan
from typing import Any

import pytest

from coordinator.protocol.messages import AcknowledgeReply
from coordinator.protocol.values import AcknowledgeType
from share_consumer.metrics import WINDOW_S, Metrics, _Sensor
from sharegroup import ShareConsumer
from tests.support.class_strings import kafka_strings
from tests.support.readme import ROOT
from tests.support.share_members import CONFIG, refusing, subscribed
from tests.support.waiting import wait_until

INTERNALS = "clients.consumer.internals."
CLASSES = ("ShareFetchMetricsRegistry", "metrics.HeartbeatMetricsManager", "metrics.KafkaShareConsumerMetrics")
REBALANCES = "metrics.ShareRebalanceMetricsManager"
PAGE = (ROOT / "docs" / "do" / "share-consumer.md").read_text()
SECTION = PAGE.partition("\n## Metrics\n")[2].partition("\n## ")[0]


def test_each_metric_of_javas_share_consumer_is_given_or_has_a_reason() -> None:
    strings = kafka_strings("kafka-clients", *(INTERNALS + name for name in (*CLASSES, REBALANCES)))
    java = {name for name in strings if re.fullmatch(r"[a-z]+(-[a-z]+)*-(avg|max|rate|total|ago|per-hour)", name)}
    given = ShareConsumer(CONFIG).metrics().keys()
    assert given <= java
    assert {name for name in SECTION.split("`")[1::2] if name in java} == java, "the page has all, given or not"
    not_given = SECTION.partition("| not given |")[2]
    assert java - given == {name for name in not_given.split("`")[1::2] if name in java}


def test_rates_and_maxima_are_of_the_last_two_windows() -> None:
    sensor = _Sensor()
    assert isnan(sensor.mean(0.0)) and isnan(sensor.most(0.0)) and sensor.rate(0.0) == 0.0
    sensor.record(60.0, 0.0)
    sensor.record(30.0, 10.0)
    assert sensor.rate(10.0) == 90 / (10 + WINDOW_S), "Java: the window before counts as a whole one"
    sensor.record(10.0, 40.0)
    assert (sensor.mean(40.0), sensor.most(40.0), sensor.rate(40.0)) == (100 / 3, 60.0, 100 / 40)
    assert sensor.rate_of_count(40.0) == 3 / 40
    assert (sensor.mean(61.0), sensor.most(61.0)) == (10.0, 10.0), "the first window is too old"
    assert isnan(sensor.mean(101.0)) and (sensor.total, sensor.count) == (100.0, 3)


def test_time_between_polls_and_in_polls_is_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 0.0, 3.0, 3.0, 10.0, 10.0, 11.0, 11.0, 15.0])
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    metrics = Metrics()
    for _ in range(2):
        with metrics.polling():
            pass
    values = metrics.values()
    assert (values["time-between-poll-max"], values["time-between-poll-avg"]) == (10_000.0, 5_000.0)
    assert values["poll-idle-ratio-avg"] == (1 + 1 / 11) / 2 and values["last-poll-seconds-ago"] == 5.0


def test_acknowledgements_count_once_sent_and_as_errors_once_refused() -> None:
    consumer, stubs = subscribed(share_acknowledgement_mode="explicit")
    stubs.membership.reply = refusing(1)
    stubs.answer(2)
    messages = consumer.poll(60.0)
    consumer.acknowledge(messages[0])
    consumer.commit_sync()
    consumer.acknowledge(messages[1], AcknowledgeType.RELEASE)
    consumer.commit_async()
    wait_until(lambda: _errors(consumer) == 1, what="the second is refused")
    values = consumer.metrics()
    assert (values["acknowledgements-send-total"], values["records-consumed-total"]) == (2, 2)
    consumer.close()
    assert consumer.metrics()["acknowledgements-send-total"] == 2, "also after close()"


def _errors(consumer: Any) -> float:
    consumer.commit_async()
    return float(consumer.metrics()["acknowledgements-error-total"])


def test_another_thread_and_a_callback_may_ask() -> None:
    consumer, stubs = subscribed()
    stubs.membership.reply = lambda _: AcknowledgeReply()
    stubs.answer(1)
    consumer.poll(60.0)
    asked: list[float] = []
    consumer.set_acknowledgement_commit_callback(lambda *_: asked.append(consumer.metrics()["records-consumed-total"]))
    consumer.commit_sync()
    thread = threading.Thread(target=lambda: asked.append(consumer.metrics()["records-consumed-total"]))
    thread.start()
    thread.join()
    assert asked == [1, 1]
    consumer.close()
