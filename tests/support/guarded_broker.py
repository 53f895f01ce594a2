"""A broker that lets alice, who comes by the proxied address, do what she was granted and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.support.kafka_broker import KafkaBroker

ALICE = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "alice-secret",
}
_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'


def guarded_broker(**options: str) -> KafkaBroker:
    """The test's own address stays open to everybody. ``options`` are KafkaBroker's."""
    return KafkaBroker(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,PROXIED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        listener_name_proxied_sasl_enabled_mechanisms="PLAIN",
        listener_name_proxied_plain_sasl_jaas_config=_JAAS,
        **options,
    )


def grant(
    broker: KafkaBroker, kind: ResourceType, name: str, *operations: str, prefix: bool = False
) -> list[AclBinding]:
    """Let alice do these, a moment later; what was granted. ``prefix``: with all whose name begins so."""
    pattern = ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL
    acls = [
        AclBinding(kind, name, pattern, "User:alice", "*", AclOperation[each], AclPermissionType.ALLOW)
        for each in operations
    ]
    for done in broker.admin.create_acls(acls).values():
        done.result(30)
    return acls


def revoke(broker: KafkaBroker, acls: Iterable[AclBinding]) -> None:
    """Take back what was granted."""
    filters = [
        AclBindingFilter(
            a.restype, a.name, a.resource_pattern_type, a.principal, a.host, a.operation, a.permission_type
        )
        for a in acls
    ]
    for done in broker.admin.delete_acls(filters).values():
        done.result(30)
