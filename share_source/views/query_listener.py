"""A listener that logs a line for each batch of the session's sharegroup queries: what the batch acquired, and the
state of its share group. It also warns if a watermark dropped rows of a batch.

Rule: no query fails or waits because of the listener. Spark calls it beside the queries, and the line says if a
coordinator does not answer."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from coordinator.admin.admin import Admin
from coordinator.admin.arguments import connection
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.messages import GroupDescription
from share_source.driver.plan_offset import PlanOffset

TIMEOUT_MS = 3_000
"""The listener waits this many milliseconds for the brokers, and then for a coordinator, while other listeners wait."""

WARN_EVERY_S = 60.0
"""Two warnings about rows of one query that watermarks dropped are at least this many seconds apart, since a query may
drop rows in each batch."""

_log = logging.getLogger(__name__)


@dataclass
class _Dropped:
    """The rows that watermarks dropped since the last warning, and the last batch that was counted."""

    batch: tuple[Any, Any] | None = None
    rows: int = 0
    silent_until_s: float = 0.0


class ShareGroupListener(StreamingQueryListener):
    """A StreamingQueryListener for ``spark.streams.addListener``. ``conf`` is Admin's: bootstrap.servers and
    librdkafka's other properties, and share.coordinator.* and share.state.store with the queries' values."""

    def __init__(self, conf: Mapping[str, object]) -> None:
        connection(conf)
        self._conf = dict(conf)
        self._admin: Admin | None = None
        self._dropped: dict[str, _Dropped] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._admin!r}>"

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Does nothing: the source logs a line when its query starts."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        report = json.loads(event.progress.json)
        self._warn_dropped(report)
        for source in report["sources"]:
            offset, before = _offset(source["endOffset"]), _offset(source["startOffset"])
            if offset is None:
                continue
            is_new = before is None or before.plan_id != offset.plan_id
            acquired, redelivered = acquired_records(offset) if is_new else (0, 0)
            _log.info(
                "query progress: group=%s member=%s query=%s batch=%d acquired=%d redelivered=%d %s",
                *(offset.group_id, offset.member_id, report.get("name") or report["id"], report["batchId"]),
                *(acquired, redelivered, self._where(offset.group_id)),
            )

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Does nothing: an idle query has acquired nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self._dropped.pop(str(event.id), None)

    def _warn_dropped(self, report: Mapping[str, Any]) -> None:
        """Warn that the watermark dropped rows, at most once per WARN_EVERY_S and query; the next warning includes the
        batches between. A batch counts once: Spark reports an idle query's last batch again (seen)."""
        query, batch = str(report["id"]), (report.get("runId"), report["batchId"])
        groups = sorted({offset.group_id for source in report["sources"] if (offset := _offset(source["endOffset"]))})
        rows = sum(operator.get("numRowsDroppedByWatermark", 0) for operator in report.get("stateOperators", ()))
        dropped = self._dropped.setdefault(query, _Dropped())
        if not groups or not rows or dropped.batch == batch:
            return
        dropped.batch, dropped.rows = batch, dropped.rows + rows
        if time.monotonic() < dropped.silent_until_s:
            return
        _log.warning(
            "share group %s, batch %d of query %s: the watermark dropped %d row(s). Their records count as accepted: "
            "the group does not deliver them again. A record that is delivered again is often older than the "
            "watermark: make the watermark's delay longer than the redeliveries take, or aggregate in a table that the "
            "query writes to (docs/learn/event-time.md)",
            *(", ".join(groups), report["batchId"], report.get("name") or query, dropped.rows),
        )
        dropped.rows, dropped.silent_until_s = 0, time.monotonic() + WARN_EVERY_S

    def _where(self, group_id: str) -> str:
        try:
            if self._admin is None:
                self._admin = Admin(self._conf, timeout_ms=TIMEOUT_MS)
            return where(self._admin.describe_groups([group_id])[group_id])
        except ShareGroupError as error:
            return f"(where the group stands is not known: {error})"


def acquired_records(offset: PlanOffset) -> tuple[int, int]:
    """Returns how many records the plan has, and how many of them had been acquired before."""
    ranges = [each for partition in offset.partitions() for each in partition.ranges]
    counts = [(each.last - each.first + 1, each.delivery_count > 1) for each in ranges]
    return sum(count for count, _ in counts), sum(count for count, again in counts if again)


def where(group: GroupDescription) -> str:
    """Returns the group's part of the line: lag, records in flight, archived records, waiting dead letters."""
    known = sum(p.lag for p in group.partitions if p.lag is not None)
    lag = f"at least {known}" if group.lag is None else str(known)
    held, waiting, archived = (
        sum(getattr(p, name) for p in group.partitions) for name in ("acquired", "archiving", "given_up")
    )
    return f"lag={lag} in flight={held} archived={archived} dead letters waiting={waiting}"


def _offset(logged: str | Mapping[str, Any] | None) -> PlanOffset | None:
    """Returns this source's offset; None if another source wrote it, or if there is none yet."""
    try:
        found = json.loads(logged) if isinstance(logged, str) else logged
        return PlanOffset.parse(found, str(found["group"])) if found else None
    except (ValueError, TypeError, KeyError, ShareGroupError):
        return None
