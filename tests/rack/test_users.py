"""Other people of a node really are others: what is theirs, what they may do, and that nothing of them is left."""

from __future__ import annotations

from tests.rack.rack import Rack
from tests.rack.users import people


def test_two_users_of_one_group_and_what_they_leave(rack: Rack) -> None:
    node = rack.nodes[0]
    with people(node, "ann", "mallory", groups=["models"]) as [ann, mallory]:
        assert ann.uid != mallory.uid
        assert "models" in ann.sh("id -Gn").split()
        assert ann.sh('printf "%s %s" "$HOME" "$(pwd)"') == f"{ann.home} {ann.home}"
        ann.sh("echo mine > note; umask", umask=0o077)
        assert ann.sh("stat -c '%a %U' note").strip() == "600 ann"
        assert "Permission denied" in mallory.run(["cat", f"{ann.home}/note"]).err
        assert mallory.run(["rm", "-rf", "/root/.ssh"]).code != 0, "no way to root's files"
        mallory.sh("ln -s /root /dev/shm/hers && mkdir -p /tmp/hers/below && sleep 1000 >/dev/null 2>&1 &")
        assert node.ssh(["id", "-un"], user="mallory").out.strip() == "mallory"
        assert node.run(["test", "-L", "/dev/shm/hers"]).code == 0
    assert node.run(["getent", "passwd", "mallory"]).code != 0
    assert node.run(["sh", "-c", "ls -d /dev/shm/hers /tmp/hers /home/mallory 2>/dev/null"]).out == ""
