"""Redrive: dead letters back to the topic that their records came from, or to another one.

The rule: each record at most once a call, and none for ever. A dead letter queue is at least once, so letters of the
same record are told by their origin (topic, partition, offset) and the first is taken; how often a record was redriven
stands in its header ``__dlq.redrive.count``, and what came back too often is left where it is. Nothing is taken out of
the dead letter queue: a second call sends the same letters again, unless ``where`` leaves them out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from coordinator.client.cluster_metadata import cluster_metadata
from coordinator.client.kafka_options import check_kafka_config
from coordinator.client.options import by_lower_name
from coordinator.protocol.errors import ConfigOutOfBounds, ShareGroupError, UnknownTopic
from coordinator.protocol.librdkafka import new_client
from share_sink.errors import RedriveIntoItself, RedriveStopped, RedriveTargetMissing
from share_sink.option_table import TABLE
from share_sink.redrive.dlq_reader import REDRIVES, DeadLetter, read_topic
from share_sink.redrive.report import EXAMPLES, RedriveReport, place

MAX_REDRIVES = 3
RecordFilter = Callable[[DeadLetter], bool] | Mapping[str, str]

_CLOSE_S = 5.0
_DEFAULTS = {"client.id": "sharegroup-redrive", "log_level": "0", "linger.ms": "5", "message.timeout.ms": "60000"}
_FIXED = {
    "enable.idempotence": "true",
    "acks": "all",
    "partitioner": "murmur2_random",  # Java's: the same key, the same partition
    "message.max.bytes": "1000000000",  # the topic says how large a record may be
    "queue.buffering.max.messages": "10000",
}


def redrive(
    dlq_topic: str,
    where: RecordFilter | None = None,
    to: str | None = None,
    *,
    options: Mapping[str, str],
    dry_run: bool = True,
    max_redrives: int = MAX_REDRIVES,
) -> RedriveReport:
    """Send dead letters to their topics again, or to ``to``: those that lie in ``dlq_topic`` now and that ``where``
    selects, a function of a DeadLetter or headers with their values, which all have to be there. In a dry run, the
    default, nothing is sent.

    ``options``: ``kafka.bootstrap.servers`` and other ``kafka.*`` ones, as those of source and sink; the rest is not
    looked at. A record goes to the partition that it came from; to another topic, or if there is no such partition any
    more, by its key. It has its key, value and headers, without those of the dead letter, and a new timestamp.

    UnknownTopic (the dead letter topic), RedriveTargetMissing, RedriveIntoItself, DeadLettersNotRead,
    BrokerNotReachable; MissingOption and the others of ``kafka.*`` options. When sending fails it stops:
    RedriveStopped, whose ``report`` says what was sent, and which letters were not.
    """
    if max_redrives < 1:
        raise ConfigOutOfBounds(key="max_redrives", value=max_redrives, bounds="at least 1")
    if to == dlq_topic:
        raise RedriveIntoItself(topic=dlq_topic)
    config = TABLE.kafka_config(by_lower_name(options))
    check_kafka_config(config)
    topics = _partitions_of(config)
    if dlq_topic not in topics:
        raise UnknownTopic(topic=dlq_topic, addresses=config["bootstrap.servers"])
    if to is not None and to not in topics:
        raise RedriveTargetMissing(topic=to, dlq_topic=dlq_topic)
    report = RedriveReport(dlq_topic=dlq_topic, dry_run=dry_run)
    choice = _Choice(report, _predicate(where), to, max_redrives, topics)
    letters = choice.of(read_topic(dlq_topic, topics[dlq_topic], config))
    if dry_run:
        for letter, target in letters:
            report.add(letter, target)
    else:
        _send_all(letters, topics, report, {**_DEFAULTS, **config, **_FIXED})
    return report


# --- which ones


class _Choice:
    """The letters to send, each record once."""

    def __init__(
        self,
        report: RedriveReport,
        selects: Callable[[DeadLetter], bool],
        to: str | None,
        max_redrives: int,
        topics: Mapping[str, int],
    ) -> None:
        self._report = report
        self._selects = selects
        self._to = to
        self._max_redrives = max_redrives
        self._topics = topics
        self._seen: dict[tuple[str, int], set[int]] = {}

    def of(self, messages: Iterable[Message]) -> Iterator[tuple[DeadLetter, str]]:
        """Letters and the topics that they go to; the others are counted. RedriveTargetMissing."""
        for message in messages:
            self._report.read += 1
            letter = DeadLetter.of(message)
            kind = self._skipped_as(letter)
            if letter is None or kind:
                self._report.skip(kind, message)
                continue
            target = self._to or letter.origin_topic
            if target not in self._topics:
                raise RedriveTargetMissing(topic=target, dlq_topic=self._report.dlq_topic)
            yield letter, target

    def _skipped_as(self, letter: DeadLetter | None) -> str:
        """Why it is not sent, as the report names it; empty if it is."""
        if letter is None:
            return "not_dead_letters"
        if not self._selects(letter):
            return "not_selected"
        if not letter.has_record:
            return "without_record"
        if letter.redrives >= self._max_redrives:
            return "redriven_too_often"
        seen = self._seen.setdefault((letter.origin_topic, letter.origin_partition), set())
        if letter.origin_offset in seen:
            return "doubles"
        seen.add(letter.origin_offset)
        return ""


def _predicate(where: RecordFilter | None) -> Callable[[DeadLetter], bool]:
    if where is None:
        return lambda letter: True
    if callable(where):
        return where
    wanted = dict(where)
    return lambda letter: all(value in letter.header(name) for name, value in wanted.items())


# --- sending them


def _send_all(
    letters: Iterator[tuple[DeadLetter, str]],
    topics: Mapping[str, int],
    report: RedriveReport,
    config: Mapping[str, Any],
) -> None:
    """RedriveStopped; what fails before anything was sent keeps its own name."""
    with contextlib.closing(_Sender(new_client(Producer, config), report)) as sender:
        try:
            for letter, target in letters:
                own = target == letter.origin_topic and letter.origin_partition < topics[target]
                sender.send(letter, target, letter.origin_partition if own else -1)
                if sender.failure:
                    break
        except ShareGroupError as error:
            sender.finish()
            if not (report.sent or report.unsent):
                raise
            raise _stopped(report, str(error)) from error
        sender.finish()
    if sender.failure:
        raise _stopped(report, sender.failure)


def _stopped(report: RedriveReport, reason: str) -> RedriveStopped:
    """The error; ``report`` says more."""
    first = ", ".join(report.unsent[:EXAMPLES]) + (", …" if len(report.unsent) > EXAMPLES else "")
    error = RedriveStopped(
        topic=report.dlq_topic, sent=report.sent, unsent=len(report.unsent), first=first or "-", reason=reason
    )
    error.report = report
    return error


class _Sender:
    """Sends letters and counts those that the brokers have. It gives up the rest at the first failure."""

    def __init__(self, producer: Any, report: RedriveReport) -> None:
        self.failure = ""
        self._producer = producer
        self._report = report

    def send(self, letter: DeadLetter, target: str, partition: int) -> None:
        """Waits for room, not for the brokers' answer."""
        told = partial(self._told, letter, target)
        kept = [header for header in letter.record_headers if header[0] != REDRIVES]
        headers = [*kept, (REDRIVES, str(letter.redrives + 1).encode())]
        while not self.failure:
            try:
                self._producer.produce(target, letter.value, letter.key, partition, on_delivery=told, headers=headers)
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                self._told(letter, target, error.args[0], None)
            else:
                self._producer.poll(0)
                return

    def finish(self) -> None:
        """Returns when of each letter it is known whether it was sent, or nothing is known any more."""
        while not self.failure and self._producer.flush(0.5):
            pass
        self.close()

    def close(self) -> None:
        """Gives up what was not sent yet."""
        self._producer.purge()
        self._producer.flush(_CLOSE_S)

    def _told(self, letter: DeadLetter, target: str, error: KafkaError | None, _: object) -> None:
        if error is None:
            self._report.add(letter, target)
            return
        self._report.unsent.append(place(self._report.dlq_topic, letter.partition, letter.offset))
        self.failure = self.failure or f"{target} refused it: {error.str()}"


def _partitions_of(config: Mapping[str, str]) -> dict[str, int]:
    """Topic -> how many partitions it has."""
    found = cluster_metadata(config["bootstrap.servers"], config).topics
    return {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}
