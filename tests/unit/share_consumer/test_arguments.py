"""Wrong configuration and wrong arguments: confluent's ShareConsumer and ours raise the same, without a broker."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import confluent_kafka
import msgspec
import pytest
from confluent_kafka import KafkaException

import sharegroup
from coordinator.protocol.values import LONGEST_DELAY_MS, LONGEST_REASON, AcknowledgeType
from share_consumer.options import ConsumerOptions
from tests.support.share_members import CONFIG, run_of

MESSAGE = confluent_kafka.Message(topic="orders", partition=0, offset=0)
SASL = {"security.protocol": "SASL_PLAINTEXT"}

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "no group id": {"group.id": None},
    "an empty group id": {"group.id": ""},
    "SASL without a mechanism": SASL,
    "SASL without a user": {**SASL, "sasl.mechanism": "PLAIN"},
    "an unknown mechanism": {**SASL, "sasl.mechanism": "FOO"},
    "OIDC without an endpoint": {**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"},
    "a mechanism that is not used": {"sasl.mechanism": "PLAIN"},
    "certificates that are missing": {"security.protocol": "SSL", "ssl.ca.location": "/nonexistent"},
    "sizes that do not fit": {"receive.message.max.bytes": 1000, "fetch.max.bytes": 2_000_000},
    **{f"{key} None": {key: None} for key in ("error_cb", "stats_cb", "throttle_cb", "oauth_cb", "logger")},
    "throttle_cb a number": {"throttle_cb": 5},
    "a whole number as a float": {"max.poll.records": 1.0},
    "no number": {"max.poll.records": "many"},
    "a setting of topics": {"default.topic.config": {"acks": "all"}},
    "an unknown setting of topics": {"default.topic.config": {"no.such": "all"}},
    "a refused setting of topics": {"default.topic.config": {"auto.offset.reset": "earliest"}},
    "settings of topics that are no dict": {"default.topic.config": "acks"},
    "an unknown property": {"no.such.property": "1"},
    "a property of confluent's Consumer": {"on_commit": print},
}

CALLS: dict[str, Callable[[Any], object]] = {
    "constructor, a second time": lambda consumer: consumer.__init__(CONFIG),
    "subscription": lambda consumer: (consumer.subscribe(["b", "Z", "a"]), consumer.subscription()),
    "type": lambda consumer: consumer.acknowledge(MESSAGE, 99),
    "type, too large": lambda consumer: consumer.acknowledge(MESSAGE, 2**31),
    "type, too small": lambda consumer: consumer.acknowledge(MESSAGE, -(2**40)),
    "message and type": lambda consumer: consumer.acknowledge(confluent_kafka.Message(), 99),
    "offset and type": lambda consumer: consumer.acknowledge_offset("orders", 0, 0, 99),
    "partition": lambda consumer: consumer.acknowledge_offset("orders", -1, 0),
    "partition, too large": lambda consumer: consumer.acknowledge_offset("orders", 2**31, 0),
    "partition, too small": lambda consumer: consumer.acknowledge_offset("orders", -(2**31) - 1, 0),
    "offset, too large": lambda consumer: consumer.acknowledge_offset("orders", 0, 2**63),
    "offset, no integer": lambda consumer: consumer.acknowledge_offset("orders", 0, 1.0),
}


ENDS: dict[str, Callable[[Any], object]] = {
    "subscribe(text)": lambda consumer: consumer.subscribe("a"),
    "subscribe(None)": lambda consumer: consumer.subscribe(None),
    "subscribe(empty name)": lambda consumer: consumer.subscribe([""]),
    "subscribe(twice the same)": lambda consumer: consumer.subscribe(["a", "a"]),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
    "subscription": lambda consumer: consumer.subscription(),
    "poll without topics": lambda consumer: consumer.poll(0),
    "poll(text)": lambda consumer: consumer.poll("1"),
    "poll(None)": lambda consumer: consumer.poll(None),
    "commit_sync": lambda consumer: consumer.commit_sync(),
    "commit_sync(text)": lambda consumer: consumer.commit_sync("1"),
    "commit_async": lambda consumer: consumer.commit_async(),
    "commit_async(1)": lambda consumer: consumer.commit_async(1),
    "acknowledge(text)": lambda consumer: consumer.acknowledge("x"),
    "acknowledge(empty message)": lambda consumer: consumer.acknowledge(confluent_kafka.Message()),
    "acknowledge(not in flight)": lambda consumer: consumer.acknowledge(MESSAGE),
    "acknowledge_offset(offset -1)": lambda consumer: consumer.acknowledge_offset("a", 0, -1),
    "acknowledge_offset(type 0)": lambda consumer: consumer.acknowledge_offset("a", 0, 0, 0),
    "acknowledge_offset(type text)": lambda consumer: consumer.acknowledge_offset("a", 0, 0, "x"),
    "acknowledge_offset(topic 5)": lambda consumer: consumer.acknowledge_offset(5, 0, 0),
    "acknowledge_offset(not in flight)": lambda consumer: consumer.acknowledge_offset("a", 0, 0),
    "callback 5": lambda consumer: consumer.set_acknowledgement_commit_callback(5),
    "callback None": lambda consumer: consumer.set_acknowledgement_commit_callback(None),
    "credentials": lambda consumer: consumer.set_sasl_credentials("a", "b"),
    "credentials None": lambda consumer: consumer.set_sasl_credentials("a", None),
    "close": lambda consumer: consumer.close(),
}


def said(function: Callable[[], object]) -> tuple[str, str]:
    """Returns what the call returned or raised."""
    try:
        return "returned", repr(function())
    except Exception as error:  # noqa: BLE001 - any exception is compared
        return type(error).__name__, error.args[0].str() if isinstance(error, KafkaException) else str(error)


def made(module: Any, **more: Any) -> tuple[str, str]:
    def make() -> None:
        module.ShareConsumer({**CONFIG, "log_level": 0, **more})

    return said(make)


@pytest.mark.parametrize("config", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_both_constructors_raise_the_same_for_a_configuration(config: dict[str, Any]) -> None:
    assert made(sharegroup, **config) == made(confluent_kafka, **config)


def test_a_group_id_with_a_prefix_is_named() -> None:
    with pytest.raises(ValueError, match=r"group\.id must be set; properties have no prefix here: use group\.id"):
        sharegroup.ShareConsumer({"kafka.bootstrap.servers": "localhost:1", "kafka.group.id": "billing"})


@pytest.mark.parametrize("topic", [b"orders", None, 5])
def test_a_topic_that_is_no_text_is_refused(topic: Any) -> None:
    consumer = sharegroup.ShareConsumer({**CONFIG, "log_level": 0})
    with pytest.raises(TypeError, match="expected list of topic unicode strings, and"):
        consumer.subscribe(["orders", topic])
    consumer.close()


@pytest.mark.parametrize(
    ("topics", "says"),
    [
        ([""], "'' is no name of a topic"),
        (["orders,payments"], "'orders,payments' is no name"),
        (["^orders", "payments"], "no name"),
        (["b", "a", "b"], "topic b is there twice"),
    ],
)
def test_topics_that_can_not_be_are_refused_by_name(topics: list[str], says: str) -> None:
    consumer = sharegroup.ShareConsumer({**CONFIG, "log_level": 0})
    with pytest.raises(ValueError, match=f"Invalid argument or configuration: .*{re.escape(says)}"):
        consumer.subscribe(topics)
    consumer.close()


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_the_methods_of_both_consumers_raise_the_same_for_arguments(call: Callable[[Any], object], mode: str) -> None:
    config = {**CONFIG, "log_level": 0, "share.acknowledgement.mode": mode}
    native, ours = confluent_kafka.ShareConsumer(config), sharegroup.ShareConsumer(config)
    kind, text = said(lambda: call(native))
    found = said(lambda: call(ours))
    assert found[0] == kind
    assert found[1].startswith(text), "the sentence may go on with the way out"
    native.close()
    ours.close()


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("call", ENDS.values(), ids=ENDS.keys())
def test_a_call_ends_alike_on_both_consumers(call: Callable[[Any], object], is_closed: bool) -> None:
    """With a result, or with the same exception; the texts may differ."""
    ends = []
    for module in (confluent_kafka, sharegroup):
        consumer = module.ShareConsumer({**CONFIG, "log_level": 0, "share.acknowledgement.mode": "explicit"})
        if is_closed:
            consumer.close()
        ends.append(said(lambda of=consumer: call(of))[0])  # type: ignore[misc]
        consumer.close()
    assert ends[0] == ends[1]


NOTES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a reason": {"reason": "no amount"},
    "an empty reason": {"reason": ""},
    "a long reason": {"reason": "x" * 10_000},
    "a reason that is no UTF-8": {"reason": "\udcff"},
    "a reason of bytes": {"reason": b"no amount"},
    "a delay": {"delay_ms": 5},
    "no delay": {"delay_ms": 0},
    "the longest delay": {"delay_ms": LONGEST_DELAY_MS},
    "a delay too long": {"delay_ms": LONGEST_DELAY_MS + 1},
    "a negative delay": {"delay_ms": -1},
    "a delay of a fraction": {"delay_ms": 1.5},
    "both": {"reason": "no amount", "delay_ms": 5},
    "a time that is over": {"release_at": datetime.now(timezone.utc)},
    "a time without a zone": {"release_at": datetime(2026, 1, 1)},
    "a time too late": {"release_at": datetime(2999, 1, 1, tzinfo=timezone.utc)},
    "a time as text": {"release_at": "2999-01-01T00:00:00Z"},
    "a delay and a time": {"delay_ms": 5, "release_at": datetime.now(timezone.utc)},
}


def refusal(note: dict[str, Any], kind: AcknowledgeType, mode: str) -> str:
    """The exception that a note deserves; empty: none."""
    reason, delay_ms, at = note.get("reason"), note.get("delay_ms"), note.get("release_at")
    if isinstance(reason, bytes):
        return "TypeError"
    if (reason and kind != AcknowledgeType.REJECT) or ("delay_ms" in note and kind != AcknowledgeType.RELEASE):
        return "ValueError"
    if at is not None and (kind != AcknowledgeType.RELEASE or delay_ms is not None):
        return "ValueError"
    if isinstance(at, datetime) and (at.tzinfo is None or at.year == 2999):
        return "ValueError"
    if isinstance(delay_ms, float) or isinstance(at, str):
        return "TypeError"
    if delay_ms is not None and not 0 <= delay_ms <= LONGEST_DELAY_MS:
        return "ValueError"
    if mode == "implicit":
        return "NoteInImplicitMode" if reason or delay_ms is not None or at else "IllegalStateException"
    return ""


def refuse_or_send(note: dict[str, Any], kind: AcknowledgeType, mode: str) -> None:
    consumer = sharegroup.ShareConsumer({**CONFIG, "log_level": 0, "share.acknowledgement.mode": mode})
    consumer._in_flight.add([run_of(0, 1)])
    (message,) = run_of(0, 1).messages
    for acknowledge in (
        lambda: consumer.acknowledge(message, kind, **note),
        lambda: consumer.acknowledge_offset("orders", 0, 0, kind, **note),
    ):
        wanted = refusal(note, kind, mode)
        name, _ = said(acknowledge)
        assert name == (wanted or "returned")
        if not wanted:
            taken = consumer._in_flight.take()
            ((batch,),) = (of.batches for of in taken.partitions)
            given = (note.get("reason") or "")[:LONGEST_REASON].replace("\udcff", "?")
            delay_ms = 0 if "release_at" in note else note.get("delay_ms")
            assert (batch.types, batch.reason, batch.delay_ms) == ((kind,), given, delay_ms)
            msgspec.json.encode(batch)
            consumer._in_flight.add([run_of(0, 1)])
    consumer.close()


def test_a_reason_and_a_delay_are_sent_or_refused() -> None:
    for mode in ("implicit", "explicit"):
        for kind in set(AcknowledgeType) - {AcknowledgeType.GAP, AcknowledgeType.DEFER}:
            for note in NOTES.values():
                refuse_or_send(note, kind, mode)


def test_a_point_in_time_of_any_zone_is_the_delay_until_then() -> None:
    consumer = sharegroup.ShareConsumer({**CONFIG, "log_level": 0, "share.acknowledgement.mode": "explicit"})
    consumer._in_flight.add([run_of(0, 1)])
    in_an_hour = datetime.now(timezone(timedelta(hours=-9))) + timedelta(hours=1)
    consumer.acknowledge_offset("orders", 0, 0, AcknowledgeType.RELEASE, release_at=in_an_hour)
    ((batch,),) = (of.batches for of in consumer._in_flight.take().partitions)
    assert 0 < batch.delay_ms <= 3_600_000
    assert datetime.now(timezone.utc) + timedelta(milliseconds=batch.delay_ms) >= in_an_hour
    consumer.close()


CALLS_OF_OURS: dict[str, tuple[Callable[[sharegroup.ShareConsumer], object], type[Exception], str]] = {
    "poll(text)": (lambda c: c.poll("1"), TypeError, r"timeout must be real number, of seconds \(-1: .*\), not str"),  # type: ignore[arg-type]
    "poll(None)": (lambda c: c.poll(None), TypeError, "timeout must be real number.*not NoneType"),  # type: ignore[arg-type]
    "poll(nan)": (lambda c: c.poll(float("nan")), ValueError, "timeout must be real number.*not nan"),
    "commit_sync(text)": (lambda c: c.commit_sync("x"), TypeError, "timeout must be real number.*not str"),  # type: ignore[arg-type]
    "a text": (lambda c: c.acknowledge(MESSAGE, "ACCEPT"), TypeError, "ack_type must be AcknowledgeType.*not str"),  # type: ignore[arg-type]
    "a bool": (lambda c: c.acknowledge(MESSAGE, True), TypeError, "ack_type must be AcknowledgeType.*not bool"),
    "9": (lambda c: c.acknowledge(MESSAGE, 9), ValueError, "ack_type must be AcknowledgeType.*not 9"),
    "GAP": (lambda c: c.acknowledge(MESSAGE, AcknowledgeType.GAP), ValueError, "GAP is for offsets without a record"),
    "DEFER": (
        lambda c: c.acknowledge_offset("orders", 0, 0, AcknowledgeType.DEFER),
        ValueError,
        r"AcknowledgeType\.DEFER is for sinks alone; use RELEASE",
    ),
    "a delay": (
        lambda c: c.acknowledge(MESSAGE, AcknowledgeType.RELEASE, delay_ms="5s"),  # type: ignore[arg-type]
        TypeError,
        "delay_ms must be a whole number of milliseconds, not str",
    ),
    "after the commit": (
        lambda c: c.acknowledge(MESSAGE),
        sharegroup.IllegalStateException,
        r"Erroneous state: this ShareConsumer has no record orders-0@0 in flight\. Its outcome was sent",
    ),
}


@pytest.mark.parametrize("case", CALLS_OF_OURS)
def test_a_wrong_argument_of_a_method_is_named_with_the_way_out(case: str) -> None:
    call, kind, says = CALLS_OF_OURS[case]
    consumer = sharegroup.ShareConsumer({**CONFIG, "log_level": 0, "share.acknowledgement.mode": "explicit"})
    with pytest.raises(kind, match=says):
        call(consumer)
    consumer.close()


def test_an_acknowledgement_in_implicit_mode_names_the_explicit_one() -> None:
    consumer = sharegroup.ShareConsumer({**CONFIG, "log_level": 0})
    with pytest.raises(sharegroup.IllegalStateException, match="state: the next poll accepts the record, in implicit"):
        consumer.acknowledge(MESSAGE)
    consumer.close()
    with pytest.raises(sharegroup.IllegalStateException, match="closed"):
        consumer.__enter__()


@pytest.mark.parametrize(("text", "number"), [("7", 7), (7.0, 7), ("010", 8), (" 7", 7)])
def test_numbers_are_parsed_as_by_librdkafka(text: object, number: int) -> None:
    assert ConsumerOptions.parse({**CONFIG, "max.poll.records": text}).max_poll_records == number


def test_a_program_that_changes_its_import_finds_every_name() -> None:
    """But for the classes of its own, sharegroup has confluent's."""
    own = {"AcknowledgeType", "ShareConsumer", "DeserializingShareConsumer"}
    names = own | {"ConcurrentModificationException", "IllegalStateException", "KafkaError", "KafkaException"}
    names |= {"Message", "Messages", "TopicPartition", "TIMESTAMP_NOT_AVAILABLE", "TIMESTAMP_CREATE_TIME"}
    assert names <= set(dir(sharegroup))
    other = {name for name in names if getattr(sharegroup, name) is not getattr(confluent_kafka, name)}
    assert other == own
    for kind in confluent_kafka.AcknowledgeType:
        assert sharegroup.AcknowledgeType[kind.name] == kind


@pytest.mark.parametrize("arguments", [(), (None,), ([],), ({},)])
def test_the_deserializing_class_has_the_constructor_of_confluents(arguments: tuple[Any, ...]) -> None:
    classes = (sharegroup.DeserializingShareConsumer, confluent_kafka.DeserializingShareConsumer)
    ours, native = (said(lambda of=of: of(*arguments))[0] for of in classes)  # type: ignore[misc]
    assert ours == native
