"""The admin client of share groups: it asks coordinators, or reads a state store that no coordinator serves."""
