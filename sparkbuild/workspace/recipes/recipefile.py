"""One recipe of the workspace: recipes/<name>/recipe.toml, checked against its files and the rest of the workspace."""

from __future__ import annotations

from sparkbuild.core.errors import ConfigError
from sparkbuild.workspace.locks.reference import is_reference, parse
from sparkbuild.workspace.locks.sourcelock import SourceLock
from sparkbuild.workspace.recipes import dockernames
from sparkbuild.workspace.recipes.blocks import check_blocks
from sparkbuild.workspace.shapes.schema import Config, RecipeFile, Serve, VenvImage
from sparkbuild.workspace.shapes.workspace import Image, Recipe
from sparkbuild.workspace.toml import tomlfile
from sparkbuild.workspace.toml.findings import Findings

# A key below [serve.env] is a variable, whatever it is called: TOML's section trap without an unknown key.
_NOT_VARIABLES = frozenset(RecipeFile.__struct_fields__ + Serve.__struct_fields__)


def load_recipe(
    root: str,
    name: str,
    *,
    config: Config,
    images: dict[str, Image],
    locks: dict[str, SourceLock],
    problems: dict[str, ConfigError],
) -> Recipe:
    """Read and check one recipe. Raises ConfigError with everything that is wrong with it.

    `problems` are those found so far: they tell a broken image or lock from one that is not there.
    """
    folder = f"recipes/{name}"
    path = f"{folder}/recipe.toml"
    spec, mistakes, lost = tomlfile.read_through(f"{root}/{path}", RecipeFile, root)
    if not mistakes and not _NOT_VARIABLES.isdisjoint(spec.serve.env):
        mistakes = tomlfile.mistakes(f"{root}/{path}", RecipeFile, root)
    findings = Findings(root, path, mistakes, lost)
    if spec.cluster not in config.clusters:
        findings.reference(("cluster",), spec.cluster, "clusters", config.clusters, {})
    if is_reference(spec.image):
        _check_reference(spec, findings)
    elif spec.image not in images:
        findings.reference(("image",), spec.image, "images", images, problems)
    _check_runtime(spec, findings, images)
    dockernames.check(spec.serve.docker, findings)
    if spec.bench is not None:
        _check_harness(spec.bench.image, findings, images, problems)
    findings.unique("gates", [gate.id for gate in spec.gates])
    findings.unique("staging", [block.id for block in spec.staging])
    check_blocks(spec, findings, config, locks, problems)
    inputs = findings.inputs(folder, spec.files)
    failure = findings.error()
    if failure is not None:
        raise failure
    return Recipe(name, folder, spec, inputs)


def _check_reference(spec: RecipeFile, findings: Findings) -> None:
    try:
        image = parse(spec.image)
    except ConfigError as error:
        findings.add_error(("image",), error)
        return
    if not image.digest and image.repository.startswith("sparkbuild/"):
        findings.add(
            ("image",),
            "this is what docker calls an image of the workspace",
            found=spec.image,
            wanted=f'its name in images/: image = "{image.name}"',
        )


def _check_runtime(spec: RecipeFile, findings: Findings, images: dict[str, Image]) -> None:
    """A container runs in a docker image, a process in an environment."""
    image = images.get(spec.image)
    if image is None and not is_reference(spec.image):
        return
    kind = "docker" if image is None else str(image.spec.__struct_config__.tag)
    runtime = "process" if kind == "venv" else "docker"
    if runtime != spec.serve.runtime:
        findings.add(
            ("serve", "runtime"),
            f"image {spec.image} is of kind {kind}, and runtime {spec.serve.runtime} cannot run it",
            wanted="runtime docker with an image of kind docker or dockerfile, or process with one of kind venv",
            next_=f'set runtime = "{runtime}" in [serve]',
        )


def _check_harness(name: str, findings: Findings, images: dict[str, Image], problems: dict[str, ConfigError]) -> None:
    """A harness is a process on this machine."""
    image = images.get(name)
    if image is None:
        findings.reference(("bench", "image"), name, "images", images, problems)
    elif not isinstance(image.spec, VenvImage):
        findings.add(
            ("bench", "image"),
            f"image {name} is of kind {image.spec.__struct_config__.tag}, and a harness runs as a process",
            wanted="an image of kind venv",
            next_="name one that has the harness, such as `harness`",
        )
