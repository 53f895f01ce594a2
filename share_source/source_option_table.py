"""The source's options in one table: the options that it takes, and the options of Spark's Kafka source that it
refuses.

Rule: docs/do/options.md is generated from this table; every option is in this table and nowhere else (but
``kafka.*`` in coordinator/config/kafka_options.py, share.* and errors.deadletterqueue.* in
coordinator/config/group_keys.py)."""

from __future__ import annotations

from coordinator.client.options import MEMBER_NAME, Option, OptionTable
from coordinator.kafka.java_keys import SHARE_GROUPS_FORBID

OPTIONS = (
    Option("kafka.bootstrap.servers", "required", "The brokers to ask first: host:port, separated by commas."),
    Option(
        "kafka.group.id",
        "required",
        "The share group: each record goes to one of the queries that name it.",
        "there it is optional, and names a consumer group",
    ),
    Option("subscribe", "one of three", "Topics to read, separated by commas."),
    Option(
        "subscribePattern",
        "one of three",
        "Topics whose whole name matches this regular expression in RE2's syntax, also those created later. Names that "
        "begin with two underscores, and sharegroup's own topics, are in no pattern.",
        "there it is Java's; RE2's has no lookaround, backreference, possessive quantifier or atomic group, and at "
        "most 10,000 characters",
    ),
    Option("assign", "one of three", 'Partitions to read, as JSON: {"orders":[0,1]}.'),
    Option(
        "startingOffsets",
        "share.auto.offset.reset",
        'Where a new group begins: earliest, latest, or JSON as {"orders":{"0":23,"1":-2}} (-2 earliest, -1 latest). '
        "An existing group goes on where it is.",
        "there it applies to a new query, here to a new group; Spark's default is latest",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "no limit",
        "At most this many records in a batch, from all partitions together (but see share.acquire.mode).",
    ),
    Option(
        "maxBytesPerTrigger",
        "no limit",
        "About this many bytes of keys and values (and headers, with includeHeaders) in a batch: a target, not a "
        "bound, and at least one record. The driver reads up to 64 records of each batch, and limits the next one by "
        "their mean size; the first batch of a process has up to 1,000 records. With maxOffsetsPerTrigger the smaller "
        "limit holds.",
        "not there; Delta Lake's source has it",
    ),
    Option(MEMBER_NAME.name, "the query's, else the application's", MEMBER_NAME.doc, "not there"),
    Option(
        "minPartitions",
        "none",
        "Divide large ranges so that a batch has at least this many tasks. Refused with share.order=partition.",
    ),
    Option(
        "maxRecordsPerPartition",
        "no limit",
        "Divide ranges so that a task reads at most this many records. Refused with share.order=partition.",
    ),
    Option("includeHeaders", "false", "Add the column headers."),
    Option(
        "failOnDataLoss",
        "true",
        "Whether a query fails, once, when records were removed from the log before they were done.",
        "there it fails again at each start",
    ),
    Option(
        "view",
        "none",
        "Only with spark.read: shows groups, members, offsets, in-flight, dead-letters or records, and takes no "
        "records. The options beside it are kafka.*, share.coordinator.* and share.state.store; records has bounds too "
        "(see below).",
        "not there",
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        "share.broker.outage.timeout.ms, at least 120000",
        "A task fails if the broker sends it nothing for this long.",
        "there 120000",
    ),
    Option(
        "kafka.*",
        "librdkafka's",
        "Any property of librdkafka, by its name or by Java's. docs/run/java-keys.md has Java's. With "
        "kafka.client.rack, records come from the replica in that rack (docs/run/brokers.md, Racks).",
        "there they are Java's",
    ),
    Option(
        "share.*, errors.deadletterqueue.*",
        "see below",
        "Configuration of the group, and of the coordinator.",
        "not there",
    ),
)

_NEW_GROUPS = "a share group keeps its own position."
_ENDLESS = "a share group has no end."
_COORDINATOR_ASKS = "the coordinator fetches the offsets, and retries by itself."

REFUSED: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("archive.path", "onStaleReceipt", "outputOnReplay", "queryName"),
        ("it is an option of the sink.", "Set it on writeStream."),
    ),
    "groupIdPrefix": ("the queries of a share group name the same group.", "Use kafka.group.id."),
    **dict.fromkeys(
        ("startingTimestamp", "startingOffsetsByTimestamp"),
        (_NEW_GROUPS, "Use startingOffsets, or share.auto.offset.reset=by_duration:PnDTnHnMn.nS."),
    ),
    "startingOffsetsByTimestampStrategy": (_NEW_GROUPS, "Remove it."),
    "endingTimestamp": (_ENDLESS, "Use trigger(availableNow=True) to read what is there and stop."),
    "endingOffsets": (_ENDLESS, "Use trigger(availableNow=True) to read what is there and stop."),
    "endingOffsetsByTimestamp": (_ENDLESS, "Use trigger(availableNow=True) to read what is there and stop."),
    "minOffsetsPerTrigger": (
        "another member could meanwhile process the records that wait until a batch is full.",
        "Use trigger(processingTime=...) for larger batches.",
    ),
    "maxTriggerDelay": ("it needs minOffsetsPerTrigger, which is refused.", "Use trigger(processingTime=...)."),
    "fetchOffset.numRetries": (_COORDINATOR_ASKS, "Remove it, or set share.broker.outage.timeout.ms."),
    "fetchOffset.retryIntervalMs": (_COORDINATOR_ASKS, "Remove it, or set share.broker.outage.timeout.ms."),
    "group.id": ("the options of Kafka's client have a prefix.", "Use kafka.group.id."),
    "bootstrap.servers": ("the options of Kafka's client have a prefix.", "Use kafka.bootstrap.servers."),
    "topic": ("it is an option of a sink.", "Use subscribe."),
    **dict.fromkeys(
        ("checkpointLocation", "outputMode", "trigger"), ("it belongs to the query.", "Set it on writeStream.")
    ),
    "path": ("A share group is read by topic, and load() takes no path.", "Use subscribe."),
}
"""Option, spelled as in Spark -> (reason, what to use instead)."""

OWNED: dict[str, str] = {
    "auto.commit.enable": SHARE_GROUPS_FORBID["enable.auto.commit"],
    "auto.commit.interval.ms": SHARE_GROUPS_FORBID["enable.auto.commit"],
    "enable.auto.offset.store": SHARE_GROUPS_FORBID["enable.auto.commit"],
    "enable.partition.eof": "The source finds the end of a range by itself. Remove it.",
    "allow.auto.create.topics": "A topic that does not exist is an error. Create it first.",
    "max.poll.records": "Use maxOffsetsPerTrigger for a batch, or maxRecordsPerPartition for a task.",
    "max.poll.interval.ms": "Use share.session.timeout.ms.",
    "transactional.id": "The source only reads; the coordinator has a transactional id for each group. Remove it.",
    "group.id.prefix": "Use kafka.group.id: the members of a share group name the same group.",
}
"""Properties of librdkafka that the source sets itself -> what to use instead."""

TABLE = OptionTable(side="source", options=OPTIONS, refused=REFUSED, owned=OWNED)

RECORDS_OPTIONS = (
    Option("subscribe", "all topics", "Topics that the group knows, separated by commas."),
    Option("assign", "all partitions", 'Partitions, as JSON: {"orders":[0,1]}.'),
    Option("startingOffsets", "earliest", 'The first offsets: earliest, or JSON as {"orders":{"0":23,"1":-2}}.'),
    Option("endingOffsets", "latest", 'Exclusive: latest, or JSON as {"orders":{"0":42,"1":-1}}.'),
    Option(
        "states",
        "all",
        "AVAILABLE, ACQUIRED, IN_PROGRESS and ARCHIVING (given up, without a dead letter yet), separated by commas.",
        "not there",
    ),
    Option("maxRecords", "no limit", "At most this many records, which one task reads.", "not there"),
    Option("kafkaConsumer.pollTimeoutMs", "120000", "A task fails if the broker sends it nothing for this long."),
)
"""The bounds of the view ``records``, with which a batch of Spark's Kafka source is bounded as well."""

VIEW = "view"
"""With this option a read shows groups; such a read has options of its own (share_source/views/reader.py)."""
