"""One recipe of the workspace: recipes/<name>/recipe.toml, checked against its files and the rest of the workspace."""

from __future__ import annotations

from sparkbuild.core.errors import ConfigError
from sparkbuild.workspace import toml
from sparkbuild.workspace.findings import Findings
from sparkbuild.workspace.reference import is_reference, parse
from sparkbuild.workspace.schema import Config, RecipeFile, Serve
from sparkbuild.workspace.sourcelock import SourceLock
from sparkbuild.workspace.stagingblocks import check_blocks
from sparkbuild.workspace.workspace import Image, Recipe

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
    spec = toml.read(f"{root}/{path}", RecipeFile, root)
    if not _NOT_VARIABLES.isdisjoint(spec.serve.env):
        swallowed = toml.explain(f"{root}/{path}", RecipeFile, root)
        if swallowed is not None:
            raise swallowed
    findings = Findings(root, path)
    if spec.cluster not in config.clusters:
        findings.reference(("cluster",), spec.cluster, "clusters", config.clusters, {})
    if is_reference(spec.image):
        _check_reference(spec, findings)
    elif spec.image not in images:
        findings.reference(("image",), spec.image, "images", images, problems)
    if spec.bench is not None and spec.bench.image not in images:
        findings.reference(("bench", "image"), spec.bench.image, "images", images, problems)
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
        parse(spec.image)
    except ConfigError as error:
        findings.add_error(("image",), error)
