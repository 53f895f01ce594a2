"""The report of a redrive: counts, and examples of the dead letters that were not sent."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from confluent_kafka import Message

from share_sink.redrive.dlq_reader import DeadLetter

EXAMPLES = 10
"""The report names up to this many skipped dead letters of each kind."""
REASONS = 1_000
"""The report counts up to this many reasons separately, and all others together."""
OTHER_REASONS = "(other reasons)"


@dataclass(frozen=True, order=True)
class Sent:
    """By what sent dead letters are counted: the target topic, and why the records were dead letters."""

    topic: str
    disposition: str
    message: str


@dataclass(kw_only=True)
class RedriveReport:
    """The result of a redrive or of a dry run. Each record that was read is counted once."""

    dlq_topic: str
    dry_run: bool
    read: int = 0
    sent: int = 0
    """Dead letters that the target's brokers acknowledged; in a dry run, those that would be sent."""
    by_reason: Counter[Sent] = field(default_factory=Counter)
    """``sent`` by target and reason."""
    not_selected: int = 0
    doubles: int = 0
    """Further dead letters of a record that is sent."""
    redriven_too_often: int = 0
    without_record: int = 0
    """Dead letters with only headers: there is nothing to send."""
    other_topics: int = 0
    """Dead letters whose group does not read the topic that they name, or has another dead letter topic; and those that
    name a topic of Kafka's or sharegroup's own."""
    not_delivered: int = 0
    """Dead letters of records that their group was never given: somebody else wrote these dead letters."""
    came_after: int = 0
    """Records of the dead letter topic that came after a dry run, and were not read."""
    shown: str = ""
    """Of a dry run: the text to pass as ``as_shown``."""
    not_dead_letters: int = 0
    """Records without the headers of a dead letter."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    """The first skipped records of each count, by its name, as topic-partition@offset in the dead letter topic."""
    unknown_names: list[str] = field(default_factory=list)
    """Names in ``where`` that no dead letter has, perhaps mistyped."""
    unsent: list[str] = field(default_factory=list)
    """After a failure: dead letters that were not sent, or may not have been sent, as topic-partition@offset in the
    dead letter topic."""

    def skip(self, kind: str, message: Message) -> None:
        """Count a record that is not sent; ``kind`` is the name of a count."""
        setattr(self, kind, getattr(self, kind) + 1)
        examples = self.examples.setdefault(kind, [])
        if len(examples) < EXAMPLES:
            examples.append(record_label(self.dlq_topic, message.partition() or 0, message.offset() or 0))

    def add(self, dead_letter: DeadLetter, target: str) -> None:
        self.sent += 1
        key = Sent(target, dead_letter.disposition, dead_letter.message)
        if key not in self.by_reason and len(self.by_reason) >= REASONS:
            key = Sent(target, "", OTHER_REASONS)
        self.by_reason[key] += 1


def record_label(topic: str, partition: int, offset: int) -> str:
    """Returns the record as ``topic-partition@offset``."""
    return f"{topic}-{partition}@{offset}"
