"""How the processes of a query ended since the query last completed a batch: what people see of a query that keeps
ending.

Rule: nothing is decided by it. A named error is what a process said of itself; a process that said nothing counts once
its successor joins and finds a batch that is not completed.
"""

from __future__ import annotations

from typing import NamedTuple

from coordinator.protocol.values import Count, Int64, Offset


class Ending(NamedTuple):
    """The ends of a query's processes since its last completed batch.

    times: how many processes ended. first_ms, last_ms: when the first and the last of them ended, by the wall clock.
    counted_epoch: the member epoch of the process that was counted last.
    epoch: the member epoch of the process whose error this is. error, text: its named error; empty: it said nothing.
    """

    times: Count = 0
    first_ms: Int64 = 0
    last_ms: Int64 = 0
    counted_epoch: Offset = 0
    epoch: Offset = 0
    error: str = ""
    text: str = ""


def after_end(before: Ending | None, epoch: int, now_ms: int) -> Ending:
    """The ending after the process of this member epoch has ended. A process that said its error keeps it."""
    ending = before or Ending()
    if epoch <= ending.counted_epoch:
        return ending
    ending = counted(ending, now_ms)._replace(counted_epoch=epoch)
    return ending if ending.epoch == epoch else ending._replace(epoch=epoch, error="", text="")


def after_success(before: Ending) -> Ending:
    """The ending after all tasks of a batch have succeeded: the error of a task was not its process's last."""
    if before.epoch <= before.counted_epoch:
        return before
    return before._replace(epoch=before.counted_epoch, error="", text="")


def counted(ending: Ending, now_ms: int) -> Ending:
    """The ending with one more process."""
    first_ms = ending.first_ms if ending.times else now_ms
    return ending._replace(times=ending.times + 1, first_ms=first_ms, last_ms=now_ms)
