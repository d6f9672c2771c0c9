"""Contract suites of the learner's half: what `arena.testing` checks of users' objects."""
