"""One build with BuildKit on this node, watched step by step: it ends with an image under a tag, or with an error that
names the step. BuildKit's cache stays as it is.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from sparkbuild.agent.disk.held import created, remove_tree
from sparkbuild.agent.docker.program import Client
from sparkbuild.agent.image.steps import Steps
from sparkbuild.agent.wire.protocol import AgentError, Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.images import BuildInputs

MEMORY = "/dev/shm"  # noqa: S108 - a folder of our own is made in it, with mode 0700
_SPACE = "no space left on device"
_OFFLINE = re.compile(
    r"network is (?:unreachable|down)|no route to host|name resolution|could not resolve|bad address|unknown host"
    r"|no such host|getaddrinfo|name or service not known|nodename nor servname",
    re.IGNORECASE,
)
_RUN = re.compile(r"\d+/\d+ RUN\b", re.IGNORECASE)
_MAYBE = "should it need the network"
_PIN = "it is built without a network: lock what it fetches as an artifact, or set network = true"


@contextmanager
def secret_files(secrets: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The secrets as files that only this user can read, in memory where that is possible; their paths by name."""
    if not secrets:
        yield {}
        return
    folder = tempfile.mkdtemp(prefix="sparkbuild-build-", dir=MEMORY if os.path.isdir(MEMORY) else None)
    try:
        paths = {}
        for name, value in secrets.items():
            paths[name] = os.path.join(folder, name)
            with created(paths[name], 0o600) as file:
                file.write(value.encode(errors="surrogateescape"))
        yield paths
    finally:
        remove_tree(folder)


class BuildKit:
    """Builds for one image."""

    def __init__(self, client: Client, request: BuildInputs, reporter: Reporter) -> None:
        self.client = client
        self._name = request["name"]
        self._network = request["network"]
        self._args = {**request["args"], "SOURCE_DATE_EPOCH": str(request["epoch"])}
        self._secrets = request["secrets"]
        self._epoch = str(request["epoch"])
        self._reporter = reporter

    def build(self, context: str, tag: str, *, cache: bool = True) -> None:
        """Build the context, a tar, as `tag`. AgentError: "build" for a step that failed, "space" for a full disk."""
        with secret_files(self._secrets) as paths, open(context, "rb") as file:
            argv = self.client.build_command(tag, network=self._network, args=self._args, secrets=paths, cache=cache)
            self._reporter.log(f"build {tag} with {self.client}")
            self._run(argv, file)

    def label(self, image: str, tag: str, labels: Mapping[str, str]) -> None:
        """Give an image labels under another tag: a build that adds no layer."""
        out = io.BytesIO()
        content = f"FROM {image}\n".encode()
        with tarfile.open(fileobj=out, mode="w") as tar:
            info = tarfile.TarInfo("Dockerfile")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        # in memory: where the disk is full, there is no temporary file to be had, and that is another error
        with os.fdopen(os.memfd_create("context"), "w+b") as file:
            file.write(out.getvalue())
            file.seek(0)
            self._run(self.client.build_command(tag, labels=labels), file)

    def masked(self, text: str) -> str:
        """A text without the values of the secrets."""
        for value in self._secrets.values():
            text = text.replace(value, "***") if value else text
        return text

    def _run(self, argv: list[str], stdin: IO[bytes]) -> None:
        steps = Steps()
        env = {**self.client.env, "SOURCE_DATE_EPOCH": self._epoch}
        process = subprocess.Popen(  # noqa: S603 - argv is a list, no shell
            argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env
        )
        try:
            for raw in process.stdout or ():
                line = self.masked(raw.decode(errors="replace").rstrip("\r\n"))
                if line.strip():
                    self._reporter.log(line)
                step = steps.feed(line)
                if step is not None:
                    phase = f"step {step.title}"[:80]
                    self._reporter.emit("progress", phase=phase, bytes=step.number, total=step.total, unit="steps")
            code = process.wait()
        finally:
            if process.poll() is None:  # told to stop: BuildKit ends a build whose client goes away
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=3)
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if code:
            raise self._failed(steps, code)

    def _failed(self, steps: Steps, code: int) -> AgentError:
        step = steps.failed
        said = [*step.lines, step.error] if step is not None else steps.tail
        text = "\n".join(said) or f"exit code {code}"
        what = f"image {self._name} was not built"
        if step is not None:
            what = f"image {self._name}: step {step.title.strip()} failed"
        if _SPACE in text.lower():
            return AgentError(what, kind="space", found=text, next="make room on docker's disk, then run again")
        next_ = "the task's log has all of its output"
        if not self._network and step is not None and _RUN.search(step.title):
            # always: a program that wants a network says so in words of its own, or crashes (busybox wget does)
            next_ = f"{_PIN} in image.toml" if _OFFLINE.search(text) else f"{_MAYBE}: {_PIN} in image.toml; {next_}"
        return AgentError(what, kind="build", found=text, next=next_)
