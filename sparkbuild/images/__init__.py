"""Images: what an engine or a harness runs in, built from locked inputs."""
