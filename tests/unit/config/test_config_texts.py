"""Errors about a config have exactly these texts; some values are almost right."""

from __future__ import annotations

import pytest

from coordinator.config.keys import ConfigKey, Value, show
from coordinator.config.resolved import CoordinatorConfig, GroupConfig, ServerConfig
from coordinator.protocol.addresses import broker_problem, is_loopback, parse_endpoint, parse_endpoints, show_address
from coordinator.protocol.errors import (
    ConfigConflict,
    ConfigOutOfBounds,
    ConfigTypeMismatch,
    UnknownConfig,
)

NUMBER = ConfigKey(name="a.plan_id", default=7, low=0, high=100, doc="A number.")


def test_a_value_is_shown_as_written_in_a_properties_file() -> None:
    assert [show(value) for value in (True, False, "Earliest", 7, 1.5)] == ["true", "false", "Earliest", "7", "1.5"]


@pytest.mark.parametrize("text", ["1_000", "+7", "7.0", "0x7", "--7", "7-", "", "9" * 21])
def test_a_whole_number_is_digits_and_not_too_many(text: str) -> None:
    with pytest.raises(ConfigTypeMismatch) as refused:
        NUMBER.parse(text)
    assert refused.value.fields == {"key": "a.plan_id", "value": text, "expected": "a whole number"}


@pytest.mark.parametrize("text", ["9" * 20, "-1", "101"])
def test_a_whole_number_out_of_bounds_is_refused_with_the_bounds(text: str) -> None:
    with pytest.raises(ConfigOutOfBounds) as refused:
        NUMBER.parse(text)
    assert refused.value.fields == {"key": "a.plan_id", "value": int(text), "bounds": "between 0 and 100"}


def test_an_unknown_key_is_refused_with_the_kind_of_configuration() -> None:
    with pytest.raises(UnknownConfig, match="is not a share group configuration key"):
        GroupConfig.parse({"share.x": "1"})
    with pytest.raises(UnknownConfig, match="is not a coordinator configuration key"):
        CoordinatorConfig.parse({"share.x": "1"})
    with pytest.raises(UnknownConfig, match="is not a standalone coordinator configuration key"):
        ServerConfig.parse({"share.x": "1"})


def test_a_third_of_a_session_is_a_whole_number_of_milliseconds() -> None:
    interval_ms = GroupConfig.parse({"share.session.timeout.ms": "10000"}).share_heartbeat_interval_ms
    assert (interval_ms, type(interval_ms)) == (3333, int)


def test_a_conflict_names_the_broken_rule() -> None:
    rule = "the heartbeat interval must be shorter than the session timeout, best a third of it"
    with pytest.raises(ConfigConflict) as refused:
        GroupConfig.parse({"share.heartbeat.interval.ms": "6000", "share.session.timeout.ms": "6000"})
    assert refused.value.fields["rule"] == rule


def test_a_standalone_coordinator_and_a_state_store_conflict() -> None:
    endpoint = {"share.coordinator.endpoint": "host:1"}
    assert CoordinatorConfig.parse(endpoint).share_coordinator_endpoint == "host:1"
    assert CoordinatorConfig.parse({"share.state.store": "sqlite"}).share_state_store == "sqlite"
    with pytest.raises(ConfigConflict) as refused:
        CoordinatorConfig.parse({**endpoint, "share.state.store": "sqlite"})
    assert refused.value.fields == {
        "key": "share.state.store",
        "value": "sqlite",
        "other": "share.coordinator.endpoint",
        "other_value": "host:1",
        "rule": "a standalone coordinator has its own store; remove one of them",
    }


def test_unset_configs_of_a_standalone_coordinator_have_their_defaults() -> None:
    config = ServerConfig.parse({"group.share.max.size": "7"})
    assert (config.group_share_max_size, config.group_share_max_groups) == (
        7,
        ServerConfig.parse().group_share_max_groups,
    )


@pytest.mark.parametrize(("default", "expected"), [(7, "a whole number"), (0.5, "a number"), (True, "true or false")])
def test_a_value_of_the_wrong_type_is_refused_with_the_expected_type(default: Value, expected: str) -> None:
    with pytest.raises(ConfigTypeMismatch) as refused:
        ConfigKey(name="a.key", default=default, doc="A key.").parse("nonsense")
    assert refused.value.fields["expected"] == expected


def test_bounds_are_shown_only_where_both_are_set() -> None:
    assert NUMBER.bounds == "between 0 and 100"
    assert ConfigKey(name="a.key", default=7, low=0, doc="A key.").bounds == ""
    assert ConfigKey(name="a.key", default=7, high=9, doc="A key.").bounds == ""


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("host:1", ("host", 1)),
        (" a-b.c_d:65535 ", ("a-b.c_d", 65_535)),
        ("[::1]:0", ("::1", 0)),
        ("host:65536", None),
        ("host:", None),
        ("host", None),
        ("::1:1", None),
        ("a:1,b:2", None),
    ],
)
def test_an_endpoint_is_a_host_and_a_port(text: str, endpoint: tuple[str, int] | None) -> None:
    assert parse_endpoint(text) == endpoint
    if endpoint is not None:
        assert parse_endpoint(show_address(*endpoint)) == endpoint


def test_one_invalid_endpoint_makes_the_whole_list_invalid() -> None:
    assert parse_endpoints("a:1") == (("a", 1),)
    assert parse_endpoints("a:1, [::2]:3") == (("a", 1), ("::2", 3))
    assert show_address("a", 1) == "a:1"
    assert show_address("::2", 3) == "[::2]:3"
    for wrong in ("", "a:1,", "a:1,b", "a:1,b:0", "a:0"):
        assert parse_endpoints(wrong) is None


def test_only_addresses_of_this_host_are_loopback() -> None:
    own = ("localhost", "127.0.0.1", "127.1.2.3", "::1")
    assert [is_loopback(host) for host in (*own, "10.0.0.1", "::2", "host", "0.0.0.0")] == [True] * 4 + [False] * 4


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("a:1", ""),
        ("a:65535", ""),
        ("a", ""),  # its port is 9092
        ("SASL_SSL://a:9093, b:1 ,,[::1]:9092", ""),
        ("a:0", "'a:0' has no valid port"),
        ("a:1,a:65536", "'a:65536' has no valid port"),
        ("a:1,b:c", "'b:c' is not host:port; several"),
        ("a:1 b:2", "'a:1 b:2' is not host:port"),
        ("http://a:1", "'http://a:1' is not host:port: http is no security protocol of Kafka's"),
        ("::1:9092", "write [::1]:9092 instead"),
        ("", "'' names no broker"),
        (" , ", "' , ' names no broker"),
    ],
)
def test_the_first_broker_address_that_is_wrong_is_named(text: str, wrong: str) -> None:
    found = broker_problem(text)
    assert found.endswith(".") and wrong in found if wrong else not found
