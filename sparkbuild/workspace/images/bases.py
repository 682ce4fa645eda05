"""Images that are built from other images of the workspace: the base is there, fits, and does not lead in a circle."""

from __future__ import annotations

from sparkbuild.core.errors import ConfigError
from sparkbuild.workspace.shapes.schema import Config, DockerfileImage, VenvImage
from sparkbuild.workspace.shapes.workspace import Image
from sparkbuild.workspace.toml.findings import Findings


def base_of(image: Image) -> str:
    """The image of the workspace that an image is built from, "" for none."""
    if not isinstance(image.spec, DockerfileImage):
        return ""
    kind, _, name = image.spec.base.partition(":")
    return name if kind == "image" else ""


def check(root: str, config: Config, images: dict[str, Image], problems: dict[str, ConfigError]) -> None:
    """Take out of `images` what cannot be built, and note why in `problems`; what is built from it follows."""
    while True:
        wrong = {
            name: error for name, image in images.items() if (error := _error(root, image, config, images, problems))
        }
        if not wrong:
            return
        for name, error in wrong.items():
            problems[f"images/{name}"] = error
            del images[name]


def _error(
    root: str, image: Image, config: Config, images: dict[str, Image], problems: dict[str, ConfigError]
) -> ConfigError | None:
    spec = image.spec
    if not isinstance(spec, DockerfileImage):
        return None
    findings = Findings(root, f"{image.dir}/image.toml")
    if spec.build_node not in config.nodes:
        findings.reference(("build_node",), spec.build_node, "nodes", config.nodes, {})
    name = base_of(image)
    circle = _circle(image.name, images)
    base = images.get(name)
    if circle:
        findings.add(("base",), "images are built from each other in a circle", found=" -> ".join(circle))
    elif name and base is None:
        findings.reference(("base",), name, "images", images, problems)
    elif base is not None and isinstance(base.spec, VenvImage):
        findings.add(("base",), f"`{name}` is of kind venv, and no docker image", wanted="kind docker or dockerfile")
    elif base is not None and base.spec.platform != spec.platform:  # type: ignore[union-attr]
        found = f"{base.spec.platform}, and {spec.platform} of this image"  # type: ignore[union-attr]
        findings.add(("base",), f"`{name}` is for another platform", found=found)
    return findings.error()


def _circle(name: str, images: dict[str, Image]) -> tuple[str, ...]:
    """The way from an image back to itself, () when there is none."""
    way = [name]
    while (image := images.get(way[-1])) and (base := base_of(image)):
        if base == name:
            return (*way, name)
        if base in way:
            return ()  # a circle of others: told there
        way.append(base)
    return ()
