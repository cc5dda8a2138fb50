"""Orders of people to a fleet of runs: what they are, who may give them, and what they add up to."""
