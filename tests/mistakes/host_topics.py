"""Mistakes of the clients of the topics between hosts, each with the scenario that finds it
(tests/integration/test_topics_between_hosts.py)."""

from __future__ import annotations

from typing import Any

from coordinator.service.hosts import topic_clients as records
from coordinator.service.hosts import topics
from coordinator.service.hosts.topic_clients import Reader
from tests.mistakes.mistake import Make, Patch


def read_what_is_committed_alone(patch: Patch) -> None:
    right = records.new_client

    def new_client(kind: Any, config: dict[str, Any]) -> Any:
        return right(kind, {**config, "isolation.level": "read_committed"})

    patch.setattr(records, "new_client", new_client)


def stop_before_what_cannot_be_read(patch: Patch) -> None:
    patch.setattr(Reader, "_step_over", lambda *_: None)


def use_a_topic_of_any_configuration(patch: Patch) -> None:
    patch.setattr(topics, "check_configs", lambda *_: None)


MISTAKES: list[tuple[Make, str]] = [
    (read_what_is_committed_alone, "an_open_transaction_holds_up_nobody"),
    (stop_before_what_cannot_be_read, "an_unreadable_batch_holds_up_nobody"),
    (use_a_topic_of_any_configuration, "no_batch_is_large_when_unpacked"),
]
