"""Distributes the tests among pytest-xdist's workers: a module's tests stay together."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

FIRST_WORKER = "gw0"


class TwoEndedScheduling(LoadScopeScheduling):
    """The first worker takes modules from the front of the collection, which compute; the others take modules from the
    back, which mostly wait for brokers and Spark. So both kinds run side by side, and the longest begin first."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.split("::", 1)[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node.gateway.id != FIRST_WORKER:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
