"""Speed and memory, always beside plain fine-tuning of the same network in the same process. Run by ``make bench``, not by the tests."""
