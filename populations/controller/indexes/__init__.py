"""Indexes over the journal's rows, kept so that a decision looks at little. None is durable."""
