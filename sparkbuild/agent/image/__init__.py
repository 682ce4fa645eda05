"""Images: put together, built, tried, taken apart, kept."""
