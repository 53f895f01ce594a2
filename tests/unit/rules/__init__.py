"""Every rule of docs/protocol.md that the core carries: a test named after it, and mistakes that make these tests
fail."""
