"""Whole leagues of simulated learners whose strength is planted, so that claims can be judged."""
