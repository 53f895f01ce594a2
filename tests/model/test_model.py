"""The engine against the naive model, on random walks. Longer: ``python -m tests.model --steps 1000000``."""

from __future__ import annotations

import random

import pytest

from tests.model.walk import Walk

STEPS = 1_500


@pytest.mark.parametrize("walk", range(10))
def test_the_engine_does_what_the_model_does(walk: int) -> None:
    seed = random.randrange(10**9) if walk else 1
    print(f"python -m tests.model --seed {seed} --steps {STEPS}")
    one = Walk(seed)
    try:
        one.run(STEPS)
    except AssertionError:
        print("\n".join(one.trace[-12:]))
        raise


def test_a_walk_meets_everything() -> None:
    """Every kind of command is taken, and refused, somewhere on the way."""
    seen = Walk(7)
    seen.run(3_000)
    kinds = ("join", "heartbeat", "acquire", "use", "complete", "leave")
    assert all(seen.seen[kind] and seen.seen[f"{kind} refused"] for kind in kinds), seen.seen
    assert seen.seen["acknowledgement taken"]
    assert seen.seen["acknowledgement refused"]
    assert seen.seen["fetch"]
    assert seen.seen["loss told"]
    assert seen.seen["lost, and held by nobody"]
    assert seen.seen["given up, and logged"]
