"""The sink's options in one table: the options that it takes, and the options that it refuses.

Rule: docs/do/options.md is generated from this table; every option is in this table and nowhere else (but ``kafka.*``
in coordinator/config/kafka_options.py, share.* and errors.deadletterqueue.* in coordinator/config/group_keys.py)."""

from __future__ import annotations

from coordinator.client.options import Option, OptionTable
from coordinator.kafka.java_keys import SHARE_GROUPS_FORBID

OPTIONS = (
    Option("kafka.bootstrap.servers", "required", "The brokers to ask first: host:port, separated by commas."),
    Option("kafka.group.id", "required", "The share group of the source that read the rows."),
    Option(
        "archive.path",
        "none",
        "A folder for the rejected records as Parquet (docs/do/dead-letters.md). A relative path begins at the "
        "driver's working directory.",
    ),
    Option(
        "onStaleReceipt",
        "log",
        "Rows with a stale receipt (docs/do/sink.md): log counts them; fail stops the query and acknowledges nothing "
        "of the batch.",
    ),
    Option(
        "outputOnReplay",
        "skips",
        "What the target does with the replay of a batch: replaces or skips (docs/do/sink.md).",
    ),
    Option("batchId", "the id of the sink's batch", "The id of the rows' batch: sharegroup.acknowledge sets it."),
    Option("checkpointLocation", "the query's", "Spark sets it. The query's member is described with it."),
    Option("queryName", "the query's", "Spark sets it from writeStream.queryName. The member is described with it."),
    Option(
        "kafka.*",
        "librdkafka's",
        "Any property of librdkafka or Java, for the producer of dead letters and the reader of their source records.",
    ),
    Option(
        "share.*, errors.deadletterqueue.*",
        "see below",
        "Configuration of the group, and of the coordinator: the same as of the source. If source and sink set the "
        "same key of the group, the one that starts last wins, but share.acknowledgement.mode is the source's.",
    ),
)

_SOURCE = "it is an option of the source."
_ON_READ = "Set it on readStream."

REFUSED: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        (
            *("subscribe", "subscribePattern", "assign", "startingOffsets", "maxOffsetsPerTrigger", "minPartitions"),
            *("maxRecordsPerPartition", "includeHeaders", "failOnDataLoss", "view", "kafkaConsumer.pollTimeoutMs"),
        ),
        (_SOURCE, _ON_READ),
    ),
    "topic": ("dead letters have one topic in a group.", "Use errors.deadletterqueue.topic.name."),
    **dict.fromkeys(
        ("acknowledgement", "reason", "releaseDelayMs", "releaseAt"),
        ("each row has its own.", "Give the DataFrame a column of this name."),
    ),
    "path": ("records are acknowledged, no file is written.", "Use archive.path for the rejected records."),
    "group.id": ("the options of Kafka's client have a prefix.", "Use kafka.group.id."),
    "bootstrap.servers": ("the options of Kafka's client have a prefix.", "Use kafka.bootstrap.servers."),
    "asyncProgressTrackingEnabled": ("a batch has to be in Spark's log before its records are done.", "Remove it."),
}
"""Option, spelled as in Spark -> (reason, what to use instead)."""

_LOSSLESS = "A dead letter counts as written when all replicas have it, once. Remove it."

OWNED: dict[str, str] = {
    **dict.fromkeys(
        (
            *("acks", "request.required.acks", "enable.idempotence", "enable.gapless.guarantee"),
            "delivery.report.only.error",
        ),
        _LOSSLESS,
    ),
    "transactional.id": "Dead letters are written at least once, and deduplicable by their origin. Remove it.",
    "transaction.timeout.ms": "Dead letters are not written in transactions. Remove it.",
    "auto.commit.enable": SHARE_GROUPS_FORBID["enable.auto.commit"],
    "auto.commit.interval.ms": SHARE_GROUPS_FORBID["enable.auto.commit"],
    "enable.auto.offset.store": SHARE_GROUPS_FORBID["enable.auto.commit"],
    "enable.partition.eof": "The originals of dead letters are found by their offsets. Remove it.",
    "allow.auto.create.topics": "Use errors.deadletterqueue.auto.create.topics.enable.",
}
"""Properties of librdkafka that the sink sets itself -> what to use instead."""

TABLE = OptionTable(side="sink", options=OPTIONS, refused=REFUSED, owned=OWNED)
