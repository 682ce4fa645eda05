"""Asking a registry what an image is, by its v2 API and anonymously: which digest a tag means, whether it has one."""

from __future__ import annotations

import re

from sparkbuild.core.errors import ConfigError, NodeError
from sparkbuild.workspace.locks.reference import Reference

TIMEOUT = 5.0  # seconds
_TYPES = (  # of a manifest, for one architecture or for several
    "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
)
_HOSTS = {"docker.io": "registry-1.docker.io"}
_FIELD = re.compile(r'(\w+)="([^"]*)"')


def address(reference: Reference) -> str:
    """Where the registry of an image is: https, but for one on this machine, as docker does."""
    host = _HOSTS.get(reference.host, reference.host)
    plain = host.partition(":")[0] in {"localhost", "127.0.0.1"}
    return f"{'http' if plain else 'https'}://{host}"


def digest_of(reference: Reference) -> str:
    """The digest of an image now. NodeError when its registry does not answer, ConfigError when it does not give that
    image to everybody.
    """
    import httpx  # noqa: PLC0415 - only for images that are missing

    base = address(reference)
    url = f"{base}/v2/{reference.path}/manifests/{reference.digest or reference.tag or 'latest'}"
    try:
        with httpx.Client(timeout=TIMEOUT, follow_redirects=True) as client:
            answer = client.head(url, headers={"Accept": _TYPES})
            if answer.status_code == 401:
                token = _token(client, answer.headers.get("www-authenticate", ""))
                answer = client.head(url, headers={"Accept": _TYPES, "Authorization": f"Bearer {token}"})
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NodeError(
            f"the registry {reference.host} cannot be reached",
            where=base,
            found=str(error) or type(error).__name__,
            wanted=f"{reference.repository}, which is not on all nodes",
            next="check the network, or pull the image on one of the nodes: the others get it from there",
        ) from error
    found = str(answer.headers.get("docker-content-digest", ""))
    if answer.status_code != 200 or not found:
        raise ConfigError(
            f"the registry {reference.host} does not give {reference.repository}",
            where=url,
            found=f"status {answer.status_code}",
            wanted="an image that everybody may pull",
            next="check name and digest; an image of a private registry can be pulled on one of the nodes by hand",
        )
    return found


def _token(client: object, challenge: str) -> str:
    """A token for everybody (distribution's spec/auth/token.md)."""
    import httpx  # noqa: PLC0415 - as above

    fields = dict(_FIELD.findall(challenge))
    if not isinstance(client, httpx.Client) or not fields.get("realm"):
        return ""
    query = {name: fields[name] for name in ("service", "scope") if name in fields}
    answer = client.get(fields["realm"], params=query)
    try:
        found = answer.json()
    except ValueError:
        return ""
    return str(found.get("token") or found.get("access_token") or "") if isinstance(found, dict) else ""
