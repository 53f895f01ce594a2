"""The digest in a row's column ``receipt``, which says to which topic and incarnation of a group the row belongs.

The source computes one digest for a range of records. A sink compares each row's digest with those of the topics that
its group knows, so a row alone is enough to tell whose it is (docs/adr/0041)."""

from __future__ import annotations

import hashlib

_SIZE = 8
"""A digest has this many bytes, so two topics have the same one with a probability of 2^-64."""


def receipt_digest(group_id: str, incarnation: str, topic_id: str) -> int:
    """The digest as a signed 64-bit number. Neither an incarnation nor a topic id has a NUL, so different arguments
    make different texts. Never change this function: rows in flight have its results."""
    text = "\0".join((incarnation, topic_id, group_id))
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:_SIZE], "big", signed=True)


def incarnation_of(plan_id: str) -> str:
    """The incarnation in a plan id (``INCARNATION.n``)."""
    return plan_id.rpartition(".")[0]
