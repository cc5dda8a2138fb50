"""The pure engine: no clock, no randomness, no input or output, no logging, no async."""
