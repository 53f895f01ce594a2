"""The Spark data source ``sharegroup``: the object behind ``spark.readStream.format("sharegroup")``.

Rule: making the data source, its reader and their pickles does no I/O, since Spark makes them on executors too, and
more than once. The options are parsed in ``schema()``, and not before, since the format has a sink too, with options of
its own: Spark calls ``schema()`` on the driver at ``load()``, never for a sink. So bad options, and topics that the
cluster does not have, are found before the query starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from coordinator.client.cluster_metadata import cluster_metadata
from coordinator.protocol.errors import UnknownPartition, UnknownTopic
from share_source.arrow_schema import spark_schema
from share_source.options import SourceOptions
from share_source.reader import ShareGroupStreamReader


class ShareGroupDataSource(DataSource):
    """Read Kafka topics as a share group: many queries on one partition, a lock per record, redelivery.

    Options are spelled as those of Spark's Kafka source, in any case (docs/options.md has all of them). Required:
    ``kafka.bootstrap.servers``, ``kafka.group.id``, and one of ``subscribe``, ``subscribePattern``, ``assign``.

    Examples
    --------
    Nothing needs to be registered once the package is installed.

    >>> df = (
    ...     spark.readStream.format("sharegroup")
    ...     .option("kafka.bootstrap.servers", "localhost:9092")
    ...     .option("subscribe", "orders")
    ...     .option("kafka.group.id", "billing")
    ...     .option("startingOffsets", "earliest")
    ...     .load()
    ... )  # doctest: +SKIP

    Take at most 10,000 records a batch, in eight tasks, with headers:

    >>> df = (
    ...     spark.readStream.format("sharegroup")
    ...     .option("kafka.bootstrap.servers", "localhost:9092")
    ...     .option("subscribe", "orders")
    ...     .option("kafka.group.id", "billing")
    ...     .option("maxOffsetsPerTrigger", 10_000)
    ...     .option("minPartitions", 8)
    ...     .option("includeHeaders", "true")
    ...     .load()
    ... )  # doctest: +SKIP
    """

    @classmethod
    def name(cls) -> str:
        return "sharegroup"

    def schema(self) -> StructType:
        """The columns of Spark's Kafka source, and ``deliveryCount``.

        Raises:
            ShareGroupError: by name, for bad options and for a subscription that the cluster does not have.
        """
        options = SourceOptions.parse(self.options)
        options.check_kafka_config()
        check_cluster(options)
        return spark_schema(options.include_headers, options.group_id)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return ShareGroupStreamReader(SourceOptions.parse(self.options))


def check_cluster(options: SourceOptions) -> None:
    """Check the subscription on the cluster. A pattern may match no topic yet.

    Raises:
        BrokerNotReachable: no broker answers.
        UnknownTopic: a topic of subscribe or assign does not exist.
        UnknownPartition: a topic has no such partition of assign.
    """
    topics = cluster_metadata(options.bootstrap_servers, options.kafka_config).topics
    for topic in (*options.topics, *(options.assign or {})):
        _check_topic(options, topics, topic)


def _check_topic(options: SourceOptions, topics: Mapping[str, Any], topic: str) -> None:
    metadata = topics.get(topic)
    if metadata is None or metadata.error is not None or not metadata.partitions:
        raise UnknownTopic(topic=topic, addresses=options.bootstrap_servers)
    for partition in (options.assign or {}).get(topic, ()):
        if partition not in metadata.partitions:
            raise UnknownPartition(topic=topic, partition=partition, partitions=len(metadata.partitions))
