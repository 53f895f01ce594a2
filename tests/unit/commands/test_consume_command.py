"""`sharegroup consume`: how records are printed, and what is refused before a broker is asked."""

from __future__ import annotations

import json
import struct

import pytest
from confluent_kafka import Message

from sharegroup.cluster_options import pairs
from sharegroup.console_format import DESERIALIZERS, RecordFormat, RecordUnreadable

ALL = {f"print.{name}": "true" for name in ("timestamp", "key", "offset", "delivery", "epoch", "partition", "headers")}


class Delivered(Message):
    """A record whose delivery count is known."""

    def delivery_count(self):
        return 3


def record(**fields):
    return Delivered(**{"topic": "orders", "partition": 2, "offset": 7, "value": b"v", "timestamp": (1, 99), **fields})


def test_only_the_value_is_printed_unless_more_is_asked_for():
    assert RecordFormat({}).line(record(key=b"k")) == b"v\n"
    assert RecordFormat({"print.key": " TRUE "}).line(record(key=b"k")) == b"k\tv\n"
    assert RecordFormat({"print.key": "true", "print.value": "false"}).line(record(key=b"k")) == b"k\n"
    assert RecordFormat({"print.value": "false"}).line(record()) == b""


def test_a_separator_may_be_a_blank():
    given = pairs(None, None, ("key.separator= ", "print.key =true"))
    assert RecordFormat(given).line(record(key=b"k", value=b"v")) == b"k v\n"


def test_columns_stand_in_the_order_of_kafkas_own_formatter():
    full = record(key=b"k", headers=[("a", b"1"), ("b", None)], leader_epoch=5)
    expected = b"CreateTime:99\tPartition:2\tOffset:7\tDelivery:3\tEpoch:5\ta:1,b:null\tk\tv\n"
    assert RecordFormat(ALL).line(full) == expected
    bare = record(timestamp=(0, 0), value=None)
    assert RecordFormat({**ALL, "key.separator": "|", "null.literal": "-", "line.separator": ";"}).line(bare) == (
        b"NO_TIMESTAMP|Partition:2|Offset:7|Delivery:3|Epoch:NOT_PRESENT|NO_HEADERS|-|-;"
    )


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("org.apache.kafka.common.serialization.StringDeserializer", "ä".encode(), "ä"),
        ("LongDeserializer", struct.pack(">q", -5), "-5"),
        ("IntegerDeserializer", struct.pack(">i", 7), "7"),
        ("ShortDeserializer", struct.pack(">h", 7), "7"),
        ("DoubleDeserializer", struct.pack(">d", 1.5), "1.5"),
        ("FloatDeserializer", struct.pack(">f", 1.5), "1.5"),
        ("BooleanDeserializer", b"\1", "true"),
        ("UUIDDeserializer", b"12345678-1234-5678-1234-567812345678", "12345678-1234-5678-1234-567812345678"),
    ],
)
def test_kafkas_own_deserializers_are_known(name, data, text):
    assert RecordFormat({"value.deserializer": name}).line(record(value=data)) == f"{text}\n".encode()


@pytest.mark.parametrize("kind", [kind for kind in DESERIALIZERS if kind not in ("String", "ByteArray", "Bytes")])
def test_a_value_that_a_deserializer_cannot_read_is_named(kind):
    form = RecordFormat({"value.deserializer": f"{kind}Deserializer"})
    with pytest.raises(RecordUnreadable, match=r"Record orders-2@7 \(value, 3 bytes\) can't be read by"):
        form.line(record(value=b"abc"))


def test_json_has_everything_that_is_known_of_a_record():
    printed = RecordFormat({}).json(record(key=b"k", value=b"\xff", headers=[("a", None)], leader_epoch=5))
    assert json.loads(printed) == {
        "topic": "orders", "partition": 2, "offset": 7, "delivery_count": 3, "leader_epoch": 5,
        "timestamp_type": "CreateTime", "timestamp": 99, "headers": [["a", None]], "key": "k", "value": "�",
    }  # fmt: skip
