"""``sharegroup perf``: measures how fast ShareConsumers read a topic. Options and columns are those of
kafka-share-consumer-perf-test.sh; ``--ack-pattern`` is ours."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import click

from sharegroup.cluster_options import JSON_OPTION, Cluster, as_named, check_topic, cluster_options, settings
from sharegroup.date_format import KAFKAS, time_format
from sharegroup.option_types import Group, Topic, Whole
from sharegroup.progress_bar import progress

HEADER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"  # as Kafka's
)
OUTCOMES = ("accept", "release", "reject")
POLL_S = 0.1
"""One poll takes up to this many seconds, as in Kafka's tool."""
_MB = 1024 * 1024
_AS_KAFKA = time_format(KAFKAS)


def ack_pattern(context: click.Context, option: click.Parameter, text: str | None) -> dict[str, int] | None:
    """Parse a text as accept:90,release:5,reject:5 into shares by outcome. Raises BadParameter otherwise."""
    if text is None:
        return None
    shares: dict[str, int] = {}
    for part in text.split(","):
        outcome, _, share = part.strip().partition(":")
        if outcome not in OUTCOMES or outcome in shares or not re.fullmatch("[0-9]{1,6}", share):
            raise click.BadParameter(
                f"'{part}' is not OUTCOME:SHARE, with an outcome of {', '.join(OUTCOMES)}, each once"
            )
        shares[outcome] = int(share)
    if not sum(shares.values()):
        raise click.BadParameter(f"the shares of '{text}' add up to 0")
    return shares


def date_format(context: click.Context, option: click.Parameter, pattern: str) -> Callable[[float], str]:
    """Returns the function that formats a time. Raises BadParameter if the pattern can't be used."""
    try:
        return time_format(pattern)
    except ValueError as error:
        raise click.BadParameter(f"'{pattern}': {error}") from None


def outcomes(shares: Mapping[str, int]) -> Iterator[str]:
    """Yields outcomes without end. At any time each has come as often as its share says, to within one record."""
    total, due = sum(shares.values()), dict.fromkeys(shares, 0)
    while True:
        for outcome, share in shares.items():
            due[outcome] += share
        chosen = max(due, key=lambda outcome: due[outcome])
        due[chosen] -= total
        yield chosen


@dataclass
class Consumption:
    """What one consumer, or all together, have read; ``data`` is in bytes."""

    records: int = 0
    data: int = 0
    deliveries_again: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)


_NOTHING = Consumption()


@click.command(short_help="Measure how fast ShareConsumers read a topic.")
@cluster_options
@click.option("--topic", type=Topic(), required=True, help="The topic to consume from.")
@click.option("--num-records", type=Whole("records", min=1), required=True, help="The number of records to consume.")
@click.option("--group", type=Group(), default="perf-share-consumer", show_default=True, help="The share group id.")
@click.option(
    "--threads", type=Whole("consumers", min=1, max=1000), default=1, show_default=True, help="The number of consumers."
)
@click.option(
    "--ack-pattern",
    callback=ack_pattern,
    metavar="OUTCOME:SHARE,...",
    help="The outcomes of the records, for example accept:90,release:5,reject:5. Without it all are accepted, by "
    "the next poll (implicit mode).",
)
@click.option(
    "--fetch-size",
    type=Whole("bytes", min=1, max=10**9),
    default=1048576,
    show_default=True,
    help="Bytes of one fetch of a partition.",
)
@click.option(
    "--socket-buffer-size",
    type=Whole("bytes", min=0, max=10**8),
    default=2097152,
    show_default=True,
    help="Bytes of TCP's receive buffer.",
)
@click.option(
    "--timeout", "timeout_ms", type=Whole("milliseconds", min=0), default=10000, show_default=True,
    help="End after this many milliseconds without a record.",
)  # fmt: skip
@click.option(
    "--date-format", callback=date_format, default=KAFKAS, show_default=True, metavar="PATTERN",
    help="How times are printed: a pattern of Java's SimpleDateFormat.",
)  # fmt: skip
@click.option("--reporting-interval", type=Whole("milliseconds", min=1), default=5000, show_default=True, metavar="MS")
@click.option("--show-detailed-stats", is_flag=True, help="Print a line for each reporting interval.")
@click.option("--show-consumer-stats", is_flag=True, help="Print a line for each consumer.")
@click.option("--print-metrics", is_flag=True, help="Print the outcomes, and the records that came again.")
@click.option("--hide-header", is_flag=True, help="Print no header.")
@JSON_OPTION
def perf(cluster: Cluster, topic: str, fetch_size: int, socket_buffer_size: int, as_json: bool, **options: Any) -> None:
    """Measure how fast ShareConsumers read a topic.

    A record that is delivered again counts again. If fewer records are read than were asked for, the exit status is 1;
    Kafka's tool ends with 0. A new group begins at the latest record, unless share.auto.offset.reset says otherwise.

    \b
    Example:
      sharegroup perf --bootstrap-server localhost:9092 --topic orders \\
          --num-records 10000 --threads 4 \\
          --command-property share.auto.offset.reset=earliest \\
          --ack-pattern accept:90,release:5,reject:5"""
    config = settings(*cluster)
    check_topic(config, topic)
    config = {
        "client.id": "perf-share-consumer-client",
        "socket.receive.buffer.bytes": str(socket_buffer_size),
        "max.partition.fetch.bytes": str(fetch_size),
        "share.acknowledgement.mode": "explicit" if options["ack_pattern"] else "implicit",
        **config,
        "group.id": options["group"],
    }
    if not options["hide_header"] and not as_json:
        click.echo(HEADER)
    if not Measurement(topic, config, options, as_json=as_json).run():
        click.get_current_context().exit(1)


class Measurement:
    """Reads with several consumers until all wanted records were read, or none comes within the timeout."""

    def __init__(self, topic: str, config: Mapping[str, str], options: Mapping[str, Any], *, as_json: bool) -> None:
        self._topic = topic
        self._config = config
        self._options = options
        self._show_time: Callable[[float], str] = options["date_format"]
        self._as_json = as_json
        self._total = itertools.count(1)
        self._is_done = threading.Event()

    def run(self) -> bool:
        """Read, and print the lines. Returns whether the wanted number of records was read. Raises ShareGroupError if a
        consumer failed."""
        count = self._options["threads"]
        client = self._config["client.id"]
        clients = [client] if count == 1 else [f"{client}-{number}" for number in range(1, count + 1)]
        began_s = time.time()
        shown: AbstractContextManager[Callable[[int], None]] = nullcontext(lambda done: None)
        if not self._options["show_detailed_stats"]:
            shown = progress(f"reading {self._topic}", self._options["num_records"], unit="records")
        with shown as tell, ThreadPoolExecutor(count) as threads:
            self._tell = tell
            running = [threads.submit(self._consume, name, at) for at, name in enumerate(clients, 1)]
            try:
                read = [each.result() for each in running]
            finally:
                self._is_done.set()
        ended_s = max(time.time(), began_s + 0.001)
        self._report(clients, read, began_s, ended_s)
        return bool(sum(each.records for each in read) >= self._options["num_records"])

    def _report(self, clients: list[str], read: list[Consumption], began_s: float, ended_s: float) -> None:
        total = Consumption(sum(each.records for each in read), sum(each.data for each in read))
        total.deliveries_again = sum(each.deliveries_again for each in read)
        total.outcomes = sum((each.outcomes for each in read), Counter())
        if self._options["show_consumer_stats"] and not self._as_json:
            for number, (client, each) in enumerate(zip(clients, read, strict=True), 1):
                line = columns(each.records, each.data, began_s, ended_s, self._show_time)
                click.echo(f"Share consumer {number} having client id {client} consumption metrics- {line}")
        if total.records < self._options["num_records"]:
            click.echo(
                "WARNING: Exiting before consuming the expected number of records: "
                f"timeout ({self._options['timeout_ms']} ms) exceeded. "
                "You can use the --timeout option to increase the timeout.",
                err=self._as_json,
            )
        if self._as_json:
            click.echo(json.dumps(self._as_object(total, began_s, ended_s)))
            return
        click.echo(columns(total.records, total.data, began_s, ended_s, self._show_time))
        if self._options["print_metrics"]:
            for outcome in OUTCOMES:
                click.echo(f"acknowledged.{outcome:<24} : {total.outcomes[outcome]}")
            click.echo(f"delivered.again                       : {total.deliveries_again}")

    def _as_object(self, total: Consumption, began_s: float, ended_s: float) -> dict[str, Any]:
        texts = columns(total.records, total.data, began_s, ended_s, self._show_time).rsplit(", ", 5)[1:]
        times = map(self._show_time, (began_s, ended_s))
        values: list[Any] = [*times, *map(float, texts[:3]), *map(int, texts[3:])]
        more = {"acknowledged": dict(total.outcomes), "delivered.again": total.deliveries_again}
        return {**dict(zip(HEADER.split(", "), values, strict=True)), **more}

    def _consume(self, client: str, number: int) -> Consumption:
        from confluent_kafka import KafkaException

        from sharegroup import ShareConsumer

        try:
            with ShareConsumer({**self._config, "client.id": client}) as consumer:
                consumer.subscribe([self._topic])
                return self._read(consumer, number)
        except (KafkaException, ValueError) as error:
            self._is_done.set()
            raise as_named(error) from None

    def _read(self, consumer: Any, number: int) -> Consumption:
        from sharegroup import AcknowledgeType

        pattern = outcomes(self._options["ack_pattern"]) if self._options["ack_pattern"] else None
        found, reported, total = Consumption(), Consumption(), 0
        last_s = reported_s = time.time()
        while not self._is_done.is_set() and time.time() - last_s <= self._options["timeout_ms"] / 1000:
            for message in consumer.poll(POLL_S):
                last_s = time.time()
                outcome = "accept" if pattern is None else next(pattern)
                if pattern is not None:
                    consumer.acknowledge(message, AcknowledgeType[outcome.upper()])
                found.outcomes[outcome] += 1
                found.records += 1
                found.data += len(message.key() or b"") + len(message.value() or b"")
                found.deliveries_again += message.delivery_count() > 1
                if (total := next(self._total)) >= self._options["num_records"]:
                    self._is_done.set()
            if total:
                self._tell(total)
            now_s = time.time()
            if now_s - reported_s >= self._options["reporting_interval"] / 1000 and found.records > reported.records:
                if self._options["show_detailed_stats"] and not self._as_json:
                    line = columns(found.records, found.data, reported_s, now_s, self._show_time, reported)
                    click.echo(f"{line} for share consumer {number}")
                reported, reported_s = Consumption(found.records, found.data), now_s
        return found


def columns(
    records: int,
    data: int,
    began_s: float,
    ended_s: float,
    show_time: Callable[[float], str] = _AS_KAFKA,
    reported: Consumption = _NOTHING,
) -> str:
    """Returns the values under HEADER for this many records and bytes. The rates are those of what was read between the
    two times; before them, ``reported`` was read."""
    seconds = ended_s - began_s
    rate, data_rate = (records - reported.records) / seconds, (data - reported.data) / _MB / seconds
    times = f"{show_time(began_s)}, {show_time(ended_s)}"
    return f"{times}, {data / _MB:.4f}, {data_rate:.4f}, {rate:.4f}, {records}, {round(seconds * 1000)}"
