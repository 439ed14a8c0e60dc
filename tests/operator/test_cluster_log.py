"""How the end of a log is asked for, and what comes of a refusal."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hulk_operator.cluster import ApiCluster, Forbidden
from kubernetes.aio.client import ApiClient, Configuration


async def test_the_end_of_a_log_is_bounded_and_a_missing_right_is_named() -> None:
    asked: list[tuple[str, dict[str, str]]] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.path, dict(request.query)))
        if request.query["container"] == "secret":
            return web.json_response({"reason": "Forbidden", "message": 'cannot get resource "pods/log"'}, status=403)
        return web.Response(text="one\ntwo\n")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server:
        cluster = ApiCluster(ApiClient(Configuration(host=str(server.make_url("")).rstrip("/"))))
        try:
            assert await cluster.log("demo-1-0", "lab", container="w", tail_lines=3, since_s=60) == ("one", "two")
            with pytest.raises(Forbidden, match="pods/log"):
                await cluster.log("demo-1-0", "lab", container="secret", tail_lines=1, timestamps=True)
        finally:
            await cluster.close()
    path = "/api/v1/namespaces/lab/pods/demo-1-0/log"
    assert asked == [
        (path, {"container": "w", "tailLines": "3", "limitBytes": "8192", "sinceSeconds": "60"}),
        (path, {"container": "secret", "tailLines": "1", "limitBytes": "8192", "timestamps": "true"}),
    ]
