"""A Ray cluster of some nodes on this machine, in a process of its own, which does what is asked on its input.

`kill`: a node is gone at once; `add`: another joins; `restart`: all are gone, and a new head and nodes are in their
place; the end of the input: all is over. Each is answered with a line once it is done.
"""

import os
import socket
import sys
from pathlib import Path

from ray.cluster_utils import Cluster

_NODE = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def main(nodes: int, folder: str) -> None:
    """A head and so many nodes beside it, with their files in a folder."""
    # Where Ray notes the address of a cluster for all programs of this machine: it does not make the place by itself.
    os.environ["RAY_TMPDIR"] = folder
    Path(folder, "ray").mkdir()
    head = _NODE | {
        "gcs_server_port": free_port(), "ray_client_server_port": free_port(), "temp_dir": folder,
    }  # fmt: skip
    cluster = Cluster(initialize_head=True, head_node_args=head)
    others = [cluster.add_node(**_NODE) for _ in range(nodes)]
    print(cluster.address, f"ray://127.0.0.1:{head['ray_client_server_port']}", flush=True)
    for line in sys.stdin:
        if line == "kill\n":
            cluster.remove_node(others.pop(), allow_graceful=False)
        elif line == "add\n":
            others.append(cluster.add_node(**_NODE))
        elif line == "restart\n":
            while others:
                cluster.remove_node(others.pop(), allow_graceful=False)
            cluster.remove_node(cluster.head_node, allow_graceful=False)
            cluster.add_node(**head)
            others = [cluster.add_node(**_NODE) for _ in range(nodes)]
        print("done", cluster.address, flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
