"""The share engine and its service.

Modules directly in this package, and those in :mod:`coordinator.core.commands`, are the core: pure, no clock, thread,
socket, logger or Kafka. :mod:`coordinator.service` is the shell that appends what the core decides, and
:mod:`coordinator.client` is how source and sink reach it. :mod:`coordinator.state_log` is the form in which Kafka's own
tools can read the state, for the store to come that keeps it in a topic.
"""
