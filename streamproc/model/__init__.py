"""What goes in and what comes out, as types: raw events, the wire format, control events, budgets, JSON Schemas."""
