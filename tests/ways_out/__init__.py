"""Every named error with its way out: a play that walks it, or the reason why it can't be played."""
