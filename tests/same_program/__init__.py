"""Programs that are written once and run twice on one broker: with confluent_kafka.ShareConsumer in a native share
group, and with ours. What each says of every record is compared, line by line, and stands in
traces.md; ``python -m tests.same_program`` writes it anew, and its numbers in docs/do/share-consumer.md.
"""
