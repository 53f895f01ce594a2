"""Sends dead letters back to the topics that their records came from, or to another topic.

Rule: a call sends each record at most once, and no record is redriven for ever. A dead letter queue is at least once,
so redrive recognizes dead letters of one record by their origin (topic, partition, offset), and sends the first. The
header ``__dlq.redrive.count`` counts a record's redrives, up to a limit; ``__dlq.redrive.from`` names the dead letter
that the record was sent from. Redrive deletes nothing from the dead letter topic: a second call sends the same dead
letters again, unless ``where`` excludes them. Which headers are the record's own says
:mod:`coordinator.dead_letters.record_format`."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from coordinator.client.options import by_lower_name
from coordinator.config.kafka_options import check_kafka_config
from coordinator.kafka.cluster_metadata import cluster_metadata
from coordinator.kafka.librdkafka import LOSSLESS, new_client
from coordinator.protocol.errors import ConfigOutOfBounds, ShareGroupError, UnknownTopic
from coordinator.protocol.option_errors import InvalidOption
from coordinator.protocol.topic_names import check_written, is_reserved
from share_sink.errors import RedriveChanged, RedriveIntoItself, RedriveStopped, RedriveTargetMissing
from share_sink.redrive.conditions import RecordFilter, all_hold, conditions
from share_sink.redrive.dlq_reader import REDRIVEN_FROM, REDRIVES, DeadLetter, ends_of, read_topic
from share_sink.redrive.report import EXAMPLES, RedriveReport, record_label
from share_sink.sink_option_table import TABLE

MAX_REDRIVES = 3
"""A record that became a dead letter again after this many redrives is not sent any more; the default of
``max_redrives``."""
Item = TypeVar("Item")
Origins: TypeAlias = Callable[[str], Mapping[tuple[str, int], int]]
"""Maps a group's id to the first offset that the group was never given, by topic and partition of all that it reads or
has read. Empty if the group does not exist, or has another dead letter topic."""
_NOW = 0
"""librdkafka's timestamp for the time of sending. So a record's own timestamp of 0 is sent as 1."""
_CLOSE_S = 5.0
"""Closing the producer takes up to this many seconds."""
_DEFAULTS = {"client.id": "sharegroup-redrive", "log_level": "0", "linger.ms": "5", "message.timeout.ms": "60000"}
_FIXED = {
    **LOSSLESS,
    "partitioner": "murmur2_random",  # Java's: the same key, the same partition
    "message.max.bytes": "1000000000",  # the topic decides how large a record may be
    "queue.buffering.max.messages": "10000",
}


def redrive(
    dlq_topic: str,
    where: RecordFilter | None = None,
    to: str | None = None,
    *,
    options: Mapping[str, object],
    dry_run: bool = True,
    max_redrives: int = MAX_REDRIVES,
    watch: Callable[[RedriveReport], None] = lambda report: None,
    origins: Origins | None = None,
    as_shown: str = "",
    keep_timestamp: bool = False,
    rate: int | None = None,
) -> RedriveReport:
    """Send dead letters to their topics again, or to the topic ``to``: those that are in ``dlq_topic`` now and that
    ``where`` selects. ``where`` is as --where of the command line ("message~=timeout", or a list of such texts), names
    with their values ({"message": "no such customer"}), all of which a dead letter must have, or a function of a
    DeadLetter. A dry run, the default, sends nothing.

    ``options``: ``kafka.bootstrap.servers`` and other ``kafka.*`` options; the sink's other options are ignored.
    A record is sent to the partition that it came from; its key chooses the partition in another topic, and if that
    partition does not exist any more. It has its key, its value and its own headers, without those of the dead letter,
    and a new timestamp; with ``keep_timestamp`` its own, where the dead letter has it. ``rate``: at most this many
    records a second; None: no limit. ``origins``: which records the groups were given; a dead letter of any other
    record is counted, and not sent. ``as_shown``: the ``shown`` of a dry run's report; what it did not show is not
    sent. ``watch`` is called with the report so far, before each dead letter is selected.

    Raises:
        UnknownTopic: the dead letter topic does not exist.
        RedriveTargetMissing: a topic to send to does not exist.
        RedriveIntoItself, TopicNotWritten: ``to`` is the dead letter topic, or one of Kafka's or sharegroup's own.
        RedriveChanged: what would be sent is not what ``as_shown`` stands for.
        DeadLettersNotRead: the dead letter topic could not be read to its end.
        RedriveStopped: sending failed. Its ``report`` says what was sent, and which dead letters were not.
        BrokerNotReachable: no broker answers.
        TypeError, ConfigOutOfBounds: an argument has another type; ``max_redrives`` or ``rate`` is below 1.
        InvalidCondition: ``where`` is wrong.
        UnknownOption, MissingOption, RefusedOption, UnknownKafkaOption, InvalidOption: an option is wrong."""
    _check_numbers(max_redrives=max_redrives, rate=1 if rate is None else rate)
    named = [] if callable(where) else conditions(where)
    selects = where if callable(where) else lambda dead_letter: all_hold(named, dead_letter)
    _check_target(to, dlq_topic, dry_run=dry_run, keep_timestamp=keep_timestamp)
    given = by_lower_name(options)
    TABLE.check_names(given)
    config = TABLE.kafka_config(given)
    check_kafka_config(config)
    topics = _partitions_of(config)
    if dlq_topic not in topics:
        raise UnknownTopic(topic=dlq_topic, addresses=config["bootstrap.servers"])
    if to is not None and to not in topics:
        raise RedriveTargetMissing(topic=to, dlq_topic=dlq_topic)
    now = ends_of(dlq_topic, topics[dlq_topic], config)
    ends = _shown_ends(as_shown, dlq_topic) if as_shown else now

    def selected(report: RedriveReport) -> Iterator[tuple[DeadLetter, str]]:
        selection = _Selection(report, selects, to, max_redrives, topics, watch, origins)
        return selection.of(read_topic(dlq_topic, topics[dlq_topic], config, upto=ends))

    if as_shown and _shown(ends, selected(RedriveReport(dlq_topic=dlq_topic, dry_run=True))) != as_shown:
        raise RedriveChanged(topic=dlq_topic)
    report = RedriveReport(dlq_topic=dlq_topic, dry_run=dry_run)
    report.came_after = sum(max(0, end - ends.get(number, 0)) for number, end in now.items())
    if dry_run:
        report.shown = _shown(ends, selected(report), report)
    else:
        paced = selected(report) if rate is None else at_rate(selected(report), rate)
        _send_all(paced, topics, report, {**_DEFAULTS, **config, **_FIXED}, keep_timestamp=keep_timestamp)
    report.unknown_names = [each.name for each in named if report.read and not each.is_known]
    return report


def _check_target(to: str | None, dlq_topic: str, **flags: object) -> None:
    topics: dict[str, object] = {"dlq_topic": dlq_topic, **({} if to is None else {"to": to})}
    for name, topic in topics.items():
        if not isinstance(topic, str):
            raise TypeError(f"{name} is a topic's name, and {topic!r} is of type {type(topic).__name__}")
        if not topic:
            raise InvalidOption(option=name, problem="it is empty; name a topic.")
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{name} is True or False, and {flag!r} is of type {type(flag).__name__}")
    if to is not None:
        check_written(to)
    if to == dlq_topic:
        raise RedriveIntoItself(topic=dlq_topic)


def _check_numbers(**numbers: object) -> None:
    for key, value in numbers.items():
        if type(value) is not int or value < 1:
            raise ConfigOutOfBounds(key=key, value=value, bounds="a whole number, at least 1")


# --- what was shown


def _shown(
    ends: Mapping[int, int], dead_letters: Iterable[tuple[DeadLetter, str]], report: RedriveReport | None = None
) -> str:
    """Returns the text that stands for these dead letters and their targets: the ends up to which they were read, and a
    digest. ``report``, if given, counts them."""
    digest = hashlib.sha256()
    for each, target in dead_letters:
        digest.update(repr((each.partition, each.offset, target, each.key, each.value, each.headers)).encode())
        if report is not None:
            report.add(each, target)
    return f"{','.join(f'{number}:{end}' for number, end in sorted(ends.items()))}/{digest.hexdigest()[:32]}"


def _shown_ends(as_shown: str, topic: str) -> dict[int, int]:
    """Returns the ends in the text. Raises RedriveChanged if no report has shown such a text."""
    try:
        pairs = [each.split(":") for each in as_shown.rpartition("/")[0].split(",") if each]
        return {int(number): int(end) for number, end in pairs}
    except ValueError:
        raise RedriveChanged(topic=topic) from None


# --- selection


@dataclass
class _Selection:
    """Selects the dead letters to send, each record once."""

    report: RedriveReport
    selects: Callable[[DeadLetter], bool]
    to: str | None
    max_redrives: int
    topics: Mapping[str, int]
    watch: Callable[[RedriveReport], None]
    origins: Origins | None = None
    _known: dict[str, Mapping[tuple[str, int], int]] = field(default_factory=dict)
    _seen: dict[tuple[str, int], set[int]] = field(default_factory=dict)

    def of(self, messages: Iterable[Message]) -> Iterator[tuple[DeadLetter, str]]:
        """Yields the dead letters to send, with their target topics; the report counts the others. Raises
        RedriveTargetMissing if a target topic does not exist."""
        for message in messages:
            self.report.read += 1
            self.watch(self.report)
            dead_letter = DeadLetter.of(message)
            kind = self._skip_reason(dead_letter)
            if dead_letter is None or kind:
                self.report.skip(kind, message)
                continue
            target = self.to or dead_letter.origin_topic
            if target not in self.topics:
                raise RedriveTargetMissing(topic=target, dlq_topic=self.report.dlq_topic)
            yield dead_letter, target

    def _skip_reason(self, dead_letter: DeadLetter | None) -> str:
        """Returns the name of the report's count for a dead letter that is not sent; empty if it is sent."""
        if dead_letter is None:
            return "not_dead_letters"
        if not self.selects(dead_letter):
            return "not_selected"
        if not dead_letter.has_record:
            return "without_record"
        if refused := self._refused(dead_letter):
            return refused
        if dead_letter.redrives >= self.max_redrives:
            return "redriven_too_often"
        seen = self._seen.setdefault((dead_letter.origin_topic, dead_letter.origin_partition), set())
        if dead_letter.origin_offset in seen:
            return "doubles"
        seen.add(dead_letter.origin_offset)
        return ""

    def _refused(self, dead_letter: DeadLetter) -> str:
        """Returns the name of the report's count for a dead letter whose headers somebody else may have written; empty
        if the headers match what the group was given."""
        topic, index = dead_letter.origin_topic, dead_letter.origin_partition
        if self.to is None and is_reserved(topic):
            return "other_topics"
        if self.origins is None:
            return ""
        if dead_letter.group_id not in self._known:
            self._known[dead_letter.group_id] = self.origins(dead_letter.group_id)
        given = self._known[dead_letter.group_id]
        if all(topic != known for known, _ in given):
            return "other_topics"
        return "" if dead_letter.origin_offset < given.get((topic, index), 0) else "not_delivered"


# --- sending


def at_rate(
    items: Iterable[Item],
    rate: int,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[Item]:
    """Yields the items, at most ``rate`` in each second since the first."""
    began_s = clock()
    for number, item in enumerate(items):
        if number % rate == 0 and (left_s := began_s + number // rate - clock()) > 0:
            sleep(left_s)
        yield item


def _send_all(
    dead_letters: Iterator[tuple[DeadLetter, str]],
    topics: Mapping[str, int],
    report: RedriveReport,
    config: Mapping[str, Any],
    *,
    keep_timestamp: bool,
) -> None:
    """Send the dead letters.

    Raises:
        RedriveStopped: sending failed, or reading failed after dead letters were sent.
        ShareGroupError: an error before anything was sent, under its own name."""
    with contextlib.closing(_Sender(new_client(Producer, config), report, keep_timestamp)) as sender:
        try:
            for dead_letter, target in dead_letters:
                own = target == dead_letter.origin_topic and dead_letter.origin_partition < topics[target]
                sender.send(dead_letter, target, dead_letter.origin_partition if own else -1)
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
    first = ", ".join(report.unsent[:EXAMPLES]) + (", …" if len(report.unsent) > EXAMPLES else "")
    error = RedriveStopped(
        topic=report.dlq_topic, sent=report.sent, unsent=len(report.unsent), first=first or "-", reason=reason
    )
    error.report = report
    return error


class _Sender:
    """Sends dead letters, and counts those that the brokers acknowledged. At the first failure it drops the rest."""

    def __init__(self, producer: Any, report: RedriveReport, keep_timestamp: bool) -> None:
        self.failure = ""
        self._keep_timestamp = keep_timestamp
        self._producer = producer
        self._report = report

    def send(self, dead_letter: DeadLetter, target: str, partition: int) -> None:
        """Hand a record to the producer. Waits for room in its queue, but not for the brokers' reply."""
        check_written(target)
        on_delivery = partial(self._on_delivery, dead_letter, target)
        kept = [header for header in dead_letter.record_headers if header[0] not in (REDRIVES, REDRIVEN_FROM)]
        redrives = (REDRIVES, str(dead_letter.redrives + 1).encode())
        headers = [*kept, redrives, (REDRIVEN_FROM, self._label(dead_letter).encode())]
        own_ms = dead_letter.origin_timestamp_ms if self._keep_timestamp else None
        timestamp_ms = _NOW if own_ms is None else max(own_ms, 1)
        record = target, dead_letter.value, dead_letter.key, partition
        while not self.failure:
            try:
                self._producer.produce(*record, on_delivery=on_delivery, headers=headers, timestamp=timestamp_ms)
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                self._on_delivery(dead_letter, target, error.args[0], None)
            else:
                self._producer.poll(0)
                return

    def _label(self, dead_letter: DeadLetter) -> str:
        return record_label(self._report.dlq_topic, dead_letter.partition, dead_letter.offset)

    def finish(self) -> None:
        """Wait until the brokers acknowledged every record, or one failed. Then close."""
        while not self.failure and self._producer.flush(0.5):
            pass
        self.close()

    def close(self) -> None:
        """Drop the records that were not sent yet."""
        self._producer.purge()
        self._producer.flush(_CLOSE_S)

    def _on_delivery(self, dead_letter: DeadLetter, target: str, error: KafkaError | None, _: object) -> None:
        if error is None:
            self._report.add(dead_letter, target)
            return
        self._report.unsent.append(self._label(dead_letter))
        self.failure = self.failure or f"topic {target} refused a record: {error.str()}"


def _partitions_of(config: Mapping[str, str]) -> dict[str, int]:
    """Returns the number of partitions of each topic."""
    topics = cluster_metadata(config["bootstrap.servers"], config).topics
    return {name: len(topic.partitions) for name, topic in topics.items() if topic.error is None}
