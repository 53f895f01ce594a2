"""Decodes the body of a request: its head, which says whose request it is, and the request with its rows as values."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from coordinator.core.commands import StageRuns, with_facts
from coordinator.protocol.errors import InvalidRequest
from coordinator.protocol.messages import Acknowledge, Request, StageOutcomes
from coordinator.protocol.request_rows import read_rows, split_body
from coordinator.protocol.wire import WITH_ROWS, StepDown, decode_request


class Head(msgspec.Struct, frozen=True):
    """The fields of a request that are read before it is passed on."""

    group_id: str = ""
    wait_ms: int = 0


_head = msgspec.json.Decoder(Head)


def head_of(name: str, body: pa.Buffer) -> Head:
    """The head of a request. Empty if the request concerns no group or can't be read: its handler then refuses it."""
    if name == StepDown.__name__:
        return Head()
    try:
        return _head.decode(split_body(body)[0] if name in WITH_ROWS else memoryview(body))
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidRequest):
        return Head()


def request_of(name: str, body: pa.Buffer) -> Request[Any]:
    """Returns the request in the body, with its rows as values. Raises InvalidRequest if it can't be decoded."""
    if name not in WITH_ROWS:
        return decode_request(name, body.to_pybytes())
    # Imported here: pyarrow.compute costs 60 ms of the process's start.
    from coordinator.protocol import outcome_rows
    from coordinator.service.requests import acknowledged_rows

    text, rows = split_body(body)
    request = decode_request(name, text)
    if isinstance(request, StageOutcomes):
        outcomes = outcome_rows.partition_outcomes(read_rows(rows, outcome_rows.SCHEMA))
        return with_facts(StageRuns, request, partitions=outcomes)
    acks = acknowledged_rows.partition_acks(read_rows(rows, acknowledged_rows.SCHEMA))
    return with_facts(Acknowledge, request, partitions=acks)
