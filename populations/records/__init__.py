"""The journal's rows, tables of them and what they add up to: ground that all may stand on."""
