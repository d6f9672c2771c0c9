"""What learners are given, and what follows when that ends, fails or is lost."""
