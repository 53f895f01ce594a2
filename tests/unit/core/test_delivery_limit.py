"""The delivery count and its limit (KIP-932, In-flight records; KIP-1240)."""

from __future__ import annotations

from tests.support.group_driver import SESSION_MS, GroupDriver, fetched


def test_limits_compare_tries_never_the_delivery_count() -> None:
    group = GroupDriver(records=10)
    for _ in range(20):
        group.join()
        group.next()
    group.pass_time(SESSION_MS + 1)
    group.join("c1", query=False)
    assert fetched(group, 10) == [(0, 9, 21)], "not throttled: no try was made"
    group.pass_time(31_000)
    assert group.dump() == ["[0..9] AVAILABLE 21 1 2"], "not archived either"
