"""What is pinned, and what upstream has."""
