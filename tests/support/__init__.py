"""Support of the tests: processes that they start and stop, drivers, and builders."""
