"""The ShareConsumer's polls, and its end; its coordinator and its brokers are stubs."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import pytest

from coordinator.client import client
from coordinator.client.client import CoordinatorClient
from coordinator.client.on_demand import OnDemand
from coordinator.protocol.messages import AcknowledgeReply
from coordinator.protocol.values import AcknowledgeType
from share_consumer.record_runs import HeldRange, Unread
from sharegroup import ShareConsumer, WakeupException
from tests.support.share_members import CONFIG, Stubs, subscribed
from tests.support.waiting import wait_until


def interrupting(times: int) -> Callable[..., str]:
    """A deserializer that is interrupted ``times`` times (Ctrl+C), each time after the first record."""
    left = [times]

    def deserializer(value: bytes, context: object) -> str:
        if left[0]:
            left[0] -= 1
            raise KeyboardInterrupt
        return value.decode()

    return deserializer


def test_the_next_poll_returns_the_records_of_an_interrupted_poll() -> None:
    consumer, stubs = subscribed(value_deserializer=interrupting(2))
    stubs.answer(2)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            consumer.poll()
        consumer.commit_sync()
        assert stubs.outcomes() == []
    messages = consumer.poll()
    assert [(message.offset(), message.value()) for message in messages] == [(0, "v"), (1, "v")]
    consumer.commit_sync()
    assert stubs.outcomes() == [(0, "ACCEPT"), (1, "ACCEPT")]


def test_close_sends_the_outcomes_of_a_poll_that_was_woken() -> None:
    consumer, stubs = subscribed()
    stubs.answer(2)
    consumer.poll()
    consumer.wakeup()
    with pytest.raises(WakeupException):
        consumer.poll()
    assert not stubs.riding
    consumer.close()
    assert stubs.outcomes() == [(0, "ACCEPT"), (1, "ACCEPT")]
    assert stubs.membership.calls[-1] == ("leave", ())


def test_close_leaves_after_the_outcomes_of_an_unfinished_poll() -> None:
    consumer, stubs = subscribed()
    told: list[object] = []
    consumer.set_acknowledgement_commit_callback(lambda offsets, error: told.append((offsets, error)))
    stubs.answer(1)
    consumer.poll()
    stubs.asked.clear()
    consumer.poll(0)
    assert stubs.asked.wait(60)
    stubs.when_riding = lambda: stubs.membership.calls.append(("ridden", ()))
    stubs.answer(0)
    consumer.close()
    assert stubs.membership.calls == [("ridden", ()), ("leave", ())]
    assert len(told) == 1


def test_a_poll_that_waits_counts_as_a_poll() -> None:
    consumer, stubs = subscribed(max_poll_interval_ms=1)
    stubs.hold(0, 4)
    seen: list[bool] = []
    stubs.when_asked = lambda: (
        wait_until(lambda: consumer._waiting._waits, what="the poll waits"),
        seen.append(bool(consumer._held())),
    )
    stubs.answer(1)
    consumer._waiting.polled_s = -1e9
    consumer.poll()
    assert seen == [True]


def test_unsubscribe_gives_back_the_records_that_no_poll_returned() -> None:
    consumer, stubs = subscribed()
    consumer.poll(0)
    assert stubs.asked.wait(60)
    stubs.answer(5)
    consumer.unsubscribe()
    wait_until(lambda: len(stubs.outcomes()) == 5, what="the records are released")
    assert {kind for _, kind in stubs.outcomes()} == {"RELEASE"}
    assert not consumer._supply.ahead.renewals()


@pytest.mark.parametrize("topics", [(), ("other",), ("other", "third")])
def test_another_subscription_is_sent_to_the_group_without_a_poll(topics: tuple[str, ...]) -> None:
    consumer, stubs = subscribed()
    stubs.answer(5)
    consumer.poll()
    consumer.subscribe(sorted(topics, reverse=True))
    wait_until(lambda: ("join", topics) in stubs.membership.calls, what="the member joins again")
    consumer.commit_sync()
    assert [kind for _, kind in stubs.outcomes()] == ["ACCEPT"] * 5, "the program's records stay its own"


def kinds(stubs: Stubs) -> list[str]:
    return [kind for kind, _ in stubs.membership.calls]


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
@pytest.mark.parametrize("commits", ["commit_sync", "commit_async"])
def test_a_consumer_that_holds_records_leaves_with_their_outcomes(mode: str, commits: str) -> None:
    consumer, stubs = subscribed(share_acknowledgement_mode=mode)
    stubs.answer(1)
    (message,) = consumer.poll()
    consumer.unsubscribe()
    wait_until(lambda: kinds(stubs) == ["join"], what="the consumer gives up its partitions")
    if mode == "explicit":
        consumer.commit_sync()
        consumer._supply._worker.submit(lambda: None).result(60)
        assert "leave for now" not in kinds(stubs), "the record has no outcome yet"
        consumer.acknowledge(message)
    getattr(consumer, commits)()
    wait_until(lambda: "leave for now" in kinds(stubs), what="the consumer leaves")
    assert [kind for kind in kinds(stubs) if kind != "join"] == ["acknowledge", "leave for now"]


def test_leaving_overtakes_no_outcome_on_its_way() -> None:
    consumer, stubs = subscribed()
    stubs.answer(1)
    consumer.poll()
    goes_on, asked = threading.Event(), threading.Event()
    stubs.membership.reply = lambda _: (asked.set(), goes_on.wait(60), AcknowledgeReply())[2]
    consumer.commit_async()
    consumer.unsubscribe()
    assert asked.wait(60)
    consumer._acknowledgements.call(lambda: stubs.membership.calls.append(("sent", ())))
    goes_on.set()
    wait_until(lambda: "leave for now" in kinds(stubs), what="the consumer leaves")
    assert kinds(stubs) == ["acknowledge", "sent", "leave for now"]


def test_gaps_are_sent_before_the_leaving() -> None:
    """Sent later, by the member that has joined again, they would be refused, and a partition's outcomes with them."""
    consumer, stubs = subscribed()
    stubs.answer(1)
    consumer.poll()
    consumer.commit_sync()
    gap = Unread(("orders", 0), "T", HeldRange(1, 1, 1), AcknowledgeType.GAP)
    consumer._in_flight.add_unread([gap])
    consumer.unsubscribe()
    wait_until(lambda: "leave for now" in kinds(stubs), what="the consumer leaves")
    assert stubs.outcomes() == [(0, "ACCEPT"), (1, "GAP")]
    assert kinds(stubs) == ["acknowledge", "acknowledge", "leave for now"]


def test_the_first_subscription_waits_for_its_poll() -> None:
    consumer = ShareConsumer(CONFIG)
    consumer.subscribe(["orders"])
    consumer.unsubscribe()
    consumer._supply._worker.submit(lambda: None).result(60)
    assert consumer._membership.joined is None


def test_a_consumer_that_is_dropped_leaves_and_ends_its_threads() -> None:
    consumer, stubs = subscribed()
    stubs.answer(1)
    consumer.poll()
    consumer._renewer.start(1000)
    consumer.commit_sync()
    workers = (consumer._supply._worker, consumer._acknowledgements._worker, consumer._renewer)
    threads = [worker._thread for worker in workers]
    del consumer, workers, stubs.supply
    gc.collect()
    wait_until(lambda: stubs.real_membership._closed, what="the consumer leaves")
    wait_until(lambda: not any(thread.is_alive() for thread in threads), what="its threads end")


def test_new_credentials_are_those_of_the_next_coordinator_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "cluster_id", lambda *_: "cluster")
    monkeypatch.setattr(CoordinatorClient, "_connected", lambda *_: None)
    consumer, _ = subscribed()
    options = consumer._options
    directory = CoordinatorClient.connect(options.bootstrap_servers, options.kafka_config)._directory
    consumer.set_sasl_credentials("u", "rotated")
    assert isinstance(directory, OnDemand)
    assert directory.kafka_config["sasl.password"] == "rotated"
