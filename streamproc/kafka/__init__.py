"""Kafka plumbing shared by client, worker, replay and cli: topics, access, ACLs, tokens, sessions, reading a range."""
