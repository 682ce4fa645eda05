"""A node that reads from a private registry itself, with the login that the operator's machine has told it."""

from __future__ import annotations

import base64
import json

import pytest

from sparkbuild.agent.docker.upstream import Upstream
from sparkbuild.agent.wire.protocol import AgentError
from sparkbuild.upstream.logins import Login
from tests.upstream.registry import registry


@pytest.mark.parametrize("basic", [True, False])
def test_with_and_without_a_login(basic: bool) -> None:
    with registry() as server:
        digest = server.put("org/vllm", "1.0", "a")
        server.login, server.basic, server.token = "ops:secret", basic, "" if basic else "t0k"
        with pytest.raises(AgentError) as caught:
            Upstream(f"{server.host}/org/vllm").manifest(digest)
        assert "401" in caught.value.fields["found"]
        login = Login(server.host, "ops", "secret").for_docker()
        assert json.loads(Upstream(f"{server.host}/org/vllm", login).manifest(digest))["x"] == "a"


def test_a_login_goes_to_no_other_place_without_tls() -> None:
    login = base64.urlsafe_b64encode(b'{"username": "ops", "password": "secret"}').decode()
    assert Upstream("127.0.0.1:1/x", login)._log_in('Bearer realm="http://registry.example.org/token"') == ""
