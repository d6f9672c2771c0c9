"""Whole leagues of simulated learners whose truth is planted."""
