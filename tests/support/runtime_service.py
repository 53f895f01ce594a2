"""A runtime on an SQLite file, without a service: what tests of the runtime begin with."""

from coordinator.core.commands import (
    AcquirePlan,
    CompletePlan,
    CreateGroup,
    InitializePartitions,
    PartitionStart,
    StartOrReclaimPlan,
    TopicWithId,
)
from coordinator.protocol.errors import CoordinatorNotAvailable
from coordinator.protocol.messages import Heartbeat, JoinGroup, PartitionBounds
from coordinator.service.runtime.runtime import CoordinatorRuntime
from coordinator.service.runtime.transaction import Access, one
from coordinator.service.stores.sqlite_store import SqliteStore
from tests.support.faulty_store import Died, FaultyStore

RECORDS = 1_000
BOUNDS = (PartitionBounds(topic_id="T", partition=0, log_start=0, end=RECORDS),)


class Service:
    """A runtime on an SQLite file whose owner may die; `ask` is one request in a round of its own."""

    def __init__(self, path, **options):
        self.path, self.options = path, options
        self.now_ms = 1_000_000
        self.start()

    def start(self):
        self.store = FaultyStore(SqliteStore(self.path))
        self.runtime = CoordinatorRuntime(self.store, **self.options)

    def die(self):
        """Memory and unanswered requests are gone; the file stays."""
        self.store.close()
        self.start()

    def ask(self, command, group_id="billing"):
        return self.play(one(command), group_id)

    def look(self, transaction, group_id="billing"):
        """As a look of the admin client or of a scrape: it does not count as asking for the group."""
        return self.play(transaction, group_id, Access.PEEK)

    def play(self, transaction, group_id="billing", access=Access.SERVE):
        answer = self.runtime.submit(group_id, transaction, access)
        self.runtime.step(self.now_ms)
        return answer.result(0)

    def ask_until_answered(self, command):
        """As a client does: a request may be repeated."""
        for _ in range(10):
            try:
                return self.ask(command)
            except CoordinatorNotAvailable:
                continue
            except Died:
                self.die()
        raise AssertionError("no answer")

    def create(self, group_id="billing"):
        self.ask(CreateGroup(incarnation="i", topic_ids=True), group_id)
        self.ask(
            InitializePartitions(
                topics=(TopicWithId(topic="orders", topic_id="T"),),
                starts=(PartitionStart(topic_id="T", partition=0, start_offset=0),),
            ),
            group_id,
        )
        self.ask(join(group_id=group_id), group_id)

    @property
    def group(self):
        return self.runtime.groups["billing"]


def join(member="m1", process="p1", group_id="billing", epoch=None):
    return JoinGroup(group_id=group_id, member_id=member, process_id=process, member_epoch=epoch)


def acquire(start="", limit=100, member="m1"):
    return AcquirePlan(
        group_id="billing", member_id=member, member_epoch=1, start=start, max_records=limit, bounds=BOUNDS
    )


def start_plan(plan_id):
    return StartOrReclaimPlan(group_id="billing", member_id="m1", member_epoch=1, plan_id=plan_id, bounds=BOUNDS)


def complete(number):
    return CompletePlan(member_id="m1", member_epoch=1, plan_id=number)


def beat(service, member="m1"):
    return service.runtime.submit("billing", one(Heartbeat(group_id="billing", member_id=member, member_epoch=1)))
