"""The errors of the ShareConsumer, as the exceptions that confluent_kafka.ShareConsumer raises.

Rule: a program that catches confluent's exceptions catches these. A named error of sharegroup is the cause of the
KafkaException that reports it."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import IllegalStateException, KafkaError, KafkaException

from coordinator.protocol.errors import ShareGroupError, in_words_of_clients


class WakeupException(ShareGroupError):
    """wakeup() was called: poll() returned early. Records that were on their way come with the next poll()."""


class SignalInImplicitMode(ShareGroupError, IllegalStateException):
    """Failed to mark message: in implicit mode the next poll accepts the record. To use mark_in_progress, set
    share.acknowledgement.mode=explicit."""


class NoteInImplicitMode(ShareGroupError, IllegalStateException):
    """Failed to acknowledge: in implicit mode the next poll accepts the record. To reject with a reason, or to release
    with delay_ms or release_at, set share.acknowledgement.mode=explicit."""


class RecordNotInFlight(ShareGroupError, IllegalStateException):
    """Failed to mark message: this ShareConsumer has no record {record} in flight. Its outcome was sent, or another
    consumer has polled it."""


class RecordHasOutcome(ShareGroupError, IllegalStateException):
    """Failed to mark message: record {record} has its outcome, which the next poll or commit sends. Mark a record
    before it is acknowledged."""


def kafka_exception(error: ShareGroupError, code: int | None = None) -> KafkaException:
    """Returns a KafkaException whose KafkaError has the named error's text, and ``code``; None: Kafka's own code."""
    number = getattr(KafkaError, error.kafka_error, KafkaError.UNKNOWN) if code is None else code
    text = in_words_of_clients(f"{type(error).__name__}: {error}")
    raised = KafkaException(KafkaError(number, text, retriable=error.retriable))
    raised.__cause__ = error
    return raised


def of_code(name: str, text: str | None = None) -> KafkaException:
    """Returns the exception for one of Kafka's error codes, by its name. ``text`` None: librdkafka's text for it."""
    code = getattr(KafkaError, name, KafkaError.UNKNOWN)
    return KafkaException(KafkaError(code) if text is None else KafkaError(code, text))


def one_of(errors: Sequence[Exception]) -> Exception:
    """Returns one exception for one or more exceptions: the first one if all have the same text, else a KafkaException
    with the first one's code and all texts."""
    kafka = [error.args[0] for error in errors if isinstance(error, KafkaException)]
    texts = list(dict.fromkeys(e.args[0].str() if isinstance(e, KafkaException) else repr(e) for e in errors))
    if len(texts) == 1:
        return errors[0]
    first = kafka[0] if kafka else KafkaError(KafkaError.UNKNOWN)
    told = KafkaException(KafkaError(first.code(), "; ".join(texts), retriable=first.retriable()))
    told.__cause__ = errors[0]
    return told
