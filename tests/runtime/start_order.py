"""The operator's order to begin, as ranks that tests start know it."""

import json
from hashlib import sha256

ORDER = "the operator's own"
DIGEST = sha256(ORDER.encode()).hexdigest()


def order(attempt: int) -> bytes:
    """The body of POST /start."""
    return json.dumps({"attempt": attempt, "order": ORDER}).encode()
