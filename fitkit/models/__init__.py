"""Performance models: terms, how they are fitted, and what they must beat."""
