"""The handlers of requests: which function answers a request of which type, and what each of them asks, decides and
answers."""
