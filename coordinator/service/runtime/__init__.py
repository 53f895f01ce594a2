"""The coordinator's runtime: transactions on groups, decided, appended, replayed and answered in rounds."""
