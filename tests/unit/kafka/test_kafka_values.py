"""An error says what a property takes, by the user's own key: its words, its range; a path that is none and a template
that nothing filled are named. Each client is made where a token function becomes code."""

import re

import pytest

from coordinator.config.kafka_options import _FILES, check_kafka_config, to_librdkafka
from coordinator.kafka.java_keys import BY_VALUE, SHARE_GROUPS_FORBID
from coordinator.kafka.properties import CHOICES, PROPERTIES, SECRETS
from coordinator.protocol.errors import UnusableFile
from coordinator.protocol.option_errors import InvalidOption
from share_sink.sink_option_table import OWNED as OWNED_BY_SINK
from share_source.source_option_table import OWNED as OWNED_BY_SOURCE
from tests.support.imports import PACKAGES, ROOT, python_files

WITHOUT_MEANING = {
    "share.acknowledgement.mode",
    "builtin.features",
    "ssl.ca.certificate.stores",
    "group.protocol.type",
    "plugin.library.paths",
}
GIVEN = sorted(PROPERTIES - {*OWNED_BY_SOURCE} - {*OWNED_BY_SINK} - {*SHARE_GROUPS_FORBID} - WITHOUT_MEANING - SECRETS)


def refusal(key, value, prefix="kafka."):
    try:
        check_kafka_config(to_librdkafka({key: value}, {}, prefix=prefix, forbidden={}), prefix=prefix)
    except (InvalidOption, UnusableFile) as error:
        return str(error)
    return ""


def test_a_refused_value_is_told_with_what_its_key_takes():
    for prefix in ["kafka.", ""]:
        for key in GIVEN:
            for value in ["banana", "-7777", "1e3"]:
                said = refusal(key, value, prefix)
                if not said or said.endswith("No such file or directory"):
                    continue
                assert f"The option {prefix}{key} is wrong" in said
                assert re.search(r"range -?\d|in -?\d+\.\.\d|; it is [\w, :.-]+\.$|Expected bool", said), said
                assert all(name == key for name in re.findall(r'property "([\w.]+)"', said))


_NO_WORD = ("several", "SASL")
"""How texts among the words begin that say more, or need more beside them."""
WORDS = [(key, word) for key, text in CHOICES.items() for word in re.split(r", | or ", text)]
WORDS = [(key, word) for key, word in WORDS if not word.startswith(_NO_WORD)]


def test_each_word_that_an_error_names_is_taken():
    for key, word in WORDS:
        assert not refusal(key, word), key


MADE_BESIDE = {
    "coordinator/config/kafka_options.py",  # it only lets librdkafka check properties
    "coordinator/kafka/librdkafka.py",
    "sharegroup/demo/dead_letters.py",
    "sharegroup/demo/embedded_broker.py",
    "sharegroup/demo/orders.py",
    "sharegroup/testing/records.py",
}
"""Files with a client of their own: for a check, or of a broker in memory."""


def test_each_client_is_made_where_a_token_function_becomes_code():
    makes = re.compile(r"(?<!class )\b(?:Consumer|Producer|AdminClient)\(")
    files = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in python_files(*PACKAGES)}
    assert {path for path, text in files.items() if makes.search(text)} == MADE_BESIDE


# --- promises that known mistakes break (tests/mistakes/settings.py)


def test_javas_key_and_value_become_librdkafkas_and_are_named():
    given = {"receive.buffer.bytes": "-1", "fetch.max.wait.ms": "99999999"}
    translated = to_librdkafka(given, {}, prefix="")
    assert translated == {"socket.receive.buffer.bytes": "0", "fetch.wait.max.ms": "99999999"}
    with pytest.raises(InvalidOption, match=r"option fetch\.max\.wait\.ms is wrong.*outside allowed range"):
        check_kafka_config(translated, prefix="")


def test_files_and_stores_with_an_empty_value_are_not_set():
    empty = (*_FILES, *BY_VALUE, "ssl.keystore.key", "ssl.ca.pem", "ssl.truststore.password")
    for value in ("", "  "):
        assert to_librdkafka(dict.fromkeys(empty, value), {}) == {}
    assert to_librdkafka({"client.id": ""}, {}) == {"client.id": ""}, "another text may be empty"
    pem = {"ssl.truststore.location": "ca.pem", "ssl.truststore.type": "", "ssl.keystore.location": ""}
    assert to_librdkafka(pem, {}) == {"ssl.ca.location": "ca.pem"}
