"""The sink's options: from the texts that Spark hands over to a frozen value, or a named error that says what to do.

Rule: no I/O and no librdkafka here; what only librdkafka knows is checked by ``SinkOptions.check_kafka_config``. Of
itself Spark adds only ``path``, for start(path) and save(path); a query's own checkpointLocation comes too (seen).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.client import kafka_options
from coordinator.client.options import by_lower_name, choice, configs, count, group_id
from share_sink.archive import location
from share_sink.option_table import TABLE

ON_STALE = ("log", "fail")
ON_REPLAY = ("skips", "replaces")
ON_OTHER_GROUP = ("fail", "allow")
_NOTHING: tuple[object, ...] = (None, "", {})


@dataclass(frozen=True, kw_only=True, repr=False)
class SinkOptions:
    """What a query's sink was told; picklable; ``repr`` shows no secrets.

    ``kafka_config`` is librdkafka's, with bootstrap.servers, for consumers and producers alike. The configs are texts,
    checked, as they were given. ``replaces``: the query's output of a batch takes the place of what an earlier attempt
    wrote. ``allow_other_group``: rows may be of another group than their query's source. ``checkpoint``: the query's,
    empty if it is not known; ``batch_offsets``: what acknowledge() found of its batch (share_sink.query_batch), None if
    it did not look. ``batch_id`` None: the task knows it. ``batch_write``: which of several writes of a batch this is,
    from 0.
    """

    bootstrap_servers: str
    group_id: str
    archive_path: str = ""
    fail_on_stale: bool = False
    replaces: bool = False
    allow_other_group: bool = False
    checkpoint: str = ""
    batch_offsets: str | None = None
    batch_id: int | None = None
    batch_write: int = 0
    kafka_config: dict[str, str] = field(default_factory=dict)
    group_configs: dict[str, str] = field(default_factory=dict)
    coordinator_configs: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, options: Mapping[str, str | None]) -> SinkOptions:
        """From Spark's options, names in any case; the named errors of coordinator.config.resolved and
        .client.option_errors."""
        given = by_lower_name(options)
        group_configs, coordinator_configs = configs(given)
        TABLE.check_names(given)
        kafka_config = TABLE.kafka_config(given)
        return cls(
            bootstrap_servers=kafka_config["bootstrap.servers"],
            group_id=group_id(given, "it names the share group whose records the rows acknowledge: the source's."),
            archive_path=given.get("archive.path", "").strip(),
            fail_on_stale=choice(given, "onStaleReceipt", ON_STALE) == "fail",
            replaces=choice(given, "outputOnReplay", ON_REPLAY) == "replaces",
            allow_other_group=choice(given, "onOtherGroup", ON_OTHER_GROUP) == "allow",
            checkpoint=given.get("checkpointlocation", ""),
            batch_offsets=given.get("batchoffsets"),
            batch_id=count(given, "batchId", least=0),
            batch_write=count(given, "batchWrite", least=0) or 0,
            kafka_config=kafka_config,
            group_configs=group_configs,
            coordinator_configs=coordinator_configs,
        )

    def check_kafka_config(self) -> None:
        """Have librdkafka check ``kafka_config``: UnknownKafkaOption, InvalidKafkaOption. No I/O."""
        kafka_options.check_kafka_config(self.kafka_config)

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in self.__dataclass_fields__}
        shown["kafka_config"] = kafka_options.redacted(self.kafka_config)
        shown["archive_path"] = location.shown(self.archive_path)
        return (
            f"<SinkOptions {' '.join(f'{name}={value!r}' for name, value in shown.items() if value not in _NOTHING)}>"
        )
