"""Which stores a job has, and which one is nearest to this rank.

A region's ranks have its own store, which HULK_CHECKPOINT_STORES names; those of another region that of the region to
which its link is best, by the operator's measurements, which the plan names. Otherwise there is one for all.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from hulk_runtime import names
from hulk_runtime.collective import planned_sums
from hulk_runtime.errors import ConfigurationError
from hulk_runtime.job.environment import Environment


@dataclass(frozen=True, slots=True)
class Stores:
    """Folders of this job, by URL: the nearest, and all of them in the order in which they are read."""

    own: str
    every: tuple[str, ...]


def of_rank(environment: Environment, environ: Mapping[str, str], url: str | None) -> Stores:
    """`url`: what the script names, in place of the job's. Raises ConfigurationError where there is none."""
    if url is not None:
        return Stores(url, (url,))
    if environment.checkpointing is None:
        raise ConfigurationError(
            "no store for checkpoints: set spec.checkpoint in the HulkJob, or name one: "
            'hulk.Checkpointer(..., url="file:///checkpoints/run")'
        )
    regional, url = _regional(environ.get(names.ENV_CHECKPOINT_STORES, "")), environment.checkpointing.url
    plan = planned_sums.plan()
    own = url
    if plan is not None and regional:
        region = plan.workers[environment.worker].region
        own = regional.get(dict(plan.nearest_stores).get(region, region), url)
    every = dict.fromkeys((own, *regional.values(), url))
    return Stores(_of_job(own, environment), tuple(_of_job(store, environment) for store in every))


def _of_job(url: str, environment: Environment) -> str:
    """A job that is deleted and made again under its name is another job and starts anew."""
    return f"{url.rstrip('/')}/{environment.job_uid or environment.job}"


def _regional(text: str) -> dict[str, str]:
    """
    >>> _regional('{"eu": "s3://eu"}')
    {'eu': 's3://eu'}
    """
    try:
        return {str(region): str(store) for region, store in json.loads(text or "{}").items()}
    except (ValueError, AttributeError) as error:
        raise ConfigurationError(f"{names.ENV_CHECKPOINT_STORES}={text!r} is no object of URLs: {error}") from error
