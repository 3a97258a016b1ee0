"""Speed and memory, always relative to plain fine-tuning of the same network in the same process (``make bench``)."""
