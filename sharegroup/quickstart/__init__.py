"""``sharegroup quickstart``: an embedded broker with orders, for the programs of README.md."""
