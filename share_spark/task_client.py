"""The coordinator's client in a task of a query, by the plan that the task belongs to. It starts no coordinator."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from coordinator.client.client import CoordinatorClient
from coordinator.client.endings import ANSWER_S, ending_of, soon
from coordinator.client.endpoints import Endpoints
from coordinator.client.on_demand import RunningHere
from coordinator.protocol.errors import ShareGroupError
from share_spark.task_plans import TaskPlan


def client_of(plan: TaskPlan) -> CoordinatorClient:
    """Returns the client, which a process keeps. It connects nowhere yet."""
    return _client(tuple(sorted(plan.configs.items())), plan.cluster_id, plan.state_store)


@lru_cache(maxsize=8)
def _client(configs: tuple[tuple[str, str], ...], cluster_id: str, state_store: str) -> CoordinatorClient:
    directory = here(cluster_id, state_store) if state_store else Endpoints.of(dict(configs))
    return CoordinatorClient(directory, retry_timeout_s=0.0)


def here(cluster_id: str, state_store: str) -> RunningHere:
    """Returns how to find this host's coordinator on demand, which another process starts."""
    return RunningHere(bootstrap_servers="", kafka_config={}, cluster_id=cluster_id, state_store=state_store)


def tell_task_error(plans: Iterable[TaskPlan], error: ShareGroupError) -> None:
    """Tell the groups of these plans that a task fails with the error, within seconds. Spark may try the task again, so
    it counts once its query has ended. Nothing is raised."""

    def tell() -> None:
        for plan in plans:
            who = {"member_id": plan.member_id, "member_epoch": plan.member_epoch, "is_over": False}
            said = ending_of(plan.group_id, error, **who)
            client_of(plan).ask(said, plan.group_id, once=True, answer_timeout_s=ANSWER_S)

    soon(tell)
