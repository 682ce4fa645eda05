"""The labels that make a container a lane's; both sides of the agent ask here whose a container is."""

from __future__ import annotations

from collections.abc import Mapping

RECIPE = "sparkbuild.recipe"
LAUNCH = "sparkbuild.launch"  # of one launch, and of no other


def is_lanes(labels: Mapping[str, str], of_image: Mapping[str, str] | None, name: str) -> bool:
    """Whether a container is one that a launch made, by its labels and its image's (None: docker has that image no
    more; then the name decides, where it has one). A container inherits its image's labels: one of an image that was
    made by `docker commit` of a lane has all of them, and is somebody else's. A launch writes a number of its own, so
    that a lane in such an image is known.
    """
    if RECIPE not in labels:
        return False
    if of_image is None:
        return not name or name.startswith(f"sparkbuild-{labels[RECIPE]}")
    return RECIPE not in of_image or labels.get(LAUNCH) != of_image.get(LAUNCH)
