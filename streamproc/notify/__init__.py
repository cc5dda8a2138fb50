"""What people are told outside of the log: notifications."""
