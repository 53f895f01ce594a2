"""A broker that lets users, who come by the proxied address, do what they were granted and nothing else."""

from __future__ import annotations

import re
from collections.abc import Collection

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.support.kafka_broker import KafkaBroker
from tests.support.waiting import wait_until


def client_of(user: str) -> dict[str, str]:
    """The configuration of a client whose principal is this user."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }


ALICE = client_of("alice")
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def guarded_broker(*users: str, **options: str) -> KafkaBroker:
    """The test's own address stays open to everybody. ``users`` may come by the proxied address beside alice.
    ``options`` are KafkaBroker's."""
    known = "".join(f' user_{user}="{user}-secret"' for user in ("alice", *users))
    return KafkaBroker(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,PROXIED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        listener_name_proxied_sasl_enabled_mechanisms="PLAIN",
        listener_name_proxied_plain_sasl_jaas_config=f"{_LOGIN} required{known};",
        **options,
    )


def change_password(broker: KafkaBroker, password: str) -> dict[str, str]:
    """Gives alice this password and cuts every connection that was made with the one before. Returns the client
    configuration with the new one."""
    broker.shut_down()
    path = broker.properties_path
    path.write_text(re.sub(r'user_alice="[^"]*"', f'user_alice="{password}"', path.read_text()))
    broker.start()
    return {**ALICE, "sasl.password": password}


def grant(
    broker: KafkaBroker, kind: ResourceType, name: str, *operations: str, prefix: bool = False, user: str = "alice"
) -> list[AclBinding]:
    """Let the user do these, from now on; what was granted. ``prefix``: with all whose name begins so."""
    acls = [acl(kind, name, each, prefix=prefix, user=user) for each in operations]
    grant_all(broker, acls)
    return acls


def acl(kind: ResourceType, name: str, operation: str, *, prefix: bool = False, user: str = "alice") -> AclBinding:
    """An ACL that lets the user do this."""
    pattern = ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL
    return AclBinding(kind, name, pattern, f"User:{user}", "*", AclOperation[operation], AclPermissionType.ALLOW)


def grant_all(broker: KafkaBroker, acls: list[AclBinding]) -> None:
    """Let users do what the ACLs name, from now on."""
    for done in broker.admin.create_acls(acls).values():
        done.result(60)
    wait_until(lambda: _holding(broker) >= set(acls), what="the broker heeds the ACLs")  # the controller had answered


def revoke(broker: KafkaBroker, acls: Collection[AclBinding]) -> None:
    """Take back what was granted, from now on."""
    filters = [
        AclBindingFilter(
            a.restype, a.name, a.resource_pattern_type, a.principal, a.host, a.operation, a.permission_type
        )
        for a in acls
    ]
    for done in broker.admin.delete_acls(filters).values():
        done.result(60)
    wait_until(lambda: _holding(broker).isdisjoint(acls), what="the broker heeds no such ACL")


def _holding(broker: KafkaBroker) -> set[AclBinding]:
    """The ACLs that the broker's own authorizer holds."""
    anything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    return set(broker.admin.describe_acls(anything).result(60))
