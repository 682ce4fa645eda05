"""Bare mirrors of repositories in this node's store: one commit after the other, each fetched once and kept.

`<store>/mirrors/<first 16 hex digits of the URL's sha256>.git`. What is there whole has the ref
`refs/sparkbuild/<commit>`: git sets it only when everything the commit needs has come. A fetch asks for one commit
without its history, with all of its files. It does not leave these out to get them later (`--filter=blob:none`): the
mirror would go back to the network for each that is missing, silently, and a source would not be there offline once it
was fetched.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import unquote

from sparkbuild.agent.disk.lock import take
from sparkbuild.agent.git.command import GitError, Output, git, no_such_object, refuse
from sparkbuild.agent.wire.protocol import AgentError, Reporter, config_error

KEPT = "refs/sparkbuild"
_ONE = ("fetch", "--force", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--progress")


class Mirror:
    """The mirror of one repository. `url` is as the lock has it, `root` what a relative `file:` URL starts from."""

    def __init__(self, store: str, url: str, root: str, reporter: Reporter) -> None:
        self.url = url
        self.remote = absolute(url, root)
        name = hashlib.sha256(url.encode()).hexdigest()[:16]
        self.path = os.path.join(store, "mirrors", f"{name}.git")
        self._lock = os.path.join(store, "mirrors", f"{name}.lock")
        self._reporter = reporter
        self._held = -1

    @contextmanager
    def held(self, *, shared: bool = False) -> Iterator[None]:
        """Hold the mirror: alone to change it, `shared` to read it. Waits for others, and says so once.

        Never take it alone while another mirror is held: two runs could wait for each other.
        """
        os.makedirs(os.path.dirname(self._lock), exist_ok=True)
        fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            take(fd, lambda _holder: self._reporter.log(f"waiting for another fetch of {self.url}"), shared=shared)
            self._held = fd
            yield
        finally:
            self._held = -1
            os.close(fd)

    def git(self, *arguments: str, stdin: bytes = b"", progress: bool = False) -> Output:
        """Git in the mirror, which is held. A git that outlives this process keeps it held."""
        reporter = self._reporter if progress else None
        return git(self.path, *arguments, stdin=stdin, hold=self._held, reporter=reporter)

    def has(self, commit: str) -> bool:
        """Whether the whole commit came at some time."""
        try:
            return self.git("rev-parse", "--verify", "--quiet", f"{KEPT}/{commit}").text == commit
        except GitError:
            return False

    def ensure(self, commit: str, ref: str = "", advice: str = "") -> bool:
        """Have the commit with everything it needs; True when it had to be fetched. No network when it is there.

        `ref` is asked for where a server gives out no single commits; `advice` is what to do when the commit is gone.
        Raises AgentError: gone, unreachable, no such commit.
        """
        with self.held():
            self._prepare()
            if self.has(commit):
                return False
            self._reporter.log(f"fetch {commit[:12]} of {self.url}")
            self._fetch(commit, ref, advice)
            return True

    def reset(self) -> None:
        """Throw the mirror away: something in it is not what its name says."""
        with self.held():
            shutil.rmtree(self.path, ignore_errors=True)

    def refs(self, *patterns: str) -> dict[str, str]:
        """What the repository has now: object by the ref's whole name; tags also as `<name>^{}`, the commit.

        Raises AgentError when it cannot be asked.
        """
        try:
            lines = git("", "ls-remote", "--", self.remote, *patterns).text.splitlines()
        except GitError as error:
            refuse(error, self.url)
        pairs = [line.partition("\t")[::2] for line in lines]
        if any(name and len(oid) == 64 for oid, name in pairs):
            refuse(GitError("mismatched algorithms: client sha1; server sha256"), self.url)
        return {name: oid for oid, name in pairs if name and len(oid) == 40}

    def _prepare(self) -> None:
        """A repository that can be worked in, whatever a kill or a power cut left."""
        if os.path.isdir(self.path):
            # Alone with the mirror, so whoever made these is gone.
            leftovers = [f"{self.path}/*.lock", f"{self.path}/refs/**/*.lock", f"{self.path}/objects/**/tmp_*"]
            for pattern in leftovers:
                for path in glob.iglob(pattern, recursive=True):
                    with suppress(OSError):
                        os.unlink(path)
            try:
                if self.git("rev-parse", "--is-bare-repository").text == "true":
                    return
            except GitError as error:
                self._reporter.log(f"the mirror of {self.url} cannot be used and is made anew: {error.text}")
            shutil.rmtree(self.path)
        new = f"{self.path}.{os.getpid()}.tmp"
        for path in glob.glob(f"{glob.escape(self.path)}.*.tmp"):
            shutil.rmtree(path, ignore_errors=True)
        try:
            git(new, "init", "--quiet", "--bare", "--template=", "--object-format=sha1", hold=self._held)
        except GitError as error:
            refuse(error, new, "the mirror cannot be made")
        os.rename(new, self.path)

    def _fetch(self, commit: str, ref: str, advice: str) -> None:
        """One commit; where the server does not give out single ones, the ref; where that has moved on, everything."""
        tries = [["--depth=1", "--", self.remote, f"{commit}:{KEPT}/{commit}"]]
        tries += [["--", self.remote, f"+{ref}:refs/asked"]] if ref else []
        tries += [["--", self.remote, "+refs/heads/*:refs/all/heads/*", "+refs/tags/*:refs/all/tags/*"]]
        for arguments in tries:
            # What came without its history hides from the server that the commit, a part of it, is not here.
            hidden = arguments[0] == "--" and os.path.exists(f"{self.path}/shallow")
            try:
                self.git(*_ONE, *(("--unshallow",) if hidden else ()), *arguments, progress=True)
            except GitError as error:
                if not no_such_object(error):
                    refuse(error, self.url)
                continue
            if self._is_there(commit):
                self.git("update-ref", f"{KEPT}/{commit}", commit)
                return
        self._missing(commit, ref, advice)

    def _is_there(self, commit: str) -> bool:
        try:
            oid = self.git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}").text
        except GitError:
            return False
        if oid != commit:
            what = f"{commit} is not a commit: it is a tag's own object"
            raise config_error(what, where=self.url, wanted=f"commit {oid}", next="correct the lock")
        return True

    def _missing(self, commit: str, ref: str, advice: str) -> None:
        why = "it has no such commit"
        if ref:
            now = resolve(self.refs(ref, f"refs/heads/{ref}", f"refs/tags/{ref}*"), ref)
            why = (
                f"`{ref}` is at {now} now, and its history does not hold the commit" if now else f"`{ref}` is gone too"
            )
        raise AgentError(
            f"commit {commit} is not in the repository",
            kind="gone",
            where=self.url,
            found=why,
            next=advice or "ask its owner where it went; the lock may be right, and the history rewritten",
        )


def resolve(refs: dict[str, str], ref: str) -> str:
    """The commit that a branch or tag, "" for the default branch, names among refs as `Mirror.refs` gives them, or "".

    A branch goes before a tag of the same name; a lock that means the tag has its whole name, `refs/tags/v1`.
    """
    names = [f"refs/heads/{ref}", f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}"]
    if not ref or ref.startswith("refs/"):
        names = [f"{ref}^{{}}", ref] if ref else ["HEAD"]
    return next((refs[name] for name in names if name in refs), "")


def absolute(url: str, root: str) -> str:
    """The URL as git takes it: a relative `file:` URL starts from the workspace."""
    if url.startswith("file:") and not url.startswith("file://"):
        return "file://" + os.path.normpath(os.path.join(root, unquote(url[len("file:") :])))
    return url
