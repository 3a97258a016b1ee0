"""Measured figures as records, and what makes the tables, plots and figures of the documents from them."""
