"""Starts a Ray cluster of two nodes on this machine, prints its address, and ends it with its standard input."""

import sys

from ray.cluster_utils import Cluster


cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
