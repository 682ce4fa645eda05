"""Serving: from an image and staged data to a lane that really answers."""
