"""Lets Spark find ``format("sharegroup")`` by itself: it registers ``DefaultSource`` of every ``pyspark_*`` module."""

from share_source.data_source import ShareGroupDataSource as DefaultSource

__all__ = ["DefaultSource"]
