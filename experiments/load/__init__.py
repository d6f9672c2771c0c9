"""What large leagues and many learners cost a controller."""
