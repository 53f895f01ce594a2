"""The breaker on releases."""

from __future__ import annotations

from typing import Any

from coordinator.core import replay
from coordinator.core.commands import acquire_for_query as acquire_plan
from coordinator.core.commands import complete_plan
from coordinator.core.log_records import MemberProgressKept
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, Seeds, mistake

OF = "core/test_release_breaker::test_"


@mistake(rules.BREAKER_PAUSES, model=1)
def acquire_at_once_though_the_breaker_is_open(patch: Patch) -> None:
    patch.setattr(acquire_plan, "pause_ms", lambda breaker, config, now_ms: 0)


@mistake(rules.BREAKER_PAUSES, model=1)
def try_a_whole_batch_while_the_breaker_is_open(patch: Patch) -> None:
    patch.setattr(acquire_plan, "PROBE_RECORDS", 1_000_000)


@mistake(rules.BREAKER_PAUSES, model=0)
def try_only_what_was_released_while_the_breaker_is_open(patch: Patch) -> None:
    patch.setattr(acquire_plan, "most_returned", lambda most, config: most)


@mistake(rules.BREAKER_PAUSES, model=0)
def forget_the_breaker_in_a_snapshot(patch: Patch) -> None:
    right = replay._REPLAY[MemberProgressKept]

    def kept(group: Any, record: MemberProgressKept) -> None:
        right(group, record)
        group.members[record.member_id].breaker = None

    patch.setitem(replay._REPLAY, MemberProgressKept, kept)


@mistake(rules.BREAKER_KEEPS_TRIES, simulator=(Seeds("outages", 2),), model=0)
def use_up_tries_while_the_breaker_is_open(patch: Patch) -> None:
    right = complete_plan.judged
    patch.setattr(complete_plan, "judged", lambda *args, **facts: (right(*args, **facts)[0], False))


@mistake(rules.BREAKER_KEEPS_TRIES, model=0)
def use_up_a_try_with_each_query_of_the_service(patch: Patch) -> None:
    right = complete_plan.judged
    patch.setattr(complete_plan, "judged", lambda *args, **facts: right(*args, **{**facts, "others": ()}))


@mistake(rules.BREAKER_KEEPS_TRIES, model=1)
def take_a_veto_for_an_outage(patch: Patch) -> None:
    patch.setattr(complete_plan._Completion, "_blames_the_service", lambda self, run, verdict: True)
