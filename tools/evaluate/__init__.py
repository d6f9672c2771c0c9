"""`arena evaluate`."""
