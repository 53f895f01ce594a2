"""More wrong inputs, by what a person writes, as a newcomer would."""

from __future__ import annotations

import pyarrow as pa
import pytest
from msgspec import structs
from pyspark.sql.types import BooleanType, DataType, IntegerType, MapType, StringType, StructField, StructType

import sharegroup
from coordinator.config.secret_files import TOKEN_VARIABLE, read_token
from share_sink.archive import archive_dataset, compact
from share_sink.foreach_batch import sink_options
from share_sink.options import SinkOptions
from share_sink.rows import check_delivered, outcome_rows
from share_sink.sink import Sink
from tests.bad_input.row import Place, Row, command, sink, source, sources
from tests.support.sink_rows import ARROW, COLUMNS, PLAIN, REQUIRED, TOPIC_ID, row, schema


def rows_of(written: str, says: str, **columns: object) -> Row:
    """A row of a sink's task: a record of ``orders`` at offset 57 with these columns."""

    def written_row(place: Place) -> object:
        options = SinkOptions.parse({"kafka.bootstrap.servers": place.bootstrap, "kafka.group.id": "billing"})
        opened = structs.replace(PLAIN, ends={TOPIC_ID: {"0": 100}})
        of = Sink(options=options, columns=COLUMNS, opened=opened)
        values = {**row(57, "accept"), **columns}
        batch = pa.RecordBatch.from_pylist([values], pa.schema(list(ARROW.items())))
        return check_delivered(outcome_rows(batch, of), of)

    return Row(f"row: {written}", says, written_row)


def no(written: str, says: str, name: str) -> Row:
    """A row of a needed option that is missing."""
    return sources(written, says, {name: None})


def reads(written: str, says: str) -> Row:
    """A row of subscribePattern or assign, in place of subscribe."""
    return source(written, says, subscribe=None)


def column(name: str, kind: DataType, says: str = "WrongColumn") -> Row:
    """A row of a sink's column with a wrong type."""
    written = f"sink: column {name} is {kind.simpleString()}"
    return Row(written, says, lambda place: place.sink({}, schema({**REQUIRED, name: kind})))


def properties(written: str, says: str, text: str) -> Row:
    """A row of a properties file of a standalone coordinator."""

    def started(place: Place) -> object:
        needed = {"bootstrap.servers": "localhost:9092", "share.coordinator.listener": "127.0.0.1:0"}
        others = [f"{key}={value}\n" for key, value in needed.items() if not text.startswith(f"{key}=")]
        place.file("coordinator.properties", "".join([*others, text]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(TOKEN_VARIABLE, "a-token-of-enough-characters")
            return place.command("coordinator --config coordinator.properties")

    return Row(f"coordinator.properties: {written}", says, started)


def token(written: str) -> Row:
    """A row of the environment variable with the token."""

    def read(place: Place) -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(TOKEN_VARIABLE, written)
            return read_token("")

    return Row(f"{TOKEN_VARIABLE}={written}", "TokenMissing" if not written.strip() else "InvalidToken", read)


def twice(place: Place) -> object:
    """A sink whose rows have the column offset twice."""
    return place.sink({}, StructType([*schema(REQUIRED), StructField("offset", IntegerType())]))


ADDRESSES = [
    no("no kafka.bootstrap.servers", "MissingOption", "kafka.bootstrap.servers"),
    source("kafka.bootstrap.servers=", "MissingOption"),
    *(
        source(f"kafka.bootstrap.servers={servers}", "host:port")
        for servers in (
            "localhost:",
            ":9092",
            "localhost:9092;localhost:9093",
            "localhost:9092 localhost:9093",
            "[::1:9092",
            "zookeeper:2181/kafka",
            "kafka://localhost:9092",
            ",",
        )
    ),
    source("kafka.bootstrap.servers=localhost:0", "ports are 1 to 65535"),
]
TOPICS = [
    no("no subscribe, no subscribePattern, no assign", "NoSubscription", "subscribe"),
    sources("subscribe and subscribePattern", "SeveralSubscriptions", {"subscribePattern": "orders"}),
    *(
        source(f"subscribe={topics}", says)
        for topics, says in (
            ("", "InvalidOption"),
            (",", "InvalidOption"),
            ("orders;payments", "InvalidOption"),
            ("orders payments", "InvalidOption"),
            ("orders*", "InvalidOption"),
            ("größe", "InvalidOption"),
            (".", "InvalidOption"),
            ("orders,nosuch", "UnknownTopic"),
            ("__consumer_offsets", "TopicKept"),
        )
    ),
    *(
        reads(f"subscribePattern={pattern}", says)
        for pattern, says in (
            ("", "InvalidOption"),
            ("*", "InvalidTopicPattern"),
            ("[a-", "InvalidTopicPattern"),
            ("(?=orders).*", "InvalidTopicPattern"),
            ("order(s)\\1", "InvalidTopicPattern"),
        )
    ),
    *(
        reads(f"assign={assign}", says)
        for assign, says in (
            ("orders:0", "InvalidOption"),
            ('{"orders":0}', "InvalidOption"),
            ('{"orders":["0"]}', "InvalidOption"),
            ('{"orders":[-1]}', "InvalidOption"),
            ("{'orders':[0]}", "InvalidOption"),
            ("{}", "InvalidOption"),
            ('{"nosuch":[0]}', "UnknownTopic"),
        )
    ),
    *(
        source(f"startingOffsets={offsets}", "InvalidOption")
        for offsets in (
            "beginning",
            "0",
            "2026-01-01",
            '{"orders":{"0":-3}}',
            '{"orders":{"0":"5"}}',
            '{"orders":[0]}',
            '{"payments":{"0":1}}',
            "",
        )
    ),
]
NUMBERS = [
    *(source(f"maxOffsetsPerTrigger={value}", "InvalidOption") for value in ("0", "10k", "1e4", "10_000", "")),
    source("minPartitions=0", "InvalidOption"),
    source("includeHeaders=yes", "InvalidOption"),
    source("failOnDataLoss=0", "InvalidOption"),
    source("kafkaConsumer.pollTimeoutMs=2m", "InvalidOption"),
    source("kafka.fetch.min.bytes=1e3", "no such number"),
    source("kafka.fetch.wait.max.ms=1.5", "no such number"),
]
CLIENTS = [
    source("group.id=billing", "kafka.group.id"),
    source("kafka.group.id=", "MissingOption"),
    source("bootstrap.servers=localhost:9092", "kafka.bootstrap.servers"),
    source("servers=localhost:9092", "UnknownOption"),
    source("kafka.auto.offset.reset=earliest", "startingOffsets"),
    source("kafka.max.poll.records=500", "maxOffsetsPerTrigger"),
    source("kafka.value.deserializer=StringDeserializer", "CAST"),
    source("kafka.ssl.keystore.location=client.jks", "PKCS#12"),
    source("kafka.security.protocol=TLS", "InvalidOption"),
    source("kafka.security.protocol=SASL-SSL", "InvalidOption"),
    sources(
        "kafka.sasl.mechanism=SCRAM",
        "sasl.mechanism",
        {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "SCRAM"},
    ),
    source("kafka.sasl.pasword=secret", "kafka.sasl.password"),
    source("kafka.sasl.jaas.config=com.example.MyLoginModule required;", "kafka.sasl.username"),
    source("kafka.sasl.jaas.config=PlainLoginModule required username=alice", "a semicolon at the end"),
    source("kafka.bootstrap.servers=SASL_SSL://localhost:9092", "set kafka.security.protocol=SASL_SSL"),
    source("kafka.metrics.num.samples=3", "no meaning here"),
    source("kafka.receive.buffer.bytes=-5", "kafka.receive.buffer.bytes"),
    source("kafka.retry.backoff.ms=0", "outside allowed range 1"),
    source("kafka.ssl.truststore.location=trust.jks", "keytool"),
    source("kafka.share.session.timeout.ms=60000", "Use share.session.timeout.ms"),
    source("checkpointLocation=checkpoints", "writeStream"),
    source("outputMode=append", "writeStream"),
    source("endingOffsets=latest", "availableNow"),
]
GROUPS = [
    *(
        source(f"{key}={value}", says)
        for key, value, says in (
            ("share.session.timeout.ms", "45s", "ConfigTypeMismatch"),
            ("share.session.timeout.ms", "0", "ConfigOutOfBounds"),
            ("share.heartbeat.interval.ms", "60000", "ConfigConflict"),
            ("share.heartbeat.interval.ms", "45000", "ConfigConflict"),
            ("share.delivery.count.limit", "1", "ConfigOutOfBounds"),
            ("share.delivery.count.limit", "unlimited", "ConfigTypeMismatch"),
            ("share.isolation.level", "committed", "ConfigOutOfBounds"),
            ("share.auto.offset.reset", "none", "ConfigOutOfBounds"),
            ("share.auto.offset.reset", "by_duration:1h", "ConfigOutOfBounds"),
            ("share.acknowledgement.mode", "auto", "ConfigOutOfBounds"),
            ("share.release.backoff.multiplier", "0.5", "ConfigOutOfBounds"),
            ("share.release.backoff.ms", "PT30S", "ConfigTypeMismatch"),
            ("share.state.store", "postgres://db", "ConfigOutOfBounds"),
            ("share.state.store", "state.db", "ConfigOutOfBounds"),
            ("share.group.id", "billing", "UnknownConfig"),
            ("share.coordinator.endpoint", "https://coordinator:9999", "ConfigOutOfBounds"),
            ("errors.deadletterqueue.topic.name", "dlq billing", "ConfigOutOfBounds"),
            ("errors.deadletterqueue.topic.name", "..", "ConfigOutOfBounds"),
            ("errors.deadletterqueue.topic.name", "orders", "DeadLetterTopicSubscribed"),
            ("errors.deadletterqueue.max.reject.ratio", "50%", "ConfigTypeMismatch"),
            ("errors.tolerance", "all", "UnknownConfig"),
            ("share.renew.acknowledge.enable", "1", "ConfigTypeMismatch"),
        )
    ),
]
SINKS = [
    sink("outputOnReplay=overwrites", "InvalidOption"),
    sink("topic=dlq", "errors.deadletterqueue.topic.name"),
    sink("path=output", "archive.path"),
    sink("kafka.acks=0", "Remove it"),
    source("kafka.transactional.id=billing", "the coordinator has a transactional id for each group"),
    sink("kafka.transactional.id=billing", "Remove it"),
    sink("batchId=-1", "InvalidOption"),
    sink("deadLetterTopic=dlq", "UnknownOption"),
    *(
        Row(
            f"sink: archive.path={path}",
            "ArchiveNotWritable",
            lambda place, path=path: place.sink({"archive.path": path}, schema(REQUIRED)),  # type: ignore[misc]
        )
        for path in ("foo://bucket/archive", "/proc/archive")
    ),
    Row(
        "acknowledge(batch, batch_id) without a group",
        "NoSinkOptions",
        lambda place: sink_options({}, {"kafka.bootstrap.servers": "localhost:9092"}),
    ),
    column("acknowledgement", BooleanType()),
    column("offset", StringType()),
    column("key", IntegerType()),
    column("releaseDelayMs", StringType()),
    column("headers", MapType(StringType(), StringType())),
    Row("sink: column offset twice", "WrongColumn", twice),
    *(rows_of(f"{name} null", "IncompleteReceipt", **{name: None}) for name in ("topic", "partition", "receipt")),
    *(
        rows_of(f"acknowledgement '{word}'", "UnknownOutcome", acknowledgement=word)
        for word in ("accepted", "", "ack", "true")
    ),
    rows_of("partition -1", "NeverDelivered", partition=-1),
    rows_of("topic ''", "NeverDelivered", topic=""),
    rows_of("releaseDelayMs -2147483648", "InvalidReleaseDelay", acknowledgement="release", releaseDelayMs=-(2**31)),
]
REDRIVE = "dlq redrive --bootstrap-server localhost:9092 --topic dlq"
COMMANDS = [
    command("coordinator health", "either --config"),
    command("coordinator health --endpoint nowhere", "host:port"),
    command("coordinator health --endpoint localhost:1", "TokenMissing"),
    command("coordinator health --endpoint localhost:1 --token-file nosuch", "UnusableFile"),
    command("coordinator --config FOLDER", "directory"),
    command("coordinator --config x --log-format yaml", "yaml"),
    command("dlq redrive --topic dlq", "--bootstrap-server"),
    command("dlq redrive --bootstrap-server localhost:9092", "--topic"),
    command("dlq redrive --bootstrap-server a;b --topic dlq", "host:port"),
    command(f"{REDRIVE} --dry-run --execute", "either --dry-run or --execute"),
    command(f"{REDRIVE} --max-redrives 0", "--max-redrives"),
    command(f"{REDRIVE} --max-redrives many", "--max-redrives"),
    command(f"{REDRIVE} --to dlq", "RedriveIntoItself"),
    command(f"{REDRIVE} --where =x", "neither NAME=VALUE"),
    command(f"{REDRIVE} --command-config nosuch", "InvalidPropertiesFile"),
    command("dlq purge", "No such command"),
    command("demo --nosuch", "No such option"),
    properties("share.session.timeout.ms=60000", "key of a share group", "share.session.timeout.ms=60000\n"),
    properties("sasl.mechanism=PLAIN", "kafka.sasl.mechanism", "sasl.mechanism=PLAIN\n"),
    properties("bootstrap.servers=a;b", "host:port", "bootstrap.servers=a;b\n"),
    properties("share.coordinator.listener=9999", "ConfigOutOfBounds", "share.coordinator.listener=9999\n"),
    properties("share.coordinator.listener=0.0.0.0:9999", "TlsRequired", "share.coordinator.listener=0.0.0.0:9999\n"),
    properties("share.state.store=sqlite", "ConfigOutOfBounds", "share.state.store=sqlite\n"),
    properties("kafka.sasl.password=${env:NOSUCH}", "NOSUCH", "kafka.sasl.password=${env:NOSUCH}\n"),
    properties("kafka.foo.bar=1", "foo.bar", "kafka.foo.bar=1\n"),
    properties("group.share.max.size=ten", "ConfigTypeMismatch", "group.share.max.size=ten\n"),
    *(token(text) for text in ("", "short", "two words in the token", "größe-größe-größe")),
    Row("sharegroup.redrive() without brokers", "MissingOption", lambda place: sharegroup.redrive("dlq", options={})),
    Row(
        "sharegroup.redrive(where=3)",
        "InvalidCondition",
        lambda place: sharegroup.redrive("dlq", where=3, options={}),  # type: ignore[arg-type]
    ),
    Row("sharegroup.archive.compact of a file", "ArchiveNotFound", lambda place: compact(place.file("file"))),
    Row("sharegroup.archive.archive_dataset of a file", "ArchiveNotFound", lambda p: archive_dataset(p.file("file"))),
    Row("sharegroup.archive.compact('foo://x')", "ArchiveNotWritable", lambda place: compact("foo://x")),
]

MORE_INPUTS = {
    "More wrong input: addresses": ADDRESSES,
    "More wrong input: topics and offsets": TOPICS,
    "More wrong input: numbers and flags": NUMBERS,
    "More wrong input: names and Kafka's properties": CLIENTS,
    "More wrong input: configuration of the group": GROUPS,
    "More wrong input: sinks and their rows": SINKS,
    "More wrong input: commands, files, variables, functions": COMMANDS,
}
