"""The shapes of what the user wrote."""
