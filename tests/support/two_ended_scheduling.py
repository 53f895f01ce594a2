"""Distributes the tests among pytest-xdist's workers: a module's tests stay together, in a short run all with Spark."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.support.scopes import scope_of

FIRST_WORKER = "gw0"


class TwoEndedScheduling(LoadScopeScheduling):
    """The first worker takes modules from the front of the collection, which compute; the others take modules from the
    back, which mostly wait for brokers and Spark. So both kinds run side by side, and the longest begin first."""

    def schedule(self) -> None:
        self.config.option.loadscopereorder = False  # the order is the collection's, not that of the modules' sizes
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid, is_short=self.config.getoption("short", default=False))

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node.gateway.id != FIRST_WORKER:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test in which the worker ended, if there is one. The other workers run what was left for the
        worker, but not that test again: it is reported as failed, and would end the next worker too."""
        workload = self.assigned_work.pop(node)
        unfinished = {scope: unit for scope, unit in workload.items() if not all(unit.values())}
        if not unfinished:
            return None
        unit = next(iter(unfinished.values()))
        crashed = next(nodeid for nodeid, completed in unit.items() if not completed)
        unit[crashed] = True
        self.workqueue.update({scope: unit for scope, unit in unfinished.items() if not all(unit.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed
