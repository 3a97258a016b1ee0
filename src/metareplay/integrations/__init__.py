"""Other tools that keep and serve models."""
