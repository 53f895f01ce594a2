"""The names that a program imports, and the command line ``sharegroup``: one module for each subcommand.

Rule: a program imports from here alone, and this module imports nothing until a name is asked for, because each of
Spark's workers imports it. coordinator/, share_source/ and share_sink/ are internal. The names that a program imports
beside confluent_kafka.ShareConsumer are here too, so that such a program changes its import alone."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from sharegroup.shadowed import check_packages, found_before_pythons

if TYPE_CHECKING:
    from confluent_kafka import TIMESTAMP_CREATE_TIME as TIMESTAMP_CREATE_TIME
    from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME as TIMESTAMP_LOG_APPEND_TIME
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE as TIMESTAMP_NOT_AVAILABLE
    from confluent_kafka import ConcurrentModificationException as ConcurrentModificationException
    from confluent_kafka import IllegalStateException as IllegalStateException
    from confluent_kafka import KafkaError as KafkaError
    from confluent_kafka import KafkaException as KafkaException
    from confluent_kafka import Message as Message
    from confluent_kafka import Messages as Messages
    from confluent_kafka import TopicPartition as TopicPartition

    from coordinator.admin.admin import Admin as Admin
    from coordinator.client.forks import UsedAfterFork as UsedAfterFork
    from coordinator.client.offset_resets import offsets_from_file as offsets_from_file
    from coordinator.kafka.token_function import token_function as token_function
    from coordinator.protocol.errors import ShareGroupError as ShareGroupError
    from coordinator.protocol.values import AcknowledgeType as AcknowledgeType
    from coordinator.state_log.placement import state_partition_of as state_partition_of
    from share_consumer.aio import AsyncShareConsumer as AsyncShareConsumer
    from share_consumer.consumer import DeserializingShareConsumer as DeserializingShareConsumer
    from share_consumer.consumer import ShareConsumer as ShareConsumer
    from share_consumer.errors import WakeupException as WakeupException
    from share_sink import archive as archive
    from share_sink.decided_rows import decide as decide
    from share_sink.foreach_batch import acknowledge as acknowledge
    from share_sink.redrive.redrive import redrive as redrive
    from share_sink.row_order import in_order as in_order
    from share_sink.tables.once import append_once as append_once
    from share_sink.tables.once import merge_once as merge_once
    from share_sink.task_progress import progress as progress
    from share_source import views as views
    from share_source.driver.finished_run import complete_run as complete_run
    from share_source.driver.kept_query import keep_running as keep_running
    from share_source.views.query_listener import ShareGroupListener as ShareGroupListener

    __version__: str

# The module of each name; of the names of packages, the package.
_CONFLUENTS = (
    *("TIMESTAMP_CREATE_TIME", "TIMESTAMP_LOG_APPEND_TIME", "TIMESTAMP_NOT_AVAILABLE", "IllegalStateException"),
    *("ConcurrentModificationException", "KafkaError", "KafkaException", "Message", "Messages", "TopicPartition"),
)
_MODULES = {
    **dict.fromkeys(_CONFLUENTS, "confluent_kafka"),
    "AcknowledgeType": "coordinator.protocol.values",
    "Admin": "coordinator.admin.admin",
    "AsyncShareConsumer": "share_consumer.aio",
    "DeserializingShareConsumer": "share_consumer.consumer",
    "ShareConsumer": "share_consumer.consumer",
    "ShareGroupError": "coordinator.protocol.errors",
    "ShareGroupListener": "share_source.views.query_listener",
    "UsedAfterFork": "coordinator.client.forks",
    "WakeupException": "share_consumer.errors",
    "acknowledge": "share_sink.foreach_batch",
    "append_once": "share_sink.tables.once",
    "archive": "share_sink.archive",
    "complete_run": "share_source.driver.finished_run",
    "decide": "share_sink.decided_rows",
    "in_order": "share_sink.row_order",
    "keep_running": "share_source.driver.kept_query",
    "merge_once": "share_sink.tables.once",
    "offsets_from_file": "coordinator.client.offset_resets",
    "progress": "share_sink.task_progress",
    "redrive": "share_sink.redrive.redrive",
    "state_partition_of": "coordinator.state_log.placement",
    "token_function": "coordinator.kafka.token_function",
    "views": "share_source.views",
}
_PACKAGES = ("archive", "views")


def __getattr__(name: str) -> object:
    """Load the module of a name when the name is asked for. From then on the name is here: a UDF asks for each row.
    Raises ImportError if another module has the name of a package of ours, or Python drops docstrings, or a module that
    is needed can't be imported."""
    if name == "__version__":
        from coordinator.protocol.package_version import package_version

        return package_version()
    if name == "__all__":  # of `import *`: what needs Spark is left out where Spark is missing
        needs_spark = () if find_spec("pyspark") else ("share_sink", "share_source")
        return sorted(each for each, module in _MODULES.items() if not module.startswith(needs_spark))
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_packages()
    try:
        module = import_module(_MODULES[name])
    except (AttributeError, ImportError) as error:
        if files := " and ".join(found_before_pythons()):
            raise ImportError(
                f"sharegroup.{name} can't be imported: {error}. Rename {files}: a module of Python has the same name"
            ) from error
        if isinstance(error, ImportError):
            raise
        raise ImportError(  # `from sharegroup import NAME` would end without it
            f"sharegroup.{name} can't be imported: {error}. A package that it needs is broken or too old, or a file "
            "beside the program has the name of one of its modules: the traceback above says which"
        ) from error
    found = globals()[name] = module if name in _PACKAGES else getattr(module, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
