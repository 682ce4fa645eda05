"""What is fetched from elsewhere: artifacts, git sources, registries, package indexes."""
