"""The operator and the pods call everything by the same names."""

from hulk_operator import names as outside
from hulk_runtime import errors
from hulk_runtime import names as inside

# Only pods know these: bounds a user may set, the agent's own, a file of the kubelet, torch's and the store's own.
INSIDE_ONLY = {
    "AGENT_ECHO_PORT",
    "AGENT_METRICS_PORT",
    "COLLECTIVE_PORT",
    "ENV_NCCL_INTERFACE",
    "ENV_NODE_NAME",
    "ENV_OMP_THREADS",
    "ENV_RENDEZVOUS_SECONDS",
    "ENV_PIPELINE_LOG",
    "ENV_SILENCE_SECONDS",
    "ENV_START_SECONDS",
    "ENV_STAY_SECONDS",
    "ENV_S3_ENDPOINT",
    "AGENT_FIELD_MANAGER",
    "TERMINATION_LOG",
}


def constants(module):
    return {name: value for name, value in vars(module).items() if name.isupper()}


def test_every_shared_name_has_one_value():
    ours, theirs = constants(inside), constants(outside)
    shared = ours.keys() - INSIDE_ONLY
    assert {name: ours[name] for name in shared} == {name: theirs.get(name) for name in shared}


def test_exit_codes_are_those_the_operator_knows():
    assert errors.PlanError.exit_code == outside.EXIT_WIRE_MISMATCH
    assert errors.ConfigurationError.exit_code == outside.EXIT_USER_ERROR
    assert errors.PeerLostError.exit_code == outside.EXIT_LOST_PEER
    assert errors.FencedError.exit_code == outside.EXIT_FENCED
    assert errors.EXIT_STOPPED == outside.EXIT_CHECKPOINTED
