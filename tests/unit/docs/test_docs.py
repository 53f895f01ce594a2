"""Links, options, errors and files that the docs name exist, and the programs in the docs run."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.client.connection import CALL_TIMEOUT_S
from coordinator.client.endpoints import AWAY_S
from coordinator.client.session import LONGEST_HEARTBEAT_S
from coordinator.config.group_keys import COORDINATOR_KEYS, GROUP_KEYS
from coordinator.config.server_keys import SERVER_KEYS
from coordinator.core.commands.acquisition import MOST_ARCHIVING
from coordinator.core.failed_deliveries import SAMPLE
from coordinator.core.isolation import isolation_threshold, slice_size
from coordinator.core.release_backoff import QUERY_BACKOFF_MS
from coordinator.core.replays.group_replay import ACTIONS_KEPT
from coordinator.core.replays.partition_replay import ENDS_KEPT
from coordinator.core.share_group import MEMBERS_KEPT
from coordinator.protocol.rights import SHORTEST_TOKEN
from coordinator.service.brokers.leaders import FOR_ALL_S
from coordinator.service.handlers.coordinator_service import LEFT_TO_OTHERS_S
from coordinator.service.hosts.owner_requests import (
    ANSWERS_KEPT_S,
    MOST_KEPT_BYTES,
    MOST_RECEIVED_BYTES,
    UNHEARD_AT_MOST_S,
)
from coordinator.service.stores.kafka.kafka_store import MEMORY_ANSWER_S, NEW_OWNER_S
from coordinator.service.stores.kafka.ownership import MAX_PATIENCE_S
from coordinator.state_log.owner_record import PATIENCE_S
from share_consumer.options import OPTIONS as CONSUMER_OPTIONS
from share_consumer.pace import AHEAD_RECORDS
from share_sink.sink_option_table import OPTIONS as SINK_OPTIONS
from share_sink.sink_option_table import REFUSED as SINK_REFUSED
from share_source.source_option_table import OPTIONS, RECORDS_OPTIONS, REFUSED
from tests.support.imports import PACKAGES, ROOT, python_files
from tests.support.readme import PROGRAM

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "notebooks").glob("*.md"),
        ROOT / "tests" / "README.md",
    ]
)
WRITTEN = [page for page in PAGES if page != ROOT / "docs" / "do" / "options.md"]  # which is generated

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
KEY = re.compile(r"^((?:share|errors|kafka)\.[A-Za-z][\w.]*\w|kafkaConsumer\.\w+)(?:=.*)?$")
CAMEL = re.compile(r"^[a-z]+(?:[A-Z][a-z]+)+$")
OPTION_CALL = re.compile(r"\.option\(\s*\"([^\"]+)\"")
# Spark's own words that look like an option.
SPARKS = {
    *("dropDuplicates", "dropDuplicatesWithinWatermark", "groupBy", "availableNow", "processingTime", "foreachBatch"),
    *("asyncProgressTrackingEnabled", "latestOffset"),
}
DELTAS = {"txnAppId", "txnVersion"}
COLUMNS = {"timestampType", "deliveryCount"}
# Files of the state, and what a person has to name.
NOT_A_PATH = re.compile(r"[A-Z_]{2,}|[*<>]")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def known_options() -> set[str]:
    tables = (REFUSED, SINK_REFUSED, GROUP_KEYS, COORDINATOR_KEYS, SERVER_KEYS)
    return {option.name for option in (*OPTIONS, *RECORDS_OPTIONS, *SINK_OPTIONS, *CONSUMER_OPTIONS)}.union(*tables)


def is_known(option: str) -> bool:
    """In a table, or librdkafka's, which no table lists."""
    return option in known_options() | DELTAS or option.startswith("kafka.")


def named_errors() -> set[str]:
    """The classes of the packages that are ShareGroupErrors."""
    classes = re.compile(r"^class (\w+)\(([^)]*)\):", re.MULTILINE)
    texts = map(text_of, python_files(*PACKAGES))
    bases = {cls: set(re.findall(r"\w+", its)) for text in texts for cls, its in classes.findall(text)}
    found = {"ShareGroupError"}
    while more := {cls for cls, its in bases.items() if its & found} - found:
        found |= more
    return found - {"ShareGroupError"}


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


FACTS = set(re.findall(r"^(?:- \*\*|\| )([KSCR]\d+)\b", text_of(ROOT / "docs" / "trust" / "facts.md"), re.MULTILINE))


def test_every_relative_link_leads_somewhere():
    for page in PAGES:
        broken = []
        for target in LINK.findall(text_of(page)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            to = (page.parent / path).resolve() if path else page
            if not to.exists() or (anchor and anchor not in anchors(to)):
                broken.append(target)
        assert not broken, page


def test_every_option_that_is_named_is_in_a_table():
    for page in WRITTEN:
        text = text_of(page)
        named = {match.group(1) for token in CODE.findall(text) if (match := KEY.match(token))}
        named |= set(OPTION_CALL.findall(text))
        assert sorted(option for option in named if not is_known(option)) == [], page


def test_every_word_that_looks_like_an_option_is_known():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("[c-o]*.md"))]:
        words = {token for token in CODE.findall(text_of(page)) if CAMEL.match(token)}
        known = {option.lower() for option in known_options()}
        unknown = {word for word in words if word.lower() not in known} - SPARKS - DELTAS - COLUMNS
        assert unknown == set(), page


def test_every_error_of_the_page_exists_and_every_error_is_there():
    page = text_of(ROOT / "docs" / "run" / "errors.md")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    told = {token for row in rows for token in CODE.findall(row.split("|")[1])}
    errors = named_errors()
    assert told - errors == set(), "docs/run/errors.md names errors that no longer exist"
    assert errors - told == set(), "docs/run/errors.md says what to do on every named error: add a row"


def test_every_snippet_can_be_read_and_its_imports_of_ours_work():
    for page in PAGES:
        imports = [node for text in PROGRAM.findall(text_of(page)) for node in ast.walk(ast.parse(text))]
        for node in imports:
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PACKAGES:
                module = importlib.import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)


def test_every_fact_that_the_code_names_has_its_line():
    named = {
        (str(path.relative_to(ROOT)), label)
        for path in python_files(*PACKAGES, "tests", "benchmarks", "tools")
        for reference in re.findall(r"docs/trust/facts\.md,?((?:[\s\"#(,]+(?:and|to)?\s*[KSCR]\d+)+)", text_of(path))
        for label in re.findall(r"[KSCR]\d+", reference)
    }
    assert named
    assert {(path, label) for path, label in named if label not in FACTS} == set()


def test_every_file_of_ours_that_is_named_exists():
    for page in WRITTEN:
        tokens = {token for token in CODE.findall(text_of(page)) if re.match(r"[\w./-]+\.(?:py|md|svg)$", token)}
        places = [ROOT, page.parent, ROOT / "coordinator"]
        missing = {t for t in tokens if not NOT_A_PATH.search(t) and not any((place / t).exists() for place in places)}
        assert missing <= {"setup.py", "pyproject.toml"}, page


def test_every_page_that_the_code_names_exists():
    kinds = ("*.py", "*.c", "*.h", "*.yaml", "*.yml", "*.service", "*.properties", "*.txt", "*.ipynb")
    folders = (*PACKAGES, "benchmarks", "conf", "deploy", "notebooks", "tests", "tools")
    files = [path for folder in folders for kind in kinds for path in (ROOT / folder).rglob(kind)]
    files += [ROOT / "Makefile", ROOT / "setup.py", ROOT / ".ci" / "run"]
    named = {(name(path), page) for path in files for page in re.findall(r"docs/[\w./-]+\.md", text_of(path))}
    assert len(named) > 100
    assert {(path, page) for path, page in named if not (ROOT / page).exists()} == set()


def test_every_variable_of_ours_that_is_named_is_in_the_code():
    code = "".join(text_of(path) for path in python_files(*PACKAGES))
    named = {variable for page in WRITTEN for variable in re.findall(r"\bSHAREGROUP_\w+", text_of(page))}
    assert {variable for variable in named if variable not in code} == set()


OUR_WORDS = re.findall(r"^\| \*\*([a-z ]+)\*\* \|", text_of(ROOT / "docs" / "glossary.md"), re.MULTILINE)


def test_the_words_of_ours_are_few_and_each_has_its_meaning():
    rows = [line for line in text_of(ROOT / "docs" / "glossary.md").splitlines() if line.startswith("| **")]
    assert len(rows) == len(OUR_WORDS) <= 25
    assert all(all(cell.strip() for cell in row.strip("|").split("|")) for row in rows)


def test_every_word_of_ours_is_used():
    code = "\n".join(text_of(path) for path in python_files(*PACKAGES))
    for word in OUR_WORDS:
        used = re.search(rf"\b{word.replace(' ', '[ _]')}", code, re.IGNORECASE)
        assert used, f"no code uses {word}: retire the word"


LONGEST_BACKOFF_MS = GROUP_KEYS["share.release.backoff.max.ms"].default
WORKERS = float(re.findall(r"^WORKERS \?= (\d+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[0])
GUARANTEES = "docs/trust/guarantees.md"
NUMBERS = [
    ("docs/adr/0011-no-answer-from-memory-after-5-s.md", "looks for this record, for up to {} s", NEW_OWNER_S),
    ("docs/adr/0011-no-answer-from-memory-after-5-s.md", "began** less than {} s ago", MEMORY_ANSWER_S),
    ("docs/adr/0011-no-answer-from-memory-after-5-s.md", "an owner's patience ({} s)", PATIENCE_S),
    ("docs/adr/0032-records-are-acquired-ahead.md", "leaves up to {} records", AHEAD_RECORDS),
    ("docs/adr/0037-a-leader-that-is-away-holds-up-no-other.md", "no answer within {} s", FOR_ALL_S),
    ("docs/adr/0044-a-querys-releases-wait.md", "by default**: {} s, doubled", QUERY_BACKOFF_MS / 1_000),
    ("docs/adr/0044-a-querys-releases-wait.md", "each release up to {} minutes", LONGEST_BACKOFF_MS / 60_000),
    ("docs/adr/0046-deleted-topics-are-forgotten.md", "ends of the last {} forgotten", ENDS_KEPT),
    ("docs/adr/0047-an-action-is-carried-out-once.md", "answers of its last {} actions", ACTIONS_KEPT),
    ("docs/adr/0049-a-living-owner-stays-the-owner.md", "doubles, up to {} s", MAX_PATIENCE_S),
    ("docs/do/dead-letters.md", "| {} records of a member's partitions wait", MOST_ARCHIVING),
    ("docs/learn/concepts.md", "it has waited for {} ms", LEFT_TO_OTHERS_S * 1_000),
    ("docs/run/security.md", "and {} MB of the owner's memory", (MOST_RECEIVED_BYTES + MOST_KEPT_BYTES) >> 20),
    ("docs/run/security.md", "one word of {} characters or more", SHORTEST_TOKEN),
    ("docs/run/standalone.md", "the earlier one again after {} s", AWAY_S),
    (GUARANTEES, "names their first {} ranges", SAMPLE),
    (GUARANTEES, "more than {} members without a session", MEMBERS_KEPT),
    (GUARANTEES, "a call without an answer after {} s", CALL_TIMEOUT_S),
    (GUARANTEES, "a third of its session, {} s at most", LONGEST_HEARTBEAT_S),
    (GUARANTEES, "its last append is less than {} s old", MEMORY_ANSWER_S),
    (GUARANTEES, "for its patience ({} s at first)", PATIENCE_S),
    (GUARANTEES, "remembers the answer: for {} minutes", ANSWERS_KEPT_S / 60),
    (GUARANTEES, "does not end their sessions because of that, for up to {} s", UNHEARD_AT_MOST_S),
    ("tests/README.md", "`make test` has {} pytest workers", WORKERS),
]


@pytest.mark.parametrize(("page", "statement", "value"), NUMBERS)
def test_a_number_of_a_page_is_the_codes(page: str, statement: str, value: float) -> None:
    before, after = map(re.escape, statement.split("{}"))
    assert re.findall(f"{before}([0-9.,]+){after}", text_of(ROOT / page)) == [f"{value:,g}"]


def slices() -> Iterator[str]:
    for current_try in range(1, 6):
        size = slice_size(current_try, 5, GROUP_KEYS["share.isolation.base"].default)
        yield "no cut" if size is None else f"{size:,}"


def test_the_worked_table_of_isolation_is_right():
    rows = re.findall(
        r"^\| ([1-5]) \| \d \|[^|]*\| ([^|]+) \|$", text_of(ROOT / "docs" / "learn" / "concepts.md"), re.MULTILINE
    )
    assert rows == [(str(number), size) for number, size in enumerate(slices(), 1)]
    assert isolation_threshold(5) == 3
    assert GROUP_KEYS["share.delivery.count.limit"].default == 5


def section(page, heading):
    """The text of a page from this heading to the next of its level."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.split(r"^## ", text.partition(f"\n## {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_every_alert_has_its_row_in_watching():
    rules = (ROOT / "deploy" / "prometheus" / "rules.yaml").read_text(encoding="utf-8")
    alerts = re.findall(r"- alert: (\w+)", rules)
    assert len(alerts) == 7
    assert re.findall(r"^\| `(\w+)` \|", section("docs/run/watching.md", "What to watch"), re.MULTILINE) == alerts


def test_the_numbers_of_the_sizing_table_were_measured():
    number = re.compile(r"\d+(?:[,.]\d+)*")
    pages = [text_of(ROOT / "docs" / "trust" / page) for page in ("benchmarks.md", "facts.md")]
    measured = {found for page in pages for found in number.findall(page)}
    rows = [
        line.split(" | ") for line in section("docs/run/watching.md", "Sizing").splitlines() if line.startswith("| how")
    ]
    assert len(rows) == 9
    assert {each for row in rows for each in number.findall(row[1])} - measured == set()
