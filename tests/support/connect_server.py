"""A server of Spark Connect in a process of its own, which ends when its standard input does.

    python -m tests.support.connect_server PORT KEY=VALUE...

The pairs are Spark's configuration. A line on standard output says that clients may come.
"""

import sys

from pyspark.sql import SparkSession

PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"


def main(port: str, *pairs: str) -> None:
    builder = SparkSession.builder.config("spark.plugins", PLUGIN).config("spark.connect.grpc.binding.port", port)
    for pair in pairs:
        key, _, value = pair.partition("=")
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    print("serving", flush=True)
    sys.stdin.read()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
