"""Share partitions' records against Kafka's ShareCoordinatorShard: inputs of 4.3.1's tests, outputs of 4.4.0.

Each step is played on the partition logs, and after each everything that Kafka showed is compared: the records to the
field (and to the byte and back), and of each share partition the state, the leader epoch and the updates since its last
snapshot. As in Kafka, an operation changes nothing; the recorded replays do.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator.protocol.wire import derived_topic_id
from coordinator.state_log.kafka_values import apply_update, decode_snapshot, decode_update
from coordinator.state_log.projection import Change
from coordinator.state_log.record_keys import ShareSnapshotKey, ShareUpdateKey, decode_key, encode_key
from coordinator.state_log.record_values import ShareSnapshotValue, ShareUpdateValue, encode_snapshot, encode_update
from tests.mistakes.mistake import Make
from tests.mistakes.recordings import OF_THE_STATE_TOPIC
from tests.support.kafka_partition_log import KafkaPartitionLog, cold_partitions
from tests.support.state_records import fields_of, snapshot_of, state_after, update_of

SCENARIOS = {s["name"]: s for s in json.loads(Path(__file__).with_name("coordinator.json").read_text("utf-8"))}
START_MS = 1_700_000_000_000

NO_METADATA = (
    "the log asks no broker whether a topic is there: a share partition is initialised when its topic was found, and "
    "loses its state when the topic is gone (tests/unit/service/test_coordinator_service.py)"
)
NO_REQUEST = "no request names a partition: the number is that of a share partition, which the broker's metadata gave"
ONE_OWNER = (
    "who writes is the group's only owner and writes at the epochs that the log itself has: there is no request with "
    "older ones. Another owner is fenced by its producer"
)
# Steps that Kafka refuses and that have nothing here to refuse them: scenario -> {number of the step: why}.
NOT_HERE: dict[str, dict[int, str]] = {
    "testInitializeTopicIdNonExistentInMetadataImage": {2: NO_METADATA},
    "testInitializePartitionIdNonExistentInMetadataImage": {2: NO_METADATA},
    "testInitializeNullMetadataImage": {2: NO_METADATA},
    "testDeletePartitionIdNonExistentInMetadataImage": {2: NO_METADATA},
    "testReadNullMetadataImage": {7: NO_METADATA},
    "testWriteNullMetadataImage": {3: NO_METADATA},
    "testDeleteStateInvalidRequestData": {1: NO_REQUEST},
    "testInitializeStateInvalidRequestData": {1: NO_REQUEST, 3: ONE_OWNER},
    "testWriteStateFencedLeaderEpochError": {6: ONE_OWNER},
    "testWriteStateFencedStateEpochError": {2: ONE_OWNER},
}

Place = tuple[str, str, int]
Records = list[tuple[bytes, bytes | None]]


class CoordinatorRuntime:
    """Kafka's runtime as far as the state log has it: a log for each share partition, and beside it the state that the
    core would have."""

    def __init__(self, config: dict[str, int]) -> None:
        self.updates_per_snapshot = config["snapshot_update_records_per_snapshot"]
        self.cold_ms = config["cold_partition_snapshot_interval_ms"]
        self.logs: dict[Place, KafkaPartitionLog] = {}
        self.states: dict[Place, ShareSnapshotValue] = {}

    def __repr__(self) -> str:
        return f"<CoordinatorRuntime {self.logs}>"

    def play(self, step: dict[str, Any]) -> tuple[Records, list[dict[str, Any]] | None]:
        """The records that a step comes to, and what it answers."""
        now_ms = START_MS + step.get("at_ms", 0)
        if step["op"] == "set_metadata_image":
            return [], None
        if step["op"] == "replay":
            self._replay(step["record"])
            return [], None
        if step["op"] == "snapshot_cold_partitions":
            cold = cold_partitions(self.logs.values(), now_ms, self.cold_ms)
            return [kv for log in cold for kv in log.snapshot(self._whole(place_of(log)), now_ms=now_ms)], None
        if step["op"] == "topics_deleted":
            gone = {derived_topic_id(name) for name in step["deleted_topic_ids"]}
            known = (log for log in self.logs.values() if log.snapshot_epoch is not None)
            return [log.delete() for log in known if log.topic_id in gone], None
        (asked,) = step["request"]["partitions"]
        place = (step["request"]["groupId"], derived_topic_id(asked["topicId"]), asked["partition"])
        records = getattr(self, f"_{step['op']}")(place, asked, now_ms)
        answer = {"topicId": asked["topicId"], "partition": place[2], "error": "NONE"}
        if step["op"] == "read":
            state = self.states[place]
            said = (state.state_epoch, state.start_offset, state.state_batches)
            answer |= dict(zip(("state_epoch", "start_offset", "state_batches"), said, strict=True))
        return records, [answer]

    # --- the operations

    def _initialize(self, place: Place, asked: dict[str, Any], now_ms: int) -> Any:
        begin = Change(asked["startOffset"], (), 0)
        return self._log(place).initialize(begin, state_epoch=asked["stateEpoch"], now_ms=now_ms)

    def _write(self, place: Place, asked: dict[str, Any], now_ms: int) -> Any:
        fields = fields_of(asked)
        change = Change(fields["start_offset"], fields["state_batches"], fields["delivery_complete_count"])

        def whole() -> Change:
            state = apply_update(self.states[place], ShareUpdateValue(0, None, *change))
            return Change(state.start_offset, state.state_batches, state.delivery_complete_count)

        return self._log(place).write(change, whole, updates_per_snapshot=self.updates_per_snapshot, now_ms=now_ms)

    def _read(self, place: Place, asked: dict[str, Any], now_ms: int) -> Any:
        return self._log(place).lead(
            asked["leaderEpoch"],
            lambda: self._whole(place),
            updates_per_snapshot=self.updates_per_snapshot,
            now_ms=now_ms,
        )

    def _delete(self, place: Place, asked: dict[str, Any], now_ms: int) -> Any:
        log = self._log(place)
        return [] if log.snapshot_epoch is None else [log.delete()]

    def _replay(self, record: dict[str, Any]) -> None:
        key, value = recorded(record)
        named = decode_key(key)
        assert isinstance(named, ShareSnapshotKey | ShareUpdateKey)
        place = (named.group_id, named.topic_id, named.partition)
        self.logs.setdefault(place, KafkaPartitionLog(*place)).replay(named, value)
        if value is None:
            del self.states[place]
        else:
            self.states[place] = state_after(self.states.get(place), key, value)

    def _log(self, place: Place) -> KafkaPartitionLog:
        return self.logs.get(place, KafkaPartitionLog(*place))

    def _whole(self, place: Place) -> Change:
        state = self.states[place]
        return Change(state.start_offset, state.state_batches, state.delivery_complete_count)

    # --- what there is to be seen

    def shown(self) -> dict[str, Any]:
        """By share partition: the state, and what its log remembers; counts of 0 left out, as Kafka has none yet."""
        return {
            "state": self.states,
            "of the log": {
                place: (log.snapshot_epoch, log.state_epoch, log.create_timestamp_ms, log.write_timestamp_ms)
                for place, log in self.logs.items()
                if log.snapshot_epoch is not None
            },
            "leader_epochs": {place: log.leader_epoch for place, log in self.logs.items()},
            "update_records_since_snapshot": {place: log.updates for place, log in self.logs.items() if log.updates},
        }


def place_of(log: KafkaPartitionLog) -> Place:
    return log.group_id, log.topic_id, log.partition


def place(key: dict[str, Any]) -> Place:
    return key["groupId"], derived_topic_id(key["topicId"]), key["partition"]


def recorded(record: dict[str, Any]) -> tuple[bytes, bytes | None]:
    """The bytes of a record that Kafka's test had."""
    cls = ShareSnapshotKey if record["type"] == "snapshot" else ShareUpdateKey
    key, data = encode_key(cls(*place(record["key"]))), record["value"]
    if data is None:
        return key, None
    if record["type"] == "snapshot":
        return key, encode_snapshot(snapshot_of(data, start_ms=START_MS))
    return key, encode_update(update_of(data))


def readable(record: tuple[bytes, bytes | None]) -> tuple[Any, Any]:
    key, value = decode_key(record[0]), record[1]
    if value is None:
        return (type(key), key), None
    return (type(key), key), decode_update(value) if isinstance(key, ShareUpdateKey) else decode_snapshot(value)


def kafkas(expected: dict[str, Any]) -> dict[str, Any]:
    """The state that Kafka showed after a step, in the words of :meth:`CoordinatorRuntime.shown`."""
    states = {place(state["key"]): snapshot_of(state, start_ms=START_MS) for state in expected["state"]}
    return {
        "state": states,
        "of the log": {
            at: (state.snapshot_epoch, state.state_epoch, state.create_timestamp_ms, state.write_timestamp_ms)
            for at, state in states.items()
        },
        "leader_epochs": {place(key): None if epoch == -1 else epoch for key, epoch in expected["leader_epochs"]},
        "update_records_since_snapshot": {
            place(key): count for key, count in expected["update_records_since_snapshot"]
        },
    }


def kafkas_answer(response: dict[str, Any]) -> dict[str, Any]:
    """Of a read also what is read; a refusal's fields say nothing."""
    answer = {name: response[name] for name in ("topicId", "partition", "error")}
    if "stateBatches" in response:
        fields = fields_of({name: response[name] for name in ("stateEpoch", "startOffset", "stateBatches")})
        answer |= {name: fields[name] for name in ("state_epoch", "start_offset", "state_batches")}
    return answer


def differences(name: str) -> list[str]:
    """Plays a scenario: what Kafka showed and the partition logs do not."""
    scenario = SCENARIOS[name]
    runtime, found = CoordinatorRuntime(scenario["config"]), []
    for number, step in enumerate(scenario["steps"]):
        if "expected" not in step:
            continue
        expected = step["expected"]
        if number not in NOT_HERE.get(name, {}):
            records, answers = runtime.play(step)
            theirs = [recorded(record) for record in expected.get("records", ())]
            if records != theirs:
                found.append(f"step {number}: {[*map(readable, records)]}, Kafka {[*map(readable, theirs)]}")
            response = [kafkas_answer(one) for one in expected.get("response", ())]
            if answers is not None and response[0]["error"] == "NONE" and answers != response:
                found.append(f"step {number}: answers {answers}, Kafka {response}")
        shown, kafka = runtime.shown(), kafkas(expected)
        found += [
            f"step {number} {what}: {shown[what]}, Kafka {kafka[what]}" for what in kafka if shown[what] != kafka[what]
        ]
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_coordinator_answers_and_writes_as_kafkas_does(name: str) -> None:
    assert differences(name) == []


def test_only_steps_that_kafka_refuses_are_left_out() -> None:
    for name, steps in NOT_HERE.items():
        for number in steps:
            expected = SCENARIOS[name]["steps"][number]["expected"]
            assert expected["records"] == []
            assert [response["error"] for response in expected["response"]] != ["NONE"]


@pytest.mark.parametrize("mistake", OF_THE_STATE_TOPIC, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_found(mistake: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    assert any(differences(name) for name in SCENARIOS)
