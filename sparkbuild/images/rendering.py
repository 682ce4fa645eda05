"""From an image's template to its Dockerfile, checked, and without a secret in it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from sparkbuild.core.errors import ConfigError
from sparkbuild.core.templates.long import fill
from sparkbuild.images.dockerfile import Arg, DockerfileSpec
from sparkbuild.workspace.images.dockerfile import Rules, faults

_LEAST = 4  # characters of a secret that is looked for: a shorter one stands everywhere


def values_of(spec: DockerfileSpec) -> dict[str, object]:
    """What may stand in a template: nothing that is not in the key. Paths are those inside the build context; tables
    are in the order of their names, for a template may loop over them and the key has no order.
    """
    artifacts = {name: f"artifacts/{artifact.filename}" for name, artifact in spec.artifacts.items()}
    artifacts |= {name: f"artifacts/{name}" for name in spec.unpublished}
    return {
        "base": base_of(spec),
        "platform": spec.platform,
        "architecture": spec.architecture,
        "args": {name: shown(value) for name, value in sorted(spec.args.items())},
        "sources": {name: f"sources/{name}" for name in sorted(source.component for source in spec.sources)},
        "artifacts": dict(sorted(artifacts.items())),
        "files": "files",
    }


def dockerfile(spec: DockerfileSpec, template: str) -> str:
    """The Dockerfile. ConfigError when the template cannot be filled in, or says what it may not."""
    text = fill(template, values_of(spec), spec.dockerfile)
    args = {name: shown(value) for name, value in spec.args.items()}
    wrong = faults(text, Rules(base_of(spec), spec.network, spec.secrets, args, filled=True))
    if wrong:
        first = wrong[0]
        raise ConfigError(
            f"{spec.dockerfile}, filled in: {first.what}",
            where=f"{spec.dockerfile}, line {first.line} of what it becomes",
            found=first.found,
            wanted=first.wanted,
        )
    return text


def base_of(spec: DockerfileSpec) -> str:
    """What the Dockerfile must start from."""
    return "scratch" if spec.base is None else spec.base.reference


def shown(value: Arg) -> str:
    """An arg as a build takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def refuse_secrets(spec: DockerfileSpec, text: str, secrets: Mapping[str, str]) -> None:
    """Raise ConfigError when the Dockerfile, an arg or a gate holds a secret's value. The value is not told."""
    places = {f"arg {name}": shown(value) for name, value in spec.args.items()}
    places |= {f"gate {gate.id}": "\n".join([*gate.command, *gate.env.values()]) for gate in spec.gates}
    places[spec.dockerfile] = text
    for name, value in secrets.items():
        held = next((place for place, said in places.items() if len(value) >= _LEAST and value in said), "")
        if held:
            raise ConfigError(
                f"{held} holds the value of secret {name}",
                where=os.path.join(spec.folder, "image.toml"),
                wanted=f"RUN --mount=type=secret,id={name} and the file /run/secrets/{name}",
                next="take it out, and make a new secret if it was published",
            )
