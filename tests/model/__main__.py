"""A long walk: ``python -m tests.model --steps 1000000 --seed 1``. Each walk of 2,000 steps has the next seed. From
seed 10**9 on, the groups are in order by partition. From seed 2 * 10**9 on, sinks defer records too, and from 3 * 10**9
on the groups are in order again. From 4 * 10**9 on, the groups have limits on what is acquired."""

import argparse
import random
import sys
import time
from collections import Counter

from tests.model.walk import Walk

STEPS = 2_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    arguments = parser.parse_args()
    began, seen, done = time.monotonic(), Counter(), 0
    print(f"seed {arguments.seed}")
    for seed in range(arguments.seed, arguments.seed + max(1, arguments.steps // STEPS)):
        walk = Walk(seed)
        try:
            walk.run(STEPS)
        except BaseException:
            print(f"--seed {seed} --steps {STEPS}: step {len(walk.trace)}; the last ones:")
            print("\n".join(walk.trace[-12:]))
            raise
        seen += walk.seen
        done += STEPS
    seconds = time.monotonic() - began
    print(dict(seen.most_common()))
    print(f"{done} steps from seed {arguments.seed}, nothing found, {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
