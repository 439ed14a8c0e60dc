"""The key that orders to workers are derived from: one Secret in the operator's own namespace, made at its first start.

It is the only Secret that the operator reads. All operators of a release read the same one, so that an order can be
given by another operator than the one that made the pods.
"""

import asyncio
import logging
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final

from hulk_operator import names
from hulk_operator.cluster import SECRETS, AlreadyExists, Cluster, ClusterError, NotFound, Object, Refused
from hulk_operator.pods.orders import KEY_BYTES, Orders

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0


async def load_orders(cluster: Cluster, namespace: str, random: Callable[[int], bytes]) -> Orders:
    """Read the key, or make it. Waits while the API server does not take part.

    Where it refuses, the key is this process's alone: workers whose pods another operator made then begin without its
    order, some seconds late.
    """
    while True:
        try:
            return Orders(await _read_or_make(cluster, namespace, random))
        except (Refused, ValueError) as error:
            logger.warning("orders to workers end with this process: Secret %s: %s", names.ORDER_SECRET, error)
            return Orders(random(KEY_BYTES))
        except ClusterError as error:
            logger.warning("the key of orders is not readable: %s", error.message)
        await asyncio.sleep(RETRY_S)


async def _read_or_make(cluster: Cluster, namespace: str, random: Callable[[int], bytes]) -> bytes:
    try:
        return _key(await cluster.get(SECRETS, names.ORDER_SECRET, namespace))
    except NotFound:
        pass
    try:
        return _key(await cluster.create(SECRETS, _secret(namespace, random(KEY_BYTES))))
    except AlreadyExists:  # another operator was quicker
        return _key(await cluster.get(SECRETS, names.ORDER_SECRET, namespace))


def _key(secret: Object) -> bytes:
    key = b64decode((secret.get("data") or {}).get(names.ORDER_SECRET_KEY) or "")
    if len(key) < KEY_BYTES:
        raise ValueError(f"its key has {len(key)} bytes, at least {KEY_BYTES} are needed")
    return key


def _secret(namespace: str, key: bytes) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": names.ORDER_SECRET,
            "namespace": namespace,
            "labels": {names.LABEL_MANAGED_BY: names.MANAGER},
        },
        "type": "Opaque",
        "immutable": True,
        "data": {names.ORDER_SECRET_KEY: b64encode(key).decode()},
    }
