"""Throughput of decisions, stacks, tournaments and learners."""
