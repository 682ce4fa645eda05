"""The commands of doit, ours and replaced ones."""
