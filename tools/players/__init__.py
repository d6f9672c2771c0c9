"""Players that a command line can name, and what they need to meet."""
