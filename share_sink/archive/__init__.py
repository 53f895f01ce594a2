"""The archive of rejected rows: Parquet files that executors write, and that the driver makes visible."""

from share_sink.archive.batches import archive_dataset
from share_sink.archive.compaction import compact

__all__ = ["archive_dataset", "compact"]
