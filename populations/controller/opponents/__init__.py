"""Against which opponents a policy trains."""
