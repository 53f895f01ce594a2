"""Everything that crosses a process boundary: requests and replies, values, named errors, format versions, addresses,
Arrow rows of outcomes, secret files, and the construction of librdkafka's clients.
"""
