"""A naive model of the group's protocol, offset by offset, and random drivers that hold the core to it."""
