"""What is in this node's store by its sha256, and how it gets there."""
