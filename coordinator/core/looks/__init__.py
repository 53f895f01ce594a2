"""Looks: what a group shows, a module a kind of look. Nothing is changed.
:func:`coordinator.core.look.look` takes any request for one."""
