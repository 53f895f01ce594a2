"""Named errors of the connection to the Kafka brokers: addresses, security, what librdkafka refuses.

Rule: an error keeps librdkafka's own reason, without secrets. Only BrokerNotReachable itself says that no broker was
reached; its subclasses say what else was wrong, and callers that retry an outage treat them alike.
"""

from __future__ import annotations

from coordinator.protocol.error_base import ShareGroupError


class BrokerNotReachable(ShareGroupError):
    """No Kafka broker of {addresses} could be reached within {timeout_ms} ms ({reason}). Check
    kafka.bootstrap.servers, the network and the security settings."""

    kafka_error = "NETWORK_EXCEPTION"
    retriable = True


class BrokerSecurityFailed(BrokerNotReachable):
    """The Kafka brokers of {addresses} can't be used with these security settings: {reason}. Waiting does not mend
    this: check kafka.security.protocol, kafka.sasl.* and kafka.ssl.*, and that the password, certificate or token is
    still the right one."""

    kafka_error = "SASL_AUTHENTICATION_FAILED"
    retriable = False


class BrokerClosesConnection(BrokerNotReachable):
    """The Kafka brokers of {addresses} accept the connection and close it again: {reason}. This client speaks
    {protocol} (kafka.security.protocol): the listener probably speaks another protocol (PLAINTEXT, SSL, SASL_PLAINTEXT
    or SASL_SSL). Set that, or name the listener's port."""


class BrokerHostUnknown(BrokerNotReachable):
    """The host name of no Kafka broker in {addresses} can be resolved: {reason}. Correct kafka.bootstrap.servers, or
    the name resolution of this host."""


class BrokerRefused(ShareGroupError):
    """The Kafka cluster at {addresses} refused to {what}: {reason}"""


class InvalidKafkaConfig(ShareGroupError):
    """Kafka client configuration {key} is not accepted by librdkafka, which this project reads Kafka with: {reason}.
    Java's client and librdkafka differ in some names (ssl.ca.location, not ssl.truststore.*)."""

    kafka_error = "INVALID_CONFIG"
