"""How to reach the API server: by the pod's own service account inside a cluster, else by the user's kubeconfig."""

from collections.abc import Callable
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger

from hulk_operator.cluster.client import ApiCluster
from hulk_operator.cluster.errors import ClusterError
from hulk_operator.cluster.own_namespace import existing, is_own_pod, kubeconfigs


async def connect(
    kubeconfig: str | None = None,
    wrote: Callable[[str, str], None] = lambda verb, plural: None,
    context: str | None = None,
) -> ApiCluster:
    """The cluster of `kubeconfig`, else of the pod's service account, else of $KUBECONFIG or ~/.kube/config.

    `wrote`: see `ApiCluster`. `context`: of the kubeconfig, None = its current one.

    `ClusterError` with the reason NoKubeconfig when there is none. The caller closes it.
    """
    configuration = Configuration()
    try:
        if is_own_pod(kubeconfig, context):
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        else:
            await _loader(kubeconfig, context).load_and_set(configuration)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        raise ClusterError(0, "NoKubeconfig", str(error)) from error
    configuration.proxy = configuration.proxy or _proxy(configuration.host)
    configuration.client_session_kwargs = {"trust_env": False}  # else ~/.netrc and proxies are read for every request
    return ApiCluster(ApiClient(configuration), wrote)


def _loader(kubeconfig: str | None, context: str | None) -> KubeConfigLoader:
    paths = kubeconfigs(kubeconfig)
    if not existing(paths):
        message = f"there is no kubeconfig {paths}: name one with --kubeconfig or in KUBECONFIG"
        raise ClusterError(0, "NoKubeconfig", message)
    try:
        merged = KubeConfigMerger(paths).config  # type: ignore[no-untyped-call]
        return KubeConfigLoader(merged, active_context=context, config_base_path=None)  # type: ignore[no-untyped-call]
    except (config.ConfigException, yaml.YAMLError, AttributeError, TypeError) as error:
        raise ClusterError(0, "NoKubeconfig", f"kubeconfig {paths} cannot be used: {error}") from error


def _proxy(server: str) -> str | None:
    """The proxy that the environment names for the API server (HTTPS_PROXY, NO_PROXY)."""
    url = urlsplit(server)
    return None if proxy_bypass(url.netloc) else getproxies().get(url.scheme)
