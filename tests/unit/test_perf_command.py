"""`sharegroup perf`: the pattern of outcomes, and the numbers of a line."""

from __future__ import annotations

import re
from collections import Counter
from itertools import accumulate, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.perf import HEADER, columns, outcomes
from tests.support.command_line import mistake

COMMAND = ["perf", "--bootstrap-server", "127.0.0.1:9", "--topic", "orders", "--num-records", "1"]


def test_a_pattern_has_each_outcome_as_often_as_its_share():
    first = Counter(islice(outcomes({"accept": 90, "release": 5, "reject": 5}), 1_000))
    assert first == {"accept": 900, "release": 50, "reject": 50}


@given(st.tuples(*[st.integers(0, 50)] * 3).filter(any))
def test_a_pattern_is_even_at_any_length(shares):
    given_shares = dict(zip(("accept", "release", "reject"), shares, strict=True))
    counts = accumulate(
        islice(outcomes(given_shares), 200), lambda n, outcome: n + Counter([outcome]), initial=Counter()
    )
    for length, count in enumerate(counts):
        for outcome, share in given_shares.items():
            assert abs(count[outcome] - length * share / sum(shares)) < 2
            assert share or not count[outcome]


def test_a_line_has_the_columns_of_the_header():
    line = columns(1_000, 2 * 1024 * 1024, 1_000.0, 1_004.0)
    times, values = re.fullmatch(r"((?:[-\d]+ [\d:]+, ){2})(.*)", line).groups()
    assert values == "2.0000, 0.5000, 250.0000, 1000, 4000"
    assert len(times.split(", ")[:-1] + values.split(", ")) == len(HEADER.split(", "))


@pytest.mark.parametrize("pattern", ["accept", "accept:x", "accept:1,accept:2", "renew:1", "accept:0", "accept:-1", ""])
def test_a_text_that_is_no_pattern_is_refused(pattern, capsys):
    said = mistake([*COMMAND, "--ack-pattern", pattern], capsys)
    assert "Invalid value for '--ack-pattern'" in said
