"""The distributed worker: Faust carries the events to the engine, and the decisions away."""
