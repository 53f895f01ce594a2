"""Wrong inputs of ShareConsumers and the Admin client, and of folders, files, functions and commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timezone

import pytest
from confluent_kafka import KafkaException

import sharegroup
from coordinator.client.on_demand import runtime_dir, state_dir
from coordinator.config.secret_files import TOKEN_VARIABLE, read_token
from coordinator.service.stores.sqlite_store import SqliteStore
from share_sink.archive import archive_dataset, compact
from tests.bad_input.row import Place, Row, command


def consumer(written: str, config: Mapping[str, object]) -> Row:
    """A row of a ShareConsumer's constructor."""

    def made(place: Place) -> object:
        needed = {"bootstrap.servers": place.bootstrap, "group.id": "billing"}
        try:
            return sharegroup.ShareConsumer({**needed, **config}).close()
        except (KafkaException, TypeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"

    return Row(f"ShareConsumer: {written}", made)


def released(written: str, **note: object) -> Row:
    """A row of a ShareConsumer's release with a delay or a point in time."""

    def acknowledged(place: Place) -> object:
        config = {"bootstrap.servers": place.bootstrap, "group.id": "billing", "share.acknowledgement.mode": "explicit"}
        with sharegroup.ShareConsumer(config) as consumer:
            try:
                return consumer.acknowledge_offset("orders", 0, 57, sharegroup.AcknowledgeType.RELEASE, **note)
            except (TypeError, ValueError) as error:
                return f"{type(error).__name__}: {error}"

    return Row(f"acknowledge: {written}", acknowledged)


def configured(written: str) -> Row:
    """A row of one text of a ShareConsumer's configuration, ``NAME=VALUE`` as written."""
    name, _, value = written.partition("=")
    return consumer(written, {name: value})


def admin(written: str, act: Callable[[sharegroup.Admin], object] = lambda client: client) -> Row:
    """A row of the Admin client, configured with ``NAME=VALUE`` as written, or with a call that is wrong."""
    name, _, value = written.partition("=")

    def asked(place: Place) -> object:
        with sharegroup.Admin({"bootstrap.servers": place.bootstrap, **({name: value} if value else {})}) as client:
            return act(client)

    return Row(f"Admin: {written}", asked)


def in_directory(variable: str, directory: str) -> Row:
    """A row of an environment variable that names a directory which can't be used."""

    def found(place: Place) -> object:
        place.file("file")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(variable, directory.replace("FOLDER", str(place.folder)))
            return runtime_dir() if variable == "SHAREGROUP_RUNTIME_DIR" else state_dir()

    return Row(f"{variable}={directory}", found)


def token(written: str) -> Row:
    """A row of the environment variable with the token."""

    def read(place: Place) -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(TOKEN_VARIABLE, written)
            return read_token("")

    return Row(f"{TOKEN_VARIABLE}={written}", read)


def properties(text: str) -> Row:
    """A row of a line in the properties file of a standalone coordinator."""

    def started(place: Place) -> object:
        needed = {"bootstrap.servers": "localhost:9092", "share.coordinator.listener": "127.0.0.1:0"}
        others = [f"{key}={value}\n" for key, value in needed.items() if not text.startswith(f"{key}=")]
        place.file("coordinator.properties", "".join([*others, f"{text}\n"]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(TOKEN_VARIABLE, "a-token-of-enough-characters")
            return place.command("coordinator --config coordinator.properties")

    return Row(f"coordinator.properties: {text}", started)


def command_file(*lines: str) -> Row:
    """A row of a file of --command-config."""

    def run(place: Place) -> object:
        place.file("client.properties", "".join(f"{line}\n" for line in lines))
        return place.command(
            f"groups --bootstrap-server {place.bootstrap} --list --command-config FOLDER/client.properties"
        )

    return Row(f"client.properties: {lines[-1]}", run)


def options_file(written: str, text: str) -> Row:
    """A row of a file of ``sharegroup check --options``."""

    def run(place: Place) -> object:
        place.file("query.properties", text)
        return str(place.command("check --options FOLDER/query.properties")).splitlines()[0]

    return Row(f"query.properties: {written}", run)


def reset_file(text: str) -> Row:
    """A row of a file of ``sharegroup groups --from-file``."""

    def run(place: Place) -> object:
        place.file("offsets.csv", text)
        return place.command(f"{RESET} --from-file FOLDER/offsets.csv")

    return Row(f"offsets.csv: {text!r}", run)


def not_an_archive(place: Place) -> object:
    """A compaction of a folder that holds something else."""
    place.file("passwords")
    return compact(str(place.folder))


def redriven(written: str, topic: object = "dlq", **arguments: object) -> Row:
    """A row of a redrive in a program."""

    def called(place: Place) -> object:
        options = {"kafka.bootstrap.servers": place.bootstrap, **arguments.get("options", {})}  # type: ignore[dict-item]
        try:
            return sharegroup.redrive(topic, **{**arguments, "options": options})  # type: ignore[arg-type]
        except TypeError as error:
            return f"TypeError: {error}"

    return Row(f"sharegroup.redrive({written})", called)


CONSUMERS = [
    *map(
        configured,
        (
            *("kafka.client.id=x", "goup.id=x", "share.record.lock.duration.msec=1", "oauth_cb=billing:token"),
            *("share.acknowledgement.mode=manual", "value.deserializer=StringDeserializer"),
            *("auto.offset.reset=earliest", "startingOffsets=earliest", "maxOffsetsPerTrigger=5", "subscribe=orders"),
            *("max.poll.records=5k", "max.poll.interval.ms=5m", "fetch.max.bytes=50MB", "fetch.wait.max.ms=0x10"),
            *("socket.timeout.ms=5m", "max.in-flight.progress.batches=0", "max.in-flight.progress.batches=many"),
            "max.in-flight.progress.batches=100001",
        ),
    ),
    released("release_at=datetime(2026, 1, 1)", release_at=datetime(2026, 1, 1)),
    released("release_at=datetime(2999, 1, 1, tzinfo=UTC)", release_at=datetime(2999, 1, 1, tzinfo=timezone.utc)),
    released("release_at='2026-01-01'", release_at="2026-01-01"),
    released("delay_ms=5, release_at=...", delay_ms=5, release_at=datetime(2026, 1, 1, tzinfo=timezone.utc)),
    consumer("group.id=b'bg'", {"group.id": b"bg"}),
    consumer("sasl.password of bytes", {"sasl.password": b"hunter2"}),
    consumer("max.poll.records=1.5", {"max.poll.records": 1.5}),
    consumer("oauth_cb=print", {"oauth_cb": print}),
    *map(admin, ("kafka.client.id=x", "transactional.id=x", "foo=1", "security.protocol=TLS")),
    admin("list_offsets of no group", lambda client: client.list_offsets("nosuch")),
]
PLACES = [
    in_directory("SHAREGROUP_RUNTIME_DIR", "FOLDER/file"),
    in_directory("SHAREGROUP_RUNTIME_DIR", "/proc/x"),
    in_directory("SHAREGROUP_STATE_DIR", "FOLDER/file"),
    *map(token, ("", "short", "two words in the token", "größe-größe-größe")),
    Row("share.state.store=sqlite:/proc/x.db", lambda place: SqliteStore("/proc/x.db")),  # type: ignore[arg-type]
    Row("share.state.store=sqlite:FOLDER", lambda place: SqliteStore(place.folder)),
    Row('sharegroup.archive.compact("nope")', lambda place: compact("nope")),
    Row("sharegroup.archive.compact of a folder of other files", not_an_archive),
    Row("sharegroup.archive.compact of a file", lambda place: compact(place.file("file"))),
    Row("sharegroup.archive.compact('foo://x')", lambda place: compact("foo://x")),
    Row('sharegroup.archive.archive_dataset("nope")', lambda place: archive_dataset("nope")),
    Row("sharegroup.archive.archive_dataset of a file", lambda p: archive_dataset(p.file("file"))),
    redriven('where="tenant"', where="tenant"),
    redriven('where="message~=("', where="message~=("),
    redriven("where=3", where=3),
    redriven('where={"message": re.compile("x")}', where={"message": re.compile("x")}),
    redriven('options={"foo": 1}', options={"foo": 1}),
    redriven('"dlq"'),
    redriven('""', topic=""),
    redriven('["dlq"]', topic=["dlq"]),
    redriven('to=""', to=""),
    redriven('to=b"orders"', to=b"orders"),
    redriven('dry_run="false"', dry_run="false"),
    redriven('keep_timestamp="no"', keep_timestamp="no"),
    redriven('max_redrives="3"', max_redrives="3"),
    Row("sharegroup.redrive() without brokers", lambda place: sharegroup.redrive("dlq", options={})),
    *map(
        properties,
        (
            *("bootstrap.servers=", "bootstrap.servers=a;b", "kafka.bootstrap.servers=a:1", "broker.id=1"),
            *("subscribe=orders", "share.session.timeout.ms=60000", "share.coordinator.session.timeout.ms=6000"),
            *("share.coordinator.fleet.group.id=g", "share.coordinator.endpoint=a:1", "share.coordinator.listner=a:1"),
            *("share.coordinator.listener=here", "share.coordinator.listener=9999"),
            *("share.coordinator.listener=127.0.0.1:65536", "share.coordinator.listener=0.0.0.0:9999"),
            *("share.coordinator.advertised.listener=a:1,b:2", "share.coordinator.source.topics=("),
            *("share.coordinator.source.topics=orders,payments", "share.state.store=sqlite", "queued.max.requests=0"),
            *("group.share.max.size=ten", "sasl.mechanism=PLAIN", "kafka.sasl.password=${env:NOSUCH}"),
            *("kafka.sasl.password=\\u12", "kafka.foo.bar=1", "kafka.oauth_cb=x:y", "kafka.transactional.id=x"),
        ),
    ),
    command_file("wordsOfAToken"),
    command_file("security.protocol='SSL'"),
    command_file("client.id=\\u00zz"),
    command_file("sasl.password=${file:/x:pw}"),
    command_file("sasl.jaas.config=geheim"),
    command_file("security.protocol=SASL_SSL", "sasl.mechanism=PLAIN"),
    command_file("spark.kafka.client.id=x"),
    options_file("no group", "kafka.bootstrap.servers=localhost:1\nsubscribe=orders\n"),
    options_file("a view", "kafka.bootstrap.servers=localhost:1\nview=groups\nkafka.group.id=billing\n"),
    options_file("not JSON", "{"),
    options_file("a list", "[]"),
    options_file("a variable that is not set", "a=${env:NOT_SET}"),
    options_file("subscribe and Subscribe", "subscribe=orders\nSubscribe=payments\n"),
    options_file("a null", '{"kafka.group.id": null}'),
    reset_file("topic,partition,offset"),
    reset_file("orders,0,5\norders,0,6"),
    reset_file("orders,0,-1"),
]

AT = "--bootstrap-server localhost:9092"
GROUP = f"groups {AT} --group g"
RESET = f"{GROUP} --reset-offsets"
RELEASE = f"{GROUP} --release-records"
REDRIVE = f"dlq redrive {AT} --topic dlq"
IN_FLIGHT = f"in-flight {AT} --group g"
BROWSE = f"browse {AT} --group g"
CONSUME = f"consume {AT} --topic orders"
PERF = f"perf {AT} --topic orders --num-records 1"
COMMANDS = [
    command(line)
    for line in (
        *("coordinatr", "coordinator", "coordinator --config", "coordinator --config x health"),
        *("coordinator --config nosuch.properties", "coordinator --config FOLDER"),
        *("coordinator --config x --log-format yaml", "coordinator --make-token FOLDER", "coordinator health"),
        *("coordinator health --config x --endpoint a:1", "coordinator health --endpoint nowhere"),
        *("coordinator health --endpoint localhost:1", "coordinator health --endpoint localhost:1 --token-file nosuch"),
        *("demo --nosuch", "quickstart --port http", "check", "check --options billing.json --master foo", "dlq purge"),
        *("dlq redrive --topic dlq", "dlq redrive --bootstrap-server localhost:9092"),
        *("dlq redrive --bootstrap-server a;b --topic dlq", f"{REDRIVE} --dry-run --execute"),
        *(f"{REDRIVE} --max-redrives 0", f"{REDRIVE} --max-redrives many", f"{REDRIVE} --to dlq"),
        *(f"{REDRIVE} --as-shown '' --execute", f"{REDRIVE} --as-shown abc", f"{REDRIVE} --where tenant"),
        *(f"{REDRIVE} --where =x", f"{REDRIVE} --where message~=(", f"{REDRIVE} --command-config nosuch"),
        *(f"{CONSUME} --reject --release", f"{CONSUME} --property print.key", f"{CONSUME} --property print.keys=true"),
        *(f"{CONSUME} --property print.key=yes", f"{CONSUME} --value-deserializer Avro", f"{CONSUME} --max-messages 0"),
        *(f"{CONSUME} --command-property =x", f"{CONSUME} --from-beginning", f"{CONSUME} --formatter a.b.C"),
        *(f"perf {AT} --topic orders --num-records 1e6", f"{PERF} --ack-pattern accept"),
        *(f"{PERF} --ack-pattern accept:x", f"{PERF} --ack-pattern accept:1,accept:2", f"{PERF} --ack-pattern renew:1"),
        *(f"{PERF} --ack-pattern accept:0", f"{PERF} --ack-pattern accept:-1", f"{PERF} --date-format yyyy-QQ"),
        *(f'{PERF} --date-format "HH\'h"', f"{PERF} --fetch-size -1", f"top {AT} --interval abc"),
        *(f"top {AT} --interval nan", f"configs set {AT} --group g share.max.size=2 share.max.size=3"),
        *(f"{IN_FLIGHT} --state HELD", f"{IN_FLIGHT} --topic orders:0 --history 5 --state ACQUIRED"),
        *(f"{BROWSE} --state HELD", f"{BROWSE} --state ''", f"{BROWSE} --partition 0", f"{BROWSE} --max-records 0"),
        *(f"{BROWSE} --topic orders --from-offset 7", f"{BROWSE} --topic orders --partition 0 --to-offset -1"),
        *(f"{BROWSE} --max-records 100000", f"{BROWSE} --topic 'a b'", f"browse {AT}"),
        *(f"groups {AT} --pause", f"{GROUP} --pause --group payments", f"{GROUP} --pause --topic orders:0"),
        *(f"{GROUP} --resume --topic 'orders,refunds'", f"{GROUP} --pause --resume"),
        f"{GROUP} --resume --dry-run --execute",
        *(f"configs unset {AT} --group g share.order=none", "groups --bootstrap-server localhost:99999 --list"),
        *("groups --bootstrap-servers localhost:9092 --list", f"groups {AT}", f"groups {AT} --list --describe"),
        *(f"groups {AT} --list --members", f"groups {AT} --list --state Full", f"groups {AT} --list --wait"),
        *(f"groups {AT} --list --offset 7", f"groups {AT} --list --command-property sasl.mechanism"),
        f"groups {AT} --list --command-property kafka.client.id=x",
        *(f"groups {AT} --list --command-property security.protocol=TLS", f"groups {AT} --describe"),
        *(f"groups {AT} --describe --timeout 5s", f"groups {AT} --describe --timeout 0", f"groups {AT} --delete"),
        *(f"groups {AT} --delete --all-groups --state Empty", f"groups {AT} --reset-offsets --all-topics --to-latest"),
        *(f"groups {AT} --release-member --member m", f"{GROUP} --list", f"{GROUP} --describe --all-groups"),
        *(f"{GROUP} --describe --members --state", f"{GROUP} --describe --state Empty"),
        *(f"{GROUP} --describe --in-flight --state HELD", f"{GROUP} --describe --member m"),
        *(f"{GROUP} --describe --progress-stale-longer-than-ms 1", f"{GROUP} --delete --topic orders"),
        *(f"{GROUP} --delete --to-earliest", f"{GROUP} --delete --shift-by 0", f"{GROUP} --delete --dry-run --execute"),
        *(f"{GROUP} --delete-offsets", f"{GROUP} --delete-offsets --topic orders:0"),
        *(f"{RESET} --group payments --to-earliest --all-topics", f"groups {AT} --describe --group ' billing'"),
        *(f"{RESET} --all-topics", f"{RESET} --to-latest", f"{RESET} --all-topics --to-latest --to-offset 0"),
        *(f"{RESET} --all-topics --to-latest --dry-run --execute", f"{RESET} --all-topics --to-latest --all-groups"),
        *(f"{GROUP} --release-member", f"{GROUP} --release-member --member m --topic t", f"{RELEASE} --topic t:0"),
        *(f"{RELEASE} --offset 7", f"{RELEASE} --topic t:0 --offset 7 --dry-run --execute"),
        *(f"{RELEASE} --topic t:0 --offset 7-5", f"{RELEASE} --topic t:0 --offset -7"),
        *(f"{RELEASE} --topic t:0 --offset 9223372036854775808", f"{GROUP} --archive-records --topic t:0 --offset 7"),
    )
]
