"""The properties of librdkafka, and which of them, and of Java's keys, have secret values.

Rule: a value is shown only if its key is known and not secret. An unknown key may be a mistyped password's."""

from __future__ import annotations

_NAMES = """
    acks allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
    auto.commit.enable auto.commit.interval.ms auto.offset.reset batch.num.messages batch.size bootstrap.servers
    broker.address.family broker.address.ttl broker.version.fallback builtin.features check.crcs client.dns.lookup
    client.id client.rack compression.codec compression.level compression.type connections.max.idle.ms
    consume.callback.max.messages coordinator.query.interval.ms debug delivery.report.only.error delivery.timeout.ms
    enable.auto.commit enable.auto.offset.store enable.gapless.guarantee enable.idempotence enable.metrics.push
    enable.partition.eof enable.random.seed enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification
    enabled_events fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes
    fetch.queue.backoff.ms fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type
    group.remote.assignor heartbeat.interval.ms https.ca.location https.ca.pem internal.termination.signal
    isolation.level linger.ms log.connection.close log.queue log.thread.name log_level max.in.flight
    max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    message.copy.max.bytes message.max.bytes message.send.max.retries message.timeout.ms metadata.broker.list
    metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy offset.store.method
    offset.store.path offset.store.sync.interval.ms partition.assignment.strategy partitioner plugin.library.paths
    produce.offset.report queue.buffering.backpressure.threshold queue.buffering.max.kbytes
    queue.buffering.max.messages queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages
    queuing.strategy receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms
    reconnect.backoff.ms request.required.acks request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
    sasl.kerberos.keytab sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal
    sasl.kerberos.service.name sasl.mechanism sasl.mechanisms sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
    sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
    sasl.oauthbearer.config sasl.oauthbearer.extensions sasl.oauthbearer.grant.type
    sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.oauthbearer.scope
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password sasl.username
    security.protocol session.timeout.ms share.acknowledgement.mode socket.blocking.max.ms
    socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails socket.nagle.disable
    socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms ssl.ca.certificate.stores ssl.ca.location
    ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites ssl.crl.location ssl.curves.list
    ssl.endpoint.identification.algorithm ssl.engine.id ssl.engine.location ssl.key.location ssl.key.password
    ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.providers ssl.sigalgs.list statistics.interval.ms
    sticky.partitioning.linger.ms topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
    transaction.timeout.ms transactional.id
"""
PROPERTIES = frozenset(_NAMES.split())
"""The names of librdkafka 2.16's properties, without those whose values are code."""

SECRETS = frozenset(
    (
        "https.ca.pem",
        "sasl.jaas.config",
        "sasl.kerberos.kinit.cmd",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.password",
        "sasl.username",
        "ssl.ca.pem",
        "ssl.certificate.pem",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.certificates",
        "ssl.truststore.password",
    )
)
"""Keys whose values are shown nowhere: passwords and private keys; user names; a URL and a command, which may hold a
password; and certificates, which are long."""


_CODECS = "none, gzip, snappy, lz4 or zstd"
CHOICES: dict[str, str] = {
    "broker.address.family": "any, v4 or v6",
    "client.dns.lookup": "use_all_dns_ips or resolve_canonical_bootstrap_servers_only",
    "compression.codec": _CODECS,
    "compression.type": _CODECS,
    "debug": "generic, broker, topic, metadata, feature, queue, msg, protocol, cgrp, security, fetch, consumer, admin, "
    "eos, conf or all, several separated by commas",
    "metadata.recovery.strategy": "none or rebootstrap",
    "offset.store.method": "none, file or broker",
    "partitioner": "random, consistent, consistent_random, murmur2, murmur2_random, fnv1a or fnv1a_random",
    "queuing.strategy": "fifo or lifo",
    "sasl.oauthbearer.assertion.algorithm": "RS256 or ES256",
    "sasl.oauthbearer.grant.type": "client_credentials or urn:ietf:params:oauth:grant-type:jwt-bearer",
    "sasl.oauthbearer.metadata.authentication.type": "none, azure_imds or aws_iam",
    "sasl.oauthbearer.method": "default or oidc",
    "security.protocol": "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
    "ssl.endpoint.identification.algorithm": "https or none",
}
"""The values of librdkafka's properties that take words. librdkafka's errors do not name them."""

TOKEN_FUNCTION = "oauth_cb"  # noqa: S105 - a key, no password
"""confluent_kafka's key of a function that gives tokens; here its value is a text, MODULE:FUNCTION."""


def is_shown(key: str) -> bool:
    """Whether a value of this property of librdkafka may be in an error, a log or a ``repr``."""
    return key == TOKEN_FUNCTION or (key in PROPERTIES and key not in SECRETS)
