"""The retry policy: how long a released record stays away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.config.resolved import GroupConfig
from coordinator.core.release_backoff import JITTER_STEPS, NO_DELAY, backoff, jitter_step, release_delay_ms


def policy(**values: object) -> GroupConfig:
    """share.release.backoff.* as given: ``ms``, ``multiplier``, ``max_ms``, ``jitter``."""
    keys = {"ms": "ms", "multiplier": "multiplier", "max_ms": "max.ms", "jitter": "jitter"}
    return GroupConfig.parse({f"share.release.backoff.{keys[name]}": str(value) for name, value in values.items()})


@pytest.mark.parametrize("by_query", [True, False])
def test_with_a_backoff_of_0_a_released_record_is_available_at_once(by_query: bool) -> None:
    config = policy(ms=0)
    assert release_delay_ms(config, 3, 0, by_query=by_query) == 0
    assert backoff(config, 3, 0, 1_000, by_query=by_query) == NO_DELAY


def test_by_default_a_querys_tries_take_minutes() -> None:
    config = policy(jitter=0)
    waits_ms = [release_delay_ms(config, release, 0, by_query=True) for release in (1, 2, 3, 4)]
    assert (waits_ms, sum(waits_ms)) == ([10_000, 20_000, 40_000, 80_000], 150_000)
    assert backoff(config, 1, 0, 1_000, by_query=False) == NO_DELAY


def test_jitter_spreads_to_both_sides_by_its_part() -> None:
    config = policy(ms=10_000, jitter=0.2)
    delays = [release_delay_ms(config, 1, step, by_query=True) for step in range(JITTER_STEPS)]
    assert delays == sorted(delays)
    assert (delays[0], delays[-1]) == (8_000, 12_000)
    assert len(set(delays)) == JITTER_STEPS


@given(
    st.integers(1, 86_400_000),
    st.floats(1, 10),
    st.integers(0, 86_400_000),
    st.floats(0, 1),
    st.integers(1, 10),
    st.integers(0, JITTER_STEPS - 1),
)
def test_any_backoff_lies_within_its_bounds(
    ms: int, multiplier: float, max_ms: int, jitter: float, releases: int, step: int
) -> None:
    config = policy(ms=ms, multiplier=multiplier, max_ms=max_ms, jitter=jitter)
    delay_ms = release_delay_ms(config, releases, step, by_query=True)
    grown_ms = ms * multiplier ** (releases - 1)
    assert min(int(grown_ms * (1 - jitter)) - 1, max_ms) <= delay_ms <= min(grown_ms * (1 + jitter) + 1, max_ms)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**45))
def test_jitter_is_the_same_for_the_same_record_and_time(first: int, now_ms: int) -> None:
    assert 0 <= jitter_step(first, now_ms) < JITTER_STEPS
    assert jitter_step(first, now_ms) == jitter_step(first, now_ms)


def test_every_step_of_the_jitter_occurs() -> None:
    assert {jitter_step(first, 1_000) for first in range(1_000)} == set(range(JITTER_STEPS))
    assert {jitter_step(7, now_ms) for now_ms in range(1_000)} == set(range(JITTER_STEPS))


def test_the_backoff_counts_from_now() -> None:
    config = policy(ms=5_000, jitter=0)
    assert backoff(config, 2, 77, 1_000_000, by_query=True) == (1_010_000, 10_000)
