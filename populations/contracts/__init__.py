"""Contract suites for users' own rules of the controller; `arena.testing` exports them."""
