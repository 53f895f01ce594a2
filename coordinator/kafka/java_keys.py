"""Keys of Java's Kafka clients that librdkafka has by another name, in another form, or not at all: what each becomes
here, or why it has no meaning.

Rule: each key of Kafka's ConsumerConfig, ProducerConfig, AdminClientConfig and ShareConsumerConfig is in one of these
tables, or librdkafka has it by the same name. Texts name an option with its prefix ``kafka.``."""

from __future__ import annotations

RENAMED: dict[str, str] = {
    "buffer.memory": "queue.buffering.max.kbytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "sasl.oauthbearer.assertion.template.file": "sasl.oauthbearer.assertion.jwt.template.file",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
"""Java's key -> librdkafka's."""

BY_VALUE: dict[str, str] = {
    "sasl.jaas.config": "`sasl.username` and `sasl.password` from PlainLoginModule and ScramLoginModule, "
    "`sasl.kerberos.*` from Krb5LoginModule, `sasl.oauthbearer.*` from OAuthBearerLoginModule",
    "sasl.login.callback.handler.class": "`sasl.oauthbearer.method=oidc` from Kafka's OAuthBearerLoginCallbackHandler",
    "sasl.oauthbearer.jwt.retriever.class": "`sasl.oauthbearer.method=oidc`, and `sasl.oauthbearer.grant.type` from "
    "Kafka's ClientCredentialsJwtRetriever and JwtBearerJwtRetriever",
    "ssl.keystore.type": "PEM: `ssl.certificate.location` and `ssl.key.location` take `ssl.keystore.location`; PKCS12 "
    "is what `ssl.keystore.location` takes; JKS is refused",
    "ssl.truststore.location": "`ssl.ca.location` where `ssl.truststore.type=PEM`, or the file's name ends with .pem, "
    ".crt or .cer; other key stores are refused",
    "ssl.truststore.type": "PEM, for `ssl.truststore.location` and `ssl.truststore.certificates`; JKS and PKCS12 are "
    "refused",
}
"""Java's key -> the properties of librdkafka that its value becomes, in words (coordinator/kafka/java_values.py)."""

_NO_METRICS = "it is for the metrics of Java's clients; the coordinator has metrics, and librdkafka has statistics."
_OPENSSL = "it is for Java's TLS, and librdkafka uses OpenSSL."
_BROKERS = "the brokers check a token, no client does."
_RENEWALS = "librdkafka renews a token by itself, at 80% of its life."
_KINIT = "librdkafka renews a Kerberos ticket every sasl.kerberos.min.time.before.relogin."
_DEAD_LETTERS = "a dead letter's partition follows from its origin's."

NO_MEANING: dict[str, str] = {
    "bootstrap.controllers": "the controllers are not asked, only brokers are.",
    "config.providers": "a properties file takes ${env:NAME}, and a program reads its secrets itself.",
    "exclude.internal.topics": "internal topics match no subscribePattern.",
    "internal.leave.group.on.close": "it is internal to Java's consumer.",
    "internal.throw.on.fetch.stable.offset.unsupported": "it is internal to Java's consumer.",
    "max.block.ms": "a full queue of the producer is waited for.",
    "metadata.max.idle.ms": "librdkafka keeps the metadata of the topics that are in use.",
    **dict.fromkeys(
        ("auto.include.jmx.reporter", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
        _NO_METRICS,
    ),
    **dict.fromkeys(
        (
            "partitioner.adaptive.partitioning.enable",
            "partitioner.availability.timeout.ms",
            "partitioner.class",
            "partitioner.ignore.keys",
        ),
        _DEAD_LETTERS,
    ),
    **dict.fromkeys(("sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor"), _KINIT),
    **dict.fromkeys(
        (
            "sasl.login.refresh.buffer.seconds",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
        ),
        _RENEWALS,
    ),
    **dict.fromkeys(
        (
            "sasl.login.connect.timeout.ms",
            "sasl.login.read.timeout.ms",
            "sasl.login.retry.backoff.max.ms",
            "sasl.login.retry.backoff.ms",
        ),
        "librdkafka has no such setting of its requests for a token.",
    ),
    **dict.fromkeys(
        (
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.jwt.validator.class",
            "sasl.oauthbearer.scope.claim.name",
        ),
        _BROKERS,
    ),
    "sasl.oauthbearer.header.urlencode": "librdkafka has no such setting.",
    **dict.fromkeys(
        (
            "security.providers",
            "ssl.enabled.protocols",
            "ssl.engine.factory.class",
            "ssl.keymanager.algorithm",
            "ssl.protocol",
            "ssl.provider",
            "ssl.secure.random.implementation",
            "ssl.trustmanager.algorithm",
        ),
        _OPENSSL,
    ),
    "transaction.two.phase.commit.enable": "nothing here takes part in a two-phase commit of Kafka's.",
}
"""Java's key -> why it has no meaning here. The key is refused: a user would believe that it has an effect."""

_BY_LEVEL = "Use kafka.compression.type with kafka.compression.level."
_LOGIN = "Use kafka.sasl.oauthbearer.method=oidc with kafka.sasl.oauthbearer.*."

REFUSED: dict[str, str] = {
    **dict.fromkeys(("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"), _BY_LEVEL),
    "default.api.timeout.ms": "Use kafka.socket.timeout.ms.",
    "metric.reporters": "Use kafka.statistics.interval.ms, or the coordinator's metrics.",
    "sasl.client.callback.handler.class": _LOGIN,
    "sasl.login.class": "Use kafka.sasl.mechanism and kafka.sasl.*.",
    "ssl.truststore.password": "A PEM file named by kafka.ssl.ca.location needs no password. Remove it.",
    "socket.connection.setup.timeout.max.ms": "Use kafka.socket.connection.setup.timeout.ms.",
}
"""Java's key that librdkafka does not have -> what to use instead."""

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
"""The ten keys of a consumer that a share group forbids (KIP-932), with what to use instead."""

_BYTES = "Records come as bytes, as from Spark's Kafka source: use CAST(value AS STRING) or from_json in the query."
SERIALIZERS: dict[str, str] = dict.fromkeys(
    ("key.deserializer", "value.deserializer", "key.serializer", "value.serializer"), _BYTES
)

OF_THE_GROUP = ("share.acknowledgement.mode", "share.acquire.mode")
"""Keys of Java's ShareConsumer that are configurations of the group here, without a prefix."""

JAVAS = frozenset({*RENAMED, *BY_VALUE, *NO_MEANING, *REFUSED, *SHARE_GROUPS_FORBID, *SERIALIZERS})
"""All keys of these tables; librdkafka has Java's other keys by the same name."""
