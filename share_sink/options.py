"""The sink's options: from the texts that Spark hands over to a frozen value, or a named error that says what to do.

Rule: no I/O and no librdkafka here; ``check_kafka_config`` checks what only librdkafka knows. Spark itself adds only
the option ``path``, for start(path) and save(path), and passes a query's own checkpointLocation (seen).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coordinator.client.group_options import GroupOptions, shared_fields
from coordinator.client.options import by_lower_name, choice, count
from share_sink.archive import location
from share_sink.sink_option_table import TABLE

ACKNOWLEDGEMENT_MODE = "share.acknowledgement.mode"
"""The mode belongs to the source's options, else to the group: a sink never sets it."""
ON_STALE = ("log", "fail")
ON_REPLAY = ("skips", "replaces")


@dataclass(frozen=True, kw_only=True, repr=False)
class SinkOptions(GroupOptions):
    """The options of a query's sink; picklable; ``repr`` shows no secrets.

    ``kafka_config`` is for consumers and producers alike. ``replaces``: the query's output of a batch replaces what an
    earlier attempt wrote. ``query_name``, ``checkpoint``: the query's, empty if they are not known. ``batch_id`` None:
    the task knows the batch id. ``acknowledgement_mode``: the mode that the batch is to have been acquired with; empty:
    any.
    """

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
            UnknownConfig, ConfigTypeMismatch, ConfigOutOfBounds, ConfigConflict: see coordinator.config.resolved.
        """
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
