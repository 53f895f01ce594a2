"""Dead letters (KIP-1191): what stands in one, the originals that they copy, and how they are written.

Room of the coordinator's service and of the sink's executors alike: both write the same letter for the same record.
"""
