"""Where the API server is: the pod's own service account inside a cluster, else the user's kubeconfig."""

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger

from hulk_operator.cluster.client import ApiCluster
from hulk_operator.cluster.errors import ClusterError

_TOKEN = Path(config.incluster_config.SERVICE_TOKEN_FILENAME)


def in_cluster() -> bool:
    """Whether this process runs in a pod with a service account."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and _TOKEN.exists()


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
        if _own_pod(kubeconfig, context):
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        else:
            await _loader(kubeconfig, context).load_and_set(configuration)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        raise ClusterError(0, "NoKubeconfig", str(error)) from error
    configuration.proxy = configuration.proxy or _proxy(configuration.host)
    configuration.client_session_kwargs = {"trust_env": False}  # else ~/.netrc and proxies are read for every request
    return ApiCluster(ApiClient(configuration), wrote)


def namespace_of(kubeconfig: str | None = None, context: str | None = None) -> str:
    """The namespace that the user is in: of the kubeconfig's context or of the pod; without either, `default`."""
    if _own_pod(kubeconfig, context):
        return _TOKEN.with_name("namespace").read_text(encoding="utf-8").strip()
    try:
        named = _loader(kubeconfig, context).current_context["context"].get("namespace")
    except ClusterError:
        return "default"  # a plan from files needs no cluster; what needs one says by itself what is missing
    return named or "default"


def _own_pod(kubeconfig: str | None, context: str | None) -> bool:
    return kubeconfig is None and context is None and in_cluster()


def _loader(kubeconfig: str | None, context: str | None) -> KubeConfigLoader:
    paths = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    if not any(Path(path).expanduser().exists() for path in paths.split(os.pathsep) if path):
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
