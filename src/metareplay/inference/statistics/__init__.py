"""Task statistics: what is stored about every task while its data are available, and how inputs compare with it."""
