"""The drawings of *How it works*: `python -m website.drawings` writes them into docs/images/drawn."""
