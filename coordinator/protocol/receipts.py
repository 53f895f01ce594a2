"""The digest in a row's column ``receipt``: which topic of which group's incarnation the row is of.

The source computes one digest for a range of records, and a sink compares each row's with those of the topics that its
group knows. So a sink knows from a row alone whose it is (docs/adr/0041).
"""

from __future__ import annotations

import hashlib

_SIZE = 8
"""Bytes of the digest: two topics have the same one with a probability of 2^-64."""


def receipt_digest(group_id: str, incarnation: str, topic_id: str) -> int:
    """The digest, as a signed 64-bit number. Neither an incarnation nor a topic id has a NUL, so different arguments
    make different texts. It never changes, since rows in flight hold it."""
    text = "\0".join((incarnation, topic_id, group_id))
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:_SIZE], "big", signed=True)


def incarnation_of(plan_id: str) -> str:
    """The group's incarnation that a plan id (``INCARNATION.n``) names."""
    return plan_id.rpartition(".")[0]
