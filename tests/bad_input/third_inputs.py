"""Wrong inputs of the third search, at each door, as somebody writes who comes from Java, Spark's own source, a
template or another tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import KafkaException

import sharegroup
from tests.bad_input.more_inputs import properties, reads
from tests.bad_input.row import Place, Row, command, sink, source, sources

TLS = {"kafka.security.protocol": "SSL"}
OAUTH = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}
FUNCTION = "tests.support.iam_signer"


def secured(written: str, says: str, others: Mapping[str, str]) -> Row:
    """A row of a source option beside settings of security."""
    return source(written, says, **others)


def consumer(written: str, says: str, config: Mapping[str, object]) -> Row:
    """A row of a ShareConsumer's constructor."""

    def made(place: Place) -> object:
        needed = {"bootstrap.servers": place.bootstrap, "group.id": "billing"}
        try:
            return sharegroup.ShareConsumer({**needed, **config}).close()
        except (KafkaException, TypeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"

    return Row(f"ShareConsumer: {written}", says, made)


def admin(written: str, says: str, act: Callable[[sharegroup.Admin], object], **config: str) -> Row:
    """A row of a call of the Admin client."""

    def asked(place: Place) -> object:
        with sharegroup.Admin({"bootstrap.servers": place.bootstrap, **config}) as client:
            return act(client)

    return Row(f"Admin: {written}", says, asked)


def command_file(written: str, says: str, text: str) -> Row:
    """A row of a file of --command-config."""

    def run(place: Place) -> object:
        place.file("client.properties", text)
        return place.command(
            f"groups --bootstrap-server {place.bootstrap} --list --command-config FOLDER/client.properties"
        )

    return Row(f"client.properties: {written}", says, run)


def options_file(written: str, says: str, text: str) -> Row:
    """A row of a file of ``sharegroup check --options``."""

    def run(place: Place) -> object:
        place.file("query.properties", text)
        return str(place.command("check --options FOLDER/query.properties")).splitlines()[0]

    return Row(f"query.properties: {written}", says, run)


def reset_file(text: str, says: str) -> Row:
    """A row of a file of ``sharegroup groups --from-file``."""

    def run(place: Place) -> object:
        place.file("offsets.csv", text)
        return place.command(f"{RESET} --group billing --from-file FOLDER/offsets.csv")

    return Row(f"offsets.csv: {text!r}", says, run)


def variable(name: str, value: str, says: str) -> Row:
    """A row of an environment variable."""

    def loaded(place: Place) -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(name, value)
            return place.source({"share.coordinator.endpoint": "localhost:1"} if "TOKEN" in name else {})

    return Row(f"{name}={value}", says, loaded)


LISTED = "groups --bootstrap-server localhost:9092"
RESET = f"{LISTED} --reset-offsets"
REDRIVE = "dlq redrive --bootstrap-server localhost:9092 --topic dlq"
IN_FLIGHT = "in-flight --bootstrap-server localhost:9092 --group billing"
THIRD = [
    # --- a path that is none, a template that nothing filled
    secured("kafka.ssl.ca.location=~/ca.pem", "nothing replaces ~", TLS),
    secured("kafka.ssl.ca.location=file:///etc/ca.pem", "a URL", TLS),
    secured("kafka.ssl.ca.location=dbfs:/certs/ca.pem", "a URL", TLS),
    secured("kafka.ssl.ca.location=s3://bucket/ca.pem", "a URL", TLS),
    sources(
        "kafka.sasl.kerberos.keytab=/nosuch.keytab",
        "UnusableFile",
        {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "GSSAPI",
            "kafka.sasl.kerberos.keytab": "/nosuch.keytab",
        },
    ),
    source("kafka.group.id=${GROUP}", "placeholder"),
    source("kafka.group.id={{ group }}", "placeholder"),
    source("kafka.client.id=${env:HOME}", "placeholder"),
    source("kafka.sasl.password=${file:/secrets:password}", "placeholder"),
    source("kafka.bootstrap.servers=${BROKERS}", "host:port"),
    source("kafka.bootstrap.servers=['localhost:9092']", "host:port"),
    source("kafka.bootstrap.servers=localhost:9092/", "host:port"),
    # --- a word or a number that a property does not take
    source("kafka.ssl.endpoint.identification.algorithm=off", "https or none"),
    source("kafka.compression.type=gz", "gzip"),
    source("kafka.debug=everything", "broker"),
    source("kafka.client.dns.lookup=default", "use_all_dns_ips"),
    source("kafka.log_level=info", "0..7"),
    source("kafka.request.timeout.ms=30s", "whole number in"),
    source("kafka.fetch.max.bytes=50MB", "whole number in"),
    source("kafka.retries=-1", '"retries" value -1'),
    source("kafka.max.partition.fetch.bytes=0", '"max.partition.fetch.bytes" value 0'),
    secured("kafka.ssl.ca.pem=hello", "kafka.ssl.ca.pem", TLS),
    # --- tokens
    source("kafka.oauth_cb=billing:token", "OAUTHBEARER"),
    secured("kafka.oauth_cb=token", "MODULE:FUNCTION", OAUTH),
    secured("kafka.oauth_cb=__main__:token", "MODULE:FUNCTION", OAUTH),
    secured("kafka.oauth_cb=nosuch_module:token", "can't be imported", OAUTH),
    secured(f"kafka.oauth_cb={FUNCTION}:nosuch", "no function", OAUTH),
    secured("kafka.oauth_cb=os:system", "Python's own", OAUTH),
    secured(f"kafka.oauth_cb={FUNCTION}:base64_text", "@sharegroup.token_function", OAUTH),
    secured(f"kafka.oauth_cb={FUNCTION}:nothing", "returned no tuple", OAUTH),
    secured(f"kafka.oauth_cb={FUNCTION}:raising", "raised", OAUTH),
    # --- Spark's own source
    source("startingTimestamp=2026-01-01", "by_duration"),
    source('startingOffsetsByTimestamp={"orders":{"0":1}}', "by_duration"),
    source('startingOffsets={"orders":{"0":"earliest"}}', "-2 earliest"),
    source("maxBytesPerTrigger=10m", "maxOffsetsPerTrigger"),
    source("groupIdPrefix=billing", "kafka.group.id"),
    source("subscribe=[orders]", "topic's name"),
    source("subscribe=orders\u200b", "topic's name"),
    reads("assign=orders", "assign"),
    # --- the group's configuration
    source("share.session.timeout.ms=45_000", "milliseconds"),
    source("share.sesion.timeout.ms=45000", "share.session.timeout.ms"),
    source("group.share.record.lock.duration.ms=30000", "share.record.lock.duration.ms"),
    source("errors.deadletterqueue.topic=dlq", "errors.deadletterqueue.topic.name"),
    source("share.state.store=sqlite://state.db", "sqlite:PATH"),
    source("share.state.store=kafka:", "sqlite:PATH"),
    source("share.coordinator.token=abc", "share.coordinator.token.file"),
    sink("mode=append", "UnknownOption"),
    sink("kafka.compression.type=brotli", "zstd"),
    variable("SHAREGROUP_READER", "fast", "native, python or auto"),
    variable("SHAREGROUP_COORDINATOR_TOKEN", "guess", "16 characters"),
    # --- ShareConsumers and Admin
    consumer("kafka.client.id", "use client.id", {"kafka.client.id": "x"}),
    consumer("goup.id", "nearest known one is group.id", {"goup.id": "x"}),
    consumer("oauth_cb=print", "MODULE:FUNCTION", {"oauth_cb": print}),
    consumer("oauth_cb=billing:token", "OAUTHBEARER", {"oauth_cb": "billing:token"}),
    consumer("share.acknowledgement.mode=manual", "implicit", {"share.acknowledgement.mode": "manual"}),
    consumer("value.deserializer=StringDeserializer", "callable", {"value.deserializer": "StringDeserializer"}),
    admin("kafka.client.id", "Use client.id", lambda client: client, **{"kafka.client.id": "x"}),
    admin("transactional.id", "The coordinator has", lambda client: client, **{"transactional.id": "x"}),
    admin("foo", "UnknownKafkaOption", lambda client: client, foo="1"),
    admin("security.protocol=TLS", "SASL_SSL", lambda client: client, **{"security.protocol": "TLS"}),
    admin("list_offsets of no group", "GroupIdNotFound", lambda client: client.list_offsets("nosuch")),
    # --- files and commands
    command_file("security.protocol='SSL'", "SASL_SSL", "security.protocol='SSL'\n"),
    command_file("client.id=\\u00zz", "invalid escape", "client.id=\\u00zz\n"),
    command_file("sasl.password=${file:/x:pw}", "placeholder", "sasl.password=${file:/x:pw}\n"),
    command_file("sasl.mechanism alone", "sasl.username", "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"),
    command_file("spark.kafka.client.id", "UnknownKafkaOption", "spark.kafka.client.id=x\n"),
    options_file("no group", "kafka.group.id", "kafka.bootstrap.servers=localhost:1\nsubscribe=orders\n"),
    properties("kafka.bootstrap.servers", "nearest known one is bootstrap.servers", "kafka.bootstrap.servers=a:1\n"),
    properties("kafka.oauth_cb=x:y", "OAUTHBEARER", "kafka.oauth_cb=x:y\n"),
    properties("kafka.transactional.id=x", "The coordinator has", "kafka.transactional.id=x\n"),
    properties("share.coordinator.source.topics=(", "RE2", "share.coordinator.source.topics=(\n"),
    properties("subscribe=orders", "UnknownConfig", "subscribe=orders\n"),
    command(f"{LISTED}", "exactly one action"),
    command(f"{LISTED} --describe", "--all-groups"),
    command(f"{LISTED} --list --command-property sasl.mechanism", "KEY=VALUE"),
    command(f"{LISTED} --list --command-property kafka.client.id=x", "Use client.id"),
    command(f"{LISTED} --list --command-property security.protocol=TLS", "SASL_SSL"),
    command("groups --bootstrap-servers localhost:9092 --list", "--bootstrap-server"),
    command("coordinator --make-token FOLDER", "not overwritten"),
    command("top --bootstrap-server localhost:9092 --interval abc", "--interval"),
    command("groups --bootstrap-server localhost:99999 --list", "no valid port"),
    command(f"{LISTED} --describe --group ' billing'", "a blank"),
    command(f"{RESET} --group billing --group payments --to-earliest --all-topics", "takes one --group"),
    reset_file("topic,partition,offset", "not as orders,0,1207"),
    reset_file("orders,0,5\norders,0,6", "orders-0 is there twice"),
    reset_file("orders,0,-1", "can't be negative"),
    command(f"{LISTED} --delete-offsets --group billing --topic orders:0", "whole topics: --topic orders"),
    command("configs unset --bootstrap-server localhost:9092 --group billing share.order=none", "share.order"),
    command(f"{REDRIVE} --as-shown '' --execute", "dry run printed"),
    command(f"{REDRIVE} --as-shown abc", "dry run printed"),
    command(f"{IN_FLIGHT} --topic orders:0 --history 5 --state ACQUIRED", "leave out the options"),
    command("perf --bootstrap-server localhost:9092 --topic orders --num-records 1 --fetch-size -1", "--fetch-size"),
    command("check --options billing.json --master foo", "spark://HOST:PORT"),
    options_file("subscribe and Subscribe", "Spark ignores case", "subscribe=orders\nSubscribe=payments\n"),
    options_file("a null", "kafka.group.id is null", '{"kafka.group.id": null}'),
]
