"""Everything that crosses a process: requests and replies, values, named errors, addresses, Arrow rows of outcomes,
secret files, and how clients of librdkafka are made.
"""
