"""The page shows records and dead letters, whatever was written into them."""

from __future__ import annotations

import json
import random
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.dead_letters.record_format import PREFIX
from coordinator.protocol.admin_messages import AlterGroupConfigs
from share_sink.redrive import redrive as redrive_module
from share_sink.redrive.dlq_reader import REDRIVES, DeadLetter
from sharegroup.web import records
from sharegroup.web.records import LISTED, MOST_BYTES, KafkaReads, KafkaRecord, shown
from sharegroup.web.texts import json_lines
from tests.support.web_site import ACTOR, Page

MOST_PAGE = 100_000
WHERE = {"group": "billing", "topic": "orders", "partition": 0}
DLQ = "errors.deadletterqueue.topic.name"
ORIGIN = {"topic": b"orders", "partition": b"0", "offset": b"7", "group": b"billing"}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    page = Page(tmp_path_factory.mktemp("page") / "state.db")
    page.cluster.add("dlq")
    page.running.join(starting_offsets="earliest")
    page.admin._ask(AlterGroupConfigs(group_id="billing", set={DLQ: "dlq"}, execute=True))
    yield page
    page.close()


@pytest.fixture(scope="module")
def browser(page):
    return page.browser(ACTOR)


def message(place, headers=(), *, key=None, value=b"v", time_ms=1_000):
    """A record as librdkafka gives it."""
    said = {"partition": 0, "offset": place, "key": key, "value": value, "timestamp": (1, time_ms), "error": None}
    return SimpleNamespace(**{name: lambda each=each: each for name, each in {**said, "headers": [*headers]}.items()})


def origin(**more):
    return [(PREFIX + name, value) for name, value in {**ORIGIN, **more}.items()]


BYTES = st.none() | st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))
ODD = st.sampled_from(
    [b"9" * 5_000, b'{"a":"\\ud800"}', b"[" * 5_000, b"1" * 4_000, b'"' * 20_000, b"\xed\xa0\x80" * 900]
)
NAMES = st.sampled_from([REDRIVES, *(PREFIX + name for name in (*ORIGIN, "message", "disposition", "delivery.count"))])
HEADERS = st.lists(st.tuples(NAMES | st.text(max_size=300), BYTES | ODD), max_size=40)
TIMES = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=40, deadline=None)
@given(BYTES | ODD, BYTES | ODD, HEADERS, TIMES, st.sampled_from(["", "text", "json", "hex"]))
def test_records_of_any_content_fail_no_page_and_no_redrive(page, browser, key, value, headers, time_ms, form):
    record = KafkaRecord(key=key, value=value, headers=tuple(headers), timestamp_ms=time_ms)
    page.kafka.records["orders", 0, 3] = record
    messages = [
        message(0, [*headers, *origin()], key=key, value=value, time_ms=time_ms),
        message(1, [*origin(), *headers], key=key, value=value, time_ms=time_ms),
        message(2, origin(offset=b"8")),
    ]
    page.kafka.found = [each for each in map(DeadLetter.of, messages) if each is not None]
    for path, more in (("/content", {"offset": 3}), ("/deadletters", {}), ("/deadletter", {"at": "0@0"})):
        answer = browser.get(path, **WHERE, form=form, **more)
        assert answer.status_code in ((200, 400) if path == "/deadletter" else (200,)), "400: it is none of the group"
        assert len(answer.content) < MOST_PAGE
    report = redriven(messages)
    assert report.read == 3
    assert report.sent >= 1, "the last one at least"


def redriven(messages):
    """The report of a dry run over these records."""
    report = redrive_module.RedriveReport(dlq_topic="dlq", dry_run=True)
    selection = redrive_module._Selection(
        report, lambda each: True, "retry", redrive_module.MAX_REDRIVES, {"retry": 1}, lambda report: None
    )
    for letter, target in selection.of(messages):
        report.add(letter, target)
    return report


def test_an_unreadable_count_of_redrives_stops_no_page_or_redrive(page, browser):
    messages = [message(0, [*origin(), (REDRIVES, b"9" * 5_000)]), message(1, origin(offset=b"8"))]
    page.kafka.found = [DeadLetter.of(each) for each in messages]
    assert browser.get("/deadletters", **WHERE).status_code == 200
    assert redriven(messages).sent == 2


def letters(monkeypatch, each, count, partitions=4):
    """The list of a topic with ``count`` dead letters, the partitions one after another."""

    def read(topic, config, newest):
        for partition in range(partitions):
            for offset in range(count // partitions):
                base = DeadLetter.of(message(offset, [*origin(message=each), ("h", each)], value=each, key=each))
                yield replace(base, partition=partition, timestamp_ms=offset * partitions + partition)

    monkeypatch.setattr(records, "dead_letters", read)
    return KafkaReads({"bootstrap.servers": "none:1"}).dead_letters("dlq")


def test_a_list_has_the_newest_dead_letters_of_all_partitions(monkeypatch):
    found = letters(monkeypatch, b"timeout", 4_000)
    assert [each.timestamp_ms for each in found] == list(range(3_999, 3_999 - LISTED, -1))
    assert {each.partition for each in found} == {0, 1, 2, 3}


def test_a_list_of_large_dead_letters_takes_bounded_memory(monkeypatch):
    tracemalloc.start()
    try:
        found = letters(monkeypatch, b"x" * 1_000_000, 400)
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
        assert 1 < len(found) < LISTED
        assert found[0].timestamp_ms == 399
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("time_ms", [10**17, -(10**17), 2**63 - 1])
def test_a_time_beyond_the_calendar_is_shown_as_a_number(page, browser, time_ms):
    page.kafka.records["orders", 0, 3] = KafkaRecord(key=None, value=b"x", headers=(), timestamp_ms=time_ms)
    answer = browser.get("/content", **WHERE, offset=3)
    assert (answer.status_code, f"{time_ms} ms" in answer.text) == (200, True)


@pytest.mark.parametrize(
    "text", ["a\u00a0b", "全角\u3000空白", "می\u200cخواهم", "👩\u200d🚀", "\ufeffbegins", "a\u2028b"]
)
def test_spaces_and_joiners_of_all_scripts_are_text(text):
    assert (shown(text.encode()).form, shown(text.encode()).text) == ("text", text)


def test_a_control_that_turns_text_around_is_spelled():
    assert shown("user\u202etxt.exe".encode()).text == "user⟨U+202E⟩txt.exe"
    assert shown(b'{"a": "\\u202e"}').text == '{\n  "a": "⟨U+202E⟩"\n}'


@pytest.mark.parametrize(
    "text", ['{"a":1,"a":2}', "[1e400]", "[0.1000000000000000000000001]", "[12345678901234567890123]"]
)
def test_json_is_indented_without_changing_a_token(text):
    found = shown(text.encode())
    assert found.form == "json"
    assert "".join(found.text.split()) == text


def test_json_that_is_too_long_when_indented_is_marked_as_cut():
    data = json.dumps([[1] * 10] * 120).encode()
    found = shown(data)
    assert (len(data) < MOST_BYTES, found.form, found.is_cut, len(found.text)) == (True, "json", True, MOST_BYTES)


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSONS, st.booleans())
def test_lines_of_json_are_the_same_json(value, as_ascii):
    assert json.loads(json_lines(json.dumps(value, ensure_ascii=as_ascii), 10**9) or "") == value


def test_bytes_are_shown_in_the_form_that_fits_them():
    data = random.Random(7).randbytes(100)
    found = shown(data)
    assert (found.form, found.size, found.is_cut) == ("hex", 100, False)
    assert found.text.splitlines()[0].startswith(f"00000000  {data[:16].hex(' ')}")
    assert shown(b"\x1b[2Jx", "text").text == "\ufffd[2Jx"
    assert shown(b"[" * 9_000).form == "text"
