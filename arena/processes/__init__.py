"""Processes that do not outlive the one that starts them: both sides."""
