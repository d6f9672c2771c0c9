"""Game trees, best responses and exploitability. Needs no training code."""
