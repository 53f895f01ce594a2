"""Uses a secured broker: a query reads a record, its coordinator dies and starts again, and a ShareConsumer rejects
another record. It is a program too, for a client with other libraries: its argument is JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from sharegroup import AcknowledgeType, Admin, ShareConsumer
from tests.support.coordinator_process import kill_coordinators
from tests.support.reader_query import Query
from tests.support.waiting import wait_until


def read_and_reject(config: Mapping[str, str], group: str, orders: str, dlq: str) -> None:
    """Read the first of two records of ``orders``, and reject the second one into ``dlq``."""
    options = {f"kafka.{key}": value for key, value in config.items()}
    query = Query(**options, **{"kafka.group.id": group}, subscribe=orders, startingOffsets="earliest")
    assert [row["value"] for row in query.run(most=1)] == [b"read"]
    kill_coordinators()
    assert not query.next_batch(0)
    query.reader.stop()

    more = {"group.id": group, "errors.deadletterqueue.topic.name": dlq, "share.acknowledgement.mode": "explicit"}
    with ShareConsumer({**config, **more}) as consumer, Admin(dict(config)) as admin:
        consumer.subscribe([orders])
        (message,) = wait_until(lambda: list(consumer.poll(1.0)), what="the second record comes")
        consumer.acknowledge(message, AcknowledgeType.REJECT)
        consumer.commit_sync()
        wait_until(lambda: [p.start_offset for p in admin.list_offsets(group).partitions] == [2], what="all is done")


if __name__ == "__main__":
    read_and_reject(**json.loads(sys.argv[1]))
    kill_coordinators()
