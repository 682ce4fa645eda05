"""What is to be staged, and where its bytes come from."""
