"""What is uploaded, tried as a user would: wheel and source distribution in new environments, with every extra."""
