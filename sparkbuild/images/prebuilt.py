"""Images that others made, by their digest in a registry: the goal of having one on a node, and how it gets there.

One node pulls it; the others get its layers from that node. On each node it has a name of ours as well, by which it is
started: the registry's own does not survive the way from node to node.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from sparkbuild.agent.wire.dockerimages import PREBUILT, ImageAbsent, ImageFact, PrebuiltAsk
from sparkbuild.agent.wire.engine import ADOPT, AdoptAsk
from sparkbuild.agent.wire.images import EXPORT, ExportAsk
from sparkbuild.core import wholefile
from sparkbuild.core.errors import ConfigError, NodeError, SparkbuildError
from sparkbuild.core.goal import Goal, Uri
from sparkbuild.core.interrupt import cancel
from sparkbuild.core.key import Key
from sparkbuild.core.plan import OK, RUN, UNKNOWN, Verdict
from sparkbuild.core.reasons import Reason
from sparkbuild.core.run import Run
from sparkbuild.core.state import Made
from sparkbuild.images import transfer
from sparkbuild.images.content import BLOBS, arrived, describe
from sparkbuild.images.docker import reference, unasked
from sparkbuild.images.relays import Relays
from sparkbuild.images.room import check_disk, check_room
from sparkbuild.images.sync import advising, told_of
from sparkbuild.nodes.ask import everywhere, look
from sparkbuild.nodes.cluster import LOCAL, Nodes
from sparkbuild.nodes.relay.relay import INCOMING
from sparkbuild.nodes.unreached import Unreached, unreached
from sparkbuild.upstream import registry_digest
from sparkbuild.upstream.logins import login_for
from sparkbuild.workspace.locks.reference import Reference

_UNSEEN = ImageAbsent(present=False)
_GZIPPED = 2.0  # of a layer as it is downloaded: the download, and what it is unpacked to; sizes are of the latter


class PrebuiltSpec(msgspec.Struct, frozen=True):
    """`name` is short, for tasks; `nodes` are all that need it, `recipes` the names of those that run in it; `each`:
    every node pulls it for itself.
    """

    name: str
    image: Reference
    nodes: tuple[str, ...]
    each: bool = False
    recipes: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The recipes' files, for messages."""
        return ", ".join(f"recipes/{name}/recipe.toml" for name in self.recipes)


def prebuilt_goal(node: str, spec: PrebuiltSpec) -> Goal:
    """The goal of having the image in a node's docker."""
    image = spec.image
    pinned = image.pinned or tagged(image)
    return Goal(
        task=f"sync:{spec.name}:{node}",
        uri=Uri("image", node, spec.name),
        key=Key({"kind": "prebuilt", "image": pinned}),
        doc=f"docker image {pinned} on {node}",
        spec=spec,
        pools=(node,),
    )


class _Known(msgspec.Struct, frozen=True):
    """What an image of a digest was seen to be: `<store>/prebuilt/<hex>.json`."""

    layers: list[str] = []
    sizes: list[int] = []
    architecture: str = ""
    bytes: int = 0


class PrebuiltKind:
    """How images by digest are looked at and brought to nodes."""

    scheme: str = PREBUILT

    def __init__(self, nodes: Nodes, relays: Relays) -> None:
        self._nodes = nodes
        self._relays = relays
        self._guard = threading.Lock()
        self._choosing: dict[str, threading.Lock] = {}
        self._asked: dict[str, SparkbuildError | None] = {}  # by image: what its registry says against it

    def query(self, goal: Goal) -> PrebuiltAsk:
        """What the agent needs to look."""
        known = self._known(goal)
        return {
            "kind": "prebuilt",
            "pinned": goal.spec.image.pinned,
            "reference": reference(goal.spec.name, goal.key),
            "layers": known.layers,
            "sizes": known.sizes,
            "incoming": INCOMING,
        }

    def judge(self, goal: Goal, fact: ImageFact | ImageAbsent | Unreached, last: Made | None) -> Verdict:
        """In docker with the registry's digest, or with the layers that an image of this digest was seen to have."""
        if not goal.spec.image.digest:
            text = f"{tagged(goal.spec.image)} is a floating tag: another image whenever its maker likes"
            return Verdict(UNKNOWN, (Reason("tag", text),), None, fact)
        unknown = unasked(goal, fact)
        if unknown is not None or "unreachable" in fact:
            return unknown or unreached(goal, fact)
        known, engine = self._known(goal), fact.get("engine")
        wanted = fact.get("architecture") or known.architecture
        if wanted and engine and engine["architecture"] not in {"", wanted}:
            text = f"image for {wanted}, node {goal.node} is {engine['architecture']}"
            return Verdict(UNKNOWN, (Reason("architecture", text),), None, fact)
        if fact["present"]:
            return Verdict(OK, (), 0, fact, told_of(fact))
        if fact.get("pinned"):
            return Verdict(RUN, (Reason("image", "is there, without a name of ours"),), 0, fact)
        text = fact.get("problem") or ("was there before, is gone" if last else "not on the node yet")
        size = known.bytes or (last.bytes if last else None)
        return Verdict(RUN, (Reason("image", text),), size, fact)

    def preflight(self, goal: Goal, verdict: Verdict) -> SparkbuildError | None:
        """Why it cannot be had: a tag instead of a digest, a registry that does not answer or does not have it. A
        registry is asked once in a run, however many nodes need the image.
        """
        spec: PrebuiltSpec = goal.spec
        asks = verdict.state == RUN and not (verdict.fact or {}).get("pinned")
        if not spec.image.digest or asks:
            name = spec.image.pinned or tagged(spec.image)
            if name not in self._asked:
                self._asked[name] = self._refusal(goal)
            return self._asked[name]
        return None

    def _refusal(self, goal: Goal) -> SparkbuildError | None:
        spec: PrebuiltSpec = goal.spec
        if not spec.image.digest:
            return floating(spec)
        if self._holder(goal) is not None:
            return None
        try:
            registry_digest.digest_of(spec.image)
        except SparkbuildError as error:
            why = ": ".join(part for part in (error.where, error.found) if part)
            error.where, error.found = spec.where or error.where, why
            return error
        return None

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """Have it there; returns the bytes moved. Whether it is right is seen by the next look."""
        spec: PrebuiltSpec = goal.spec
        if not spec.image.digest:
            raise floating(spec)
        fact: ImageFact | ImageAbsent = verdict.fact or _UNSEEN
        if fact.get("pinned") or (spec.each and not self._nodes.place(goal.node).offline):
            return self._adopt(goal, goal.node, run, fact)
        with self._one(spec.image.digest):  # who comes second finds that the first has it
            holder = self._holder(goal)
            if holder is None:
                holder = self._puller(goal)
                pulled = self._adopt(goal, holder, run, fact)
                if holder == goal.node:
                    return pulled
            self._adopt(goal, holder, run, _UNSEEN)
            self._export(goal, holder, run)
        content, receipt = describe(run.agent(holder), spec.name, goal.key)
        known = msgspec.structs.replace(self._known(goal), sizes=receipt["sizes"], bytes=receipt["bytes"])
        self._remember(goal, known)
        fact = self._seen(goal, goal.node)
        lacking, engine = None if fact["present"] else fact.get("missing"), fact.get("engine")
        missing = content.chosen(lacking or content.diff_ids)
        check_room(goal.node, engine, sum(blob.size for blob in missing), arrived(fact))
        advice = 'pull = "each" in [images] of config.toml: every node pulls it for itself'
        with advising(advice), self._relays.join(holder, goal.key.digest, BLOBS, content.layers) as relay:
            return transfer.pull(
                relay, goal.node, content, missing, run,
                reference=reference(spec.name, goal.key), key="", store=engine["store"] if engine else "",
            )  # fmt: skip

    # -- the steps -----------------------------------------------------------------------------------------------

    def _adopt(self, goal: Goal, node: str, run: Run, fact: ImageFact | ImageAbsent) -> int:
        """Have it on a node by its registry's name, pulled where it is not there, and name it; bytes pulled."""
        image: Reference = goal.spec.image
        if not fact.get("pinned"):
            check_disk(node, fact.get("engine"), self._known(goal).bytes, _GZIPPED)
        name, login = reference(goal.spec.name, goal.key), login_for(image)
        ask = AdoptAsk(repository=image.repository, digest=image.digest, reference=name, pull=True, login=login)
        adopted = run.call(node, ADOPT, ask)
        layers, architecture, size = adopted["layers"], adopted["architecture"], adopted["bytes"]
        known = msgspec.structs.replace(self._known(goal), layers=layers, architecture=architecture, bytes=size)
        self._remember(goal, known)
        return size if adopted["pulled"] else 0

    def _export(self, goal: Goal, holder: str, run: Run) -> None:
        """Its layers as blobs in the holder's store."""
        try:
            describe(run.agent(holder), goal.spec.name, goal.key)
        except SparkbuildError:
            run.note(f"{holder} takes the image apart, for the other nodes")
            request = ExportAsk(
                name=goal.spec.name,
                reference=reference(goal.spec.name, goal.key),
                key=goal.key.digest,
                parts=goal.key.parts,
                lock="",
                gates=[],
                prebuilt=True,
            )
            run.call(holder, EXPORT, request)

    def _holder(self, goal: Goal) -> str | None:
        """A node that has it by its registry's name."""
        facts = everywhere(goal.spec.nodes, lambda node: self._seen(goal, node))
        return next((node for node, fact in facts.items() if fact.get("pinned")), None)

    def _seen(self, goal: Goal, node: str) -> ImageFact | ImageAbsent:
        """What is seen of it on a node: nothing, where that does not answer."""
        try:
            return look(self._nodes.agent(node), node, PREBUILT, self.query(goal))
        except SparkbuildError:
            return _UNSEEN

    def _puller(self, goal: Goal) -> str:
        able = [node for node in (goal.node, *goal.spec.nodes) if not self._nodes.place(node).offline]
        if not able:
            raise NodeError(
                f"no node that needs {goal.spec.image.pinned} has internet",
                found=f"offline = true for {', '.join(goal.spec.nodes)}",
                next="pull it on one of them by hand, or take `offline` away in config.toml",
            )
        return str(able[0])

    @contextmanager
    def _one(self, digest: str) -> Iterator[None]:
        with self._guard:
            lock = self._choosing.setdefault(digest, threading.Lock())
        while not lock.acquire(timeout=0.2):
            cancel.check()
        try:
            yield
        finally:
            lock.release()

    # -- what is known of it -------------------------------------------------------------------------------------

    def _place(self, goal: Goal) -> str:
        hex_ = goal.spec.image.digest.partition(":")[2] or "floating"
        return os.path.join(self._nodes.store(LOCAL), "prebuilt", f"{hex_}.json")

    def _known(self, goal: Goal) -> _Known:
        try:
            with open(self._place(goal), "rb") as file:
                return msgspec.json.decode(file.read(), type=_Known)
        except (OSError, msgspec.MsgspecError, RecursionError):
            return _Known()

    def _remember(self, goal: Goal, known: _Known) -> None:
        place = self._place(goal)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        wholefile.replace(place, msgspec.json.encode(known), ours=True)


def tagged(image: Reference) -> str:
    """An image by its tag."""
    return f"{image.repository}:{image.tag or 'latest'}"


def floating(spec: PrebuiltSpec) -> ConfigError:
    """What is said of a tag: the digest that it means now, and the command that writes it into the recipe."""
    name = tagged(spec.image)
    commands = " and ".join(f"`doit lock:update serve:{recipe}`" for recipe in spec.recipes)
    try:
        digest = registry_digest.digest_of(spec.image)
        means, more = f"it means {digest} now", ""
    except SparkbuildError as error:
        digest, means = "sha256:...", f"what it means now cannot be told: {error.what}, {error.found}"
        more = f" when the registry answers; where it wants a login, `docker buildx imagetools inspect {name}` tells"
    return ConfigError(
        f"{name} is a floating tag",
        where=spec.where,
        found=means,
        wanted=f'an image by its digest, which is the same tomorrow: image = "{name}@{digest}"',
        next=f"{commands} writes that{more}",
    )
