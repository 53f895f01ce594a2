"""The coordinator's service: the process around the pure core, with threads, a store, a clock, Kafka and RPC.

Rule of this folder: the runtime appends a change before any caller sees it, and only the runtime changes a group."""
