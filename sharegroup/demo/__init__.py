"""``sharegroup demo``: a story that a reader follows on the screen, and that ends with checks of its promises.

Rule: the demo needs no server and no configuration, touches none of the user's files, and leaves nothing behind."""
