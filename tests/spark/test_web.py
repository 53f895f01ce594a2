"""The page of `sharegroup web` beside two Spark queries, in a real browser. tests/browser has the same way through the
page, with queries that need no Spark."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from sharegroup import Admin
from sharegroup.group_line import ending_queries
from tests.support.chromium import WAIT_MS, browser, faults, page_server, signed_in
from tests.support.page_steps import (
    GROUP,
    PARTITIONS,
    create_a_missing_topic,
    from_an_empty_cluster_to_a_redrive,
)
from tests.support.poisoned import POISONED, RECORDS

pytestmark = [pytest.mark.soak, pytest.mark.browser, pytest.mark.spark, pytest.mark.broker]

REJECTS = {"acknowledgement": "'reject'", "reason": "'no customer'"}
RESTARTS = 3
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


def test_a_spark_query_that_keeps_ending_is_mended_by_clicks(kafka, topic, job, start, tmp_path):
    orders, dlq = topic("orders"), topic("dlq")
    cluster = {"bootstrap.servers": kafka.bootstrap, "share.state.store": f"sqlite:{tmp_path / 'state.db'}"}
    billing = job(orders, **{"share.state.store": cluster["share.state.store"]})
    sink = billing.sink_options(**{"errors.deadletterqueue.topic.name": dlq})
    spec = billing.query("a", columns=REJECTS, sink="sharegroup", sink_options=sink)
    with Admin(cluster) as admin, page_server(cluster) as url, browser() as chromium:

        def described():
            return admin.describe_groups([billing.group])[billing.group]

        def given_up(records):
            query.wait(lambda: sum(p.given_up for p in described().partitions) == records, f"{records} are given up")

        kafka.produce(orders, ["1"])
        query = start(spec)
        given_up(1)
        page, wrong = signed_in(url, chromium)
        kafka.delete_topic(dlq)
        kafka.produce(orders, ["2"])
        expect(page.get_by_text("1 keeps ending")).to_be_visible(timeout=4 * WAIT_MS)
        named_s = time.time()
        (ending,) = ending_queries(described())
        query.wait_over()
        for _ in range(RESTARTS):
            start(spec).wait_over()
        assert faults(page, "groups-ending") == []
        clicks = create_a_missing_topic(page, billing.group, dlq)
        print(f"on the list {named_s - ending.ending.first_ms / 1000:.1f} s after the first failure; {clicks} clicks")
        assert clicks <= 5
        query = start(spec)
        given_up(2)
        expect(page.get_by_text("has ended")).to_have_count(0)
        assert faults(page, "group-mended") == [] and wrong == []
