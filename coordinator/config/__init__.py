"""Configuration keys with their types, defaults and bounds, and the values that they resolve to."""
