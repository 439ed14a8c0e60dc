"""Orders to workers: one key for all operators of a release, and nothing that anyone else knows makes an order."""

import itertools
from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from fake_cluster import FakeCluster
from hulk_operator import names
from hulk_operator.cluster import SECRETS, ApiResource, ClusterError, Forbidden, Object, Unavailable
from hulk_operator.handlers import order_key
from hulk_operator.handlers.order_key import load_orders
from hulk_operator.pods.orders import NO_ORDERS, Orders

SYSTEM = "hulk-system"


def counting() -> Callable[[int], bytes]:
    """Chance that never repeats itself."""
    numbers = itertools.count()
    return lambda size: next(numbers).to_bytes(size, "big")


def knows(digest: str, order: str) -> bool:
    return sha256(order.encode()).hexdigest() == digest


async def test_the_operator_that_takes_over_gives_the_order_that_the_pods_know() -> None:
    cluster, chance = FakeCluster(), counting()
    first, second = [await load_orders(cluster, SYSTEM, chance) for _ in range(2)]
    assert knows(first.start_digest("uid", 1), second.start("uid", 1))
    secret = cluster.objects["secrets", SYSTEM, names.ORDER_SECRET]
    assert (secret["immutable"], b64decode(secret["data"]["key"])) == (True, first.key)


async def test_two_that_start_together_have_one_key() -> None:
    class Late(FakeCluster):
        """Another operator makes the Secret between this one's look and its own."""

        async def create(self, resource: ApiResource, body: Object, **more: Any) -> Object:
            if (resource.plural, SYSTEM, names.ORDER_SECRET) not in self.objects:
                self.other = await load_orders(Seen(self), SYSTEM, lambda size: b"o" * size)
            return await super().create(resource, body, **more)

    class Seen(FakeCluster):
        def __init__(self, of: FakeCluster) -> None:
            super().__init__()
            self.objects = of.objects

    cluster = Late()
    found = await load_orders(cluster, SYSTEM, counting())
    assert found == cluster.other


async def test_who_may_not_read_the_key_gives_orders_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(FakeCluster):
        errors: tuple[ClusterError, ...] = ()

        async def get(self, resource: ApiResource, name: str, namespace: str | None = None) -> Object:
            if resource is SECRETS and self.errors:
                error, *rest = self.errors
                self.errors = tuple(rest)
                raise error
            return await super().get(resource, name, namespace)

    monkeypatch.setattr(order_key, "RETRY_S", 0.0)
    cluster, chance = Refusing(), counting()
    shared = await load_orders(cluster, SYSTEM, chance)
    cluster.errors = (Unavailable(503, "", "busy"), Forbidden(403, "Forbidden", "no"))
    alone = await load_orders(cluster, SYSTEM, chance)
    assert not knows(shared.start_digest("uid", 1), alone.start("uid", 1))
    cluster.errors = (Unavailable(503, "", "busy"),)
    assert await load_orders(cluster, SYSTEM, chance) == shared


@pytest.mark.parametrize("key", ["", "short"])
async def test_a_key_that_can_be_guessed_is_not_used(key: str) -> None:
    body = {"metadata": {"name": names.ORDER_SECRET, "namespace": SYSTEM}, "data": {"key": b64encode(key.encode())}}
    found = await load_orders(FakeCluster((SECRETS, body)), SYSTEM, lambda size: b"r" * size)
    assert found.key == b"r" * 32


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("another job's", Orders(b"k").start("other", 1)),
        ("an earlier attempt's", Orders(b"k").start("uid", 0)),
        ("another operator's", Orders(b"x").start("uid", 1)),
        ("of two values run together", Orders(b"k").start("uid 1", 1)),
        ("the digest", Orders(b"k").start_digest("uid", 1)),
        ("of an operator without a key", NO_ORDERS.start("uid", 1)),
    ],
)
def test_no_other_order_is_known(name: str, order: str) -> None:
    assert not knows(Orders(b"k").start_digest("uid", 1), order), name
    assert not knows(NO_ORDERS.start_digest("uid", 1), order), name


def test_the_key_is_in_no_log() -> None:
    assert "secret" not in repr(Orders(b"secret"))
