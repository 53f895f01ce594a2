"""The assignor against recordings of Kafka's SimpleAssignor, and against the example of KIP-932."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coordinator.core.assignor import Assignment, assign
from coordinator.protocol.values import SharePartitionKey


def cases(name: str) -> Any:
    return json.loads(Path(__file__).with_name(name).read_text("utf-8"))


CASES = {case["name"]: case for case in cases("assignor.json")}


def keys(partitions: Mapping[str, list[int]]) -> frozenset[SharePartitionKey]:
    return frozenset(SharePartitionKey(topic, index) for topic, indexes in partitions.items() for index in indexes)


def assigned(case: dict[str, Any]) -> dict[str, frozenset[SharePartitionKey]]:
    """The assignment of a case; a topic that is not in the metadata has no partitions in it."""
    known = {topic: range(count) for topic, count in case["topics"].items() if count is not None}
    named = case.get("assignable_partitions")
    assignable = known if named is None else {topic: named.get(topic, []) for topic in known}
    subscribed = {member["member_id"]: frozenset(member["subscribed"]) for member in case["members"]}
    current = {member["member_id"]: keys(member["current"]) for member in case["members"]}
    return assign(subscribed, assignable, current)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["expected"]["type"] == "exact"])
def test_the_assignor_assigns_exactly_what_kafkas_tests_assert(name: str) -> None:
    expected = {member: keys(partitions) for member, partitions in CASES[name]["expected"]["assignment"].items()}
    assert assigned(CASES[name]) == expected


def test_the_assignor_assigns_every_partition_as_evenly_as_kafka() -> None:
    for name in [name for name, case in CASES.items() if case["expected"]["type"] == "properties"]:
        case = CASES[name]
        found = assigned(case)
        assert len(frozenset().union(*found.values())) == case["expected"]["distinct_partitions_assigned"]
        sizes = [len(part) for part in found.values()]
        if case["subscription_type"] == "homogeneous":
            assert {"min": min(sizes), "max": max(sizes)} == case["engine_output_partition_counts"]
        for member in case["members"]:
            assert {key.topic_id for key in found[member["member_id"]]} <= set(member["subscribed"])


def test_an_unknown_topic_is_refused() -> None:
    (case,) = [case for case in CASES.values() if case["expected"]["type"] == "exception"]
    with pytest.raises(KeyError, match="TOPIC_1"):
        assigned(case)


def test_each_step_of_the_kips_example_has_the_same_shares() -> None:
    """The KIP's text names partitions by a hash of the member that no release has; sizes and sharing are the rule."""
    current: Assignment = {}
    for step in cases("kip932_assignor_example.json")["steps"]:
        subscribed = {member: frozenset(topics) for member, topics in sorted(step["subscriptions"].items())}
        current = assign(subscribed, {topic: range(count) for topic, count in step["topics"].items()}, current)
        expected = {member: keys(partitions) for member, partitions in step["assignment"].items()}
        assert shares(current) == shares(expected), step["event"]


def shares(found: Assignment) -> tuple[list[int], Counter[SharePartitionKey]]:
    """How many partitions the members have, and how many members each partition has."""
    return sorted(map(len, found.values())), Counter(key for part in found.values() for key in part)


def test_a_member_keeps_its_partitions_when_another_member_joins_or_leaves() -> None:
    subscribed = {f"m{number}": frozenset({"T"}) for number in range(4)}
    before = assign(subscribed, {"T": range(8)}, {})
    after = assign({**subscribed, "m4": frozenset({"T"})}, {"T": range(8)}, before)
    assert sum(len(after[member] & before[member]) for member in subscribed) == 7, "one of eight partitions moved"
    del subscribed["m0"]
    again = assign(subscribed, {"T": range(8)}, before)
    assert all(before[member] <= again[member] for member in subscribed)


def test_more_members_than_partitions_share_the_partitions_evenly() -> None:
    subscribed = {f"m{number}": frozenset({"T"}) for number in range(100)}
    found = assign(subscribed, {"T": range(8)}, {})
    assert all(found.values()), "everybody has work"
    sharing = Counter(key for part in found.values() for key in part)
    assert set(sharing.values()) == {13}
