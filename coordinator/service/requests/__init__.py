"""The way of every request, from the door by which it came to its handler."""
