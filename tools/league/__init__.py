"""`arena league`."""
