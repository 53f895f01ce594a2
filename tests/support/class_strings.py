"""The text constants of Java's classes, read from the jars without a JVM."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

from tools.bootstrap import KAFKA_VERSION

KAFKA_JARS = Path(__file__).resolve().parents[2] / ".build" / f"kafka-{KAFKA_VERSION}"
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
"""Bytes of a constant, by its tag (JVM specification, 4.4); 1 is text."""


def class_strings(jar: Path, name: str) -> set[str]:
    """The texts in the constant pool of a class, named as in ``org.apache.kafka.clients.consumer.ConsumerConfig``."""
    with zipfile.ZipFile(jar) as archive:
        data = archive.read(name.replace(".", "/") + ".class")
    (count,) = struct.unpack_from(">H", data, 8)
    found, at, index = set(), 10, 1
    while index < count:
        tag = data[at]
        if tag == 1:
            (size,) = struct.unpack_from(">H", data, at + 1)
            found.add(data[at + 3 : at + 3 + size].decode("utf-8", "replace"))
            at += 3 + size
        else:
            at += 1 + _SIZES[tag]
        index += 2 if tag in (5, 6) else 1
    return found


def kafka_strings(library: str, *classes: str) -> set[str]:
    """The texts of classes in a jar of Kafka, as ``kafka-clients``. Names are below org.apache.kafka."""
    jar = KAFKA_JARS / f"{library}-{KAFKA_VERSION}.jar"
    return set().union(*(class_strings(jar, f"org.apache.kafka.{name}") for name in classes))
