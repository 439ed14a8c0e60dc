"""Which stores a job has, and which one is nearest to this rank.

HULK_CHECKPOINT_STORES names all of them, with the regions of the plan that each one is nearest to: a region's own, else
that of the region to which its link is best, by the operator's measurements. A run by hand has one.
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
    region: str = ""


def of_rank(environment: Environment, environ: Mapping[str, str], url: str | None) -> Stores:
    """`url`: what the script names, in place of the job's. Raises ConfigurationError where there is none."""
    if url is not None:
        return Stores(url, (url,))
    if environment.checkpointing is None:
        raise ConfigurationError(
            "no store for checkpoints: set spec.checkpoint in the HulkJob, or name one: "
            'hulk.Checkpointer(..., url="file:///checkpoints/run")'
        )
    regions = _regions(environ.get(names.ENV_CHECKPOINT_STORES, ""), environment.checkpointing.url)
    region = _region(environment)
    own = next((store for store, nearest in regions.items() if region in nearest), environment.checkpointing.url)
    every = dict.fromkeys((own, *regions))
    return Stores(_of_job(own, environment), tuple(_of_job(store, environment) for store in every), region)


def _of_job(url: str, environment: Environment) -> str:
    """A job that is deleted and made again under its name is another job and starts anew."""
    return f"{url.rstrip('/')}/{environment.job_uid or environment.job}"


def _regions(text: str, url: str) -> dict[str, list[str]]:
    """
    >>> _regions('{"s3://eu": ["eu", "uk"], "s3://us": ["us"]}', "s3://eu")["s3://eu"]
    ['eu', 'uk']
    """
    try:
        found = json.loads(text) if text else {url: []}
        return {str(store): [str(region) for region in regions] for store, regions in found.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigurationError(f"{names.ENV_CHECKPOINT_STORES}={text!r} is no object of lists: {error}") from error


def _region(environment: Environment) -> str:
    plan = planned_sums.plan()
    return plan.workers[environment.worker].region if plan and environment.worker < len(plan.workers) else ""
