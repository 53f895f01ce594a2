"""A line is logged again only after what it reports has changed."""

from __future__ import annotations

import logging
import pickle

from coordinator.protocol.repeated_lines import LogOnce


def test_a_value_changes_once_until_it_is_another_one() -> None:
    once = LogOnce(logging.getLogger("once"))
    values = ["", "a", "a", "b", "", "", "b"]
    assert [once.changes("reason", value) for value in values] == [False, True, False, True, True, False, True]
    assert not once.changes("other", []), "what was never reported is empty"


def test_a_pickled_copy_reports_anew() -> None:
    once = LogOnce(logging.getLogger("once"))
    assert once.changes("reason", "a")
    assert pickle.loads(pickle.dumps(once)).changes("reason", "a")
