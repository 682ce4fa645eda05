"""Source locks and what they pin."""
