"""The tests: unit (pure, fast), integration (a real broker, Spark), and the house's own rules (tidy, layering)."""
