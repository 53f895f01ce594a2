"""Configuration keys with their types, defaults and bounds, the values that they resolve to, and files with secrets."""
