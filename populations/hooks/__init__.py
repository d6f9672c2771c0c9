"""Calls of users' functions and commands after events, by a process beside the controller."""
