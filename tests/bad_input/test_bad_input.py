"""Each wrong input of the catalogue gets one sentence that names it, and docs/run/bad-input.md has that sentence."""

from __future__ import annotations

import pytest

from tests.bad_input.catalogue import SECTIONS
from tests.bad_input.page import cell, place, told
from tests.support.imports import ROOT

ROWS = [row for rows in SECTIONS.values() for row in rows]
LONGEST = 700
"""Characters of a sentence, at most: a person reads it in a log."""


@pytest.fixture(scope="module")
def bootstrap(embedded):
    embedded.create_topic("orders")
    return embedded.bootstrap_servers


@pytest.fixture(scope="module")
def page():
    return told()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.written[:60].encode("ascii", "backslashreplace").decode())
def test_a_wrong_input_gets_the_sentence_of_the_page(row, bootstrap, page, monkeypatch):
    monkeypatch.delenv("SHAREGROUP_COORDINATOR_TOKEN", raising=False)
    with place(bootstrap) as here:
        sentence = row.sentence(here)
    assert row.says in sentence
    assert len(sentence) <= LONGEST
    assert page[cell(row.written)] == cell(sentence), "run: python -m tests.bad_input"


def test_the_page_has_the_rows_of_the_catalogue_and_no_others(page):
    assert sorted(page) == sorted(cell(row.written) for row in ROWS)


@pytest.mark.parametrize("row", [row for row in ROWS if row.shown_by], ids=lambda row: row.written[:60])
def test_a_row_that_another_test_shows_names_an_existing_test(row):
    path, _, name = row.shown_by.partition("::")
    assert f"def {name}(" in (ROOT / path).read_text("utf-8")
