"""``python -m tests.chaos --minutes 30 --seed 7``, or ``make chaos MINUTES=30``. Exit status 1 for a broken promise."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos.chaos_world import World
from tests.support.kafka_broker import KafkaBroker


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sharegroup-chaos-"))
    print(f"seed {given.seed}, {given.minutes} minutes, logs in {folder}", flush=True)
    with KafkaBroker() as broker, World(folder, given.seed, broker) as world:
        world.run(given.minutes * 60)
        world.drain()
        result = world.reckon()
    print(result)
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
