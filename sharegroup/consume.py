"""``sharegroup consume``: prints the records of a topic as a member of a share group. Its options are those of
kafka-console-share-consumer.sh."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

import click

from sharegroup.cluster_options import JSON_OPTION, Cluster, as_named, check_topic, cluster_options, pairs, settings
from sharegroup.option_types import Group, Topic, Whole, elsewhere

if TYPE_CHECKING:
    from sharegroup.console_format import RecordFormat

DEFAULT_GROUP = "console-share-consumer"
POLL_S = 0.5
"""One poll takes up to this many seconds, so Ctrl-C is noticed within that time."""


@click.command(short_help="Print the records of a topic, as a member of a share group.")
@cluster_options
@click.option("--topic", type=Topic(), required=True, help="The topic to consume from.")
@click.option(
    "--group", type=Group(), default=DEFAULT_GROUP, show_default=True, help="The share group id of the consumer."
)
@click.option(
    "--max-messages", type=Whole("records", min=1), help="The number of records to consume before it ends.  [no limit]"
)
@click.option("--timeout-ms", type=Whole("milliseconds", min=0), help="End if no record comes for this long.  [never]")
@click.option("--reject", is_flag=True, help="Reject the records, instead of accepting them.")
@click.option("--release", is_flag=True, help="Release the records, instead of accepting them.")
@click.option("--reject-message-on-error", is_flag=True, help="Reject a record that can't be printed, and go on.")
@click.option(
    "--formatter-property",
    "--property",
    "printing",
    multiple=True,
    metavar="KEY=VALUE",
    callback=pairs,
    help="How a record is printed: print.timestamp, print.key, print.offset, print.delivery, print.epoch, "
    "print.partition, print.headers, print.value (true or false), key.separator, line.separator, headers.separator, "
    "null.literal, key.deserializer, value.deserializer, headers.deserializer.",
)
@click.option("--formatter-config", metavar="FILE", type=click.Path(dir_okay=False), help="A file of such properties.")
@elsewhere(
    "--from-beginning",
    "a new group begins at the earliest record with --command-property share.auto.offset.reset=earliest",
    is_flag=True,
)
@elsewhere("--formatter", "there are no formatters in Java here: --property says how a record is printed")
@click.option("--key-deserializer", metavar="CLASS", help="One of Kafka's own, for example LongDeserializer.")
@click.option("--value-deserializer", metavar="CLASS", help="As --key-deserializer, for values.")
@JSON_OPTION
@click.pass_context
def consume(
    context: click.Context,
    cluster: Cluster,
    topic: str,
    group: str,
    max_messages: int | None,
    timeout_ms: int | None,
    reject: bool,
    release: bool,
    reject_message_on_error: bool,
    printing: Mapping[str, str],
    formatter_config: str | None,
    key_deserializer: str | None,
    value_deserializer: str | None,
    as_json: bool,
) -> None:
    """Print the records of a topic, as a member of a share group, until Ctrl-C.

    Each record is accepted after it was printed. A new group begins at the latest record, as in Kafka; to begin at the
    earliest, add --command-property share.auto.offset.reset=earliest.

    \b
    Example:
      sharegroup consume --bootstrap-server localhost:9092 --topic orders \\
          --group billing --timeout-ms 5000 --property print.delivery=true"""
    if reject and release:
        raise click.UsageError("Name either --reject or --release.", context)
    from coordinator.config.properties_file import read_properties
    from sharegroup.console_format import RecordFormat  # importing takes a second, which --help does not need

    of_file = read_properties(formatter_config) if formatter_config else {}
    named = {"key.deserializer": key_deserializer, "value.deserializer": value_deserializer}
    form = RecordFormat({**of_file, **{option: name for option, name in named.items() if name}, **printing})
    config = settings(*cluster)
    check_topic(config, topic)
    outcome = "REJECT" if reject else "RELEASE" if release else "ACCEPT"
    printer = _Printer(form, outcome, rejects_errors=reject_message_on_error, as_json=as_json)
    try:
        printer.run({**config, "group.id": group}, topic, max_messages, timeout_ms)
    except Exception:
        if printer.count:  # else the error is the only line
            printer.tell_total()
        raise
    printer.tell_total()


class _Printer:
    """Prints records, and acknowledges each of them. ``count``: how many it has printed."""

    def __init__(self, form: RecordFormat, outcome: str, *, rejects_errors: bool, as_json: bool) -> None:
        self._form = form
        self._outcome = outcome
        self._rejects_errors = rejects_errors
        self._as_json = as_json
        self.count = 0

    def run(self, config: Mapping[str, str], topic: str, most: int | None, timeout_ms: int | None) -> None:
        """Print until ``most`` records are printed, no record comes for ``timeout_ms``, or the user interrupts."""
        from confluent_kafka import KafkaException

        from sharegroup import ShareConsumer

        # A record beyond --max-messages would be acquired, and counted as delivered, for nothing.
        limits = {} if most is None else {"max.poll.records": str(min(most, 500)), "share.acquire.mode": "record_limit"}
        try:
            consumer = ShareConsumer({**limits, **config, "share.acknowledgement.mode": "explicit"})
        except (KafkaException, ValueError) as error:
            raise as_named(error) from None
        try:
            with consumer:
                consumer.subscribe([topic])
                self._print_all(consumer, most, timeout_ms)
        except KeyboardInterrupt:
            pass
        except KafkaException as error:
            raise as_named(error) from None

    def tell_total(self) -> None:
        click.echo(f"Processed a total of {self.count} messages", err=True)

    def _print_all(self, consumer: object, most: int | None, timeout_ms: int | None) -> None:
        from sharegroup import AcknowledgeType, IllegalStateException

        last_s = time.monotonic()
        while most is None or self.count < most:
            left_s = POLL_S if timeout_ms is None else min(last_s + timeout_ms / 1000 - time.monotonic(), POLL_S)
            for message in consumer.poll(max(left_s, 0.0)):  # type: ignore[attr-defined]
                last_s = time.monotonic()
                if most is not None and self.count >= most:
                    consumer.acknowledge(message, AcknowledgeType.RELEASE)  # type: ignore[attr-defined]
                    continue
                self.count += 1
                outcome = self._outcome if self._print(message) else "REJECT"
                # In an ordered group a release gives back what follows, so an unreadable record there is not rejected.
                with suppress(IllegalStateException) if self._outcome == "RELEASE" else nullcontext():
                    consumer.acknowledge(message, AcknowledgeType[outcome])  # type: ignore[attr-defined]
            if timeout_ms is not None and time.monotonic() >= last_s + timeout_ms / 1000:
                return

    def _print(self, message: object) -> bool:
        """Print the record. Returns False for an unreadable record that is to be rejected; raises RecordUnreadable if
        such records are not rejected."""
        from sharegroup.console_format import RecordUnreadable

        try:
            if self._as_json:
                click.echo(self._form.json(message))
            else:
                sys.stdout.buffer.write(self._form.line(message))
                sys.stdout.buffer.flush()
        except RecordUnreadable as error:
            if not self._rejects_errors:
                raise
            click.echo(f"sharegroup: rejected: {error}", err=True)
            return False
        return True
