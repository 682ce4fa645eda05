"""What docker refuses of [serve.docker] on every node: said when the recipe is read, before an old lane is stopped."""

from __future__ import annotations

from sparkbuild.core.suggest import did_you_mean
from sparkbuild.workspace.shapes.schema import Docker
from sparkbuild.workspace.toml.findings import Findings

# capabilities(7); docker takes them with and without CAP_, in any case, and ALL
_CAPABILITIES = """
AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND BPF CHECKPOINT_RESTORE CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER
FSETID IPC_LOCK IPC_OWNER KILL LEASE LINUX_IMMUTABLE MAC_ADMIN MAC_OVERRIDE MKNOD NET_ADMIN NET_BIND_SERVICE
NET_BROADCAST NET_RAW PERFMON SETFCAP SETGID SETPCAP SETUID SYSLOG SYS_ADMIN SYS_BOOT SYS_CHROOT SYS_MODULE SYS_NICE
SYS_PACCT SYS_PTRACE SYS_RAWIO SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG WAKE_ALARM ALL
"""
_ULIMITS = """
core cpu data fsize locks memlock msgqueue nice nofile nproc rss rtprio rttime sigpending stack
"""
CAPABILITIES, ULIMITS = frozenset(_CAPABILITIES.split()), frozenset(_ULIMITS.split())
LEAST_MEMORY = 6 << 20  # bytes; "Minimum memory limit allowed is 6MB"
LEAST_CPUS = 0.01


def check(docker: Docker, findings: Findings) -> None:
    """Note what docker would refuse."""
    place = ("serve", "docker")
    for index, text in enumerate(docker.capabilities):
        name = text.upper().removeprefix("CAP_")
        if name not in CAPABILITIES:
            findings.add(
                (*place, "capabilities", index),
                f"there is no capability {text!r}: docker refuses it",
                wanted=did_you_mean(name, CAPABILITIES),
            )
    for name in docker.ulimits:
        if name not in ULIMITS:
            findings.add(
                (*place, "ulimits", name),
                f"there is no ulimit {name!r}: docker refuses it",
                wanted=did_you_mean(name, ULIMITS),
            )
    if 0 < docker.memory < LEAST_MEMORY:
        findings.add(
            (*place, "memory"),
            "docker refuses a container with so little memory",
            found=f"{docker.memory} bytes",
            wanted=f"at least {LEAST_MEMORY} bytes (6 MiB), or 0 for no limit",
        )
    if 0 < docker.cpus < LEAST_CPUS:
        findings.add((*place, "cpus"), "docker refuses so small a share", wanted=f"at least {LEAST_CPUS}, or 0 for all")
