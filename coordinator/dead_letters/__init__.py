"""Dead letters (KIP-1191): the format, the source records that they copy, and how they are written.

The coordinator's service and the sink's executors share this folder: both write the same dead letter of a record.
"""
