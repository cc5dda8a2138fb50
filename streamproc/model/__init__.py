"""Types of everything that goes in and comes out: raw events, the wire format, control events, budgets, JSON Schemas.

Import from the modules. The package re-exports nothing, so that reading the wire format does not load pydantic.
"""

__all__: list[str] = []
