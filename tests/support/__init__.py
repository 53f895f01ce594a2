"""What the tests start and stop: a real Kafka broker, and a proxy that cuts its data path."""
