"""The log again: from files or from Kafka, through the same engine."""
