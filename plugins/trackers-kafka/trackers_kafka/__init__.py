"""Kafka: a run's records as messages of a topic, and runs read back from one."""
