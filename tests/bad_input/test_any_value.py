"""Any value of any option is taken, or refused by a named error that has the option's name, in one line that is not
long and shows no control character."""

from __future__ import annotations

import pytest

from coordinator.config.group_keys import COORDINATOR_KEYS, GROUP_KEYS
from coordinator.config.server_keys import SERVER_KEYS
from coordinator.kafka.properties import PROPERTIES
from coordinator.protocol.errors import InvalidGroupId, ShareGroupError
from coordinator.service.standalone_config import read_config
from share_sink.options import SinkOptions
from share_sink.sink_option_table import OPTIONS as SINK_OPTIONS
from share_source.driver.cluster_check import check_clients
from share_source.options import SourceOptions
from share_source.source_option_table import OPTIONS as SOURCE_OPTIONS

VALUES = (
    *("", "   ", "-5", "9" * 30, "1.5", "1e3", "0x10", "1_000", "+5", "\u0663", "nan", "inf", "TRUE", "None"),
    *("banana", "größe²", "a\x00b\nc", "\u202egnp.exe", "'5'", "[1,2]", '{"a":1}', ",,,", "x" * 5_000, "no/such/file"),
    *("localhost:9092", "orders", "${env:HOME}", "https://host/path?a=b", "5 minutes", "PT5M", "10k", "true,false"),
)
SLOWLY_REFUSED = {"group.protocol.type", "plugin.library.paths"}
"""Properties of which librdkafka needs 5 s to refuse a value, since it has made the client by then (seen)."""
LONGEST = 1_000
"""A sentence has at most this number of characters: two values, and what to do."""
SINK = {"kafka.bootstrap.servers": "localhost:9092", "kafka.group.id": "billing"}
SOURCE = {**SINK, "subscribe": "orders"}


def names(options):
    return [option.name for option in options if "*" not in option.name]


def refusal(parse, *arguments):
    """The error with which a value is refused; None if it is taken."""
    try:
        parse(*arguments)
    except ShareGroupError as error:
        return error
    return None


def assert_clear(error, name):
    """The sentence names the option, is one printable line, and is not long."""
    text = str(error)
    assert text.isprintable()
    assert len(text) <= LONGEST
    assert isinstance(error, InvalidGroupId) or name.removeprefix("kafka.").lower() in text.lower()


def parse_source(options):
    parsed = SourceOptions.parse(options)
    parsed.check_kafka_config()
    check_clients(parsed)


def parse_sink(options):
    SinkOptions.parse(options).check_kafka_config()


@pytest.fixture(autouse=True)
def _a_token(monkeypatch):
    monkeypatch.setenv("SHAREGROUP_COORDINATOR_TOKEN", "a-token-of-enough-characters")


def test_any_value_of_a_source_option_is_taken_or_refused_by_name():
    for name in [
        *names(SOURCE_OPTIONS),
        *GROUP_KEYS,
        *COORDINATOR_KEYS,
        *(f"kafka.{key}" for key in sorted(PROPERTIES - SLOWLY_REFUSED)),
    ]:
        needed = {
            key: value
            for key, value in SOURCE.items()
            if key != "subscribe" or name not in ("subscribePattern", "assign")
        }
        for value in VALUES:
            if error := refusal(parse_source, {**needed, name: value}):
                assert_clear(error, name)


def test_any_value_of_a_sink_option_is_taken_or_refused_by_name():
    for name in names(SINK_OPTIONS):
        for value in VALUES:
            if error := refusal(parse_sink, {**SINK, name: value}):
                assert_clear(error, name)


def test_any_value_of_a_coordinators_key_is_taken_or_refused_by_name(tmp_path):
    for name in ["bootstrap.servers", *COORDINATOR_KEYS, *SERVER_KEYS]:
        path = tmp_path / "coordinator.properties"
        needed = {"bootstrap.servers": "localhost:9092", "share.state.store": "kafka"}
        for value in VALUES:
            escaped = value.encode("unicode_escape").decode().replace("\\x", "\\u00")
            lines = [f"{key}={text}" for key, text in {**needed, name: escaped}.items()]
            path.write_text("\n".join(lines), "utf-8")
            if error := refusal(read_config, str(path), {"HOME": "home"}):
                assert_clear(error, name)


def test_a_number_of_which_librdkafka_would_read_the_first_digits_is_refused():
    for key in ["fetch.min.bytes", "reconnect.backoff.ms", "log_level"]:
        for value in ["1.5", "1e3", "1_000", "10k"]:
            error = refusal(parse_source, {**SOURCE, f"kafka.{key}": value})
            assert f"kafka.{key}" in str(error)
