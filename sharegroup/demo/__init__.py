"""`make demo`: a story that a reader follows on the screen, and checks by itself.

Rule: it needs no server and no configuration, touches nothing of the user's, and leaves nothing behind.
"""
