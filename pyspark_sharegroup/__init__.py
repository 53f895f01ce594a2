"""Lets Spark find ``format("sharegroup")`` by itself: it registers ``DefaultSource`` of every ``pyspark_*`` module."""

from share_sink.data_source import ShareGroupDataSink
from share_source.data_source import ShareGroupDataSource

__all__ = ["DefaultSource"]


class DefaultSource(ShareGroupDataSource, ShareGroupDataSink):
    """One format for both: reading is share_source's, writing share_sink's."""
