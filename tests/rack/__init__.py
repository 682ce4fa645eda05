"""A rack in a box: nodes with real sshd and dockerd in namespaces of one machine. For tests: `tests.rack.rack.Rack`,
for people: `python -m tests.rack --help`.

Every rack is one process, its keeper, and what lives below it:

    keeper (pid namespace, network namespace "the switch": a bridge, one port per node, one link to the machine)
      node dgx1 (namespaces of its own: network, mounts, pids, host name, ipc; its own root folder or loop disk)
        sshd, dockerd, containerd, containers, a NAS server for each mount
      node dgx2 ...

When the keeper ends, the kernel ends all of it and frees every mount, link and loop device: a rack cannot outlive it.
"""
