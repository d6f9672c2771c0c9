"""Pages of `arena web`, from the documents of a run's views."""
