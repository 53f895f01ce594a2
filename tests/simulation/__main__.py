"""Poison runs from the command line: ``python -m tests.simulation --runs 3000 --seed 0``."""

import argparse
import sys
import time

from tests.simulation.poison import Scenario, play


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0, help="the first run's; each run has the next one")
    arguments = parser.parse_args()
    began, failed, most = time.monotonic(), 0, 0
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        try:
            run = play(Scenario.of(seed))
            most = max(most, run.failures - run.outage_failures)
        except AssertionError as error:
            failed += 1
            print(f"seed {seed}: {error}\n")
    seconds = time.monotonic() - began
    print(f"{arguments.runs} runs from seed {arguments.seed}: {failed} failed, {seconds:.0f} s, most restarts {most}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
