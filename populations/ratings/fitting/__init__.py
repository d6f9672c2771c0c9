"""The Bradley-Terry fit from inside: its problem as arrays, its solver, its variances."""
