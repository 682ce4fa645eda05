"""What an image of a recipe is in its registry now: which digest its tag means, whether the registry has its digest."""

from __future__ import annotations

from contextlib import closing

from sparkbuild.core.errors import ConfigError, NodeError, UpstreamError
from sparkbuild.upstream.registry import Registry
from sparkbuild.upstream.registryhost import base_of, host_of
from sparkbuild.workspace.locks.reference import Reference

TIMEOUT = 5.0  # seconds


def address(reference: Reference) -> str:
    """Where the registry of an image is."""
    return base_of(host_of(reference.host))


def digest_of(reference: Reference) -> str:
    """The digest of an image now. NodeError when its registry does not answer or not now, ConfigError when it does not
    give that image, to everybody or to the operator's login.
    """
    with closing(Registry(reference.host, reference.path, TIMEOUT)) as registry:
        try:
            if not reference.digest:
                return registry.digest(reference.tag or "latest")
            registry.find(reference.digest)
        except UpstreamError as error:
            nodes = "or pull the image on one of the nodes: the others get it from there"
            if error.reached or error.wants_login:
                raise ConfigError(
                    f"the registry {reference.host} does not give {reference.repository}",
                    where=error.where,
                    found=f"{error.found}: {error.what}",
                    wanted="an image that everybody may pull, or whoever is logged in",
                    next=f"{error.next or 'check name and digest'}, {nodes}",
                ) from error
            raise NodeError(
                error.what.replace("the registry", f"the registry {reference.host}", 1),
                where=address(reference),
                found=error.found,
                wanted=f"{reference.repository}, which is not on all nodes",
                next=f"{error.next or 'check the network'}, {nodes}",
            ) from error
    return reference.digest
