"""What a redrive did, in numbers, and in names where somebody has to look."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from confluent_kafka import Message

from share_sink.redrive.dlq_reader import DeadLetter

EXAMPLES = 10
"""So many of the skipped letters are named, of each kind."""
REASONS = 1_000
"""So many reasons are counted apart."""
OTHER_REASONS = "(other reasons)"


@dataclass(frozen=True, order=True)
class Sent:
    """What letters have in common that are sent: where to, and why they were dead."""

    topic: str
    disposition: str
    message: str


@dataclass(kw_only=True)
class RedriveReport:
    """What a redrive did, or would do. Each letter read is counted once."""

    dlq_topic: str
    dry_run: bool
    read: int = 0
    sent: int = 0
    """Acknowledged by the target's brokers; in a dry run: would be sent."""
    by_reason: Counter[Sent] = field(default_factory=Counter)
    """The same, by target and reason."""
    not_selected: int = 0
    doubles: int = 0
    """Further letters of a record that is sent."""
    redriven_too_often: int = 0
    without_record: int = 0
    """Headers only: there is nothing to send."""
    not_dead_letters: int = 0
    """Records without the headers of a dead letter."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    """By the name of a count of what is skipped: the first ones, as they lie in the dead letter topic."""
    unsent: list[str] = field(default_factory=list)
    """When it stopped: letters of which it is not known that they were sent, as they lie in the dead letter topic."""

    def skip(self, kind: str, message: Message) -> None:
        """Count a record that is not sent; ``kind`` is the name of a count."""
        setattr(self, kind, getattr(self, kind) + 1)
        known = self.examples.setdefault(kind, [])
        if len(known) < EXAMPLES:
            known.append(place(self.dlq_topic, message.partition() or 0, message.offset() or 0))

    def add(self, letter: DeadLetter, target: str) -> None:
        """Count a letter that is sent."""
        self.sent += 1
        key = Sent(target, letter.disposition, letter.message)
        if key not in self.by_reason and len(self.by_reason) >= REASONS:
            key = Sent(target, "", OTHER_REASONS)
        self.by_reason[key] += 1


def place(topic: str, partition: int, offset: int) -> str:
    """RecordFilter a record lies, as a person reads it."""
    return f"{topic}-{partition}@{offset}"
