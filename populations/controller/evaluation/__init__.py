"""Choice of evaluation matches, which rate players, and of their number: in training and after."""
