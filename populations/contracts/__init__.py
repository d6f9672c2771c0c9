"""Contract suites of the controller's half: what `arena.testing` checks of users' rules."""
