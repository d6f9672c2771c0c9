"""`arena launch`."""
