"""Replay: what each log record changes in a group, a module a subject.
:func:`coordinator.core.replay.replay` takes any of them."""
