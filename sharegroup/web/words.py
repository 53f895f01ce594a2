"""The page's own words for errors whose texts are written for the command line.

Rule: no error on the page names a command or a flag; it names what the page has."""

from __future__ import annotations

import re
from collections.abc import Mapping

from coordinator.protocol.errors import MAX_SHOWN as MOST_SHOWN
from coordinator.protocol.errors import ShareGroupError
from sharegroup.web.errors import BadRequest
from sharegroup.web.texts import clean

_IN_USE = (
    "Stop its queries and ShareConsumers; the session of one that is gone ends by itself after "
    "share.session.timeout.ms, or at once with “End session…” beside it, under Members. Then fill in this form again."
)
_OWN: Mapping[str, str] = {
    "GroupNotEmpty": "Share group {group_id} has {members} member(s) with a session. " + _IN_USE,
    "MembersNotKnown": "The coordinator has just loaded share group {group_id}, and does not know yet whether "
    "{members} member(s) without records are still there. They have {wait_ms} ms more to send a request: try again "
    "after that.",
    "DeadLettersNotWritten": "{count} record(s) of share group {group_id} are given up, and their dead letters are not "
    "written yet: the dead letters would be lost. Wait until the dead letter topic has them, or name another dead "
    "letter topic.",
    "DeadLetterTopicInUse": "{count} record(s) of share group {group_id} wait until their dead letters are written to "
    "topic {topic}. Without errors.deadletterqueue.topic.name the records would get none. Wait until the dead letters "
    "are written, or name another topic.",
    "DeadLetterTopicMissing": "Dead letter topic {topic} does not exist in the Kafka cluster at {addresses}. Name "
    "another one, or let it be created: “create it”, or errors.deadletterqueue.auto.create.topics.enable=true.",
    "NotAllowed": "This needs a token with the right {needed}, and the session's has {given}. Sign out, and sign in "
    "with such a token.",
    "NotAuthorized": "The coordinator does not know the session's token any more. Sign out, and sign in with another.",
    "MemberNotFound": "Share group {group_id} has no member {member_id}. Its page lists its members.",
    "UnknownSharePartition": "Share group {group_id} has no state of {partition}. Its page lists its partitions.",
}
"""The page's texts, by the error's name."""
OF_COMMANDS = re.compile(
    r"(?:^|[\s(`])--?[a-z][\w-]+|\.sh\b|\bforced?\b|"
    r"\bsharegroup (?:check|configs|consume|coordinator|demo|dlq|doctor|groups|in-flight|perf|top|web)\b"
)
"""Finds what only a command line has: a flag, a command, or the word "force"."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def said(error: Exception) -> str:
    """Returns the error's sentences in the page's words, without sentences about commands."""
    own = _OWN.get(type(error).__name__)
    if own is not None and isinstance(error, ShareGroupError):
        return own.format_map({name: clean(str(value)[:MOST_SHOWN]) for name, value in error.fields.items()})
    sentences = _SENTENCE.split(str(error))
    kept = [each for each in sentences if not OF_COMMANDS.search(each)]
    return " ".join(kept or [OF_COMMANDS.sub("", each) for each in sentences])


def told(error: Exception) -> str:
    """Returns the error's name and its sentences."""
    return said(error) if isinstance(error, BadRequest) else f"{type(error).__name__}: {said(error)}"
