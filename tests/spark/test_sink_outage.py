"""The dead letter topic's broker goes away under a running query with a sink: what its rows accept flows on, what they
reject waits without a dead letter, and the coordinator writes the dead letters when the broker is back."""

import os
import re
from pathlib import Path

import pytest

from tests.support.dead_letters import read_dead_letters
from tests.support.group_state import describe
from tests.support.share_job import numbers

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.soak]

BEFORE, MEANWHILE = 100, 100
COLUMNS = {
    "acknowledgement": "if(int(text) % 10 = 3, 'reject', 'accept')",
    "reason": "concat('record ', text)",
    "value": "if(int(text) % 20 = 3, encode(concat('masked ', text), 'utf-8'), value)",
}
"""Each tenth record is rejected, and every other one of those has a value of its own for its dead letter."""


def rejected(values: list[str]) -> list[str]:
    return [value for value in values if value.endswith("3")]


def lost_replacements() -> int:
    """As the coordinators' logs have them."""
    logs = Path(os.environ["SHAREGROUP_RUNTIME_DIR"]).glob("coordinator-*.log")
    return sum(int(count) for log in logs for count in re.findall(r"own_content_not_written=(\d+)", log.read_text()))


def test_a_dead_letter_brokers_outage_delays_dead_letters_and_no_query(first, second, job, start, tmp_path, unique):
    dlq = first.create_topic(unique("dlq"), 2, node=2)
    orders = first.create_topic(unique("orders"), node=1)
    early, late = numbers(BEFORE), numbers(MEANWHILE, first=BEFORE)
    first.produce(orders, early)
    store = f"sqlite:{tmp_path / 'state.db'}"  # the state's topic would have replicas on both brokers
    queue = job(orders, bootstrap=first.bootstrap, **{"maxOffsetsPerTrigger": 100, "share.state.store": store})
    queue.admin_bootstrap = first.bootstrap
    sink = queue.sink_options(**{"errors.deadletterqueue.topic.name": dlq})
    query = start(queue.query("a", columns=COLUMNS, sink="acknowledge+replace", sink_options=sink))
    query.wait(lambda: describe(queue).lag() == 0 and not describe(queue).archiving(), "what came before is done")
    assert len(read_dead_letters(first.bootstrap, dlq)) == describe(queue).archived() == len(rejected(early))
    lost_before = lost_replacements()

    second.kill()
    first.produce(orders, late)
    query.wait(lambda: describe(queue).archiving() == len(rejected(late)), "all is delivered, the dead letters wait")
    rows = queue.output().rows
    accepted = rows[rows["acknowledgement"] == "accept"]["value"]
    assert sorted(accepted) == sorted(set(early + late) - set(rejected(early + late)))
    assert describe(queue).archived() == len(rejected(early))
    assert lost_replacements() - lost_before == len(rejected(late)) // 2

    second.start()
    query.wait(lambda: describe(queue).archiving() == 0, "the dead letters are written")
    assert describe(queue).archived() == len(rejected(early + late))
    assert not query.over()
    by_offset = {letter.origin[2]: letter for letter in read_dead_letters(first.bootstrap, dlq)}
    assert sorted(by_offset) == [int(value) for value in rejected(early + late)]
    for offset, letter in by_offset.items():
        masked = offset % 20 == 3 and offset < BEFORE  # of the others the original is written: theirs is lost
        assert letter.value == f"{'masked ' if masked else ''}{offset}".encode()
        assert (letter.said["message"], letter.said["disposition"]) == (f"record {offset}", "rejected")
