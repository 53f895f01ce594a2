"""Completes the last batch of a finished AvailableNow run, from the driver's program.

Spark 4.0 and 4.1 do not tell the source that this batch was committed; otherwise the next run of the query completes it
(docs/run/spark.md, "Which Spark has what"). The query's progress names the end of the last committed batch, since Spark
reports a batch after it has written ``commits/N`` (docs/trust/facts.md, S28)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from coordinator.protocol.errors import StalePlan
from coordinator.protocol.messages import NextPlan
from share_source.driver import plan_reader
from share_source.driver.other_sources import is_ours
from share_source.driver.plan_offset import PlanOffset
from share_source.errors import ForeignCheckpoint, QueryStillRuns
from share_source.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def complete_run(query: StreamingQuery, options: Mapping[str, str]) -> list[str]:
    """Complete the last committed batch of a query that has ended. ``options``: those of the query's source. Returns
    the ids of the completed plans, one for each source of the group in the query; none if this run committed no batch,
    or stopped in a later batch. A second call, or a call on a newer Spark, changes nothing.

    Raises:
        TypeError: ``query`` is no query, or ``options`` are no mapping.
        QueryStillRuns: the query has not ended; its own reader will complete the batch.
        ForeignCheckpoint: the query's sources are of other groups.
        ShareGroupError: an option is wrong, or the coordinator refuses the request."""
    if not hasattr(query, "lastProgress"):
        raise TypeError(f"complete_run takes the query that has ended, as start() returns it, and no {_kind(query)}")
    if not isinstance(options, Mapping):
        raise TypeError(f"options are those of the query's source, as a dict, and no {_kind(options)}")
    parsed = SourceOptions.parse(options)
    if query.isActive:
        raise QueryStillRuns(query=query.name or str(query.id))
    ends = _ends(query.lastProgress, parsed.group_id)
    return [end.plan_id for end in ends if _complete(parsed, end)]


def _kind(given: object) -> str:
    return type(given).__name__


def _complete(options: SourceOptions, end: PlanOffset) -> bool:
    """Returns whether the plan is complete. It is not if the query has begun a later plan."""
    session = plan_reader.open_session(options, end.member_id)
    completed = False
    try:
        # ``until={}`` names no end offset, so the request acquires no next plan. Before the coordinator can complete
        # the plan, it may have to read much of the log: then the request is sent again.
        while session.call(lambda who: NextPlan(**who, start=end.plan_id, wait_ms=0, until={})).undecided_left:
            pass
        completed = True
    except StalePlan:
        completed = False
    finally:
        session.close(leave=completed)  # a batch that is not completed: the query may come back while its session lasts
    return completed


def _ends(progress: Any, group_id: str) -> list[PlanOffset]:
    if progress is None:
        return []
    report = json.loads(progress.json)
    found = [json.loads(text) if isinstance(text := source["endOffset"], str) else text for source in report["sources"]]
    ours = [end for end in found if is_ours(end)]
    groups = [str(end["group"]) for end in ours]
    if groups and group_id not in groups:
        raise ForeignCheckpoint(group_id=group_id, checkpoint_group_id=groups[0])
    ends = [PlanOffset.parse(end, group_id) for end in ours if end["group"] == group_id]
    return [end for end in ends if end.plan_id]
