"""A coordinator's service in this process, on a fake cluster and a real state file whose faults a test may choose."""

import contextlib
import logging
import tempfile
import threading
from concurrent.futures import Future
from pathlib import Path
from unittest import mock

from coordinator.core.commands import AlterConfigs
from coordinator.core.record_state import RecordState
from coordinator.protocol.admin_messages import ListInFlight
from coordinator.protocol.errors import CoordinatorNotAvailable
from coordinator.protocol.messages import AckBatch, DescribeGroup, JoinGroup, NextPlan, PartitionAcks, StartPlan
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.service.brokers import subscription
from coordinator.service.brokers.broker_watch import BrokerWatch
from coordinator.service.dead_letters.group_worker import GroupWorker
from coordinator.service.handlers.admin_requests import AdminService
from coordinator.service.handlers.coordinator_service import CoordinatorService
from coordinator.service.runtime import transactions
from coordinator.service.runtime.news import News
from coordinator.service.runtime.runtime import CoordinatorRuntime
from coordinator.service.runtime.transaction import Access, ask
from coordinator.service.stores.sqlite_store import SqliteStore
from tests.support.faulty_store import FaultyStore
from tests.support.one_partition import one_partition
from tests.support.waiting import wait_until


class Running:
    """A service on a fake cluster, with its administration; `join`, `next`, `use` speak for members. ``doubts``: for
    how long a missing topic is in doubt; not at all if none are given."""

    def __init__(self, path, cluster, *, doubts=None, stored=None):
        self.cluster = cluster
        self.store = FaultyStore(SqliteStore(path))
        self.news = News()
        self.watch = BrokerWatch(cluster, metadata_refresh_ms=0, on_ends=self.news.notify)
        self.engine = CoordinatorRuntime(self.store, on_change=self.news.notify)
        self.watch.doubts = doubts or self.watch.doubts
        self.runtime = one_partition(self.engine)
        self.service = CoordinatorService(self.runtime, self.watch, self.news)
        self.admin = AdminService(self.runtime, cluster, stored or NothingStored(), self.watch.doubts)
        self.epochs = {}

    def close(self):
        self.runtime.close()
        self.watch.close()
        self.store.close()

    def join(self, member="m1", *, process=None, **fields):
        if not any(fields.get(key) for key in ("topics", "topic_pattern", "assign")):
            fields["topics"] = ("orders",)
        request = JoinGroup(group_id="billing", member_id=member, process_id=process or f"{member}-p", **fields)
        reply = self.joined(request)
        self.epochs[member] = reply.member_epoch
        return reply

    def joined(self, request):
        """The reply to a join, which is sent again while the coordinator takes no group, as a client does: a slow disk
        makes it stand still."""

        def reply():
            try:
                return self.service.handle(request)
            except CoordinatorNotAvailable as error:
                if "accepts no groups yet" not in str(error):
                    raise
                return None

        return wait_until(reply, what=f"the coordinator takes {request.group_id}")

    def ask(self, request, member="m1", **fields):
        return self.service.handle(
            request(group_id="billing", member_id=member, member_epoch=self.epochs[member], **fields)
        )

    def next(self, start="", member="m1", wait_ms=0, **fields):
        return self.ask(NextPlan, member, start=start, wait_ms=wait_ms, **fields).plan

    def start(self, plan_id, member="m1", **fields):
        return self.ask(StartPlan, member, plan_id=plan_id, **fields)

    def partitions(self):
        description = self.service.handle(DescribeGroup(group_id="billing"))
        return {(p.topic, p.partition): p for p in description.partitions}

    def runs(self):
        """The runs of all windows, those that are done included."""
        look = transactions.single_command(ListInFlight(group_id="billing", states=tuple(RecordState.__members__)))
        return self.runtime.call("billing", look, Access.PEEK).runs

    def start_offsets(self):
        return {where: p.start_offset for where, p in self.partitions().items()}


@contextlib.contextmanager
def serving(cluster, **options):
    """A service on the cluster, for tests that take no fixtures: those that tests/mistakes names. It looks at a missing
    topic again without a pause."""
    with (
        mock.patch.object(subscription, "PAUSES_S", (0.0,) * len(subscription.PAUSES_S)),
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(Running(Path(folder) / "state.db", cluster, **options)) as running,
    ):
        yield running


class NothingStored:
    """No group beside those that are served."""

    def stored_groups(self):
        return []


def storing(configs):
    """The transaction that stores configs unchecked, as another version's coordinator has."""

    def transaction(group):
        yield from ask(AlterConfigs(configs=configs))

    return transaction


def held(plan):
    return {(p.topic, p.partition): [(r.first, r.last) for r in p.ranges] for p in plan.partitions}


def acks(topic_id, first, last, kind, count=1, partition=0):
    """A request's acknowledgements of one range."""
    batch = AckBatch(first=first, last=last, delivery_count=count, types=(int(kind),))
    return (PartitionAcks(topic_id=topic_id, partition=partition, batches=(batch,)),)


def dead_letter_worker(running, group_id="billing", doubts=None):
    """The worker that writes the dead letters of a group."""
    log = LogOnce(logging.getLogger("test"))
    return GroupWorker(
        group_id, running.runtime, running.cluster, {}, doubts or running.watch.doubts, log, lambda: False
    )


def begun(call):
    """The future of a call in a thread of its own, which may wait for as long as the test runs."""
    answer = Future()

    def run():
        try:
            answer.set_result(call())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return answer
