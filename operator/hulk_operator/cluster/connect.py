"""Where the API server is: the pod's own service account inside a cluster, else the user's kubeconfig."""

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from hulk_operator.cluster.client import ApiCluster
from hulk_operator.cluster.errors import ClusterError


def in_cluster() -> bool:
    """Whether this process runs in a pod with a service account."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and Path(config.incluster_config.SERVICE_TOKEN_FILENAME).exists()


async def connect(
    kubeconfig: str | None = None, wrote: Callable[[str, str], None] = lambda verb, plural: None
) -> ApiCluster:
    """The cluster of `kubeconfig`, else of the pod's service account, else of $KUBECONFIG or ~/.kube/config.

    `wrote`: see `ApiCluster`.

    `ClusterError` with the reason NoKubeconfig when there is none. The caller closes it.
    """
    configuration = Configuration()
    try:
        if kubeconfig is None and in_cluster():
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        else:
            await config.load_kube_config(kubeconfig, client_configuration=configuration)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        raise ClusterError(0, "NoKubeconfig", str(error)) from error
    configuration.proxy = configuration.proxy or _proxy(configuration.host)
    configuration.client_session_kwargs = {"trust_env": False}  # else ~/.netrc and proxies are read for every request
    return ApiCluster(ApiClient(configuration), wrote)


def _proxy(server: str) -> str | None:
    """The proxy that the environment names for the API server (HTTPS_PROXY, NO_PROXY)."""
    url = urlsplit(server)
    return None if proxy_bypass(url.netloc) else getproxies().get(url.scheme)
