"""The ways that SHARP is compared with train the same models, on devices that count."""

import pytest
from hulk_runtime.sharp import DeviceMemoryError, HostDevice

from bench.sharp.models import Size, trials
from bench.sharp.paced import PacedDevice
from bench.sharp.ways import gpipe, model_parallel, sharp, task_parallel

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE = Size(width=32, depth=6, num_rows=64, steps=3)
MODELS = trials(SIZE, 3)


def devices(number: int, memory_bytes: int) -> list[HostDevice]:
    return [HostDevice(memory_bytes, f"host-{i}") for i in range(number)]


def test_all_ways_but_micro_batches_end_with_the_same_losses():
    expected = task_parallel(MODELS, devices(2, 10**8)).losses
    assert model_parallel(MODELS, devices(2, 10**8)).losses == expected
    spilled = sharp()(MODELS, devices(2, 500_000))
    assert spilled.num_shards > 2
    assert spilled.losses == expected
    assert sharp(double_buffer=False)(MODELS, devices(2, 500_000)).losses == expected
    in_parts = gpipe(4)(MODELS, devices(3, 10**8)).losses
    for mine, whole in zip(in_parts, expected, strict=True):
        assert mine == pytest.approx(whole, rel=1e-4)


def test_a_model_that_does_not_fit_is_refused_by_the_other_ways():
    small = devices(2, 300_000)
    for way in (task_parallel, model_parallel, gpipe(2)):
        with pytest.raises((DeviceMemoryError, RuntimeError)):
            way(MODELS, small)
    assert len(sharp()(MODELS, small).losses) == 3


def test_a_paced_device_takes_the_stated_time_for_what_it_multiplies():
    seconds = 0.5
    device = PacedDevice(10**8, "paced", SIZE.flops / seconds, 1e12)
    measured = task_parallel(MODELS[:1], [device])
    assert measured.seconds >= seconds
    assert device.num_units == SIZE.steps * 2
