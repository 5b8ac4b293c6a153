"""The page of all results."""
