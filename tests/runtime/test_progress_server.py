"""Rank 0's window to the operator opens, or says why it does not."""

import socket

import pytest
from hulk_runtime.errors import PortError
from hulk_runtime.training.progress_server import ProgressServer
from prometheus_client import CollectorRegistry


def test_a_port_that_is_taken_is_tried_again():
    """A data loader of a killed rank holds the listening socket for some seconds more."""
    with socket.create_server(("", 0)) as left_behind:
        port = left_behind.getsockname()[1]
        with pytest.raises(PortError, match=f"metrics port {port} cannot be opened: Address already in use"):
            ProgressServer(CollectorRegistry(), 1, port)
