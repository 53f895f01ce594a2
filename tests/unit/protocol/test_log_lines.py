"""The form of log lines, and what the lines about configs say."""

import json
import logging
import logging.handlers
import os
import stat
import subprocess
import sys

import pytest

from coordinator.client.config_lines import effective_configs, log_changes, log_joined
from coordinator.config.group_keys import GROUP_KEYS
from coordinator.protocol.log_lines import TextLines, name_in_lines, ranges_of
from coordinator.protocol.messages import Joined
from coordinator.service import on_demand
from sharegroup.admin_access import print_lines
from tests.support.imports import ROOT

LIMIT, BACKOFF = "share.delivery.count.limit", "share.release.backoff.ms"
DEFAULT = "10000 for queries, 0 for ShareConsumers"


@pytest.fixture
def said(caplog):
    """The lines from INFO on, as ``LEVEL message``."""
    caplog.set_level(logging.INFO)
    return lambda: [f"{record.levelname} {record.getMessage()}" for record in caplog.records]


def joined(replaced=(), **configs):
    texts = {key.replace("_", "."): text for key, text in configs.items()}
    session = {"member_epoch": 1, "incarnation": "i", "session_timeout_ms": 1, "heartbeat_interval_ms": 1}
    return Joined(**session, configs=texts, replaced=dict(replaced))


@pytest.mark.parametrize(
    ("numbers", "text"), [([], "none"), ([7], "7"), (range(50), "0-49"), ([9, 0, 1, 2, 7], "0-2, 7, 9")]
)
def test_numbers_are_named_as_ranges(numbers, text):
    assert ranges_of(numbers) == text


def test_an_event_is_one_line_with_time_process_level_module_and_member():
    record = logging.LogRecord("share_source.driver.reader", logging.INFO, "p", 1, "first\nsecond", (), None)
    record.created = record.msecs = 0
    try:
        name_in_lines(group="billing", member="m1", query="")
        line = TextLines().format(record)
    finally:
        name_in_lines()
    assert line.endswith(f",000 {os.getpid()} INFO share_source.driver.reader [group=billing member=m1] first | second")
    assert line.startswith(("1970-01-01 ", "1969-12-31 "))


def test_each_effective_config_is_logged_with_its_source():
    own, defaults = effective_configs({LIMIT: "3", BACKOFF: "5"}, {LIMIT: "3"}, {})
    assert own == f"configs: {LIMIT}=3 (this query), {BACKOFF}=5 (group)"
    assert defaults == (
        f"configs that have their default: share.session.timeout.ms=45000, and {len(GROUP_KEYS) - 3} more (sharegroup "
        "configs list --all)"
    )
    assert f"{BACKOFF}={DEFAULT}" in "".join(effective_configs({}, {}, {})), "how long a query's releases wait"
    (bounded, defaults) = effective_configs({LIMIT: "9"}, {LIMIT: "9"}, {LIMIT: "7"})
    assert bounded == f"configs: {LIMIT}=7 (coordinator)" and LIMIT not in defaults


def test_a_start_has_one_line_of_defaults():
    for known in range(len(GROUP_KEYS) + 1):
        configs = dict.fromkeys([*GROUP_KEYS][:known], "1")
        told = [line for line in effective_configs(configs, {}, {}) if not line.startswith("configs: ")]
        assert len(told) == 1 and len(told[0]) < 250
        more = int(told[0].partition(" more")[0].split()[-1])
        assert told[0].count("=") + more == len(GROUP_KEYS) - known


def test_lines_of_configs_are_short_and_a_long_value_has_its_own():
    lines = effective_configs({BACKOFF: "5", LIMIT: "3" * 1_000}, {}, {})
    assert [line for line in lines if len(line) > 250] == [f"configs: {LIMIT}={'3' * 1_000} (group)"]


def test_a_join_logs_the_changed_and_the_kept_configs(said):
    log_joined(joined({LIMIT: "7"}, share_delivery_count_limit="3", share_release_backoff_ms="5"), {LIMIT: "3"})
    changed, kept = said()
    assert changed == (f"INFO {LIMIT} is 3 from now on for all queries of the group, as this one sets it; it was 7")
    assert kept.startswith(f"INFO {BACKOFF}=5 is not set by this query: the group has this value")
    assert kept.endswith(f'To unset it: .option("{BACKOFF}", "")')


def test_a_config_that_another_query_overrides_is_named_once(said):
    before, after = joined(share_delivery_count_limit="3"), joined(share_delivery_count_limit="7")
    log_changes(before, after, {LIMIT: "3"})
    log_changes(after, after, {LIMIT: "3"})
    (line,) = said()
    assert line.startswith(f"WARNING {LIMIT}=3 of this query has no effect any more")


def test_a_config_that_others_set_or_unset_is_named(said):
    log_changes(joined(), joined(share_release_backoff_ms="5"), {})
    log_changes(joined(share_release_backoff_ms="5"), joined(), {})
    assert said() == [
        f"INFO {BACKOFF} is 5 from now on: another query or sink of the group set it",
        f"INFO {BACKOFF} is its default, {DEFAULT} from now on: another query or sink of the group set it",
    ]


def test_a_coordinators_log_is_bounded_private_and_includes_output_of_c_libraries(tmp_path):
    path = tmp_path / "coordinator.log"
    program = (
        "import logging, os, sys\n"
        "from coordinator.service import on_demand\n"
        "on_demand.LOG_BYTES = 10_000\n"
        "with on_demand.log_to(sys.argv[1]):\n"
        "    for number in range(600):\n"
        "        logging.getLogger('test').info('line %d', number)\n"
        "        if number % 20 == 0:\n"  # few: those that a busy machine logs late must not rotate the last line away
        "            os.write(2, b'native %d\\n' % number)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], cwd=ROOT, check=True, env={**os.environ, "TZ": "UTC"})
    files = sorted(tmp_path.iterdir())
    assert len(files) == 1 + on_demand.LOG_FILES
    assert all(file.stat().st_size < 11_000 for file in files)
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    text = "".join(file.read_text() for file in files)
    assert " INFO test line 599\n" in text
    assert "stderr_capture native 580\n" in text


def test_control_characters_of_a_name_are_escaped_in_lines_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    name = "m1\x1b[2J\u202e\n"
    record = logging.LogRecord("a.module", logging.INFO, "", 1, "joined: member=%s", (name,), None)
    print_lines([f"GROUP {name}"])
    for shown in (TextLines().format(record), capsys.readouterr().out.rstrip("\n")):
        assert shown.isprintable()
        assert r"m1\x1b[2J\u202e" in shown


QUERY = """
import logging
from share_spark.log import log_for_query
log_for_query(group="billing", member="m1")
"""
CONSUMER = """
import logging
from sharegroup import ShareConsumer
consumer = ShareConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "billing"})
"""
SAYS = """
for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
    logging.getLogger("coordinator.a").log(level, "said %s", logging.getLevelName(level))
"""


def printed(program, **variables):
    """The lines that the program prints, from the first one of ``SAYS`` on."""
    environment = {key: text for key, text in os.environ.items() if not key.startswith("SHAREGROUP_LOG")}
    command = [sys.executable, "-c", program + SAYS]
    done = subprocess.run(
        command, env=environment | variables, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    return [line for line in done.stderr.splitlines() if "said" in line or "SHAREGROUP_LOG" in line]


@pytest.mark.parametrize("program", [QUERY, CONSUMER], ids=["query", "ShareConsumer"])
def test_the_environment_chooses_level_and_form_of_a_clients_log(program):
    lines = printed(program, SHAREGROUP_LOG_LEVEL="error", SHAREGROUP_LOG_FORMAT="json")
    (line,) = map(json.loads, lines)
    assert (line["level"], line["logger"], line["message"]) == ("ERROR", "coordinator.a", "said ERROR")
    assert ("group" in line) == (program == QUERY)
    levels = [line.rpartition(" ")[2] for line in printed(program, SHAREGROUP_LOG_LEVEL="DEBUG")]
    assert levels == ["DEBUG", "INFO", "WARNING", "ERROR"]


def test_without_a_choice_a_program_s_own_logging_holds():
    assert printed(CONSUMER) == ["said WARNING", "said ERROR"], "Python's default"
    own = "import logging; logging.basicConfig(format='%(message)s')"
    assert printed(own + CONSUMER, SHAREGROUP_LOG_FORMAT="json") == ["said WARNING", "said ERROR"]


def test_a_wrong_choice_is_named_and_stops_no_program():
    first, *others = printed(QUERY, SHAREGROUP_LOG_LEVEL="loud")
    assert (
        "SHAREGROUP_LOG_LEVEL=loud is not valid, and counts as info: use debug, info, warning, error, critical" in first
    )
    assert len(others) == 3
