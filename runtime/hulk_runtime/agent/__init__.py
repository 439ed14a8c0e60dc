"""The measuring agent: turns the orders in one node's NodeProfile into measured links in that profile's status.

It runs as a DaemonSet on every node, unprivileged, and knows nothing of jobs, plans or other nodes' profiles. The
operator decides what is measured; the agent measures and says what it saw:

    NodeProfile.spec.measurements --orders--> echo (RTT, always) ---+
                                  \\-orders--> iperf3 (bandwidth) --+--> links --patch--> NodeProfile.status
"""

VERSION = "2"
"""Reported as `status.agentVersion`; raised when what the agent measures or how changes."""
