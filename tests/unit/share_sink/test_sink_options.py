"""The sink's options: taken as Spark hands them over, or refused by name when the query starts."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from coordinator.protocol.errors import ShareGroupError
from pyspark_sharegroup import DefaultSource
from share_sink.foreach_batch import sink_options
from share_sink.options import SinkOptions

BASE = {"kafka.bootstrap.servers": "localhost:9092", "kafka.group.id": "billing"}


def options(**more: str | None) -> SinkOptions:
    return SinkOptions.parse({**BASE, **more})


def test_the_first_programs_options_are_parsed() -> None:
    parsed = options()
    assert parsed == SinkOptions(
        bootstrap_servers="localhost:9092", group_id="billing", kafka_config={"bootstrap.servers": "localhost:9092"}
    )


def test_every_option_can_be_set() -> None:
    parsed = options(
        checkpointLocation="checkpoints/billing",
        queryName="billing",
        onStaleReceipt="FAIL",
        outputOnReplay="Replaces",
        batchId="0",
        **{
            "archive.path": "s3://archive/billing",
            "errors.deadletterqueue.topic.name": "dlq.billing",
            "share.state.store": "sqlite",
            "kafka.linger.ms": "5",
            "kafka.request.timeout.ms": "1000",
        },
    )
    assert parsed.archive_path == "s3://archive/billing"
    assert parsed.fail_on_stale
    assert parsed.replaces
    assert parsed.batch_id == 0
    assert parsed.group_configs == {"errors.deadletterqueue.topic.name": "dlq.billing"}
    assert parsed.coordinator_configs == {"share.state.store": "sqlite"}
    assert parsed.kafka_config == {"bootstrap.servers": "localhost:9092", "linger.ms": "5", "socket.timeout.ms": "1000"}
    assert pickle.loads(pickle.dumps(parsed)) == parsed


def test_names_are_taken_in_any_case() -> None:
    assert SinkOptions.parse({name.upper(): value for name, value in BASE.items()}) == options()


def test_a_sinks_mode_never_becomes_the_groups() -> None:
    parsed = options(**{"share.acknowledgement.mode": " explicit ", "share.isolation.base": "60"})
    assert parsed.acknowledgement_mode == "explicit"
    assert parsed.group_configs == {"share.isolation.base": "60"}


@given(st.text(alphabet="αβγδ", min_size=8).map(lambda text: "§" + text), st.sampled_from([{}, {"subscribe": "x"}]))
def test_secrets_are_in_no_repr_and_in_no_error(secret: str, fault: dict[str, str]) -> None:
    try:
        shown = repr(options(**{"kafka.sasl.password": secret, "kafka.made.up": secret}, **fault))
    except ShareGroupError as error:
        shown = f"{error} {error!r} {error.fields}"
    assert secret not in shown


# --- one format for source and sink


def test_making_the_data_source_looks_at_no_option() -> None:
    """Spark makes it for reading and for writing alike, each with options that the other side refuses."""
    for unfit in ({"archive.path": "x"}, {"subscribe": "x"}, {}):
        DefaultSource(unfit)
    assert DefaultSource.name() == "sharegroup"


# --- acknowledge()


def test_options_of_the_call_come_before_the_sessions() -> None:
    conf = {
        "spark.sharegroup.kafka.bootstrap.servers": "a:1",
        "spark.sharegroup.kafka.group.id": "billing",
        "spark.sharegroup.archive.path": "archive",
        "spark.app.name": "x",
    }
    assert sink_options(conf, {"Kafka.Bootstrap.Servers": "b:1", "onStaleReceipt": None, "batchId": 7}) == {
        "kafka.bootstrap.servers": "b:1",
        "kafka.group.id": "billing",
        "archive.path": "archive",
        "batchid": "7",
    }
