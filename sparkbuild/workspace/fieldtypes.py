"""The types of single fields of config.toml, image.toml and recipe.toml: names, ports, texts that are not empty."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z", max_length=64)]
ImageName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/@-]*\Z", max_length=512)]
Component = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*\Z", max_length=64)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Text = Annotated[str, Meta(pattern=r"\S")]
Variable = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z", max_length=128)]
EnvName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z")]
