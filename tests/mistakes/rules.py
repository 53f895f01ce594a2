"""The rules that known mistakes break: the ◆ rules of the protocol, and promises that only larger proofs can check.

A ◆ rule closes a sequence of steps that lost, doubled or stuck a record. The number is the section of the design.
"""

# --- ◆ rules: each has a unit test, and a mistake that the test finds

LEAVES_WHEN_IDLE = "1 on demand: no leaving while a record is ACQUIRED, delayed, or waits for a writable dead letter"
START_OFFSET_FIRST = "2 the start offset that a policy resolved is appended before the first acquire"
ACQUISITION_IS_DURABLE = "2 every acquisition is durable"
SNAPSHOT_IS_WHOLE = "2 a snapshot appends live plans, plan ids and staged outcomes again"
NEWEST_PLAN_REPLAYS_EMPTY = "2 a newest plan without runs replays empty"
RUN_KEEPS_ITS_PLAN_ID = "2 a run keeps its plan id at a lost lock; release, cut, quarantine, acquisition clear it"
LIMITS_COMPARE_TRIES = "2 limits compare tries, never the delivery count"
ONE_FAILURE_A_DELIVERY = "2 a delivery is one failure at most, and only of a plan that was durably started"
RELEASE_IS_NO_FAILURE = "2 isolation looks at failures only: a release is none"
CUT_COMES_FIRST = "2 the cut comes first: only the kept slice is counted"
FAILED_TRIAL_ARCHIVES = "2 a failed trial archives the record and uses up its evidence"
QUERYS_LOCK_LIVES_WITH_ITS_SESSION = "3 a query's locks live as long as its session; the renewal cap is not for them"
HEARTBEAT_HAS_ITS_OWN_TIMEOUT = "3 a heartbeat has a timeout of its own, well below the session (hole 7)"
STALL_IS_NOBODYS_SILENCE = "3 time in which the coordinator heard nobody is no member's silence (hole 1)"
EPOCH_OUTLIVES_SESSION = "3 the epoch is appended and outlives the session; a fenced reader never rejoins by itself"
UNSTARTED_PLAN_COMES_BACK = "4.1 an unstarted plan comes back unchanged to its process only; a later one reclaims it"
PARTITIONS_IS_IDEMPOTENT = "4.2 partitions() is idempotent per process and end"
REPLAY_RECLAIMS_ALL = "4.3 a replay reclaims all that carries the plan id, also what a sink has already decided"
DATA_LOSS_FAILS_ONCE = "4.3 data loss is archived, fails the query once by name, and goes on after a restart"
LOSS_IS_REPORTED_ONCE = "4.3 what the log lost while no member held it is counted and reported once (hole 12)"
OLD_PLAN_IS_REFUSED = "4.3 a plan that is completed, or not the newest, is refused by name"
SUPERSEDED_PLAN_STARTS_EMPTY = "4.3 a superseded plan in Spark's log starts empty while nobody started the newest one"
AVAILABLE_NOW_DRAINS = "4 AvailableNow drains what was there, without waiting for delays, backoff or others' locks"
TRIGGER_ONCE_IS_REFUSED = "4 Trigger.Once is refused by name"
EXPLICIT_MODE_RELEASES = "4.5 explicit mode releases undecided records but no gaps; without a sink the query fails"
MODE_IS_THE_ATTEMPTS = "4.5 the acknowledgement mode is the one that the attempt began with (hole 2)"
OUTCOMES_WAIT_FOR_COMPLETION = "5 the driver's commit stages, durably; it takes effect when the plan completes"
LAST_ATTEMPT_COUNTS = "5 the last attempt's outcome counts, its silence too; an older one can only veto"
TARGET_THAT_REPLACES = "5 where all sinks of the last attempt say that the target replaces, that attempt alone counts"
STAGING_IS_FENCED = "5 staging is fenced by the incarnation, the topic ids, and each offset's delivery count"
DEAD_LETTER_FIRST = "5 lossless: nothing is archived before its dead letter is written"

WITH_UNIT_TESTS = frozenset(text for name, text in globals().copy().items() if name.isupper())
"""Every rule above. Rules of the Kafka store and of fleets have tests of their own."""

# --- promises, and ◆ rules of the store

ALIKE_NEIGHBOURS_ARE_ONE_RUN = "2 neighbours that are alike are one run, and no others"
RECEIPT_NAMES_ITS_DELIVERY = "5 an acknowledgement with the receipt of an older delivery is refused"
RELEASE_WAITS = "5 a release takes effect with its delay"
SESSION_HAS_ITS_TIME = "3 a session does not end before its timeout"
APPEND_BEFORE_ANSWER = "2 nothing is answered before it is durable; what is uncertain is read from the log"
APPEND_IS_ONE = "2 an append is in the log as a whole or not at all"
FENCED_OWNER = "1 ◆ an owner that was replaced appends nothing and answers nothing"
FENCED_HOST_STAYS_FENCED = "1 ◆ a fenced host never takes the group back by itself (hole 10)"
LATER_TOPIC_BEGINS_AT_EARLIEST = "2 a topic that a running query's pattern meets later begins at its earliest (hole 3)"
TOPIC_IS_ITS_ID = "2 a topic is its id, from the read to the outcome (hole 8)"
COMPLETION_AFTER_COMMIT = "4.1 a plan completes after Spark committed its batch, which is after the sink wrote"
MEMBER_FROM_END = "4.2 partitions() takes the member from the end offset: the initial offset may be another process's"
ACKNOWLEDGE_THEN_WRITE = "5 ◆ acknowledge first, then write"
