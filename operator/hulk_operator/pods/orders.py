"""A key of the operator's own -> the order that one attempt may begin, and what its pods know that order by.

The operator reads no Secret of a job, and another operator may have made the attempt. So an order is derived from one
key that all operators of a release share, and the pods get its digest. Who knows the digest, the job's secret or
another attempt's order cannot make this one; who overhears it, once it is sent, can only repeat it to the same attempt,
which has begun by then.
"""

import hmac
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Orders:
    """Derives orders; without a key there are none, and no worker takes any."""

    key: bytes = field(default=b"", repr=False)

    def start(self, uid: str, attempt: int) -> str:
        """The order to make the first step of a job's attempt."""
        return hmac.digest(self.key, f"start {uid} {attempt}".encode(), "sha256").hex() if self.key else ""

    def start_digest(self, uid: str, attempt: int) -> str:
        """What the attempt's pods know it by.

        >>> orders = Orders(b"k")
        >>> orders.start_digest("uid", 1) == sha256(orders.start("uid", 1).encode()).hexdigest()
        True
        >>> Orders().start_digest("uid", 1)
        ''
        """
        order = self.start(uid, attempt)
        return sha256(order.encode()).hexdigest() if order else ""


NO_ORDERS: Final = Orders()
