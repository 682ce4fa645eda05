"""Caches of huggingface_hub as sources."""
