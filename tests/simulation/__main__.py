"""Simulations from the command line, for as long as one likes.

``python -m tests.simulation poison --runs 3000 --seed 0``, or ``python -m tests.simulation service --seeds 3000``.
A run that fails prints its seed; ``service --seed N --seeds 1 --trace`` plays it again, with all that happened.
``python -m tests.simulation load`` prints how many queries coordinators carry (docs/trust/benchmarks.md, "Many
queries").
"""

import argparse
import functools
import sys
import time
from collections.abc import Callable

from tests.simulation import load_table, poison, service, service_play
from tests.simulation.load import Load
from tests.simulation.service_scenario import KINDS


def play_poison(seed: int, trace: bool) -> int:
    """Restarts that a run took."""
    run = poison.play(poison.Scenario.of(seed))
    return run.failures - run.outage_failures


def play_service(seed: int, trace: bool, faults: str = "") -> int:
    """Events of a run."""
    run = service.ServiceRun(KINDS[faults](seed))
    try:
        service_play.finish(run)
    finally:
        if trace:
            print(service_play.trace(run))
    return run.world.events


def play_all(play: Callable[[int, bool], int], first: int, count: int, what: str, *, trace: bool = False) -> int:
    """Each seed from ``first`` on; 1 if one failed."""
    print(f"seeds {first} to {first + count - 1}", flush=True)
    began, failed, most = time.monotonic(), [], 0
    for seed in range(first, first + count):
        try:
            most = max(most, play(seed, trace))
        except AssertionError as error:
            failed.append(seed)
            print(f"seed {seed}: {error}\n", flush=True)
    seconds = time.monotonic() - began
    print(f"{count} runs from seed {first}: {len(failed)} failed {failed[:20]}, {seconds:.0f} s, most {what} {most}")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind, count in (("poison", "--runs"), ("service", "--seeds")):
        options = kinds.add_parser(kind)
        options.add_argument(count, dest="count", type=int, default=1_000)
        options.add_argument("--seed", type=int, default=0, help="the first run's; each run has the next one")
        options.add_argument("--trace", action="store_true", help="service: print all that happened")
        if kind == "service":
            options.add_argument("--faults", choices=sorted(KINDS), default="", help="see tests/simulation/faults.py")
    options = kinds.add_parser("load")
    options.add_argument("--queries", type=int, default=1_000)
    options.add_argument("--in-a-group", type=int, default=10, help="queries that share a group")
    options.add_argument("--partitions", type=int, default=50, help="of each group's topics")
    options.add_argument("--coordinators", type=int, nargs="+", default=list(load_table.COORDINATORS))
    words = sys.argv[1:]
    if not words or words[0] in ("--runs", "--seed"):  # as it was before there was another kind
        words = ["poison", *words]
    arguments = parser.parse_args(words)
    if arguments.kind == "load":
        load = Load(queries=arguments.queries, in_a_group=arguments.in_a_group, partitions=arguments.partitions)
        for line in load_table.lines(load, arguments.coordinators):
            print(line, flush=True)
        print(f"\n{load_table.check_line()}")
        return 0
    play, what = (play_poison, "restarts") if arguments.kind == "poison" else (play_service, "events")
    if getattr(arguments, "faults", ""):
        play = functools.partial(play_service, faults=arguments.faults)
    return play_all(play, arguments.seed, arguments.count, what, trace=arguments.trace)


if __name__ == "__main__":
    sys.exit(main())
