"""PettingZoo's and OpenSpiel's environments stepped one by one. Torch-free."""
