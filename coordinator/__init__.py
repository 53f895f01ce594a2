"""The coordinator of share groups: its pure core, what crosses a process, and the service around the core.

:mod:`coordinator.core` decides; :mod:`coordinator.service` appends what the core decides, and answers;
:mod:`coordinator.client` is how source and sink reach it. :mod:`coordinator.state_log` is the form in which Kafka's own
tools can read the state."""

if not __doc__:
    raise ImportError(
        "sharegroup does not run with python -OO or PYTHONOPTIMIZE=2, which drop docstrings: the texts of its errors "
        "are docstrings. Use -O or PYTHONOPTIMIZE=1."
    )
