"""A device on the host counts what is alive there, and is hard."""

import threading

import pytest
import torch
from hulk_runtime.sharp import DeviceMemoryError, HostDevice
from hulk_runtime.sharp.rng_stream import Stream
from torch import nn

KIB = 1024


def stream(seed: int = 0) -> Stream:
    return Stream(seed, torch.Generator().manual_seed(seed).get_state())


def test_what_is_loaded_counts_until_it_is_freed():
    device = HostDevice(10 * KIB)
    there = device.load(torch.zeros(KIB))
    view = there[:10]
    assert device.in_use_bytes() == 4 * KIB
    del there
    assert device.in_use_bytes() == 4 * KIB
    del view
    assert device.in_use_bytes() == 0


def test_activations_gradients_and_optimizer_state_count():
    device = HostDevice(100 * KIB)
    layer = nn.Linear(16, 16, bias=False)  # 1 KiB
    layer.weight.data = device.load(layer.weight.data)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    x = device.load(torch.ones(16, 16))
    assert device.in_use_bytes() == 2 * KIB
    with device.computing(stream()):
        y = layer(x).relu()  # its input is freed, its output kept
        assert device.in_use_bytes() == 3 * KIB
        y.sum().backward()
        assert device.in_use_bytes() == 4 * KIB
        optimizer.step()
    assert device.in_use_bytes() == 5 * KIB


def test_more_than_it_has_is_refused_with_the_numbers():
    device = HostDevice(10 * KIB, "host-7")
    there = device.load(torch.zeros(2 * KIB))
    with pytest.raises(DeviceMemoryError, match="host-7: 4096 bytes more do not fit beside 8192 in use of 10240"):
        device.load(torch.zeros(KIB))
    with pytest.raises(DeviceMemoryError), device.computing(stream()):
        there + 1
    assert device.in_use_bytes() == 8 * KIB
    device.load(torch.zeros(KIB // 2))


def test_memory_must_be_positive():
    with pytest.raises(ValueError, match="memory 0 bytes"):
        HostDevice(0)


def test_two_devices_draw_at_once_what_each_draws_alone():
    def draw(seed: int) -> torch.Tensor:
        drawn, mine, device = [], stream(seed), HostDevice(KIB * KIB)
        for _ in range(200):
            with device.computing(mine):
                drawn.append(torch.rand(50))
        return torch.cat(drawn)

    torch.manual_seed(5)
    before = torch.get_rng_state()
    found: dict[int, torch.Tensor] = {}
    threads = [threading.Thread(target=lambda seed=seed: found.update({seed: draw(seed)})) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(torch.get_rng_state(), before)
    for seed, drawn in found.items():
        assert torch.equal(drawn, torch.rand(200 * 50, generator=torch.Generator().manual_seed(seed)))
