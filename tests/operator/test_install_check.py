"""What `helm test` asks: the answer of /readyz, and a dry run of a job."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
from fake_cluster import FakeCluster
from hulk_operator import install_check, metrics
from hulk_operator.api.strict import parse
from hulk_operator.cluster import Invalid


class Operator:
    """Answers /readyz; not ready `num_refusals` times."""

    num_refusals = 0

    def ready(self) -> bool:
        self.num_refusals -= 1
        return self.num_refusals < 0


@pytest.fixture
async def served() -> AsyncIterator[tuple[Operator, str]]:
    operator = Operator()

    async def shown() -> bytes:
        return b""

    runner = await metrics.serve(shown, lambda: True, operator.ready, 0, "127.0.0.1")
    yield operator, f"http://127.0.0.1:{runner.addresses[0][1]}/readyz"
    await runner.cleanup()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


async def test_an_operator_that_is_not_ready_is_quoted(
    served: tuple[Operator, str], session: aiohttp.ClientSession
) -> None:
    operator, url = served
    assert await install_check.is_ready(session, url) == "an operator is ready"
    operator.num_refusals = 1
    with pytest.raises(ValueError, match="answers 503: not ready"):
        await install_check.is_ready(session, url)
    with pytest.raises(ValueError, match="does not answer"):
        await install_check.is_ready(session, "http://127.0.0.1:1/readyz")


async def test_who_begins_is_waited_for(served: tuple[Operator, str], session: aiohttp.ClientSession) -> None:
    operator, url = served
    operator.num_refusals = 1
    assert await install_check.eventually(lambda: install_check.is_ready(session, url), 30)
    operator.num_refusals = 1
    with pytest.raises(ValueError, match="503"):
        await install_check.eventually(lambda: install_check.is_ready(session, url), 0)


async def test_the_job_is_only_tried_and_a_refusal_is_quoted() -> None:
    cluster = FakeCluster()
    assert await install_check.admits(cluster, "lab") == "a HulkJob in namespace lab is admitted"
    (tried,) = cluster.tried
    assert parse(tried).metadata.namespace == "lab"
    assert cluster.writes == []
    cluster.refuse = lambda write, body: Invalid(422, "Invalid", "a webhook says no")
    with pytest.raises(ValueError, match="in namespace lab is refused: a webhook says no"):
        await install_check.admits(cluster, "lab")
