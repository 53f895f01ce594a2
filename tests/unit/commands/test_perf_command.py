"""`sharegroup perf`: the pattern of outcomes, and the numbers of a line."""

from __future__ import annotations

import re
import time
from collections import Counter
from itertools import accumulate, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.date_format import time_format
from sharegroup.perf import HEADER, columns, outcomes


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


@pytest.fixture
def two_hours_east(monkeypatch):
    monkeypatch.setenv("TZ", "EET-2")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        ("yyyy-MM-dd HH:mm:ss:SSS", "2026-11-03 00:05:09:042"),
        ("yy/M/d H 'o''clock' ''a''", "26/11/3 0 o'clock 'AM'"),
        ("EEE, d MMM yyyy hh:mm Z", "Tue, 3 Nov 2026 12:05 +0200"),
        ("EEEE D MMMM kk K u z", "Tuesday 307 November 24 0 2 EET"),
        ("yyyyMMdd'T'HHmmss.SSS", "20261103T000509.042"),
        ("", ""),
    ],
)
def test_a_time_is_printed_by_javas_pattern(pattern, shown, two_hours_east):
    assert time_format(pattern)(1_793_657_109.042) == shown
