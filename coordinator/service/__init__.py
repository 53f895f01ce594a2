"""The coordinator's service: the shell around the pure core, with threads, a store, a clock, Kafka and RPC.

Rule of the rooms in here: the runtime appends before anything is visible, and nothing else touches a group.
"""
