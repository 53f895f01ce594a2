"""error_cb, stats_cb, throttle_cb and logger: which methods call them, in which thread, and what their exceptions do.

A fake stands for librdkafka's clients."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from share_consumer import callbacks
from sharegroup import ShareConsumer
from tests.support.share_members import CONFIG
from tests.support.waiting import wait_until

KEYS = ("error_cb", "stats_cb", "throttle_cb", "logger")


class FakeClient:
    """A client that reports, at each poll, what the test told it."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.reports: list[Callable[[], object]] = []
        self.is_closed = False

    def poll(self, timeout: float) -> None:
        assert timeout == 0
        while self.reports:
            self.reports.pop(0)()

    def close(self) -> None:
        self.is_closed = True
        self.poll(0)


class Program:
    """A consumer with all callbacks, and the threads in which they were called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, raises: str = "") -> None:
        self.called: list[tuple[str, str, int]] = []
        self.raises = raises
        self.clients: list[FakeClient] = []

        def make(config: dict[str, Any]) -> FakeClient:
            self.clients.append(FakeClient(config))
            return self.clients[-1]

        monkeypatch.setattr(callbacks, "Consumer", make)
        functions = {key: self._function(key) for key in KEYS}
        logger = type("Log", (), {"log": staticmethod(functions["logger"])})()
        self.consumer = ShareConsumer({**CONFIG, **functions, "logger": logger, "share.auto.offset.reset": "earliest"})
        self.readers = self.consumer._options.client_config

    def _function(self, key: str) -> Callable[[str], None]:
        def called(what: str) -> None:
            self.called.append((key, what, threading.get_ident()))
            if key == self.raises:
                raise LookupError(key)

        return called

    def report(self, config: dict[str, Any], key: str, what: str) -> None:
        """As librdkafka, from a client with this configuration."""
        (config[key].log if key == "logger" else config[key])(what)

    def reports_of_readers(self) -> None:
        """Each kind, from a client that reads, in its thread."""
        reading = threading.Thread(target=lambda: [self.report(self.readers, key, "read") for key in KEYS])
        reading.start()
        reading.join()


METHODS: dict[str, Callable[[ShareConsumer], object]] = {
    "poll": lambda consumer: consumer.poll(0),
    "commit_sync": lambda consumer: consumer.commit_sync(1),
    "commit_async": lambda consumer: consumer.commit_async(),
}


@pytest.fixture
def unreached(monkeypatch: pytest.MonkeyPatch) -> None:
    """No coordinator is asked: every request for records stays without an answer."""
    monkeypatch.setattr("share_consumer.fetching.Fetcher.fetch", lambda *_: threading.Event().wait(60))


@pytest.mark.usefixtures("unreached")
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_reports_of_all_clients_are_made_in_the_programs_thread(monkeypatch, method) -> None:
    program = Program(monkeypatch)
    program.consumer.subscribe(["orders"])
    method(program.consumer)
    (client,) = program.clients
    client.reports += [lambda key=key: program.report(client.config, key, "idle") for key in KEYS]
    program.reports_of_readers()
    assert not program.called, "not in the thread that reads"
    method(program.consumer)
    here = threading.get_ident()
    assert program.called == [(key, what, here) for what in ("read", "idle") for key in KEYS]
    assert len(program.clients) == 1


@pytest.mark.usefixtures("unreached")
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
@pytest.mark.parametrize("key", KEYS)
def test_an_exception_of_a_callback_comes_out_and_the_rest_follows(monkeypatch, key, method) -> None:
    program = Program(monkeypatch, raises=key)
    program.consumer.subscribe(["orders"])
    program.reports_of_readers()
    with pytest.raises(LookupError, match=key):
        method(program.consumer)
    method(program.consumer)
    assert [called for called, _, _ in program.called] == list(KEYS)


def test_close_makes_the_last_reports_and_closes_the_client(monkeypatch) -> None:
    program = Program(monkeypatch, raises="error_cb")
    program.consumer.commit_sync(0)
    (client,) = program.clients
    client.reports.append(lambda: program.report(client.config, "error_cb", "idle"))
    with pytest.raises(LookupError):
        program.consumer.close()
    assert client.is_closed
    program.consumer.close()


@pytest.mark.usefixtures("unreached")
@pytest.mark.parametrize("key", KEYS)
def test_close_calls_what_is_due_before_and_while_it_waits(monkeypatch, key) -> None:
    """The reports of the clients that read among them; what a callback raises comes out when all is closed."""
    program = Program(monkeypatch, raises=key)
    program.consumer.subscribe(["orders"])
    program.consumer.poll(0)
    (client,) = program.clients
    program.reports_of_readers()
    client.reports += [lambda key=key: program.report(client.config, key, "idle") for key in KEYS]
    leave, called = program.consumer._leave, []

    def leaves() -> None:
        wait_until(lambda: len(program.called) == 2 * len(KEYS), what="the callbacks are called while close() waits")
        called.append(len(program.called))
        leave()

    monkeypatch.setattr(program.consumer, "_leave", leaves)
    with pytest.raises(LookupError, match=key):
        program.consumer.close()
    wait_until(lambda: called, what="the group is left")
    assert called == [2 * len(KEYS)] and client.is_closed
    assert {thread for _, _, thread in program.called} == {threading.get_ident()}
    program.consumer.close()


@pytest.mark.usefixtures("unreached")
def test_a_subscription_begins_to_watch_the_brokers(monkeypatch) -> None:
    """So that a commit_async without a poll before it has something to tell."""
    program = Program(monkeypatch)
    program.consumer.subscribe(["orders"])
    (client,) = program.clients
    client.reports.append(lambda: program.report(client.config, "error_cb", "all brokers are down"))
    program.consumer.commit_async()
    assert [what for _, what, _ in program.called] == ["all brokers are down"]


def test_a_logger_gets_what_librdkafka_logs_by_default(monkeypatch) -> None:
    """Without one nothing is logged, unless the program sets log_level."""
    program = Program(monkeypatch)
    assert program.readers["log_level"] == "6"
    assert "log_level" not in ShareConsumer(CONFIG)._options.client_config
    assert ShareConsumer({**CONFIG, "log_level": 3, "logger": program})._options.client_config["log_level"] == "3"


@pytest.mark.parametrize("settings", [{}, {"error_cb": print}])
def test_a_dropped_consumer_is_collected_at_once(settings: dict[str, Any]) -> None:
    consumer = ShareConsumer({**CONFIG, **settings})
    dropped = weakref.ref(consumer)
    gc.disable()
    try:
        del consumer
        assert dropped() is None
    finally:
        gc.enable()


def test_without_callbacks_there_is_no_further_client(monkeypatch) -> None:
    program = Program(monkeypatch)
    consumer = ShareConsumer(CONFIG)
    consumer.commit_sync(0)
    assert not program.clients
    consumer.close()
