"""Who may import whom: design.md §7's rooms, held by a test.

A rule is a room (a set of files) and what may be imported there of our own modules and of others'. A file that no rule
names is a mistake too.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.imports import PACKAGES, ROOT, imports_of, is_within, python_files

DEAD_LETTERS = "coordinator.dead_letters"
KAFKA_CLIENT = "coordinator.protocol.librdkafka"
CLIENT_VALUES = tuple(f"coordinator.{name}" for name in ("addresses", "values", "messages", "errors", "config", "wire"))
IMPURE = frozenset({"time", "threading", "socket", "logging", "random", "confluent_kafka", "asyncio", "subprocess"})
DEMO_ONLY = "sharegroup.demo.embedded_broker"
# In the coordinator's folder, but no part of the core: a broker for demos, the file of a secret, which service and
# client read alike, the rows of outcomes, which sink and service know alike, how clients of Kafka are made, and
# what `python -m coordinator` starts.
NOT_CORE = frozenset(
    {
        "sharegroup/demo/embedded_broker.py",
        "coordinator/protocol/secret_files.py",
        "coordinator/protocol/outcome_rows.py",
        "coordinator/protocol/librdkafka.py",
        "coordinator/__main__.py",
    }
)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One room: its files, and which modules they may import."""

    room: str
    says: str
    holds_for: Callable[[str], bool]
    ours: tuple[str, ...]
    others: frozenset[str] | None = None  # third-party packages, None: any
    never: frozenset[str] = field(default_factory=frozenset)
    not_ours: tuple[str, ...] = ()

    def allows(self, module: str) -> bool:
        top = module.split(".")[0]
        if top in self.never:
            return False
        if top in PACKAGES:
            return is_within(module, self.ours) and not is_within(module, self.not_ours)
        return top in sys.stdlib_module_names or self.others is None or top in self.others


def is_core(path: str) -> bool:
    """coordinator/*.py and coordinator/commands/**, but for what is named in NOT_CORE."""
    parts = Path(path).parts
    return parts[0] == "coordinator" and (len(parts) == 2 or parts[1] == "commands") and path not in NOT_CORE


def below(folder: str) -> Callable[[str], bool]:
    return lambda path: path.startswith(folder + "/")


RULES = [
    Rule(
        room="the core",
        says="imports stdlib, sortedcontainers, msgspec and core modules; no clock, thread, I/O or chance",
        holds_for=is_core,
        ours=("coordinator",),
        not_ours=(
            "coordinator.service",
            "coordinator.client",
            "coordinator.state_log",
            "coordinator.protocol.secret_files",
            "coordinator.protocol.outcome_rows",
            KAFKA_CLIENT,
            DEAD_LETTERS,
            DEMO_ONLY,
        ),
        others=frozenset({"sortedcontainers", "msgspec"}),
        never=IMPURE,
    ),
    Rule(
        room="coordinator/state_log",
        says="imports stdlib, sortedcontainers, msgspec, the core and itself; no clock, thread, I/O or chance",
        holds_for=below("coordinator/state_log"),
        ours=("coordinator",),
        not_ours=("coordinator.service", "coordinator.client", KAFKA_CLIENT, DEAD_LETTERS, DEMO_ONLY),
        others=frozenset({"sortedcontainers", "msgspec"}),
        never=IMPURE,
    ),
    Rule(
        room="what stands beside the core",
        says="imports the coordinator's rooms only",
        holds_for=lambda path: path in NOT_CORE,
        ours=("coordinator",),
    ),
    Rule(
        room="coordinator/dead_letters",
        says="imports itself, and coordinator.protocol.librdkafka, .values, .messages, .errors and .config",
        holds_for=below("coordinator/dead_letters"),
        ours=(
            DEAD_LETTERS,
            KAFKA_CLIENT,
            *(f"coordinator.{name}" for name in ("values", "messages", "errors", "config")),
        ),
    ),
    Rule(
        room="coordinator/service",
        says="imports the core and the service; not the client",
        holds_for=below("coordinator/service"),
        ours=("coordinator",),
        not_ours=("coordinator.client", DEMO_ONLY),
    ),
    Rule(
        room="coordinator/client",
        says="imports the client, and coordinator.protocol.values, .messages, .errors, .config, .wire, .token_file and "
        ".kafka_client",
        holds_for=below("coordinator/client"),
        ours=("coordinator.client", "coordinator.protocol.secret_files", KAFKA_CLIENT, *CLIENT_VALUES),
    ),
    Rule(
        # It runs in a process of its own, as a user's program does; what it writes with is the sink.
        room="the demo's query program",
        says="imports share_sink, as a user's program does, and the demo's payment service",
        holds_for=lambda path: path == "sharegroup/demo/query_program.py",
        ours=("share_sink", "sharegroup.demo.payments"),
    ),
    Rule(
        room="share_source/demo",
        says="imports what share_source may, and sharegroup.demo.embedded_broker",
        holds_for=below("share_source/demo"),
        ours=("share_source", "coordinator.client", DEMO_ONLY, *CLIENT_VALUES),
    ),
    Rule(
        room="share_source",
        says="imports itself, and coordinator.client, .kafka_client, .values, .messages, .errors and .config; never "
        "share_sink",
        holds_for=below("share_source"),
        ours=("share_source", "coordinator.client", KAFKA_CLIENT, *CLIENT_VALUES),
    ),
    Rule(
        room="share_sink",
        says="imports itself, and coordinator.client, .dead_letters, .outcome_rows, .kafka_client, .values, .messages, "
        ".errors and .config; never share_source",
        holds_for=below("share_sink"),
        ours=(
            "share_sink",
            "coordinator.client",
            DEAD_LETTERS,
            "coordinator.protocol.outcome_rows",
            KAFKA_CLIENT,
            *CLIENT_VALUES,
        ),
    ),
    Rule(
        room="sharegroup",
        says="imports itself, share_sink, and the coordinator's service, client and values; never the core's commands",
        holds_for=below("sharegroup"),
        ours=(
            "sharegroup",
            "share_sink",
            "coordinator.service",
            "coordinator.client",
            "coordinator.protocol.secret_files",
            *CLIENT_VALUES,
        ),
    ),
    Rule(
        room="pyspark_sharegroup",
        says="imports share_source and share_sink only",
        holds_for=below("pyspark_sharegroup"),
        ours=("share_source", "share_sink", "pyspark_sharegroup"),
        others=frozenset(),
    ),
]


def rule_for(path: str) -> Rule | None:
    """The first rule that holds for a file."""
    return next((rule for rule in RULES if rule.holds_for(path)), None)


def broken_rules(root: Path) -> list[str]:
    """One line for each import that its room's rule does not allow."""
    broken = []
    for path in python_files(*PACKAGES, root=root):
        relative = str(path.relative_to(root))
        rule = rule_for(relative)
        if rule is None:
            broken.append(f"{relative}:1: no rule of tests/test_layering.py names this room")
            continue
        broken += [
            f"{each.path}:{each.line}: imports {each.module}, but {rule.room} {rule.says}"
            for each in imports_of(path, root)
            if not rule.allows(each.module)
        ]
    return broken


def test_every_room_imports_only_what_its_rule_allows():
    broken = broken_rules(ROOT)
    assert not broken, "\n" + "\n".join(broken)


@pytest.mark.parametrize(
    ("path", "line", "refused"),
    [
        ("coordinator/core/runs.py", "import time", "time"),
        ("coordinator/core/runs.py", "from confluent_kafka import Producer", "confluent_kafka"),
        ("coordinator/core/runs.py", "import pyarrow", "pyarrow"),
        (
            "coordinator/core/commands/acquire_plan.py",
            "from coordinator.service import server",
            "coordinator.service.server",
        ),
        ("coordinator/core/commands/acquire_plan.py", "from ..client import rpc", "coordinator.client.rpc"),
        ("coordinator/core/runs.py", "def f():\n    import random", "random"),
        ("coordinator/core/runs.py", "from coordinator.state_log import combiner", "coordinator.state_log"),
        ("coordinator/state_log/projection.py", "import time", "time"),
        ("coordinator/state_log/projection.py", "from confluent_kafka import Producer", "confluent_kafka"),
        ("coordinator/state_log/projection.py", "from coordinator.service import server", "coordinator.service.server"),
        ("coordinator/service/server.py", "import coordinator.client.rpc", "coordinator.client.rpc"),
        ("coordinator/client/rpc.py", "from coordinator import runs", "coordinator.core.runs"),
        ("coordinator/core/runs.py", "from coordinator.dead_letters import letter", "coordinator.dead_letters"),
        (
            "coordinator/core/runs.py",
            "from coordinator.protocol.librdkafka import new_client",
            "coordinator.protocol.librdkafka",
        ),
        ("coordinator/dead_letters/producer.py", "from coordinator import runs", "coordinator.core.runs"),
        (
            "coordinator/dead_letters/producer.py",
            "from coordinator.service import server",
            "coordinator.service.server",
        ),
        ("share_source/reader.py", "from coordinator import runs", "coordinator.core.runs"),
        ("share_source/reader.py", "import share_sink", "share_sink"),
        ("share_source/reader.py", "import sharegroup.demo.embedded_broker", "sharegroup.demo.embedded_broker"),
        ("sharegroup/demo/story.py", "from share_sink import acknowledge", "share_sink"),
        ("sharegroup/demo/query_program.py", "import coordinator.client", "coordinator.client"),
        ("share_sink/writer.py", "from share_source import reader", "share_source.reader"),
        ("pyspark_sharegroup/__init__.py", "import coordinator.client", "coordinator.client"),
        ("pyspark_sharegroup/__init__.py", "import pyspark", "pyspark"),
        ("coordinator/news/paper.py", "", "no rule"),
    ],
)
def test_a_broken_rule_is_named_with_its_file_and_line(tmp_path, path, line, refused):
    for module in ("runs.py", "service/server.py", "client/rpc.py", "dead_letters/letter.py"):
        write(tmp_path / "coordinator" / module, "")
    write(tmp_path / "share_source/reader.py", "")
    write(tmp_path / path, f'"""A module."""\n{line}\n')
    (message,) = broken_rules(tmp_path)
    assert message.startswith(f"{path}:")
    assert refused in message


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("coordinator/core/runs.py", "import msgspec, sortedcontainers, bisect\nfrom coordinator import values"),
        ("coordinator/state_log/combiner.py", "import struct\nfrom coordinator.core.runs import Run"),
        ("coordinator/service/server.py", "import time, pyarrow.flight\nfrom coordinator.core.runs import Run"),
        ("coordinator/service/server.py", "from coordinator.state_log.combiner import combine"),
        ("coordinator/client/rpc.py", "import time\nfrom coordinator.protocol.values import Range"),
        ("coordinator/client/rpc.py", "from coordinator.protocol.librdkafka import new_client"),
        ("coordinator/dead_letters/producer.py", "from coordinator.protocol.librdkafka import new_client"),
        ("sharegroup/demo/story.py", "from sharegroup.demo.embedded_broker import EmbeddedBroker\nimport rich"),
        ("sharegroup/demo/query_program.py", "from share_sink import acknowledge\nimport pyspark"),
        ("pyspark_sharegroup/__init__.py", "from share_source.data_source import DefaultSource"),
    ],
)
def test_what_a_room_may_import_is_allowed(tmp_path, path, line):
    write(tmp_path / "coordinator/protocol/values.py", "")
    write(tmp_path / path, line)
    assert broken_rules(tmp_path) == []


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
