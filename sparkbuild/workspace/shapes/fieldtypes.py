"""The types of single fields of config.toml, image.toml and recipe.toml: names, ports, texts that are not empty.

`description` is what is wanted, in words: a reader is shown that, and never the pattern.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

Table = dict[str, Any]  # of TOML, as it was written: held against a shape, or free for whom it is handed to

_ENV = "letters, digits and `_`, the first no digit, such as HF_HOME"

Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z",
        max_length=64,
        description="at most 64 letters, digits, `_`, `.` and `-`, the first a letter or digit",
    ),
]
ImageName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/@-]*\Z",
        max_length=512,
        description="the name of an image of the workspace (letters, digits, `_`, `.`, `-`), or name@sha256:...",
    ),
]
Component = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*\Z",
        max_length=64,
        description="the name of a component of the lock: at most 64 letters, digits, `_`, `.`, `+` and `-`",
    ),
]
Port = Annotated[int, Meta(ge=1, le=65535)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Text = Annotated[str, Meta(pattern=r"\S", description="text that is not empty")]
# A program's arguments and environment end at a NUL: the system refuses to start one with it.
Argument = Annotated[str, Meta(pattern=r"^[^\x00]*\Z", description="text without the character NUL")]
Variable = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z", max_length=128, description=_ENV)]
EnvName = Annotated[
    str,
    Meta(pattern=r"^(?!SPARKBUILD_LANE\Z)[A-Za-z_][A-Za-z0-9_]*\Z", description=f"{_ENV}; SPARKBUILD_LANE is ours"),
]
Python = Annotated[str, Meta(pattern=r"^3\.\d+\Z", description='a version of Python as two numbers, such as "3.11"')]
