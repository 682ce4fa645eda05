"""One file from the first of its URLs that gives it: its sha256 is known, so any of them is as good as another."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from sparkbuild.agent.store.artifacts import keep_if_right
from sparkbuild.agent.store.download import download
from sparkbuild.agent.store.kept import sha256_of
from sparkbuild.agent.store.unreached import OFFLINE, is_unreached
from sparkbuild.agent.wire.protocol import AgentError, Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.store import FetchRequest


class _Failed(NamedTuple):
    """A URL, the file of the workspace that says it, and why it did not give the content."""

    url: str
    pinned: str
    error: AgentError

    def __str__(self) -> str:
        fields = self.error.fields
        if fields["kind"] == "integrity":
            return f"{self.url} ({self.pinned}): other content, {fields['found']}"
        wanted = f" of {fields['wanted']}" if fields["wanted"] else ""
        return f"{self.url} ({self.pinned}): {fields['what']}, {fields['found']}{wanted}"


def fetch(request: FetchRequest, part: str, reporter: Reporter) -> None:
    """The content into `part`, see fetch.run for the request. What an earlier try, or another of the URLs, left in
    `part` is gone on from; only the sha256 of the whole proves it. Raises AgentError when no URL gives it.
    """
    origins = [(request["url"], request.get("pinned", "the lock")), *request.get("others", ())]
    failed: list[_Failed] = []
    for index, (url, pinned) in enumerate(origins):
        try:
            _one(url, pinned, request, part, reporter)
        except AgentError as error:
            failed.append(_Failed(url, pinned, error))
        else:
            return
        if index + 1 < len(origins):
            reporter.log(f"{failed[-1]}; now from another URL of the same sha256: {origins[index + 1][0]}")
    raise _refusal(failed, request["sha256"], remote=bool(request.get("remote")))


def _one(url: str, pinned: str, request: FetchRequest, part: str, reporter: Reporter) -> None:
    resumed = download(url, request["root"], part, reporter, pinned)
    if resumed and sha256_of(part) != request["sha256"]:
        reporter.log("what was there from an earlier try does not fit: once more from the beginning")
        os.unlink(part)
        download(url, request["root"], part, reporter, pinned)
    keep_if_right(part, request["sha256"], url, pinned)


def _refusal(failed: list[_Failed], sha256: str, *, remote: bool) -> AgentError:
    """Why it cannot be had, as one error."""
    unreached = all(
        failure.error.fields["kind"] == "node" and is_unreached(failure.error.fields["found"]) for failure in failed
    )
    error = failed[0].error
    if len(failed) > 1:
        kinds = {failure.error.fields["kind"] for failure in failed}
        places = " or ".join(dict.fromkeys(failure.pinned for failure in failed))
        error = AgentError(
            f"none of the {len(failed)} URLs of this file gives it",
            kind=kinds.pop() if len(kinds) == 1 else "node",
            where="; ".join(dict.fromkeys(failure.pinned for failure in failed)),
            found="\n".join(map(str, failed)),
            wanted=f"sha256 {sha256} from one of them",
            next=f"correct one of these URLs, in {places}; what only had trouble: run again, it goes on where it was",
        )
    if remote and unreached:
        error.fields["next"] = OFFLINE
    return error
