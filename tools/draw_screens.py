"""Draw the pictures of the command line's screens (docs/pictures/screen-*.svg), from a real run: a broker, a
coordinator, and members with a history.

python tools/draw_screens.py    a minute; needs what `make setup` fetched"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402
from rich.text import Text  # noqa: E402

from coordinator.client.client import CoordinatorClient  # noqa: E402
from coordinator.protocol.messages import JoinGroup, NextPlan, StartPlan  # noqa: E402
from sharegroup import AcknowledgeType, Admin, ShareConsumer, in_flight, kafka_tables, top  # noqa: E402
from sharegroup.doctor.command import report  # noqa: E402
from sharegroup.doctor.facts import Examination  # noqa: E402
from sharegroup.doctor.rules import examine  # noqa: E402
from tests.support.coordinator_process import kill_coordinators  # noqa: E402
from tests.support.kafka_broker import KafkaBroker  # noqa: E402
from tests.support.waiting import wait_until  # noqa: E402

NAMES = ("describe", "doctor", "in-flight", "top")
SHOWN = "localhost:9092"
"""The address of the broker in the pictures."""
HELD_MS = 1_500
_FONT_FACE = re.compile(r"\s*@font-face \{[^}]*\}")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="sg-") as folder:
        for variable in ("SHAREGROUP_RUNTIME_DIR", "SHAREGROUP_STATE_DIR"):
            os.environ[variable] = folder
        try:
            with KafkaBroker(heap="512m") as kafka:
                draw(kafka)
        finally:
            kill_coordinators()


def draw(kafka: KafkaBroker) -> None:
    """Write the pictures of a history on this broker."""
    config = {"bootstrap.servers": kafka.bootstrap}
    kafka.create_topic("orders", partitions=2)
    kafka.create_topic("clicks")
    with Admin(config) as admin:
        looks = top.Looks(admin)
        consumer = history(kafka)
        looks.look()
        kafka.produce("orders", ["order"] * 400, partition=1)
        taken = consumer.poll(5.0)
        for message in taken:
            consumer.acknowledge(message)
        consumer.commit_sync()
        wait_until(
            lambda: len(admin.in_flight("billing", held_longer_than_ms=HELD_MS).runs) > 0, what="it is held long"
        )
        page = admin.in_flight("billing", limit=10)
        description = admin.describe_groups(["billing"])["billing"]
        examination = Examination(admin, config, HELD_MS)
        shown: dict[str, tuple[str, Any]] = {
            "top": ("sharegroup top", top.screen(looks.look())),
            "in-flight": ("sharegroup in-flight --group billing", in_flight.table("billing", page.runs, page)),
            "describe": (
                "sharegroup groups --describe --group billing",
                "\n".join(kafka_tables.offsets("billing", description.partitions, verbose=False)[1:]),
            ),
            "doctor": (
                f"sharegroup doctor --held-longer-than-ms {HELD_MS}",
                report("billing", examine(examination.group("billing"))),
            ),
        }
        for name, (command, screen) in shown.items():
            (ROOT / "docs" / "pictures" / f"screen-{name}.svg").write_text(picture(command, screen, kafka.bootstrap))
        consumer.close()


def history(kafka: KafkaBroker) -> ShareConsumer:
    """Make a group with a record that always fails, a member that holds records, and dead letters whose topic is
    deleted; and a group that nobody consumes. Returns the consumer of the first group, which holds nothing yet."""
    base = {"bootstrap.servers": kafka.bootstrap, "share.auto.offset.reset": "earliest"}
    explicit = {**base, "group.id": "billing", "share.acknowledgement.mode": "explicit", "client.id": "billing-service"}
    kafka.create_topic("dlq.billing")
    kafka.produce("orders", ["order"] * 8, partition=0)
    failing_query(kafka)
    consumer = ShareConsumer({**explicit, "errors.deadletterqueue.topic.name": "dlq.billing"})
    consumer.subscribe(["orders"])
    consumer.poll(0.5)
    kafka.delete_topic("dlq.billing")
    kafka.produce("orders", ["order"] * 20, partition=1)
    for message in polled(consumer, 20):
        consumer.acknowledge(message, AcknowledgeType.REJECT if message.offset() in (3, 4) else AcknowledgeType.ACCEPT)
    consumer.commit_sync()
    with ShareConsumer({**base, "group.id": "audit"}) as audit:
        audit.subscribe(["clicks"])
        audit.poll(0.5)
    kafka.produce("clicks", ["click"] * 1_500)
    return consumer


def failing_query(kafka: KafkaBroker) -> None:
    """Run a query that crashes again and again in its batch of 8 records."""
    client = CoordinatorClient.connect(kafka.bootstrap)
    plan_id = ""
    for _ in range(4):
        process = uuid.uuid4().hex
        join = JoinGroup(
            group_id="billing",
            member_id="billing-1",
            process_id=process,
            topics=("orders",),
            client_host="host-1",
            starting_offsets="earliest",
        )
        who = {"group_id": "billing", "member_id": "billing-1", "member_epoch": client.call(join).member_epoch}
        plan_id = plan_id or client.call(NextPlan(**who, wait_ms=5_000)).plan.plan_id
        client.call(StartPlan(**who, plan_id=plan_id))
    client.close()


def polled(consumer: ShareConsumer, count: int) -> list[Any]:
    found: list[Any] = []

    def came() -> bool:
        messages = consumer.poll(1.0)
        for message in messages:
            found.append(message)
        return len(found) >= count

    wait_until(came, what=f"{count} records come")
    return found


def picture(command: str, screen: Any, bootstrap: str) -> str:
    """Returns the screen as SVG, below the command that printed it, with the fonts of the reader's system."""
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(Text(f"$ {command}", style="bold"))
    console.print(screen)
    drawn = console.export_svg(title="sharegroup", unique_id="screen")
    drawn = _FONT_FACE.sub("", drawn).replace("Fira Code", "DejaVu Sans Mono")
    return "\n".join(line.rstrip() for line in drawn.replace(bootstrap, SHOWN).splitlines()) + "\n"


if __name__ == "__main__":
    main()
