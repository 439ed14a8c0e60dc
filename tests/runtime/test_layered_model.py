"""What of a list of layers is one parameter, however the program says so."""

import pytest
from hulk_runtime.errors import ConfigurationError
from hulk_runtime.training.layered_model import LayeredModel, own_of, ties_of
from torch import nn

RANGES = {"0": range(2), "1": range(2, 4)}


def linears(num: int = 4) -> list[nn.Module]:
    return [nn.Linear(2, 2, bias=False) for _ in range(num)]


def whole(layers, ties=(), of=None):
    return LayeredModel(nn.ModuleList(of or layers), layers, ties)


@pytest.mark.parametrize("ties", [[(0, 2), (0, 3)], [(2, 3), (0, 2)], [(3, 0), (2, 3)]])
def test_three_that_are_one_are_one_tie_and_have_one_name(ties) -> None:
    layers = linears()
    model = whole(layers, [((a, "weight"), (b, "weight")) for a, b in ties], of=layers[:2])
    (tie,) = ties_of(model, RANGES)
    assert set(tie.parameters) == {("0", "0.weight"), ("1", "2.weight"), ("1", "3.weight")}
    assert own_of(model, RANGES).of_stages == ((("0.weight", 4), ("1.weight", 4)), (("0.weight", 4), ("0.weight", 4)))


def test_one_object_in_two_stages_is_tied_though_nobody_says_so() -> None:
    layers = linears()
    layers[3].weight = layers[0].weight
    (tie,) = ties_of(whole(layers), RANGES)
    assert tie.parameters == (("0", "0.weight"), ("1", "3.weight"))


def test_one_object_twice_in_a_stage_is_no_tie() -> None:
    layers = linears()
    layers[1].weight = layers[0].weight
    model = whole(layers, [((0, "weight"), (1, "weight"))])
    assert ties_of(model, RANGES) == []
    assert own_of(model, RANGES).of_stages[0] == (("0.weight", 4),)


def test_what_cannot_be_is_said() -> None:
    strange = whole(linears(), [((0, "weight"), (3, "bias"))])
    with pytest.raises(ConfigurationError, match="layer 3 has no parameter bias, which is said to be tied"):
        ties_of(strange, RANGES)
    empty = whole([*linears(2), nn.ReLU(), nn.Flatten()])
    with pytest.raises(ConfigurationError, match="stage 1, layers 2-3, has no parameters"):
        own_of(empty, RANGES)


def test_a_parameter_that_the_module_lacks_is_named() -> None:
    layers = linears()
    model = whole(layers, of=layers[:3])
    with pytest.raises(ConfigurationError, match="parameter weight of layer 3 is neither the module's"):
        own_of(model, RANGES)
