"""Mistakes of the Kafka store, each with the scenario that finds it (tests/integration/test_store_mistakes.py)."""

from __future__ import annotations

from coordinator.service.runtime.event_loop import PartitionedRuntime
from coordinator.service.runtime.transaction import Access
from coordinator.service.stores.kafka import kafka_store
from coordinator.service.stores.kafka.group_writer import GroupWriter
from coordinator.service.stores.kafka.kafka_store import KafkaStore
from coordinator.service.stores.kafka.ownership import LivingOwner
from tests.mistakes.mistake import Make, Patch


def skip_the_fence(patch: Patch) -> None:
    """A new owner writes under an id of its own: nobody is fenced."""
    right = GroupWriter.__init__

    def init(self, log_topic, partition, group_id):
        right(self, log_topic, partition, f"{group_id}-{id(self)}")

    patch.setattr(GroupWriter, "__init__", init)


def take_it_back_by_itself(patch: Patch) -> None:
    patch.setattr(LivingOwner, "check", lambda *a, **k: None)


def let_sinks_take_groups(patch: Patch) -> None:
    right = PartitionedRuntime.call
    patch.setattr(
        PartitionedRuntime,
        "call",
        lambda self, group_id, transaction, *_: right(self, group_id, transaction, Access.CLAIM),
    )


def do_not_say_who_owns_it(patch: Patch) -> None:
    patch.setattr(kafka_store.KafkaStore, "_newest_owner", lambda *a: None)


def believe_memory(patch: Patch) -> None:
    patch.setattr(KafkaStore, "must_prove", lambda *a: False)


def prove_nothing(patch: Patch) -> None:
    right = KafkaStore._append

    def append(self, group_id, append, now_ms):
        if append.data:
            right(self, group_id, append, now_ms)

    patch.setattr(KafkaStore, "_append", append)


def read_what_is_not_committed(patch: Patch) -> None:
    right = kafka_store.LogReader

    def reader(log_topic, partition, **options):
        return right(log_topic, partition, **{**options, "committed": False})

    patch.setattr(kafka_store, "LogReader", reader)


MISTAKES: list[tuple[Make, str]] = [
    (skip_the_fence, "the_newest_claimant_wins"),
    (take_it_back_by_itself, "the_newest_claimant_wins"),
    (let_sinks_take_groups, "a_sink_takes_no_group_back"),
    (do_not_say_who_owns_it, "the_newest_claimant_wins"),
    (believe_memory, "no_answer_comes_from_memory"),
    (prove_nothing, "no_answer_comes_from_memory"),
    (read_what_is_not_committed, "a_load_reads_committed_records_only"),
]
