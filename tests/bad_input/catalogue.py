"""The wrong inputs by what a person writes: options of the source and of the sink, rows, security, coordinators.

``SECTIONS``: these, and the files, commands and functions of tests/bad_input/commands.py. Each is what somebody writes
who comes from Java, Spark's own source, a template or another tool.
"""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from pyspark.sql import types

from share_sink.foreach_batch import sink_options
from tests.bad_input.commands import COMMANDS, CONSUMERS, PLACES
from tests.bad_input.row import Place, Row, reads, sink, source, sources
from tests.support.sink_rows import REQUIRED, TYPES, schema

ENDPOINT = "share.coordinator.endpoint"
CA = "share.coordinator.ssl.ca.location"
TOKEN_FILE = "share.coordinator.token.file"
TLS = {"kafka.security.protocol": "SSL"}
SASL = {"kafka.security.protocol": "SASL_SSL"}
PLAIN_USER = {**SASL, "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "alice"}
OAUTH = {**SASL, "kafka.sasl.mechanism": "OAUTHBEARER"}
OIDC = {
    "kafka.sasl.oauthbearer.client.id": "me",
    "kafka.sasl.oauthbearer.client.secret": "secret",
    "kafka.sasl.oauthbearer.token.endpoint.url": "https://localhost:1/token",
}
FUNCTION = "tests.support.iam_signer"
LIMITS = ("0", "1.5", "-1", "unlimited")


def endpoint(place: Place, **configs: str) -> object:
    """A query's connection to standalone coordinators."""
    token = place.file("token", "a-token-of-enough-characters")
    return place.source({ENDPOINT: "coordinator:9999", TOKEN_FILE: token, **configs})


def variable(name: str, value: str) -> Row:
    """A row of an environment variable."""

    def loaded(place: Place) -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(name, value)
            return place.source({ENDPOINT: "localhost:1"} if "TOKEN" in name else {})

    return Row(f"{name}={value}", loaded)


def rows_of(written: str, **columns: object) -> Row:
    """A row of a sink's task: a record of ``orders`` at offset 57 with these columns."""
    return Row(f"row: {written}", lambda place: place.write(**columns))


def column(name: str, kind: types.DataType) -> Row:
    """A row of a sink's column with a wrong type."""
    written = f"sink: column {name} is {kind.simpleString()}"
    return Row(written, lambda place: place.sink({}, schema({**TYPES, name: kind})))


def without(name: str) -> Row:
    """A row of a sink's column that is missing."""
    columns = schema({other: kind for other, kind in REQUIRED.items() if other != name})
    return Row(f"sink: no column {name}", lambda place: place.sink({}, columns))


def archive(path: str) -> Row:
    """A row of a sink's archive; FOLDER/file is a file."""

    def opened(place: Place) -> object:
        place.file("file")
        return place.sink({"archive.path": path.replace("FOLDER", str(place.folder))}, schema(REQUIRED))

    return Row(f"sink: archive.path={path}", opened)


ADDRESSES = [
    sources("no kafka.bootstrap.servers", {"kafka.bootstrap.servers": None}),
    *(
        source(f"kafka.bootstrap.servers={servers}")
        for servers in (
            *("", "localhost:abc", "a;b", "localhost:70000", "http://localhost:9092", "localhost:", ":9092", ","),
            *("localhost:9092;localhost:9093", "localhost:9092 localhost:9093", "[::1:9092", "zookeeper:2181/kafka"),
            *("kafka://localhost:9092", "localhost:0", "SASL_SSL://localhost:9092", "${BROKERS}", "localhost:9092/"),
            "['localhost:9092']",
        )
    ),
]
TOPICS = [
    sources("no subscribe, no subscribePattern, no assign", {"subscribe": None}),
    sources("subscribe and subscribePattern", {"subscribePattern": "orders"}),
    sources("subscribe and assign", {"assign": '{"orders":[0]}'}),
    *(
        source(f"subscribe={topics}")
        for topics in (
            *("", ",", "orders;payments", "orders payments", "orders*", "größe", ".", "..", "orders/x", "[orders]"),
            *("orders\u200b", "nosuch", "orders,nosuch", "share-group-state", "__consumer_offsets"),
            *("orders,__transaction_state", "orders,__share_group_state"),
        )
    ),
    *(
        reads(f"subscribePattern={pattern}")
        for pattern in (
            *("", "*", "order(", "[a-", "(?=orders).*", "(?!internal).*", "order(s)\\1", "a{1001}", "a++", "(?>a)"),
        )
    ),
    *(
        reads(f"assign={assign}")
        for assign in (
            *("", "orders", "orders:0", "[]", "{}", "{'orders':[0]}", '{"orders":0}', '{"orders":[]}'),
            *('{"orders":["0"]}', '{"orders":[-1]}', '{"orders":[9]}', '{"nosuch":[0]}', '{"share-group-state":[0]}'),
        )
    ),
    *(
        source(f"startingOffsets={offsets}")
        for offsets in (
            *("", "beginning", "newest", "0", "2026-01-01", '{"orders":5}', '{"orders":[0]}', '{"orders":{"x":1}}'),
            *('{"orders":{"0":-3}}', '{"orders":{"0":"5"}}', '{"orders":{"0":true}}', '{"orders":{"0":"earliest"}}'),
            *('{"orders":{"0":1,"9":5}}', '{"payments":{"0":1}}'),
        )
    ),
    sources(
        "startingOffsets of a partition that is not assigned",
        {"subscribe": None, "assign": '{"orders":[0]}', "startingOffsets": '{"orders":{"1":5}}'},
    ),
]
NUMBERS = [
    source("maxBytesPerTrigger=0"),
    *(source(f"maxOffsetsPerTrigger={value}") for value in ("", "0", "-1", "1.5", "many", "10k", "1e4", "10_000", "²")),
    source("minPartitions=0"),
    source("maxRecordsPerPartition=0"),
    source("kafkaConsumer.pollTimeoutMs=2m"),
    source("includeHeaders=yes"),
    source("failOnDataLoss=0"),
]
NAMES = [
    *(
        sources(f"kafka.group.id {what}", {"kafka.group.id": name})
        for what, name in (
            ("of 40,000 characters", "g" * 40_000),
            ("with a line break", "billing\n2026-11-22 ERROR forged"),
            ("with NUL", "bill\0ing"),
        )
    ),
    *map(
        source,
        (
            *("kafka.group.id=", "kafka.group.id=${GROUP}", "kafka.group.id={{ group }}", "maxOffsetPerTrigger=5"),
            *("topics=orders", "servers=localhost:9092", "archive.path=/archive", "onStaleReceipt=fail"),
            *("groupIdPrefix=billing", "group.id=billing", "bootstrap.servers=localhost:9092"),
            *("checkpointLocation=checkpoints", "outputMode=append", "endingOffsets=latest"),
            *("startingTimestamp=2026-01-01", 'startingOffsetsByTimestamp={"orders":{"0":1}}'),
            *("maxBytesPerTrigger=10m", "kafka.auto.offset.reset=earliest", "kafka.max.poll.records=500"),
            *("kafka.value.deserializer=StringDeserializer", "kafka.transactional.id=billing"),
            "kafka.share.session.timeout.ms=60000",
        ),
    ),
    sources("minPartitions in an ordered group", {"minPartitions": 4, "share.order": "partition"}),
    sources("maxRecordsPerPartition in an ordered group", {"maxRecordsPerPartition": 4, "share.order": "partition"}),
]
KAFKAS = [
    *map(
        source,
        (
            *("kafka.foo.bar=1", "kafka.receive.message.max.bytes=2000", "kafka.receive.buffer.bytes=-5"),
            *("kafka.retry.backoff.ms=0", "kafka.retries=-1", "kafka.max.partition.fetch.bytes=0"),
            *("kafka.fetch.min.bytes=1e3", "kafka.fetch.min.bytes=-5", "kafka.fetch.wait.max.ms=1.5"),
            *("kafka.fetch.max.bytes=50MB", "kafka.request.timeout.ms=30s", "kafka.enable.metrics.push=hunter2"),
            *("kafka.metrics.num.samples=3", "kafka.compression.type=gz", "kafka.debug=everything"),
            *("kafka.client.dns.lookup=default", "kafka.client.id=${env:HOME}", "kafka.log_level=info"),
            "kafka.error_cb=print",
        ),
    ),
    sources(
        "Java's and librdkafka's name of one property",
        {"kafka.request.timeout.ms": 2000, "kafka.socket.timeout.ms": 1000},
    ),
]
SECURED = [
    *map(
        source,
        (
            *("kafka.security.protocol=TLS", "kafka.security.protocol=SASL-SSL", "kafka.sasl.pasword=secret"),
            "kafka.sasl.password=${file:/secrets:password}",
            "kafka.sasl.jaas.config=com.example.MyLoginModule required;",
            "kafka.sasl.jaas.config=PlainLoginModule required username=alice",
            *("kafka.ssl.keystore.location=client.jks", "kafka.ssl.truststore.location=trust.jks"),
            "kafka.ssl.endpoint.identification.algorithm=off",
        ),
    ),
    source("kafka.sasl.mechanism=PLAINN", **{**PLAIN_USER, "kafka.sasl.password": "secret"}),
    source("kafka.sasl.mechanism=SCRAM", **SASL),
    sources("kafka.sasl.mechanism=PLAIN, without a password", PLAIN_USER),
    sources("kafka.sasl.mechanism=OAUTHBEARER, without kafka.sasl.oauthbearer.method", {**OAUTH, **OIDC}),
    sources("kafka.security.protocol=SASL_SSL, without a mechanism", SASL),
    source("kafka.sasl.mechanism=AWS_MSK_IAM", **SASL),
    source("kafka.sasl.kerberos.keytab=/nosuch.keytab", **{**SASL, "kafka.sasl.mechanism": "GSSAPI"}),
    sources(
        "kafka.ssl.certificate.location without kafka.ssl.key.location",
        {**TLS, "kafka.ssl.certificate.location": "client.pem"},
    ),
    *(
        source(f"kafka.ssl.ca.location={path}", **TLS)
        for path in ("nosuch.pem", "~/ca.pem", "file:///etc/ca.pem", "dbfs:/certs/ca.pem", "s3://bucket/ca.pem")
    ),
    Row(
        "kafka.ssl.ca.location of a file that holds no certificate",
        lambda place: place.source({**TLS, "kafka.ssl.ca.location": place.file("ca.pem", "no PEM")}),
    ),
    source("kafka.ssl.ca.pem=hello", **TLS),
    source("kafka.oauth_cb=billing:token"),
    *(
        source(f"kafka.oauth_cb={function}", **OAUTH)
        for function in (
            *("token", "__main__:token", "nosuch_module:token", "os:system", f"{FUNCTION}:nosuch"),
            *(f"{FUNCTION}:base64_text", f"{FUNCTION}:nothing", f"{FUNCTION}:raising"),
        )
    ),
]
GROUPS = [
    *map(
        source,
        (
            *("share.session.timeout.ms=45s", "share.session.timeout.ms=45_000", "share.session.timeout.ms=0"),
            *("share.paused.topics= orders , ,", "share.paused.topics=*,orders", "share.paused.topics=a b"),
            *(f"share.max.{key}={value}" for key in ("records.per.second", "in.flight.records") for value in LIMITS),
            *("share.heartbeat.interval.ms=60000", "share.heartbeat.interval.ms=45000", "share.delivery.count.limit=1"),
            *("share.delivery.count.limit=unlimited", "share.delivery.limit=5", "share.isolation.level=committed"),
            *("share.auto.offset.reset=none", "share.auto.offset.reset=by_duration:1h"),
            *(f"share.record.ttl.ms={ttl}" for ttl in ("0", "1h", "-1")),
            *("share.acknowledgement.mode=auto", "share.release.backoff.multiplier=0.5"),
            *("share.release.backoff.ms=PT30S", "share.state.store=postgres://db", "share.state.store=state.db"),
            *("share.state.store=sqlite://state.db", "share.state.store=kafka:", "share.group.id=billing"),
            *("share.sesion.timeout.ms=45000", "group.share.record.lock.duration.ms=30000"),
            *("errors.deadletterqueue.topic.name=nosuch", "errors.deadletterqueue.topic.name=dlq billing"),
            *("errors.deadletterqueue.topic.name=..", "errors.deadletterqueue.topic.name=orders"),
            *("errors.deadletterqueue.topic=dlq", "errors.deadletterqueue.max.reject.ratio=50%"),
            *("errors.tolerance=all", "share.renew.acknowledge.enable=1"),
        ),
    ),
    sources("a ttl within the delivery delay", {"share.record.ttl.ms": "60000", "share.delivery.delay.ms": "60000"}),
]
COORDINATORS = [
    *map(
        source,
        (
            *(f"{ENDPOINT}=coordinator:9999", f"{ENDPOINT}=coordinator", f"{ENDPOINT}=a:1,b"),
            *(f"{ENDPOINT}=https://coordinator:9999", "share.coordinator.listener=a:1", "share.coordinator.token=abc"),
            *("share.coordinator.fleet.group.id=1", "share.coordinator.session.timeout.ms=1"),
        ),
    ),
    sources(f"{ENDPOINT} and share.state.store", {ENDPOINT: "a:1", "share.state.store": "sqlite"}),
    sources(f"{TOKEN_FILE} without {ENDPOINT}", {TOKEN_FILE: "token"}),
    Row(f"{TOKEN_FILE} of a missing file", lambda p: endpoint(p, **{TOKEN_FILE: "nosuch"})),
    Row(
        f"{TOKEN_FILE} of a file that others may read",
        lambda p: endpoint(p, **{TOKEN_FILE: p.file("t", "x" * 20, 0o644)}),
    ),
    Row(f"{CA} of a file that is no PEM", lambda p: endpoint(p, **{CA: p.file("ca", "no PEM")})),
    variable("SHAREGROUP_READER", "fast"),
    variable("SHAREGROUP_COORDINATOR_TOKEN", "guess"),
]
SINKS = [
    *map(
        sink,
        (
            *("onStaleReceipt=ignore", "outputOnReplay=overwrites", "batchId=-1", "batchId=x", "subscribe=orders"),
            *("topic=dlq", "path=output", "mode=append", "deadLetterTopic=dlq", "archivepath=x", "kafka.acks=0"),
            *("kafka.transactional.id=billing", "kafka.compression.type=brotli", "kafka.sasl.pasword=x"),
            *("kafka.security.protocol=SSLL", "share.acknowledgement.mode=both", "errors.deadletterqueue.topic=x"),
            "errors.deadletterqueue.topic.name=__dlq",
        ),
    ),
    Row('sink: mode("overwrite")', lambda place: place.sink({}, overwrite=True)),
    *map(archive, ("FOLDER/file/archive", "/proc/archive", "foo://bucket/archive", "s3a:/AKIA:geheim@bucket/given-up")),
    Row(
        "acknowledge(batch, batch_id) without a group",
        lambda place: sink_options({}, {"kafka.bootstrap.servers": "localhost:9092"}),
    ),
    *map(without, REQUIRED),
    column("topic", types.BinaryType()),
    column("partition", types.DoubleType()),
    column("partition", types.LongType()),
    column("offset", types.StringType()),
    column("deliveryCount", types.LongType()),
    column("receipt", types.IntegerType()),
    column("acknowledgement", types.BooleanType()),
    column("acknowledgement", types.IntegerType()),
    column("reason", types.BinaryType()),
    column("releaseDelayMs", types.StringType()),
    column("releaseAt", types.TimestampNTZType()),
    column("releaseAt", types.LongType()),
    column("releaseAt", types.TimestampType()),
    column("key", types.IntegerType()),
    column("value", types.StructType()),
    column("headers", types.MapType(types.StringType(), types.BinaryType())),
    column("headers", types.ArrayType(types.StringType())),
    Row(
        "sink: column offset twice",
        lambda place: place.sink(
            {}, types.StructType([*schema(REQUIRED), types.StructField("offset", types.IntegerType())])
        ),
    ),
    *(rows_of(f"{name} null", **{name: None}) for name in ("topic", "partition", "offset", "deliveryCount", "receipt")),
    *(
        rows_of(f"acknowledgement '{word}'", acknowledgement=word)
        for word in ("maybe", "Accept", "accepted", "", "ack", "true", "x" * 200, "renew")
    ),
    rows_of("of another group that lives", receipt=7),
    rows_of("offset -100", offset=-100),
    rows_of("offset + 1,000,000", offset=1_000_057),
    rows_of("partition + 10", partition=10),
    rows_of("partition -1", partition=-1),
    rows_of("topic 'nosuch'", topic="nosuch"),
    rows_of("topic ''", topic=""),
    rows_of("deliveryCount 0", deliveryCount=0),
    rows_of("releaseDelayMs -1", acknowledgement="release", releaseDelayMs=-1),
    rows_of("releaseDelayMs -2147483648", acknowledgement="release", releaseDelayMs=-(2**31)),
    rows_of("releaseAt too late", acknowledgement="release", releaseAt=datetime(2999, 1, 1, tzinfo=timezone.utc)),
]

OF_QUERIES: dict[str, list[Row]] = {
    "Addresses": ADDRESSES,
    "Topics and offsets": TOPICS,
    "Numbers and flags": NUMBERS,
    "Names": NAMES,
    "Properties of Kafka's clients": KAFKAS,
    "Security": SECURED,
    "Configuration of the group": GROUPS,
    "Standalone coordinators": COORDINATORS,
    "Sinks and their rows": SINKS,
}
SECTIONS = {
    **OF_QUERIES,
    "ShareConsumers and the Admin client": CONSUMERS,
    "Folders, files, variables, functions": PLACES,
    "Commands": COMMANDS,
}
