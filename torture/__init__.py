"""The campaign against faults, bad input and files from strangers: ``python -m torture``; see docs/reliability.md."""
