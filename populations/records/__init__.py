"""Rows of the journal, their tables and aggregates: ground that all packages may stand on."""
