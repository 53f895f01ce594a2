"""``kafka.*`` options of source and sink: which go to librdkafka, under which name, and which ones share groups or
librdkafka refuse.

Spark's Kafka source takes Java's names; librdkafka has others for some. Rule: a value of a ``kafka.*`` option stands in
no error and in no ``repr``, unless its key is known to be harmless.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from coordinator.client.option_errors import InvalidKafkaOption, RefusedOption, UnknownKafkaOption
from coordinator.config.resolved import hint
from coordinator.protocol.secret_files import read_file

PREFIX = "kafka."

_BYTES = "Records come as bytes, as from Spark's Kafka source: use CAST(value AS STRING) or from_json in the query."
_NOT_NEEDED = "Remove it."

SHARE_GROUPS_FORBID: dict[str, str] = {
    "auto.offset.reset": "Use startingOffsets for a new query's group, or share.auto.offset.reset for the group.",
    "enable.auto.commit": "Records are acknowledged when their batch is complete. Remove it.",
    "group.instance.id": "A query is known by its checkpoint and comes back as the same member. Remove it.",
    "isolation.level": "Use share.isolation.level.",
    "partition.assignment.strategy": "All members of a share group can read every partition. Remove it.",
    "interceptor.classes": "Change records in the query instead.",
    "session.timeout.ms": "Use share.session.timeout.ms.",
    "heartbeat.interval.ms": "Use share.heartbeat.interval.ms.",
    "group.protocol": "A share group is no consumer group. Remove it.",
    "group.remote.assignor": "All members of a share group can read every partition. Remove it.",
}
"""The ten keys of a consumer that a share group forbids (KIP-932), with what to use."""

SERIALIZERS: dict[str, str] = dict.fromkeys(
    ("key.deserializer", "value.deserializer", "key.serializer", "value.serializer"), _BYTES
)

_PEM_FILE = "librdkafka reads no Java key stores. "

_JAVA_ONLY: dict[str, str] = {
    "sasl.jaas.config": "Use kafka.sasl.mechanism with kafka.sasl.username and kafka.sasl.password (PLAIN, SCRAM), "
    "kafka.sasl.kerberos.* (GSSAPI) or kafka.sasl.oauthbearer.* (OAUTHBEARER).",
    "sasl.login.callback.handler.class": "Use kafka.sasl.oauthbearer.method=oidc with kafka.sasl.oauthbearer.*.",
    "sasl.client.callback.handler.class": "Use kafka.sasl.oauthbearer.method=oidc with kafka.sasl.oauthbearer.*.",
    "sasl.login.class": "Use kafka.sasl.mechanism and kafka.sasl.*.",
    "ssl.truststore.location": _PEM_FILE + "Use kafka.ssl.ca.location with a PEM file (keytool -exportcert -rfc).",
    "ssl.truststore.password": _PEM_FILE + "A PEM file named by kafka.ssl.ca.location needs no password. Remove it.",
    "ssl.truststore.type": _PEM_FILE + "Use kafka.ssl.ca.location with a PEM file. Remove it.",
    "ssl.keystore.type": "Use kafka.ssl.keystore.location with a PKCS#12 file, or kafka.ssl.certificate.location and "
    "kafka.ssl.key.location with PEM files, and remove it.",
    "ssl.enabled.protocols": _NOT_NEEDED,
    "ssl.protocol": _NOT_NEEDED,
    "ssl.provider": _NOT_NEEDED,
    "ssl.keymanager.algorithm": _NOT_NEEDED,
    "ssl.trustmanager.algorithm": _NOT_NEEDED,
    "ssl.secure.random.implementation": _NOT_NEEDED,
    "ssl.engine.factory.class": _NOT_NEEDED,
    "security.providers": _NOT_NEEDED,
    "metric.reporters": "Use kafka.statistics.interval.ms, or the coordinator's metrics.",
    "exclude.internal.topics": _NOT_NEEDED,
    "socket.connection.setup.timeout.max.ms": "Use kafka.socket.connection.setup.timeout.ms.",
    "default.api.timeout.ms": "Use kafka.socket.timeout.ms.",
}

_JAVA_NAMES: dict[str, str] = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "request.timeout.ms": "socket.timeout.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}

_HARMLESS = (
    "bootstrap.servers",
    "client.id",
    "client.rack",
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.kerberos.service.name",
    "sasl.oauthbearer.method",
    "enable.ssl.certificate.verification",
    "ssl.endpoint.identification.algorithm",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.keystore.location",
    "fetch.min.bytes",
    "fetch.max.bytes",
    "fetch.wait.max.ms",
    "fetch.message.max.bytes",
    "max.partition.fetch.bytes",
    "fetch.queue.backoff.ms",
    "queued.min.messages",
    "queued.max.messages.kbytes",
    "socket.timeout.ms",
    "metadata.max.age.ms",
    "check.crcs",
    "debug",
    "log_level",
)
"""Keys whose values may be shown."""

_SUGGESTIONS = (
    *_HARMLESS,
    "sasl.username",
    "sasl.password",
    "sasl.kerberos.keytab",
    "sasl.kerberos.principal",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.extensions",
    "ssl.ca.pem",
    "ssl.certificate.pem",
    "ssl.key.pem",
    "ssl.key.password",
    "ssl.keystore.password",
    "ssl.cipher.suites",
    "receive.message.max.bytes",
    "socket.keepalive.enable",
    "socket.connection.setup.timeout.ms",
    "socket.receive.buffer.bytes",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "retry.backoff.ms",
    "connections.max.idle.ms",
    "broker.address.family",
    "client.dns.lookup",
    "statistics.interval.ms",
)
"""The keys that a mistyped one is compared with: librdkafka can't list its own."""

HIDDEN = "*********(redacted)"
"""Spark's own text in place of a secret."""


def is_harmless(key: str) -> bool:
    """Whether a value of this ``kafka.*`` key (without the prefix) may be shown. All others count as secrets: a
    password may also stand under a mistyped key."""
    return key in _HARMLESS


def redacted(kafka_config: Mapping[str, str]) -> dict[str, str]:
    """The same keys, with the values that may be shown."""
    return {key: value if is_harmless(key) else HIDDEN for key, value in kafka_config.items()}


def to_librdkafka(options: Mapping[str, str], owned: Mapping[str, str]) -> dict[str, str]:
    """``kafka.*`` options, given without the prefix, as librdkafka's. ``owned``: what source or sink set by themselves
    -> what to use instead.

    Raises:
        RefusedOption: an option can't be given to librdkafka, or is one of ``owned``.
        InvalidKafkaOption: an option is named twice, by its Java name and by librdkafka's.
    """
    config: dict[str, str] = {}
    for key, value in options.items():
        _refuse(key, value, owned)
        name = _JAVA_NAMES.get(key, key)
        if name in config or (name != key and name in options):
            raise InvalidKafkaOption(option=PREFIX + key, problem=f"it is the same as {PREFIX}{name}; remove one.")
        config[name] = _java_value(name, value)
    return config


def _java_value(name: str, value: str) -> str:
    """Java turns the check of host names off with an empty text, librdkafka with ``none``."""
    return "none" if name == "ssl.endpoint.identification.algorithm" and not value.strip() else value


def _refuse(key: str, value: str, owned: Mapping[str, str]) -> None:
    option = PREFIX + key
    for keys, reason in (*_REFUSALS, (owned, "sharegroup sets it.")):
        if key in keys:
            raise RefusedOption(option=option, reason=reason, instead=keys[key])
    if key.startswith(("share.", "group.share.", "errors.deadletterqueue.")):
        raise RefusedOption(option=option, reason="group configurations have no prefix.", instead=f"Use {key}.")
    if key.endswith("_cb") or key in ("on_commit", "logger", "opaque", "default.topic.config"):
        raise RefusedOption(option=option, reason="an option is a text, this is code.", instead=_NOT_NEEDED)
    if key == "ssl.keystore.location" and value.strip().lower().endswith(".jks"):
        raise RefusedOption(
            option=option,
            reason="librdkafka reads PKCS#12 key stores, no JKS.",
            instead="Convert it: keytool -importkeystore -deststoretype pkcs12.",
        )


_REFUSALS = (
    (SHARE_GROUPS_FORBID, "a share group does without it."),
    (SERIALIZERS, "records are bytes here."),
    (_JAVA_ONLY, "it is for Java clients only, and this project uses librdkafka."),
)

_END_OF_CHECK = "sharegroup.end.of.check"


_FILES = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.keystore.location",
    "ssl.crl.location",
)
"""Properties that name a file, or a folder of files. librdkafka's errors about a missing one say little."""
_NO_FILE = "probe"
"""The value of ssl.ca.location with which librdkafka searches for the system's certificates."""


def check_kafka_config(kafka_config: Mapping[str, str]) -> None:
    """Lets librdkafka check names and values, without a thread or connection: an unknown property at the end makes it
    stop before it starts anything. ``plugin.library.paths`` is not checked, since that would load the library. Files
    that properties name must exist on this host.

    Raises:
        UnknownKafkaOption, InvalidKafkaOption: the first wrong property.
        UnusableFile: a file can't be read.
    """
    for key in _FILES:
        path = kafka_config.get(key, "")
        if path and path != _NO_FILE and not os.path.isdir(path):
            read_file(PREFIX + key, path)
    for key, value in kafka_config.items():
        if key == "plugin.library.paths":
            continue
        text = _complaint(key, value) or _half_read(key, value)
        if "No such configuration property" in text:
            raise UnknownKafkaOption(option=PREFIX + key, hint=_hint(key))
        if text:
            problem = (text if is_harmless(key) else "its value is refused") + _CHOICES.get(key, "")
            raise InvalidKafkaOption(option=PREFIX + key, problem=f"{problem}.")


_CHOICES = {"security.protocol": "; it is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"}
_BEGINS_AS_NUMBER = re.compile(r"\s*[+-]?\d")
_NUMBER = re.compile(r"\s*[+-]?(0[xX][0-9a-fA-F]+|\d+)\s*", re.ASCII)
_OUT_OF_RANGE = "-7"


def _half_read(key: str, value: str) -> str:
    """Returns why librdkafka would misread a number; empty if it would not. It reads the leading digits, so 1e3 is
    1."""
    if not _BEGINS_AS_NUMBER.match(value) or _NUMBER.fullmatch(value):
        return ""
    return f'"{value}" is not a whole number' if "range" in _complaint(key, _OUT_OF_RANGE) else ""


def _hint(key: str) -> str:
    known = "https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md has all"
    return hint(PREFIX + key, [PREFIX + each for each in _SUGGESTIONS], known)


def _complaint(key: str, value: str) -> str:
    """Returns librdkafka's error about one property; empty if there is none."""
    from confluent_kafka import Consumer, KafkaException

    try:
        Consumer({"group.id": _END_OF_CHECK, key: value, _END_OF_CHECK: ""})
    except KafkaException as error:
        text = error.args[0].str()
    except (TypeError, ValueError):
        text = "its value is refused"
    else:
        raise AssertionError("librdkafka knows the property that it can't know")
    return "" if _END_OF_CHECK in text else re.sub(r"\s+", " ", text).strip()
