"""Each wrong input of the catalogue gets one sentence that names it, the one of tests/bad_input/sentences.txt."""

from __future__ import annotations

import pytest

from tests.bad_input.catalogue import SECTIONS
from tests.bad_input.golden import line, place, sentences

ROWS = [row for rows in SECTIONS.values() for row in rows]
LONGEST = 700
"""A sentence has at most this number of characters: a person reads it in a log."""


@pytest.fixture(scope="module")
def bootstrap(embedded):
    embedded.create_topic("orders")
    return embedded.bootstrap_servers


@pytest.fixture(scope="module")
def golden():
    return sentences()


def test_a_wrong_input_gets_the_golden_sentence(bootstrap, golden, monkeypatch):
    monkeypatch.delenv("SHAREGROUP_COORDINATOR_TOKEN", raising=False)
    for row in ROWS:
        with place(bootstrap) as here:
            sentence = row.sentence(here)
        assert len(sentence) <= LONGEST, row.written
        assert golden[line(row.written)] == line(sentence), "run: python -m tests.bad_input"


def test_the_golden_file_has_the_rows_of_the_catalogue_and_no_others(golden):
    assert sorted(golden) == sorted(line(row.written) for row in ROWS)
