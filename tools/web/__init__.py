"""`arena web`."""
