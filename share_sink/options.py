"""The sink's options: parses Spark's texts into a frozen value, or raises a named error that says what to do.

Rule: no I/O and no librdkafka here; ``check_kafka_config`` checks what only librdkafka knows. Spark itself adds only
the option ``path``, for start(path) and save(path), and passes on the query's checkpointLocation (seen)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coordinator.client.group_options import GroupOptions, shared_fields
from coordinator.client.options import by_lower_name, choice, count
from share_sink.archive import location
from share_sink.sink_option_table import TABLE

ACKNOWLEDGEMENT_MODE = "share.acknowledgement.mode"
"""The mode is an option of the source, else a config of the group. A sink never sets it."""
ON_STALE = ("log", "fail")
ON_REPLAY = ("skips", "replaces")


@dataclass(frozen=True, kw_only=True, repr=False)
class SinkOptions(GroupOptions):
    """The options of a query's sink. Picklable; ``repr`` shows no secrets.

    ``kafka_config`` is for consumers and producers alike. ``replaces``: the output of a replayed batch replaces that of
    an earlier attempt. ``query_name``, ``checkpoint``: the query's; empty if unknown. ``batch_id`` None: the task knows
    it. ``acknowledgement_mode``: the mode that the batch must have been acquired with; empty: any."""

    archive_path: str = ""
    fail_on_stale: bool = False
    replaces: bool = False
    query_name: str = ""
    checkpoint: str = ""
    batch_id: int | None = None
    acknowledgement_mode: str = ""

    @classmethod
    def parse(cls, options: Mapping[str, str | None]) -> SinkOptions:
        """Returns the options that Spark passes, whose names may be in any case.

        Raises:
            UnknownOption, RefusedOption, MissingOption, InvalidOption: see coordinator.protocol.option_errors.
            UnknownConfig, ConfigTypeMismatch, ConfigOutOfBounds, ConfigConflict: see coordinator.config.resolved."""
        given = by_lower_name(options)
        shared = shared_fields(
            given, TABLE, "it names the share group whose records the rows acknowledge: the source's."
        )
        return cls(
            **shared,
            acknowledgement_mode=shared["group_configs"].pop(ACKNOWLEDGEMENT_MODE, "").strip(),
            archive_path=given.get("archive.path", "").strip(),
            fail_on_stale=choice(given, "onStaleReceipt", ON_STALE) == "fail",
            replaces=choice(given, "outputOnReplay", ON_REPLAY) == "replaces",
            query_name=given.get("queryname", ""),
            checkpoint=given.get("checkpointlocation", ""),
            batch_id=count(given, "batchId", least=0),
        )

    def printed(self) -> dict[str, Any]:
        return {**super().printed(), "archive_path": location.without_secrets(self.archive_path)}
