"""The last transaction of a group, by its records' headers: whether the log has all of it."""

import pytest

from coordinator.state_log.transaction_size import HEADER, LastTransaction, header_of


def read(*headers):
    last = LastTransaction()
    for each in headers:
        last.add(each)
    return last


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_transaction_is_cut_until_its_last_record_is_read(count):
    for seen in range(1, count):
        assert read(header_of(count), *[[]] * (seen - 1)).is_cut
    assert not read(header_of(count), *[[]] * (count - 1)).is_cut


def test_a_whole_transaction_follows_one_that_was_cut():
    assert not read(header_of(3), None, header_of(2), None).is_cut


def test_a_cut_transaction_follows_a_whole_one():
    assert read(header_of(2), None, header_of(2)).is_cut


@pytest.mark.parametrize("headers", [None, [], [("other", b"5")], [(HEADER, None)], [(HEADER, b"many")]])
def test_a_record_that_says_no_number_is_a_transaction_of_its_own(headers):
    assert not read(headers).is_cut
    assert not read(header_of(1), headers).is_cut
