"""TODO networks."""
