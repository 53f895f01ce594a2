"""The configuration table: complete, within its own bounds, and every wrong text refused by name."""

import importlib.util
import pickle
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.config.group_keys import COORDINATOR_KEYS, GROUP_KEYS, OffsetReset, offset_reset
from coordinator.config.iso_duration import parse_duration_ms
from coordinator.config.keys import nearest
from coordinator.config.resolved import GroupConfig
from coordinator.config.server_keys import SERVER_KEYS
from coordinator.protocol.errors import ConfigOutOfBounds, ConfigTypeMismatch, ShareGroupError, UnknownConfig

ROOT = Path(__file__).resolve().parents[3]
ALL_KEYS = [*GROUP_KEYS.values(), *COORDINATOR_KEYS.values(), *SERVER_KEYS.values()]
KAFKAS_WITHOUT_KIP = {"queued.max.requests", "socket.request.max.bytes", "max.connections"}


# --- the table


def test_each_key_is_described_and_has_a_settable_default_and_bounds() -> None:
    """A key of ours has a reason, too."""
    for key in ALL_KEYS:
        assert key.doc.endswith((".", ".)")), key.name
        assert key.kip or key.ours or key.name in KAFKAS_WITHOUT_KIP, key.name
        assert not key.ours or key.why, key.name
        if key.default is None:
            assert key.unset, key.name
        else:
            assert key.parse(key.shown_default) == key.default
        if key.type in (int, float):
            assert key.between is not None, key.name
            low, high = key.between
            assert key.default is None or low <= key.default <= high  # type: ignore[operator]


def test_a_number_beyond_its_bounds_is_refused_with_the_bounds() -> None:
    for key in ALL_KEYS:
        if key.type is int and key.between is not None:
            low, high = key.between
            for beyond in (low - 1, high + 1):
                with pytest.raises(ConfigOutOfBounds) as caught:
                    key.parse(str(int(beyond)))
                assert f"{key.name}={int(beyond)}" in str(caught.value)
                assert f"between {low} and {high}" in str(caught.value)


# Kafka 4.3's defaults; where ours differs, the row says why.
KAFKA_DEFAULTS = {
    "share.session.timeout.ms": 45_000,
    "share.heartbeat.interval.ms": 5_000,
    "share.record.lock.duration.ms": 30_000,
    "share.delivery.count.limit": 5,
    "share.partition.max.record.locks": 2_000,
    "share.order": "none",
    "share.auto.offset.reset": "latest",
    "share.isolation.level": "read_uncommitted",
    "share.renew.acknowledge.enable": True,
    "share.acquire.mode": "batch_optimized",
    "share.acknowledgement.mode": "implicit",
    "share.assignment.interval.ms": 1_000,
    "errors.deadletterqueue.topic.name": "",
    "errors.deadletterqueue.copy.record.enable": False,
    "errors.deadletterqueue.auto.create.topics.enable": False,
}


def test_a_default_that_is_not_kafkas_has_a_reason() -> None:
    for name, default in KAFKA_DEFAULTS.items():
        assert GROUP_KEYS[name].default == default or GROUP_KEYS[name].why, name


# --- group configs


def test_a_config_that_is_not_set_has_its_default() -> None:
    config = GroupConfig.parse({"share.delivery.count.limit": " 7 "})
    assert config.share_delivery_count_limit == 7
    assert config.share_session_timeout_ms == 45_000
    assert config.share_partition_max_record_locks == 1_000_000


@pytest.mark.parametrize("key", ["no.such.key", "group.share.timeout.ms"])
def test_a_key_that_looks_like_none_names_where_all_are(key: str) -> None:
    with pytest.raises(UnknownConfig, match=rf"^{key} is not .* key; docs/do/options\.md has all\.$"):
        GroupConfig.parse({key: "45000"})
    assert nearest(key, GROUP_KEYS) == ""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("share.session.timeout.ms", "", "a whole number of milliseconds"),
        ("share.delivery.count.limit", "9" * 5000, "a whole number"),
        ("share.release.backoff.multiplier", "1_0", "a number"),
        ("share.release.backoff.multiplier", "\N{DEVANAGARI DIGIT TWO}", "a number"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_the_expected_type(name: str, text: str, expected: str) -> None:
    with pytest.raises(ConfigTypeMismatch) as caught:
        GroupConfig.parse({name: text})
    assert caught.value.fields == {"key": name, "value": text, "expected": expected}


@pytest.mark.parametrize(
    ("name", "text", "bounds"),
    [
        ("share.acquire.mode", "record-limit", "batch_optimized, record_limit"),
        ("share.auto.offset.reset", "by_duration:-PT1H", "not negative"),
        ("share.release.backoff.jitter", "nan", "between 0.0 and 1.0"),
        ("errors.deadletterqueue.topic.name", "__consumer_offsets", "does not begin with __"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_the_allowed_values(name: str, text: str, bounds: str) -> None:
    with pytest.raises(ConfigOutOfBounds, match=bounds):
        GroupConfig.parse({name: text})


def test_a_short_session_shortens_heartbeats_that_are_not_set() -> None:
    for session_ms, interval_ms in (("3000", 1000), ("10000", 3333)):
        assert GroupConfig.parse({"share.session.timeout.ms": session_ms}).share_heartbeat_interval_ms == interval_ms


def test_configs_travel_and_do_not_change() -> None:
    config = GroupConfig.parse({"share.isolation.level": "read_committed"})
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(AttributeError):
        config.share_isolation_level = "x"  # type: ignore[misc]


@given(st.dictionaries(st.sampled_from([*GROUP_KEYS, "share.x"]), st.text()))
def test_any_text_is_accepted_or_refused_by_name(texts: dict[str, str]) -> None:
    code = "INVALID_CONFIG"
    try:
        GroupConfig.parse(texts)
    except ShareGroupError as error:
        code = error.kafka_error
    assert code == "INVALID_CONFIG"


# --- durations and resets


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1H", 3_600_000),
        ("P1D", 86_400_000),
        ("P2DT3H4M5.678S", 2 * 86_400_000 + 3 * 3_600_000 + 4 * 60_000 + 5_678),
        ("PT0S", 0),
        ("pt0,5s", 500),
        ("PT0.0009S", 0),
    ],
)
def test_a_duration_is_iso_8601(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1H", "PT-1H", "-PT1H", "P1Y", "P1W", "PT1M1H", "PT1.5H", "PT١H"]
)
def test_a_text_that_is_no_duration_parses_to_none(text: str) -> None:
    assert parse_duration_ms(text) is None


def test_a_reset_is_parsed_into_strategy_and_duration() -> None:
    assert offset_reset("earliest") == OffsetReset("earliest")
    assert offset_reset("by_duration:PT1H") == ("by_duration", 3_600_000)
    assert offset_reset("by_duration:") is None
    assert offset_reset("earliest:PT1H") is None


# --- what is written from the table


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_config_docs", ROOT / "tools" / "generate_config_docs.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["conf/group.properties", "conf/coordinator.properties", "docs/do/options.md"])
def test_files_generated_from_the_config_table_are_up_to_date(name: str) -> None:
    expected = _generator().render()[name]
    assert (ROOT / name).read_text(encoding="utf-8") == expected, "run: python tools/generate_config_docs.py"
