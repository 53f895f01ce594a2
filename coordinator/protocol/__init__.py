"""Everything that one process sends to another: requests and replies, values, named errors, format versions, addresses,
and Arrow rows of outcomes."""
