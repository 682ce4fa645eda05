"""What BuildKit says with `--progress=plain`: which step it is at, which one failed, and what that printed last."""

from __future__ import annotations

import re
from collections import deque

LINES = 15  # of a failed step's output

_LINE = re.compile(r"#(\d+) (.*)", re.DOTALL)
_STEP = re.compile(r"\[(?:(?P<stage>\S+)\s+)?(?P<number>[0-9]{1,6})/(?P<total>[0-9]{1,6})\] (?P<text>.*)", re.DOTALL)
_OUTPUT = re.compile(r"\d+\.\d+ (.*)", re.DOTALL)


class Step:
    """A step of a build: "3/4 RUN make", or one of BuildKit's own ("[internal] load build context")."""

    def __init__(self, title: str, number: int, total: int) -> None:
        self.title = title
        self.number = number
        self.total = total
        self.lines: deque[str] = deque(maxlen=LINES)
        self.error = ""


class Steps:
    """The steps so far, fed line by line."""

    def __init__(self) -> None:
        self._steps: dict[str, Step] = {}
        self._tail: deque[str] = deque(maxlen=LINES)

    def feed(self, line: str) -> Step | None:
        """Take one line; the step that begins with it, if it is one of the Dockerfile's."""
        match = _LINE.fullmatch(line)
        if match is None:
            if line.strip() and not line.startswith(("-----", " > ")):
                self._tail.append(line.rstrip())
            return None
        name, rest = match[1], match[2].rstrip()
        if rest.startswith("["):
            return self._begin(name, rest)
        step = self._steps.get(name)
        if step is not None and rest.startswith("ERROR: "):
            step.error = rest.removeprefix("ERROR: ")
        elif step is not None and (output := _OUTPUT.fullmatch(rest)):
            step.lines.append(output[1])
        return None

    def _begin(self, name: str, rest: str) -> Step | None:
        match = _STEP.fullmatch(rest)
        if match is None:
            self._steps.setdefault(name, Step(rest, 0, 0))
            return None
        stage = match["stage"]
        own = "" if stage is None or stage.startswith("stage-") else f"{stage} "
        number, total = int(match["number"]), int(match["total"])
        title = f"{own}{number}/{total} {match['text']}"
        return self._steps.setdefault(name, Step(title, number, total))

    @property
    def failed(self) -> Step | None:
        """The step that ended the build."""
        return next((step for step in self._steps.values() if step.error and "canceled" not in step.error), None)

    @property
    def tail(self) -> list[str]:
        """The last lines that belong to no step."""
        return list(self._tail)
