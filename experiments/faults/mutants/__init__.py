"""Faults planted one by one in a copy of the product: do tests find them?"""
