"""Checks the imports by one rule a folder (CONTRIBUTING.md, "The folders").

A rule is a folder and what may be imported there of our own modules and of others'. A file that no rule names is a
mistake too.
"""

import functools
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.imports import PACKAGES, ROOT, imports_of, is_within, python_files

IMPURE = frozenset({"time", "threading", "socket", "logging", "random", "confluent_kafka", "asyncio", "subprocess"})
PROTOCOL = "coordinator.protocol"
VALUES = tuple(f"{PROTOCOL}.{name}" for name in ("values", "messages", "admin_messages", "errors", "format_versions"))
CORE, CONFIG, CLIENT, ADMIN = "coordinator.core", "coordinator.config", "coordinator.client", "coordinator.admin"
KAFKA = "coordinator.kafka"
DEAD_LETTERS, SERVICE, STATE_LOG = "coordinator.dead_letters", "coordinator.service", "coordinator.state_log"
BROKERS, PROCESS, REQUESTS, RUNTIME = (f"{SERVICE}.{name}" for name in ("brokers", "process", "requests", "runtime"))
QUESTIONS = f"{SERVICE}.questions"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One folder, and which modules its files may import: of ours (itself always), and of third parties (None: any)."""

    folder: str
    ours: tuple[str, ...]
    others: frozenset[str] | None = None
    never: frozenset[str] = field(default_factory=frozenset)

    def holds_for(self, path: str) -> bool:
        """Whether the file lies in the folder, or is the folder's own ``__init__.py``."""
        return path.startswith(self.folder + "/")

    def allows(self, module: str) -> bool:
        """Whether a file of the folder may import this module."""
        top = module.split(".")[0]
        if top in self.never:
            return False
        if top in PACKAGES:
            return is_within(module, (self.folder.replace("/", "."), *self.ours))
        return top in sys.stdlib_module_names or self.others is None or top in self.others

    @property
    def says(self) -> str:
        """The rule in words."""
        return f"{self.folder} imports of ours only itself{''.join(f', {name}' for name in self.ours)}" + (
            "" if self.others is None else f"; of third parties {', '.join(sorted(self.others)) or 'nothing'}"
        )


# The first rule that names a file holds: a folder inside of another one comes before it.
RULES = [
    Rule(
        folder="coordinator/core",
        # topic_names: whether a subscription has a topic decides who is assigned its partitions.
        ours=(CONFIG, f"{PROTOCOL}.topic_names", *VALUES),
        others=frozenset({"sortedcontainers", "msgspec"}),
        never=IMPURE,
    ),
    Rule(
        folder="coordinator/state_log",
        ours=(CORE, *VALUES),
        others=frozenset({"sortedcontainers", "msgspec"}),
        never=IMPURE,
    ),
    Rule(folder="coordinator/protocol", ours=()),
    Rule(folder="coordinator/kafka", ours=(PROTOCOL,)),
    Rule(folder="coordinator/config", ours=(KAFKA, PROTOCOL)),
    Rule(folder="coordinator/dead_letters", ours=(KAFKA, PROTOCOL, CONFIG)),
    Rule(folder="coordinator/client", ours=(KAFKA, PROTOCOL, CONFIG)),
    Rule(
        folder="coordinator/admin",
        ours=(CLIENT, f"{SERVICE}.handlers.read_only", f"{BROKERS}.cluster", KAFKA, PROTOCOL, CONFIG),
    ),
    Rule(folder="coordinator/service/process", ours=(PROTOCOL,)),
    Rule(folder="coordinator/service/requests", ours=(f"{RUNTIME}.transaction", PROCESS, CORE, PROTOCOL, CONFIG)),
    Rule(folder="coordinator/service/server", ours=(REQUESTS, PROCESS, PROTOCOL, CONFIG)),
    Rule(folder="coordinator/service/brokers", ours=(CORE, DEAD_LETTERS, KAFKA, PROTOCOL, CONFIG)),
    Rule(
        folder="coordinator/service/stores/kafka",
        ours=(f"{SERVICE}.stores.store", BROKERS, PROCESS, CORE, STATE_LOG, KAFKA, PROTOCOL, CONFIG),
    ),
    Rule(
        folder="coordinator/service/hosts",
        ours=(f"{SERVICE}.stores.kafka", REQUESTS, RUNTIME, BROKERS, PROCESS, STATE_LOG, KAFKA, PROTOCOL),
    ),
    Rule(folder="coordinator/service/stores", ours=(PROCESS, CORE, KAFKA, PROTOCOL, CONFIG)),
    Rule(
        folder="coordinator/service/runtime",
        ours=(f"{SERVICE}.stores.store", BROKERS, PROCESS, CORE, KAFKA, PROTOCOL, CONFIG),
    ),
    Rule(
        folder="coordinator/service/dead_letters",
        ours=(RUNTIME, BROKERS, PROCESS, CORE, DEAD_LETTERS, KAFKA, PROTOCOL, CONFIG),
    ),
    Rule(
        folder="coordinator/service/metrics",
        ours=(RUNTIME, f"{SERVICE}.stores.store", f"{SERVICE}.stores.kafka.ownership", BROKERS, CORE, PROTOCOL),
        others=frozenset({"prometheus_client"}),
    ),
    Rule(folder="coordinator/service/questions", ours=(RUNTIME, BROKERS, CORE, PROTOCOL)),
    Rule(
        folder="coordinator/service/handlers",
        ours=(
            *(QUESTIONS, RUNTIME, BROKERS, f"{SERVICE}.dead_letters", f"{SERVICE}.stores", PROCESS),
            *(CORE, PROTOCOL, CONFIG),
        ),
    ),
    Rule(folder="coordinator/service", ours=(CORE, DEAD_LETTERS, KAFKA, PROTOCOL, CONFIG)),
    Rule(
        folder="share_consumer",
        ours=("share_source", CLIENT, KAFKA, PROTOCOL, CONFIG),
        others=frozenset({"confluent_kafka", "msgspec"}),  # a struct of msgspec costs a record a tenth of a microsecond
    ),
    Rule(
        folder="share_source/views",
        ours=("share_source", "share_sink.redrive", "share_spark", ADMIN, CLIENT, KAFKA, PROTOCOL, CONFIG),
    ),
    Rule(folder="share_source", ours=("share_spark", CLIENT, KAFKA, PROTOCOL, CONFIG)),
    Rule(folder="share_spark", ours=(CLIENT, PROTOCOL, CONFIG)),
    Rule(folder="share_sink", ours=("share_spark", CLIENT, DEAD_LETTERS, KAFKA, PROTOCOL, CONFIG)),
    Rule(folder="sharegroup/demo", ours=(CLIENT, DEAD_LETTERS, KAFKA, PROTOCOL, "sharegroup")),
    Rule(
        folder="sharegroup/testing",
        ours=("sharegroup", ADMIN, CLIENT, PROTOCOL, "share_sink.redrive", "share_source.views"),
        others=frozenset({"confluent_kafka", "pytest"}),
    ),
    Rule(
        folder="sharegroup/web",
        ours=(
            "sharegroup",
            ADMIN,
            CLIENT,
            KAFKA,
            PROTOCOL,
            CONFIG,
            f"{PROCESS}.end_signals",
            f"{PROCESS}.log_format",
            f"{SERVICE}.standalone_config",
            "share_sink.redrive",
            "share_sink.errors",
            "share_source.views",
        ),
        others=frozenset({"anyio", "click", "jinja2", "msgspec", "starlette", "uvicorn"}),
    ),
    Rule(
        folder="sharegroup",
        ours=(
            # An import reads Kafka's own records of a native share group.
            *(SERVICE, ADMIN, CLIENT, KAFKA, PROTOCOL, CONFIG, STATE_LOG),
            *("share_consumer", "share_source", "share_sink"),
        ),
    ),
    Rule(folder="pyspark_sharegroup", ours=("share_source", "share_sink"), others=frozenset({"pyspark"})),
]


def rule_for(path: str) -> Rule | None:
    """The first rule that holds for a file."""
    return next((rule for rule in RULES if rule.holds_for(path)), None)


def broken_rules(root: Path) -> list[str]:
    """One line for each import that its folder's rule does not allow. coordinator/__init__.py imports nothing."""
    broken = []
    for path in python_files(*PACKAGES, root=root):
        relative = str(path.relative_to(root))
        imports = imports_of(path, root)
        rule = rule_for(relative)
        if relative == "coordinator/__init__.py" and not imports:
            continue
        if rule is None:
            broken.append(f"{relative}:1: no rule of tests/test_layering.py names this folder")
            continue
        broken += [
            f"{each.path}:{each.line}: imports {each.module}, but {rule.says}"
            for each in imports
            if not rule.allows(each.module)
        ]
    return broken


FLOORS = {
    # The doors of the core stand above the folders that they open.
    "coordinator/core, doors": ("decide.py", "look.py", "replay.py"),
    # A task chooses between two readers, of which one is in a folder that builds on the other.
    "share_source/executor, tasks": ("task_reader.py",),
    # What Spark imports stands above the driver and the views, which build on the package's other files.
    "share_source, top": ("__init__.py", "data_source.py"),
    # The redrive and the archive build on these alone.
    "share_sink, base": ("errors.py", "sink_option_table.py"),
    # The names that programs import, which commands and the demo import too.
    "sharegroup, names": ("__init__.py", "shadowed.py"),
    # Some commands are in folders, and build on what commands share; a description says what the doctor says.
    "sharegroup, top": ("__main__.py", "coordinator.py", "groups.py"),
}
"""The files that stand above or below the other files of their folder, by the folder and a name."""
FLOOR_OF = {f"{floor.partition(',')[0]}/{name}": floor for floor, names in FLOORS.items() for name in names}


@functools.cache
def arrows() -> dict[str, set[str]]:
    """The files that each of our files imports, at its top, inside a function, or for the type checker alone."""
    paths = {str(path.relative_to(ROOT)) for path in python_files(*PACKAGES)}
    found: dict[str, set[str]] = {path: set() for path in paths}
    for path in paths:
        for each in imports_of(ROOT / path):
            stem = each.module.replace(".", "/")
            found[path] |= {f"{stem}.py", f"{stem}/__init__.py"} & paths - {path}
    return found


def floors(files: dict[str, set[str]]) -> dict[str, set[str]]:
    """The floors that each floor imports."""

    def floor(path: str) -> str:
        return FLOOR_OF.get(path, path.rpartition("/")[0])

    found: dict[str, set[str]] = {floor(path): set() for path in files}
    for path, imported in files.items():
        found[floor(path)] |= {floor(each) for each in imported} - {floor(path)}
    return found


def in_circles(graph: dict[str, set[str]]) -> list[str]:
    """The nodes of the graph that lie in a circle, or between circles."""
    left = {node: set(to) for node, to in graph.items()}
    while True:
        imported = set().union(*left.values())
        kept = {node: to & left.keys() for node, to in left.items() if to & left.keys() and node in imported}
        if kept == left:
            return sorted(left)
        left = kept


def test_no_file_imports_one_that_imports_it():
    assert in_circles(arrows()) == []


def test_no_floor_imports_one_that_imports_it():
    assert in_circles(floors(arrows())) == []
    assert FLOOR_OF.keys() <= arrows().keys(), "a file that is no more"


def test_a_circle_is_found_also_for_the_type_checker_and_in_functions():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}, "e": set()}
    assert in_circles(graph) == ["b", "c"]
    assert in_circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    files = arrows() | {"coordinator/core/runs.py": {"coordinator/core/looks/shown_runs.py"}}
    assert {"coordinator/core", "coordinator/core/looks"} <= set(in_circles(floors(files)))


def folders_without_a_row(table: str) -> list[str]:
    """The folders of RULES that CONTRIBUTING's table does not describe."""
    first = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    return [rule.folder for rule in RULES if not any(f"`{rule.folder}/`" in cell for cell in first)]


def test_every_folder_with_a_rule_has_a_row_in_contributing():
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert folders_without_a_row(table) == []
    assert folders_without_a_row(table.replace("| `coordinator/core/` |", "| `core` |")) == ["coordinator/core"]


def test_every_folder_imports_only_the_folders_of_its_rule():
    broken = broken_rules(ROOT)
    assert not broken, "\n" + "\n".join(broken)


@pytest.mark.parametrize(
    ("path", "line", "refused"),
    [
        ("coordinator/core/runs.py", "import time", "time"),
        ("coordinator/core/runs.py", "from confluent_kafka import Producer", "confluent_kafka"),
        ("coordinator/core/runs.py", "import pyarrow", "pyarrow"),
        ("coordinator/core/runs.py", "def f():\n    import random", "random"),
        ("coordinator/core/decide.py", "from coordinator.service import server", "coordinator.service.server"),
        ("coordinator/core/commands/acquire.py", "from ...client import rpc", "coordinator.client.rpc"),
        ("coordinator/core/runs.py", "from coordinator.state_log import combiner", "coordinator.state_log"),
        ("coordinator/core/runs.py", "from coordinator.dead_letters import producer", "coordinator.dead_letters"),
        ("coordinator/core/runs.py", "from coordinator.protocol.wire import encode", "coordinator.protocol.wire"),
        ("coordinator/state_log/projection.py", "import time", "time"),
        ("coordinator/state_log/projection.py", "from coordinator.service import server", "coordinator.service.server"),
        ("coordinator/protocol/wire.py", "from coordinator.core import runs", "coordinator.core.runs"),
        ("coordinator/service/server.py", "import coordinator.client.rpc", "coordinator.client.rpc"),
        ("coordinator/service/brokers/cluster.py", "import coordinator.service.runtime", "coordinator.service.runtime"),
        ("coordinator/service/runtime/loop.py", "import coordinator.service.hosts", "coordinator.service.hosts"),
        ("coordinator/service/hosts/hosts.py", "import coordinator.service.server", "coordinator.service.server"),
        ("coordinator/service/stores/file.py", "from coordinator.state_log import owner", "coordinator.state_log"),
        ("coordinator/client/rpc.py", "from coordinator.core import runs", "coordinator.core.runs"),
        ("coordinator/dead_letters/producer.py", "from coordinator.core import runs", "coordinator.core.runs"),
        ("share_source/driver/reader.py", "from coordinator.core import runs", "coordinator.core.runs"),
        ("share_source/driver/reader.py", "import share_sink", "share_sink"),
        ("share_sink/writer.py", "from share_source.driver import reader", "share_source.driver.reader"),
        ("sharegroup/demo/story.py", "from coordinator.service import server", "coordinator.service.server"),
        ("sharegroup/web/app.py", "from coordinator.service import server", "coordinator.service.server"),
        ("sharegroup/web/app.py", "import confluent_kafka", "confluent_kafka"),
        ("pyspark_sharegroup/__init__.py", "import coordinator.client", "coordinator.client"),
        ("pyspark_sharegroup/__init__.py", "import pyarrow", "pyarrow"),
        ("coordinator/stray.py", "", "no rule"),
        ("coordinator/news/paper.py", "", "no rule"),
    ],
)
def test_a_broken_rule_is_named_with_its_file_and_line(tmp_path, path, line, refused):
    for module in ("core/runs.py", "service/server.py", "client/rpc.py", "dead_letters/producer.py"):
        write(tmp_path / "coordinator" / module, "")
    write(tmp_path / "share_source/driver/reader.py", "")
    write(tmp_path / path, f'"""A module."""\n{line}\n')
    (message,) = broken_rules(tmp_path)
    assert message.startswith(f"{path}:")
    assert refused in message


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("coordinator/core/runs.py", "import msgspec, bisect\nfrom coordinator.protocol import values"),
        ("coordinator/state_log/combiner.py", "import struct\nfrom coordinator.core.runs import Run"),
        ("coordinator/service/server.py", "import time, pyarrow.flight\nfrom coordinator.core.runs import Run"),
        ("coordinator/service/stores/kafka/log.py", "from coordinator.state_log.combiner import combine"),
        ("coordinator/service/runtime/loop.py", "import coordinator.service.brokers"),
        ("coordinator/client/rpc.py", "import time\nfrom coordinator.protocol.values import Range"),
        ("coordinator/dead_letters/producer.py", "from coordinator.kafka.librdkafka import new_client"),
        ("sharegroup/demo/story.py", "from sharegroup.demo.embedded_broker import EmbeddedBroker\nimport rich"),
        ("pyspark_sharegroup/__init__.py", "from share_source.data_source import DefaultSource"),
    ],
)
def test_an_import_that_the_rules_allow_is_no_finding(tmp_path, path, line):
    write(tmp_path / "coordinator/protocol/values.py", "")
    write(tmp_path / path, line)
    assert broken_rules(tmp_path) == []


def imported_tests(root: Path) -> list[str]:
    """One line for each import of a test module: what tests share lies in tests/support or in a driver."""
    return [
        f"{each.path}:{each.line}: imports {each.module}: move what is shared to tests/support"
        for path in python_files("tests", root=root)
        for each in imports_of(path, root)
        if each.module.startswith("tests.") and each.module.rpartition(".")[2].startswith("test_")
    ]


def test_no_test_module_is_imported():
    broken = imported_tests(ROOT)
    assert not broken, "\n" + "\n".join(broken)


@pytest.mark.parametrize("line", ["from tests.unit.test_runs import LAST", "from tests.unit import test_runs"])
def test_an_imported_test_module_is_named_with_its_file_and_line(tmp_path, line):
    write(tmp_path / "tests/unit/test_runs.py", "LAST = 1")
    write(tmp_path / "tests/model/walk.py", line)
    (message,) = imported_tests(tmp_path)
    assert message.startswith("tests/model/walk.py:1: imports tests.unit.test_runs")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
