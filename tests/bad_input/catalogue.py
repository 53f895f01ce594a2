"""The wrong inputs by what a person writes: options of the source, of the sink, rows, security, places, commands.

``SECTIONS``: the inputs that people have tried, and those that were looked for beside them
(tests/bad_input/more_inputs.py).
"""

from __future__ import annotations

from pyspark.sql.types import DoubleType, IntegerType

import sharegroup
from coordinator.client.on_demand import runtime_dir, state_dir
from coordinator.protocol.errors import (
    AcknowledgementModeDiffers,
    BatchNotNamed,
    BrokerClosesConnection,
    BrokerHostUnknown,
    BrokerNotReachable,
    BrokerSecurityFailed,
    BrokerSpeaksOtherwise,
    CoordinatorUnreachable,
    DataLoss,
    GroupIdNotFound,
    NoneHeld,
    NotAuthorized,
    NothingDecided,
    OutageTooLong,
    StateTopicMissing,
    TopicNotAuthorized,
)
from coordinator.protocol.option_errors import TableRefused
from coordinator.service.stores.sqlite_store import SqliteStore
from share_sink.archive import archive_dataset, compact
from share_source.arrow_schema import spark_schema
from share_source.errors import BatchReadRefused, LogNotTold, SchemaRefused, TriggerOnceRefused
from tests.bad_input.more_inputs import MORE_INPUTS, rows_of
from tests.bad_input.row import Place, Row, command, shown, sink, source, sources
from tests.bad_input.third_inputs import THIRD
from tests.support.sink_rows import REQUIRED, schema

ENDPOINT = "share.coordinator.endpoint"
CA = "share.coordinator.ssl.ca.location"
TOKEN_FILE = "share.coordinator.token.file"
DLQ = "errors.deadletterqueue.topic.name"
SECURITY = "tests/integration/test_security_errors.py"


def endpoint(place: Place, **configs: str) -> object:
    """A query's connection to standalone coordinators."""
    token = place.file("token", "a-token-of-enough-characters")
    return place.source({ENDPOINT: "coordinator:9999", TOKEN_FILE: token, **configs})


def in_directory(variable: str, directory: str) -> Row:
    """A row of an environment variable that names a directory which can't be used."""
    import pytest

    def found(place: Place) -> object:
        place.file("file")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(variable, directory.replace("FOLDER", str(place.folder)))
            return runtime_dir() if variable == "SHAREGROUP_RUNTIME_DIR" else state_dir()

    return Row(f"{variable}={directory}", "UnsafeDirectory", found)


def not_an_archive(place: Place) -> object:
    """A compaction of a folder that holds something else."""
    place.file("passwords")
    return compact(str(place.folder))


def redriven(place: Place, **arguments: object) -> object:
    """A redrive in a program."""
    options = {"kafka.bootstrap.servers": place.bootstrap, **arguments.pop("options", {})}  # type: ignore[dict-item]
    return sharegroup.redrive("dlq", options=options, **arguments)  # type: ignore[arg-type]


FORMS = "tests/spark/test_refused_forms.py::test_batch_reads_other_columns_and_sql_tables_are_refused_by_name"
LOAD = [
    sources("kafka.group.id of 40,000 characters", "InvalidGroupId", {"kafka.group.id": "g" * 40_000}),
    sources(
        "kafka.group.id with a line break", "InvalidGroupId", {"kafka.group.id": "billing\n2026-11-22 ERROR forged"}
    ),
    sources("kafka.group.id with NUL", "InvalidGroupId", {"kafka.group.id": "bill\0ing"}),
    source("kafka.bootstrap.servers=localhost:abc", "host:port"),
    source("kafka.bootstrap.servers=a;b", "host:port"),
    source("kafka.bootstrap.servers=localhost:70000", "ports are 1 to 65535"),
    source("kafka.bootstrap.servers=http://localhost:9092", "host:port"),
    source("subscribe=nosuch", "UnknownTopic"),
    source("subscribe=share-group-state", "TopicKept"),
    sources("subscribePattern=order(", "InvalidTopicPattern", {"subscribe": None, "subscribePattern": "order("}),
    sources(
        "assign of a partition that is not there", "UnknownPartition", {"subscribe": None, "assign": '{"orders":[9]}'}
    ),
    source('startingOffsets={"orders":{"0":1,"9":5}}', "InvalidStartingOffsets"),
    source("archive.path=/archive", "option of the sink"),
    source("onStaleReceipt=fail", "option of the sink"),
    source("maxOffsetPerTrigger=5", "nearest known one is maxOffsetsPerTrigger"),
    source("topics=orders", "its options are"),
    source("kafka.foo.bar=1", "CONFIGURATION.md"),
    source("share.coordinator.listener=a:1", "key of a standalone coordinator"),
    source("kafka.receive.message.max.bytes=2000", "receive.message.max.bytes"),
    source("errors.deadletterqueue.topic.name=nosuch", "DeadLetterTopicMissing"),
    shown(
        '.schema("value string")', SchemaRefused(columns="value:string", fixed=", ".join(spark_schema().names)), FORMS
    ),
    shown('spark.read.format("sharegroup")', BatchReadRefused(), FORMS),
    shown("CREATE TABLE ... USING sharegroup", TableRefused(), FORMS),
    shown(
        "trigger(once=True)",
        TriggerOnceRefused(),
        "tests/spark/test_bad_input.py::test_trigger_once_is_refused_and_available_now_is_named",
    ),
    shown(
        "on Spark 4.0 spark.sql.streaming.triggerAvailableNowWrapper.enabled=true",
        LogNotTold(),
        "tests/spark/test_without_start.py::test_the_wrapper_for_available_now_is_refused_by_name",
    ),
]

RECORDS_GO = [
    shown(
        "a topic deleted with unread records",
        DataLoss(group_id="billing", count=4900, ranges="orders-0 offsets 100 to 4999"),
        "tests/unit/core/test_deleted_topics.py::test_of_a_log_with_an_unknown_end_the_known_records_are_counted",
    ),
    shown(
        "a broker away for longer than the query waits",
        OutageTooLong(
            group_id="billing",
            timeout_ms=300_000,
            reason="no Kafka broker answers",
            addresses="localhost:9092",
            log="",
        ),
        "tests/integration/test_broker_outage.py::test_a_query_at_a_running_coordinator_keeps_its_own_outage_timeout",
    ),
    shown(
        "the state topic deleted under a coordinator",
        StateTopicMissing(topic="share-group-state", what="was deleted"),
        "tests/integration/test_state_topic_gone.py::"
        "test_a_coordinator_on_demand_uses_a_new_topic_and_refuses_old_checkpoints",
    ),
    shown(
        "explicit mode, and a query whose sink decides nothing",
        NothingDecided(group_id="billing"),
        "tests/unit/core/test_outcomes.py::test_explicit_mode_without_a_sink_fails_by_name_and_counts_no_try",
    ),
    shown(
        "sink: share.acknowledgement.mode=explicit, and a source that names none",
        AcknowledgementModeDiffers(group_id="billing", own="explicit", other="implicit"),
        "tests/spark/test_sink_commits.py::test_a_sink_that_names_another_mode_than_its_source_is_refused",
    ),
    shown(
        "explicit mode, and acknowledge() of no row in a thread of foreachBatch",
        BatchNotNamed(group_id="billing"),
        "tests/unit/service/test_service_sinks.py::test_a_commit_that_names_no_plan_is_refused_in_explicit_mode",
    ),
]

SINK = [
    rows_of("of another group that lives", "RowsOfAnotherGroup", receipt=7),
    shown(
        "sink: kafka.group.id that nobody uses",
        GroupIdNotFound(group_id="biling"),
        "tests/spark/test_errors_first.py::test_an_error_of_the_sink_begins_with_its_name",
    ),
    Row('sink: mode("overwrite")', "OverwriteRefused", lambda place: place.sink({}, overwrite=True)),
    Row(
        "sink: no columns deliveryCount and acknowledgement",
        "MissingColumn",
        lambda place: place.sink({}, schema(dict([*REQUIRED.items()][:3]))),
    ),
    Row(
        "sink: no column receipt",
        "MissingColumn",
        lambda place: place.sink({}, schema({name: kind for name, kind in REQUIRED.items() if name != "receipt"})),
    ),
    Row(
        "sink: partition is a double",
        "WrongColumn",
        lambda place: place.sink({}, schema({**REQUIRED, "partition": DoubleType()})),
    ),
    Row(
        "sink: acknowledgement is a number",
        "WrongColumn",
        lambda place: place.sink({}, schema({**REQUIRED, "acknowledgement": IntegerType()})),
    ),
    sink("onStaleReceipt=ignore", "InvalidOption"),
    sink("subscribe=orders", "option of the source"),
    rows_of("offset -100", "NeverDelivered", offset=-100),
    rows_of("offset + 1,000,000", "NeverDelivered", offset=1_000_057),
    rows_of("partition + 10", "NeverDelivered", partition=10),
    rows_of("topic 'nosuch'", "NeverDelivered", topic="nosuch"),
    rows_of("deliveryCount 0", "NeverDelivered", deliveryCount=0),
    shown(
        "row: deliveryCount + 1, in all rows",
        NoneHeld(count=300, sample="orders-0@0 (2)", group_id="billing"),
        "tests/unit/service/test_service_sinks.py::test_refusals_are_named_and_stage_nothing",
    ),
    rows_of("offset null", "IncompleteReceipt", offset=None),
    rows_of("acknowledgement 'maybe'", "UnknownOutcome", acknowledgement="maybe"),
    rows_of("acknowledgement 'renew'", "RenewRefused", acknowledgement="renew"),
    rows_of("releaseDelayMs -1", "InvalidReleaseDelay", acknowledgement="release", releaseDelayMs=-1),
    Row("archive.path below a file", "ArchiveNotWritable", lambda place: share_sink_archive(place)),
]


def share_sink_archive(place: Place) -> object:
    """A sink whose archive lies below a file."""
    return place.sink({"archive.path": place.file("file") + "/archive"}, schema(REQUIRED))


BROKER = "sasl_plaintext://localhost:9092/bootstrap"
SECURED = [
    shown(
        "a wrong SASL password",
        BrokerSecurityFailed(
            addresses="localhost:9092",
            reason=f"{BROKER}: SASL authentication error: Authentication failed: Invalid username or password "
            "(after N ms in state AUTH_REQ)",
        ),
        f"{SECURITY}::test_the_brokers_own_reason_is_raised_at_once",
    ),
    shown(
        "a SASL mechanism that the brokers do not have",
        BrokerSecurityFailed(
            addresses="localhost:9092",
            reason=f"{BROKER}: SASL SCRAM-SHA-256 mechanism handshake failed: Broker: Unsupported SASL mechanism: "
            "broker's supported mechanisms: PLAIN (after N ms in state AUTH_HANDSHAKE)",
        ),
        f"{SECURITY}::test_the_brokers_own_reason_is_raised_at_once",
    ),
    sources(
        "kafka.sasl.mechanism=PLAINN",
        "SCRAM-SHA-512",
        {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAINN",
            "kafka.sasl.username": "alice",
            "kafka.sasl.password": "secret",
        },
    ),
    sources(
        "kafka.sasl.mechanism=PLAIN, without a password",
        "sasl.password",
        {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "alice",
        },
    ),
    sources(
        "kafka.sasl.mechanism=OAUTHBEARER, without kafka.sasl.oauthbearer.method",
        "kafka.sasl.oauthbearer.method is missing",
        {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.client.id": "me",
            "kafka.sasl.oauthbearer.client.secret": "secret",
            "kafka.sasl.oauthbearer.token.endpoint.url": "https://localhost:1/token",
        },
    ),
    sources(
        "kafka.security.protocol=SASL_SSL, without a mechanism",
        "kafka.sasl.mechanism is missing",
        {"kafka.security.protocol": "SASL_SSL"},
    ),
    sources(
        "kafka.sasl.mechanism=AWS_MSK_IAM",
        "docs/run/brokers.md",
        {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "AWS_MSK_IAM"},
    ),
    sources(
        "kafka.ssl.certificate.location without kafka.ssl.key.location",
        "kafka.ssl.key.location is missing",
        {"kafka.security.protocol": "SSL", "kafka.ssl.certificate.location": "client.pem"},
    ),
    shown(
        "SSL against a plaintext listener",
        BrokerSpeaksOtherwise(
            addresses="localhost:9092",
            answer="without TLS",
            protocol="SSL",
            instead="Set kafka.security.protocol to PLAINTEXT or SASL_PLAINTEXT, or name the port of a listener with "
            "TLS.",
        ),
        f"{SECURITY}::test_a_listener_of_another_protocol_is_named_within_seconds",
    ),
    shown(
        "plaintext against a SASL listener",
        BrokerClosesConnection(
            addresses="localhost:9092",
            reason="localhost:9092/bootstrap: Disconnected: connection closed by peer: receive 0 after POLLIN (after "
            "N ms in state UP)",
            protocol="PLAINTEXT",
        ),
        f"{SECURITY}::test_a_listener_of_another_protocol_is_named_within_seconds",
    ),
    shown(
        "a topic on which the principal has no DESCRIBE",
        TopicNotAuthorized(topic="orders"),
        f"{SECURITY}::test_a_topic_that_may_not_be_seen_is_not_called_missing",
    ),
    shown(
        "kafka.bootstrap.servers=nosuch.invalid:9092",
        BrokerHostUnknown(
            addresses="nosuch.invalid:9092",
            reason="nosuch.invalid:9092/bootstrap: Failed to resolve 'nosuch.invalid:9092': Name or service not known "
            "(after N ms in state CONNECT)",
        ),
        f"{SECURITY}::test_an_unknown_host_is_named_at_once",
    ),
    shown(
        "kafka.bootstrap.servers of a port where nothing listens",
        BrokerNotReachable(
            addresses="localhost:1",
            timeout_ms=15_000,
            reason="_TRANSPORT: localhost:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after "
            "N ms in state CONNECT)",
        ),
        "tests/spark/test_bad_input.py::test_an_unreachable_broker_is_named_and_the_password_is_not",
    ),
    sources(
        "kafka.ssl.ca.location of a missing file",
        "No such file",
        {"kafka.security.protocol": "SSL", "kafka.ssl.ca.location": "nosuch.pem"},
    ),
    Row(
        "kafka.ssl.ca.location of a file that holds no certificate",
        "no certificate or crl found",
        lambda place: place.source(
            {"kafka.security.protocol": "SSL", "kafka.ssl.ca.location": place.file("ca.pem", "no PEM")}
        ),
    ),
]

COORDINATORS = [
    source(f"{ENDPOINT}=coordinator:9999", "TokenMissing"),
    source(f"{ENDPOINT}=coordinator", "host:port"),
    sources(f"{TOKEN_FILE} without {ENDPOINT}", "ConfigConflict", {TOKEN_FILE: "token"}),
    Row(f"{TOKEN_FILE} of a missing file", "UnusableFile", lambda p: endpoint(p, **{TOKEN_FILE: "nosuch"})),
    Row(
        f"{TOKEN_FILE} of a file that others may read",
        "UnsafeFile",
        lambda p: endpoint(p, **{TOKEN_FILE: p.file("t", "x" * 20, 0o644)}),
    ),
    Row(
        f"{CA} of a file that is no PEM", "no certificate in PEM", lambda p: endpoint(p, **{CA: p.file("ca", "no PEM")})
    ),
    shown(
        f"{ENDPOINT}=nosuch.invalid:9999",
        CoordinatorUnreachable(
            endpoints="nosuch.invalid:9999",
            reason="nosuch.invalid:9999: address lookup failed for nosuch.invalid:9999: Domain name not found",
        ),
        f"{SECURITY}::test_a_coordinators_unknown_host_is_named_at_once",
    ),
    shown(
        "a wrong token",
        NotAuthorized(endpoint="coordinator:9999"),
        "tests/integration/test_standalone.py::test_a_wrong_token_is_refused_by_name_at_once",
    ),
]

PLACES = [
    in_directory("SHAREGROUP_RUNTIME_DIR", "FOLDER/file"),
    in_directory("SHAREGROUP_RUNTIME_DIR", "/proc/x"),
    in_directory("SHAREGROUP_STATE_DIR", "FOLDER/file"),
    Row("share.state.store=sqlite:/proc/x.db", "can't be made", lambda place: SqliteStore("/proc/x.db")),  # type: ignore[arg-type]
    Row("share.state.store=sqlite:FOLDER", "it is a folder", lambda place: SqliteStore(place.folder)),
    Row('sharegroup.archive.compact("nope")', "ArchiveNotFound", lambda place: compact("nope")),
    Row("sharegroup.archive.compact of a folder of other files", "ArchiveNotFound", not_an_archive),
    Row('sharegroup.archive.archive_dataset("nope")', "ArchiveNotFound", lambda place: archive_dataset("nope")),
]

COMMANDS = [
    command("coordinator", "Missing option"),
    command("coordinator --config", "requires an argument"),
    command("coordinator --config x health", "stands after"),
    command("coordinator --config nosuch.properties", "InvalidPropertiesFile"),
    command("coordinatr", "No such command"),
    command("dlq redrive --bootstrap-server localhost:9092 --topic dlq --where tenant", "neither NAME=VALUE"),
    Row('sharegroup.redrive(where="tenant")', "InvalidCondition", lambda place: redriven(place, where="tenant")),
    Row(
        'sharegroup.redrive(where="message~=(")', "InvalidCondition", lambda place: redriven(place, where="message~=(")
    ),
    Row('sharegroup.redrive(options={"foo": 1})', "UnknownOption", lambda place: redriven(place, options={"foo": 1})),
    Row('sharegroup.redrive("dlq") of a missing topic', "UnknownTopic", lambda place: redriven(place)),
    Row('sharegroup.redrive(max_redrives="3")', "ConfigOutOfBounds", lambda place: redriven(place, max_redrives="3")),
]

SECTIONS: dict[str, list[Row]] = {
    "Options of the source": LOAD,
    "Sinks and their rows": SINK,
    "Security and name resolution": SECURED,
    "Standalone coordinators": COORDINATORS,
    "Records, brokers and state that are lost": RECORDS_GO,
    "Directories, files, archives": PLACES,
    "Commands and functions": COMMANDS,
    **MORE_INPUTS,
    "A third search": THIRD,
}
