"""Kerberos, against a KDC on this machine: a confluent-kafka that was built as docs/run/brokers.md says reads, keeps
its state and writes dead letters by a keytab, and by a ticket of kinit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordinator.dead_letters.record_format import Origin
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC
from tests.support.imports import ROOT
from tests.support.java_options import BROKER_OPTIONS
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_log import messages_of
from tests.support.kdc import BROKER, CLIENT, Kdc, build_client, missing_programs
from tests.support.rejecting import origins

pytestmark = [pytest.mark.broker, pytest.mark.soak, pytest.mark.usefixtures("own_runtime")]

MISSING = missing_programs()
BUILD = ROOT / ".build" / "kerberos"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    if MISSING:
        pytest.skip(f"Kerberos needs {', '.join(MISSING)}")
    found = Kdc(tmp_path_factory.mktemp("kdc"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def kerberos_broker(kdc: Kdc) -> Iterator[KafkaBroker]:
    login = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true doNotPrompt=true "
    login += f'keyTab="{kdc.broker_keytab}" principal="{BROKER}";'
    with KafkaBroker(
        listeners={"KRB": "SASL_PLAINTEXT"},
        java_options=(*BROKER_OPTIONS, f"-Djava.security.krb5.conf={kdc.config}"),
        listener_name_krb_sasl_enabled_mechanisms="GSSAPI",
        listener_name_krb_gssapi_sasl_jaas_config=login,
        sasl_kerberos_service_name="kafka",
    ) as broker:
        yield broker


@pytest.fixture(scope="module")
def client(kdc: Kdc) -> dict[str, str]:
    """The environment of a client with Kerberos."""
    built = build_client(BUILD)
    path = os.pathsep.join((built["PYTHONPATH"], str(ROOT)))
    return {**os.environ, **kdc.environment, **built, "PYTHONPATH": path}


@pytest.mark.parametrize("way", ["a keytab", "a ticket of kinit"])
def test_kerberos_reads_keeps_state_and_writes_dead_letters(
    kdc: Kdc,
    kerberos_broker: KafkaBroker,
    client: dict[str, str],
    unique: Callable[[str], str],
    way: str,
    tmp_path: Path,
) -> None:
    group, orders, dlq = unique("group"), kerberos_broker.create_topic(), kerberos_broker.create_topic()
    kerberos_broker.produce(orders, ["read", "rejected"])
    config = {
        "bootstrap.servers": kerberos_broker.address("KRB"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
    }
    tickets = tmp_path / "tickets"
    environment = {**client, "KRB5CCNAME": f"FILE:{tickets}"}
    if way == "a keytab":
        config |= {"sasl.kerberos.principal": CLIENT, "sasl.kerberos.keytab": str(kdc.client_keytab)}
    else:
        kdc.kinit(tickets)
        config |= {"sasl.kerberos.min.time.before.relogin": "0"}
    story = json.dumps({"config": config, "group": group, "orders": orders, "dlq": dlq})
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.secured_story", story],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert list(origins(messages_of(kerberos_broker.bootstrap, dlq))) == [Origin(orders, 0, 1, group, 1)]
    assert messages_of(kerberos_broker.bootstrap, STATE_TOPIC)
