"""Texts of configs that are almost right: whole numbers, and the addresses of coordinators and brokers."""

import pytest

from coordinator.config.keys import ConfigKey
from coordinator.config.resolved import CoordinatorConfig
from coordinator.protocol.addresses import broker_problem, is_loopback, parse_endpoint, parse_endpoints, show_address
from coordinator.protocol.errors import ConfigConflict, ConfigTypeMismatch

NUMBER = ConfigKey(name="a.plan_id", default=7, between=(0, 100), doc="A number.")


@pytest.mark.parametrize("text", ["1_000", "+7", "7.0", "0x7", "--7", "7-", "", "9" * 21])
def test_a_whole_number_is_digits_and_not_too_many(text: str) -> None:
    with pytest.raises(ConfigTypeMismatch) as refused:
        NUMBER.parse(text)
    assert refused.value.fields == {"key": "a.plan_id", "value": text, "expected": "a whole number"}


def test_a_standalone_coordinator_and_a_state_store_conflict() -> None:
    endpoint = {"share.coordinator.endpoint": "host:1"}
    assert CoordinatorConfig.parse(endpoint).share_coordinator_endpoint == "host:1"
    assert CoordinatorConfig.parse({"share.state.store": "sqlite"}).share_state_store == "sqlite"
    with pytest.raises(ConfigConflict, match=r"share\.state\.store=sqlite.*share\.coordinator\.endpoint=host:1"):
        CoordinatorConfig.parse({**endpoint, "share.state.store": "sqlite"})


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("host:1", ("host", 1)),
        (" a-b.c_d:65535 ", ("a-b.c_d", 65_535)),
        ("[::1]:0", ("::1", 0)),
        ("host:65536", None),
        *((text, None) for text in ("host:", "host", ":1", "::1:1", "a:1,b:2", "grpc://a:1", "a:1 b:2", "a:١")),
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
        ("a:1,a:65536", "'a:65536' has no valid port"),
        ("::1:9092", "write [::1]:9092 instead"),
        (" , ", "' , ' names no broker"),
    ],
)
def test_the_first_broker_address_that_is_wrong_is_named(text: str, wrong: str) -> None:
    found = broker_problem(text)
    assert found.endswith(".") and wrong in found if wrong else not found
