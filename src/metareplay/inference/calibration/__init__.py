"""Honest numbers: what a task's probabilities and intervals are corrected by."""
