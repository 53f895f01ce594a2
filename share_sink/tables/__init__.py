"""Tables as targets of foreachBatch: each accepted record is in the table once (docs/do/cookbook.md)."""
