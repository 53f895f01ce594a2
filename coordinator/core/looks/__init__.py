"""Looks: requests that read a group and change nothing; a module for each kind.
:func:`coordinator.core.look.look` answers all of them."""
