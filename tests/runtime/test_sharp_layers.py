"""Layers that ordinary training takes: they end with its bits here too, or their trial is refused by name."""

import re
import time

import pytest
import torch
from hulk_runtime.errors import ConfigurationError
from hulk_runtime.sharp import HostDevice, Model, Trial, train
from hulk_runtime.sharp.run import prepare
from sharp_models import adamw, alone
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")

WIDTH = 16
MEMORY_BYTES = 25_000


class Of(nn.Module):
    """A layer of a function without parameters."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


class Rotation(nn.Module):
    """Multiplies by complex numbers that are held as pairs, as rotary embeddings and state-space models do."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.randn(WIDTH // 2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2))).conj()
        return torch.view_as_real(pairs * torch.view_as_complex(self.factor)).flatten(-2)


class Quantised(nn.Module):
    """An embedding of the largest number's place: no gradient comes through."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Embedding(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.codes(x.argmax(-1))


class Mean(nn.Module):
    """A mean over batches in a buffer, which the forward pass either changes or puts another tensor in place of."""

    def __init__(self, *, in_place: bool) -> None:
        super().__init__()
        self.in_place = in_place
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        if self.in_place:
            self.mean.copy_(mean)
        else:
            self.mean = mean
        return x - mean


class Again(nn.Module):
    """A layer that computes its activations again by itself."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Sequential(linear(), nn.Dropout(dropout) if dropout else nn.ReLU(), linear())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)


def linear() -> nn.Linear:
    return nn.Linear(WIDTH, WIDTH)


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(8, WIDTH, generator=generator), torch.randn(8, WIDTH, generator=generator)


def between(*layers) -> list[nn.Module]:
    """Layers with linear ones before, between and after."""
    return [linear(), *(each for layer in layers for each in (layer, linear()))]


LAYERS = {
    "a complex view of parameters": lambda: between(Rotation(), Rotation()),
    "a complex output": lambda: [
        *between(linear()),
        Of(lambda x: torch.view_as_complex(x.unflatten(-1, (-1, 2)))),
        Of(lambda x: torch.view_as_real(x * (1 + 2j)).flatten(-2)),
        *between(linear()),
    ],
    "an input changed in place": lambda: [
        Of(lambda x: x.mul_(2)),
        *between(Of(lambda x: x.mul_(2)), linear(), linear()),
    ],
    "dropout in place": lambda: [nn.Dropout(0.3, inplace=True), *between(nn.ReLU(inplace=True), linear(), linear())],
    "no gradient through": lambda: between(linear(), Quantised()),
    "a power iteration in buffers": lambda: [spectral_norm(linear()) for _ in range(4)],
    "a mean in a buffer": lambda: between(Mean(in_place=True), Mean(in_place=True)),
    "a Fourier transform": lambda: between(Of(lambda x: torch.fft.fft(x).real), Of(lambda x: torch.fft.fft(x).abs())),
    "its own checkpointing": lambda: between(Again(0), Again(0)),
}


def made(layers, name: str = "odd") -> Trial:
    return Trial(name, lambda: Model(layers(), functional.mse_loss, adamw, batch), 5, seed=3)


@pytest.mark.parametrize("recomputes", [False, True], ids=["spilled", "recomputed"])
@pytest.mark.parametrize("layers", LAYERS.values(), ids=LAYERS)
def test_layers_end_with_the_bits_of_ordinary_training(layers, recomputes):
    on = [HostDevice(MEMORY_BYTES, f"host-{i}", recomputes=recomputes) for i in range(2)]
    odd = made(layers)
    (course,), _ = prepare([odd], on, double_buffer=True)
    assert len(course.shards) >= 2
    outcomes = train([odd, made(between, "other")], on)
    losses, parameters = alone(odd)
    assert (outcomes["odd"].state, outcomes["odd"].reason) == ("succeeded", "")
    assert outcomes["odd"].losses == losses
    for name, value in parameters.items():
        assert torch.equal(outcomes["odd"].parameters[name], value), name
    assert [device.in_use_bytes() for device in on] == [0, 0]


def shared_buffer() -> list[nn.Module]:
    layers = [Mean(in_place=True) for _ in range(2)]
    layers[1].mean = layers[0].mean
    return between(layers[0], linear(), linear(), layers[1])


@pytest.mark.parametrize("recomputes", [False, True], ids=["spilled", "recomputed"])
@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        (lambda: between(Mean(in_place=False)), r"Mean puts a new tensor into its buffer mean .*mean\.copy_"),
        (lambda: between(Again(0.3)), r"random numbers are drawn in a backward pass"),
        (shared_buffer, r"layers 1 and 7 share a buffer of 16 numbers, but do not fit into one shard"),
        (list, r"trial odd: the model has no layers; it needs at least 1"),
    ],
    ids=["a buffer put in place", "dropout in its own checkpointing", "a buffer of two shards", "no layers"],
)
def test_what_could_not_have_the_bits_is_refused_and_the_others_go_on(layers, reason, recomputes):
    on = [HostDevice(MEMORY_BYTES, recomputes=recomputes)]
    other = made(between, "other")
    outcomes = train([made(layers), other], on)
    assert (outcomes["odd"].state, outcomes["odd"].step) == ("failed", 0)
    assert re.search(reason, outcomes["odd"].reason)
    assert (outcomes["other"].state, outcomes["other"].losses) == ("succeeded", alone(other)[0])
    assert on[0].in_use_bytes() == 0


def test_two_trials_of_one_name_are_refused():
    twice = made(between, "a")
    with pytest.raises(ConfigurationError, match="names must differ, and they are a, b, a"):
        train([twice, made(between, "b"), twice], [HostDevice(10**6)])


def test_a_batch_counts_in_the_room_for_transfers():
    """Layers without parameters keep nothing: the batch is all that is brought in."""
    only = Trial("only", lambda: Model([nn.ReLU()], functional.mse_loss, adamw, batch), 1)
    (course,), _ = prepare([only], [HostDevice(10**6)], double_buffer=True)
    assert course.cuts[0].slot_bytes >= course.batch_bytes


class SlowHome(HostDevice):
    """A device whose copies to the host take their time."""

    def unload(self, tensor: torch.Tensor, home: torch.Tensor | None = None) -> torch.Tensor:
        time.sleep(0.03)
        return super().unload(tensor, home)


@pytest.mark.parametrize("recomputes", [False, True], ids=["spilled", "recomputed"])
def test_a_unit_waits_for_what_the_one_before_leaves_where_both_do_not_fit(recomputes):
    """Much is brought for one trial, and the other computes much with little: each fits with its own slot."""

    def wide() -> list[nn.Module]:
        return [nn.Linear(WIDTH, 400), nn.Linear(400, WIDTH)]

    def busy() -> list[nn.Module]:
        return [Of(lambda x: x.unsqueeze(1).expand(-1, 560, -1).exp().mean(1)), linear()]

    device = SlowHome(350_000, recomputes=recomputes)
    both = [made(wide, "wide"), made(busy, "busy")]
    courses, _ = prepare(both, [device], double_buffer=True)
    most = [max(cut.slot_bytes for cut in course.cuts) for course in courses]
    assert courses[1].cuts[0].peak_bytes + most[1] < device.memory_bytes < courses[1].cuts[0].peak_bytes + most[0]
    outcomes = train(both, [device])
    for each in both:
        assert (outcomes[each.name].state, outcomes[each.name].reason) == ("succeeded", "")
        assert outcomes[each.name].losses == alone(each)[0]
    assert device.peak_bytes() <= device.memory_bytes


@pytest.mark.parametrize("memory_bytes", [330_000, 350_000, 370_000])
def test_a_small_view_of_a_large_output_does_not_keep_it_on_the_device(memory_bytes):
    """As the first token of a sequence, for a head that fills the device."""

    def first_of_many() -> list[nn.Module]:
        return [
            Of(lambda x: (x.unsqueeze(1).expand(-1, 250, -1) + 1)[:, 3]),
            nn.Linear(WIDTH, 400),
            nn.Linear(400, WIDTH),
        ]

    outcome = train([made(first_of_many)], [HostDevice(memory_bytes)])["odd"]
    assert (outcome.state, outcome.reason) == ("succeeded", "")
    assert outcome.losses == alone(made(first_of_many))[0]
