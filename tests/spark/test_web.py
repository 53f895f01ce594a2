"""The page of `sharegroup web` beside two Spark queries, in a real browser. tests/browser has the same way through the
page, with queries that need no Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.chromium import browser, page_server
from tests.support.page_steps import GROUP, PARTITIONS, from_an_empty_cluster_to_a_redrive
from tests.support.poisoned import POISONED, RECORDS

pytestmark = [pytest.mark.soak, pytest.mark.browser, pytest.mark.spark, pytest.mark.broker]

BY_OFFSET = f"case when offset % {POISONED} = {POISONED - 1} then 'reject' else 'accept' end"


def test_a_person_redrives_records_that_two_spark_queries_rejected(kafka, topic, job, start, tmp_path):
    orders, dlq = topic("orders", PARTITIONS), topic("dlq")
    store = {"share.state.store": f"sqlite:{tmp_path / 'state.db'}"}
    options = {"errors.deadletterqueue.topic.name": dlq, "errors.deadletterqueue.copy.record.enable": "true"}
    options |= {"maxOffsetsPerTrigger": str(RECORDS // 3)}  # one query does not take all
    queue = replace(job(orders, **store, **options), group=GROUP)
    sink = {"sink": "acknowledge+replace", "sink_options": queue.sink_options()}
    running = []

    def begin() -> None:
        running.extend(start(queue.query(name, columns={"acknowledgement": BY_OFFSET}, **sink)) for name in ("a", "b"))
        for query in running:
            query.wait_written()  # a query that fails says why

    def end() -> None:
        for query in running:
            query.stop()

    with page_server({"bootstrap.servers": kafka.bootstrap, **store}) as url, browser() as chromium:
        from_an_empty_cluster_to_a_redrive(url, chromium, kafka, orders, begin=begin, end=end)
