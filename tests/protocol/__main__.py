"""A walk as wide as you like: ``python -m tests.protocol --total 2 --crashes 2 --restarts 1 --expiries 1``.

What may go wrong is bounded by kind and in total; without ``--depth`` a walk ends when there is nothing left to walk. A
violation comes with the shortest way to it. ``--mistake NAME`` shows how a known mistake is found.
"""

import argparse
import sys

import pytest

from tests.mistakes.catalogue import MISTAKES
from tests.protocol.explorer import Walk
from tests.protocol.setting import Budget, Setting

IN_A_WORLD = [name for name, mistake in MISTAKES.items() if mistake.explorer]
KINDS = [kind for kind in Budget._fields[1:] if kind not in ("silences", "releases")]
"""What may go wrong without hosts, which no argument makes."""
AS_GIVEN = ("records", "limit", "base", "fetches", "releases", "rejects", "gives_back", "own_mode", "in_flight")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=None, help="steps at most (default: no bound)")
    parser.add_argument("--states", type=int, default=None, help="worlds at most (default: no bound)")
    parser.add_argument("--records", type=int, default=2)
    parser.add_argument("--most", default="2,1", help="each query's maxOffsetsPerTrigger (default: 2,1)")
    parser.add_argument("--limit", type=int, default=5, help="share.delivery.count.limit")
    parser.add_argument("--base", type=int, default=100_000, help="share.isolation.base")
    parser.add_argument("--fetches", type=int, default=0, help="of a ShareConsumer (default: there is none)")
    parser.add_argument("--releases", action="store_true", help="the ShareConsumer may release, too")
    parser.add_argument(
        "--sink", default="", help="what a sink may say of a record, such as accept,release (default: none)"
    )
    parser.add_argument("--rejects", type=int, default=0, help="offsets, as bits, that it always rejects")
    parser.add_argument("--gives-back", type=int, default=0, help="offsets, as bits, that it always releases")
    parser.add_argument("--own-mode", action="store_true", help="queries name their acknowledgement mode themselves")
    parser.add_argument("--in-flight", type=int, default=0, help="share.max.in.flight.records (default: no limit)")
    parser.add_argument("--go-on-after-loss", action="store_true", help="failOnDataLoss=false")
    parser.add_argument("--total", type=int, default=1, help="how much may go wrong in one run, all kinds together")
    for kind in KINDS:
        parser.add_argument(f"--{kind}", type=int, default=1, help="of these at most")
    parser.add_argument("--mistake", choices=IN_A_WORLD, help="make it, in its own world")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    setting = Setting(
        most=tuple(int(most) for most in given.most.split(",")),
        fail_on_data_loss=not given.go_on_after_loss,
        sink=tuple(filter(None, given.sink.split(","))),
        **{name: getattr(given, name) for name in AS_GIVEN},
    )
    budget = Budget(given.total, **{kind: getattr(given, kind) for kind in KINDS})
    with pytest.MonkeyPatch.context() as patch:
        if given.mistake:
            mistake = MISTAKES[given.mistake]
            mistake.make(patch)
            setting, budget = mistake.explorer[0]
        walk = Walk(setting=setting, budget=budget, depth=given.depth, most_states=given.states)
        print(f"walking: {setting}; {budget}", flush=True)
        walk.run()
    print(walk)
    print(walk.story() if walk.broken else "nothing found")
    return 1 if walk.broken else 0


if __name__ == "__main__":
    sys.exit(main())
