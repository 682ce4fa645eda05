"""The names, labels and states of lanes' containers; both sides of the agent ask here whose a container is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkbuild.agent.wire.records import Box

PREFIX = "sparkbuild."
RECIPE = "sparkbuild.recipe"
LAUNCH = "sparkbuild.launch"  # of one launch, and of no other
STORE = "sparkbuild.store"  # see `store_id`
BY = "sparkbuild.by"  # who launched it
PORT = "sparkbuild.port"
KEY = "sparkbuild.key"  # of the lane or the image; images have more labels, see agent/image
TRIAL = "sparkbuild.trial"  # of a container that was only made to see whether its image can be
ALIVE = frozenset({"running", "paused", "restarting"})  # docker's states of a container with memory, ports and devices
CREATED = "created"  # docker's state of one that was never started; it holds its name


def name_of(recipe: str) -> str:
    """The container of a recipe that is meant to run; dead ones are renamed."""
    return f"sparkbuild-{recipe}"


def store_id(store: str) -> str:
    """Tells the stores on a node apart without naming them: the label STORE."""
    return hashlib.sha256(store.encode()).hexdigest()[:8]


def is_alive(box: Box | None) -> bool:
    """Whether a container holds what a lane holds."""
    return box is not None and box["state"] in ALIVE


def is_of_another(label: str, store: str) -> bool:
    """Whether a container with that label STORE was launched from another store: by another user, most often."""
    return label not in {"", store_id(store)}


def is_lanes(labels: Mapping[str, str], of_image: Mapping[str, str] | None, name: str) -> bool:
    """Whether a container is one that a launch made, by its labels and its image's (None: docker has that image no
    more; then the name decides, where it has one). A container inherits its image's labels: one of an image that was
    made by `docker commit` of a lane has all of them, and is somebody else's. A launch writes a number of its own, so
    that a lane in such an image is known.
    """
    if RECIPE not in labels:
        return False
    if of_image is None:
        return not name or name.startswith(name_of(labels[RECIPE]))
    return RECIPE not in of_image or labels.get(LAUNCH) != of_image.get(LAUNCH)
