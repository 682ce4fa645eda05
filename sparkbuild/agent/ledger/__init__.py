"""What is kept beside staged data, and what is known by it."""
