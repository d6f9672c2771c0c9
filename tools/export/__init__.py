"""`arena export`."""
