"""Writes records whose header names are any bytes. confluent_kafka takes strings only; librdkafka, which it has loaded,
and other languages' clients take what they are given."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from confluent_kafka import cimpl

_PRODUCER = 0
_END, _TOPIC, _PARTITION, _VALUE, _HEADERS = 0, 1, 3, 4, 10  # rd_kafka_vtype_t
_MSG_F = 7
_COPY = 2


def produce_raw_headers(bootstrap: str, topic: str, names: Sequence[bytes]) -> None:
    """Write one record to partition 0 with a header of each name, and return when the broker has it."""
    library = ctypes.CDLL(cimpl.__file__)  # its symbols are librdkafka's, too
    for name in ("conf_new", "new", "headers_new"):
        getattr(library, f"rd_kafka_{name}").restype = ctypes.c_void_p
    text = ctypes.create_string_buffer(512)
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    assert library.rd_kafka_conf_set(conf, b"bootstrap.servers", bootstrap.encode(), text, ctypes.c_size_t(512)) == 0
    producer = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, conf, text, ctypes.c_size_t(512)))
    assert producer, text.value
    headers = ctypes.c_void_p(library.rd_kafka_headers_new(ctypes.c_size_t(len(names))))
    for name in names:
        size, one = ctypes.c_ssize_t(len(name)), ctypes.c_ssize_t(1)
        assert library.rd_kafka_header_add(headers, name, size, b"1", one) == 0
    sent = library.rd_kafka_producev(
        producer,
        *(_TOPIC, topic.encode(), _PARTITION, ctypes.c_int32(0), _MSG_F, _COPY),
        *(_VALUE, b"x", ctypes.c_size_t(1), _HEADERS, headers, _END),
    )
    flushed = library.rd_kafka_flush(producer, 30_000)
    library.rd_kafka_destroy(producer)
    assert (sent, flushed) == (0, 0)
