"""All known mistakes by name."""

from tests.mistakes import (  # noqa: F401 - each registers its mistakes
    dead_letters,
    durability,
    isolation,
    membership,
    on_demand,
    plans,
    reader,
    runtime,
    spark,
    staging,
    targets,
)
from tests.mistakes.mistake import REGISTERED, Mistake

MISTAKES: dict[str, Mistake] = dict(sorted(REGISTERED.items()))
