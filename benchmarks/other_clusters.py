"""The comparison with Spark's own source where brokers require TLS or SASL/SCRAM, and each source's options."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks.workloads import KAFKA, SHAREGROUP, WITH_PYTHON
from tests.support.secured_broker import SecuredBroker

SECURITY = ("TLS", "SCRAM-SHA-512")
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@contextmanager
def secured_broker() -> Iterator[SecuredBroker]:
    """A broker with a listener for each kind of security."""
    with (
        tempfile.TemporaryDirectory(prefix="sgb-") as folder,
        closing(SecuredBroker(Path(folder), java_options=())) as broker,
    ):
        yield broker


def options_by_source(config: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the options for librdkafka's client configuration; Spark's source takes those of Kafka's Java client."""
    ours = {f"kafka.{key}": value for key, value in config.items()}
    theirs = {
        "kafka.bootstrap.servers": config["bootstrap.servers"],
        "kafka.security.protocol": config["security.protocol"],
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": config["ssl.ca.location"],
    }
    if "sasl.mechanism" in config:
        login = f'username="{config["sasl.username"]}" password="{config["sasl.password"]}"'
        theirs["kafka.sasl.mechanism"] = config["sasl.mechanism"]
        theirs["kafka.sasl.jaas.config"] = f"{_SCRAM} required {login};"
    return {KAFKA: theirs, SHAREGROUP: ours, WITH_PYTHON: ours}
