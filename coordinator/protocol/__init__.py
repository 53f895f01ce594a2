"""Everything that crosses a process boundary: requests and replies, values, named errors, format versions, addresses,
and Arrow rows of outcomes.
"""
