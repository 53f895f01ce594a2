"""All known mistakes by name."""

from tests.mistakes import (  # noqa: F401 - each registers its mistakes
    accounts,
    administration,
    ahead,
    assignment,
    breaker,
    dead_letters,
    deferrals,
    durability,
    flow,
    forgetting,
    hosts,
    isolation,
    membership,
    on_demand,
    order,
    owners,
    placement,
    plans,
    progress,
    reader,
    rights,
    runtime,
    settings,
    spark,
    staging,
    targets,
    topics,
    ttl,
)
from tests.mistakes.mistake import REGISTERED, Mistake

MISTAKES: dict[str, Mistake] = dict(sorted(REGISTERED.items()))
