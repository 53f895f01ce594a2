"""Simulations from the command line, for as long as one likes.

``python -m tests.simulation service --seeds 3000`` plays the service from seed 0 on. A run that fails prints its seed;
``service --seed N --seeds 1 --trace`` plays it again, with all that happened.
``python -m tests.simulation load`` prints how many queries coordinators carry (docs/trust/benchmarks.md, "Many
queries").
"""

import argparse
import sys
import time

from tests.simulation import load_table, service, service_play
from tests.simulation.load import Load
from tests.simulation.service_scenario import KINDS


def play(seed: int, faults: str, *, trace: bool) -> int:
    """Events of a run."""
    run = service.ServiceRun(KINDS[faults](seed))
    try:
        service_play.finish(run)
    finally:
        if trace:
            print(service_play.trace(run))
    return run.world.events


def play_all(first: int, count: int, faults: str, *, trace: bool) -> int:
    """Each seed from ``first`` on; 1 if one failed."""
    print(f"seeds {first} to {first + count - 1}", flush=True)
    began, failed, most = time.monotonic(), [], 0
    for seed in range(first, first + count):
        try:
            most = max(most, play(seed, faults, trace=trace))
        except AssertionError as error:
            failed.append(seed)
            print(f"seed {seed}: {error}\n", flush=True)
    seconds = time.monotonic() - began
    print(f"{count} runs from seed {first}: {len(failed)} failed {failed[:20]}, {seconds:.0f} s, most events {most}")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    options = kinds.add_parser("service")
    options.add_argument("--seeds", type=int, default=1_000)
    options.add_argument("--seed", type=int, default=0, help="the first run's; each run has the next one")
    options.add_argument("--trace", action="store_true", help="print all that happened")
    options.add_argument("--faults", choices=sorted(KINDS), default="", help="see tests/simulation/faults.py")
    options = kinds.add_parser("load")
    options.add_argument("--queries", type=int, default=1_000)
    options.add_argument("--in-a-group", type=int, default=10, help="queries that share a group")
    options.add_argument("--partitions", type=int, default=50, help="of each group's topics")
    options.add_argument("--coordinators", type=int, nargs="+", default=list(load_table.COORDINATORS))
    given = parser.parse_args()
    if given.kind == "service":
        return play_all(given.seed, given.seeds, given.faults, trace=given.trace)
    load = Load(queries=given.queries, in_a_group=given.in_a_group, partitions=given.partitions)
    for line in load_table.lines(load, given.coordinators):
        print(line, flush=True)
    print(f"\n{load_table.check_line()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
