"""What BuildKit prints, as docker 20.10 does, and what is made of it: the step, the failed one, its last lines."""

from __future__ import annotations

from sparkbuild.agent.docker.program import Client
from sparkbuild.agent.image.steps import Steps

FAILED = """\
#1 [internal] load remote build context
#1 sha256:4b59f2b82b0e88a734eae82eb9d37ce4416a39fa47161070794e77ec6fd2e44d
#1 DONE 0.0s

#4 [1/4] FROM docker.io/library/base:1
#4 CACHED

#7 [builder 2/2] RUN make
#7 0.100 one
#7 DONE 0.1s

#5 [stage-1 2/3] COPY a /a
#5 DONE 0.0s

#8 [stage-1  3/3] RUN echo one; exit 3
#8 0.224 one
#8 0.300 two  spaces kept
#8 ERROR: executor failed running [/bin/sh -c echo one; exit 3]: exit code: 3
------
 > [stage-1 3/3] RUN echo one; exit 3:
------
executor failed running [/bin/sh -c echo one; exit 3]: exit code: 3
"""
UNREAD = """\
#2 copy /context /
#2 DONE 0.1s
failed to solve with frontend dockerfile.v0: dockerfile parse error line 2: unknown instruction: RUNN
"""


def fed(text: str) -> tuple[Steps, list[str]]:
    steps = Steps()
    begun = [step.title for line in text.splitlines() if (step := steps.feed(line)) is not None]
    return steps, begun


def test_the_steps_in_order() -> None:
    _, begun = fed(FAILED)
    assert begun == [
        "1/4 FROM docker.io/library/base:1",
        "builder 2/2 RUN make",
        "2/3 COPY a /a",
        "3/3 RUN echo one; exit 3",
    ]


def test_the_failed_step_with_its_last_lines() -> None:
    failed = fed(FAILED)[0].failed
    assert failed is not None
    assert (failed.title, failed.number, failed.total) == ("3/3 RUN echo one; exit 3", 3, 3)
    assert list(failed.lines) == ["one", "two  spaces kept"]
    assert failed.error.endswith("exit code: 3")


def test_only_the_last_lines_are_kept() -> None:
    lines = "".join(f"#8 0.{number} line {number}\n" for number in range(1000, 1100))
    failed = fed(f"#8 [2/2] RUN x\n{lines}#8 ERROR: no\n")[0].failed
    assert failed is not None
    assert list(failed.lines) == [f"line {number}" for number in range(1085, 1100)]


def test_a_step_that_was_ended_by_another_is_not_the_failed_one() -> None:
    text = "#7 [a 1/1] RUN x\n#8 [b 1/1] RUN y\n#7 ERROR: context canceled\n#8 ERROR: exit code: 1\n"
    failed = fed(text)[0].failed
    assert failed is not None
    assert failed.title == "b 1/1 RUN y"


def test_no_step_at_all() -> None:
    steps, begun = fed(UNREAD)
    assert (steps.failed, begun) == (None, [])
    assert steps.tail[-1].endswith("unknown instruction: RUNN")


def test_the_command_of_both_programs() -> None:
    given = {"args": {"A": "1"}, "secrets": {"T": "/dev/shm/x/T"}, "labels": {"k": '{"a":1}'}, "cache": False}
    classic = Client("/usr/bin/docker", buildx=False, version="20.10").build_command("x:1", **given)  # type: ignore[arg-type]
    assert classic == [
        *["/usr/bin/docker", "build", "--progress=plain", "--network", "none", "--tag", "x:1", "--pull=false"],
        *["--no-cache", "--build-arg", "A=1", "--secret", "id=T,src=/dev/shm/x/T", "--label", 'k={"a":1}', "-"],
    ]
    buildx = Client("/usr/bin/docker", buildx=True, version="").build_command("x:1", network=True)
    assert buildx == [
        *["/usr/bin/docker", "buildx", "build", "--builder", "default", "--load", "--provenance=false", "--sbom=false"],
        *["--progress=plain", "--network", "default", "--tag", "x:1", "-"],
    ]
