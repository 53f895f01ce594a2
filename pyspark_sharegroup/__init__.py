"""Lets Spark find ``format("sharegroup")``: Spark registers ``DefaultSource`` of every module ``pyspark_*`` itself."""

from share_sink.data_source import ShareGroupDataSink
from share_source.data_source import ShareGroupDataSource

__all__ = ["DefaultSource"]


class DefaultSource(ShareGroupDataSource, ShareGroupDataSink):
    """The format ``sharegroup``: share_source reads, share_sink writes."""
