"""Which topics and records a test may begin with, and the outcomes that a history can end with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sharegroup.testing import Record, broker, outcomes, produce, wait_until_done
from sharegroup.testing.errors import NoTestBroker, UnusableRecord, UnusableTopicName
from sharegroup.testing.records import checked


@pytest.mark.parametrize(
    ("topics", "error", "said"),
    [
        ({"a b": []}, UnusableTopicName, "'a b'"),
        ({"..": []}, UnusableTopicName, "letters"),
        ({1: []}, UnusableTopicName, "1 is no name"),
        ({"orders": "abc"}, UnusableRecord, "no list of records"),
        ({"orders": Record("a")}, UnusableRecord, "no list of records"),
        ({"orders": 5}, UnusableRecord, "no list of records"),
        ({"orders": [{"n": 1}]}, UnusableRecord, "of the type dict"),
        ({"orders": [Record("a", key=1)]}, UnusableRecord, "of the type int"),
        ({"orders": [Record("a", partition=4)]}, UnusableRecord, "an int from 0 to 3"),
    ],
)
def test_a_wrong_topic_or_record_is_named_before_a_broker_starts(topics, error, said):
    with pytest.raises(error, match=said), broker(topics):
        raise AssertionError("a broker runs")


@pytest.mark.parametrize("topics", [["orders"], "orders", 3])
def test_topics_that_are_no_dict_are_refused_with_the_form(topics: Any) -> None:
    with pytest.raises(TypeError, match=r"topics is a dict, as \{'orders': \['a record'\]\}, and"), broker(topics):
        raise AssertionError("a broker runs")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: wait_until_done("billing", timeout_s="3"), "timeout_s is a number of seconds, and '3' is of type str"),  # type: ignore[arg-type]
        (lambda: wait_until_done(["billing"]), "group is a group's id, and"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_argument_of_wait_until_done_is_named(call: Callable[[], None], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        call()


def test_records_without_a_key_go_to_the_partitions_in_turn() -> None:
    (records,) = checked({"orders": [*"abcde", Record("f", key="k"), Record("g", partition=3)]}).values()
    assert [record.partition for record in records] == [0, 1, 2, 3, 0, None, 3]


@pytest.mark.parametrize("function", [wait_until_done, outcomes])
def test_without_a_broker_the_way_out_is_named(function) -> None:
    with pytest.raises(NoTestBroker, match=rf"no broker .* runs in this process. Call {function.__name__}\(\) within"):
        function("billing")
    with pytest.raises(NoTestBroker, match="in this process at host:1"):
        produce({}, address="host:1")
