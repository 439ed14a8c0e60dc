"""The import paths that docs give to scripts lead to the classes that the runtime itself uses."""

import importlib

import pytest


@pytest.mark.parametrize(
    ("documented", "own"),
    [
        ("whole:Whole", "training.layered_model:LayeredModel"),
        ("collective.planned.plan:CollectivePlan", "plan.flows:CollectivePlan"),
        ("collective.wire.joining:Address", "collective.wire.rendezvous:Address"),
    ],
)
def test_a_documented_path_is_the_runtimes_own_class(documented: str, own: str) -> None:
    assert found(documented) is found(own)


@pytest.mark.parametrize(
    "path",
    [
        "collective.ddp:DistributedDataParallel",
        "collective.group:Collective",
        "collective.__main__:main",
        "entry:run",
        "entry:leave",
        "errors:RankLostError",
        "sharp.__main__:main",
        "sweep:main",
        "examples.gpt:main",
        "examples.gpt_trial:make",
    ],
)
def test_a_documented_path_leads_to_something_to_call(path: str) -> None:
    assert callable(found(path))


def found(path: str) -> object:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(f"hulk_runtime.{module}"), name)
