"""How source, sink and tools reach the coordinator: find or start it, call it, stay a member of a group."""
