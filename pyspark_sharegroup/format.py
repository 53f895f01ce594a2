"""The format ``sharegroup`` on a Spark that has what it needs."""

from share_sink.data_source import ShareGroupDataSink
from share_source.data_source import ShareGroupDataSource


class DefaultSource(ShareGroupDataSource, ShareGroupDataSink):
    """One format for both: share_source reads, share_sink writes."""
