"""`arena envs`."""
