"""The rules on a HulkSweep, as `rules` has them for the other kinds: CEL beside Python."""

from math import prod
from re import fullmatch
from typing import Any, Final

from hulk_operator import names
from hulk_operator.api.rules import Rule

MAX_GRID: Final = 6  # parameters of a grid: CEL has no product over a list, so that each is written out
MAX_SHARED_TRIALS: Final = 100  # as many as the status has rows for


def _grid_size() -> str:
    """CEL of the number of points in a grid."""
    factor = "(self.grid.size() > {0} ? self.grid[{0}].values.size() : 1)"
    return " * ".join(factor.format(number) for number in range(MAX_GRID))


def num_trials(parameters: dict[str, Any]) -> int:
    """How many trials `spec.parameters` asks for.

    >>> num_trials({"grid": [{"name": "a", "values": ["1", "2"]}, {"name": "b", "values": ["1", "2", "3"]}]})
    6
    >>> num_trials({"list": [{"a": "1"}]})
    1
    """
    grid = parameters.get("grid") or ()
    return prod(len(one["values"]) for one in grid) if grid else len(parameters.get("list") or ())


HULK_SWEEP = (
    Rule(
        f"self.metadata.name.size() <= {names.MAX_SWEEP_NAME_LENGTH}",
        lambda self: len(self["metadata"]["name"]) <= names.MAX_SWEEP_NAME_LENGTH,
        f"a HulkSweep's name has at most {names.MAX_SWEEP_NAME_LENGTH} characters, "
        "because its HulkJobs are named <sweep>-t<trial> or <sweep>-shared",
    ),
    Rule(
        f"self.metadata.name.matches('{names.JOB_NAME_PATTERN}')",
        lambda self: fullmatch(names.JOB_NAME_PATTERN, self["metadata"]["name"]) is not None,
        "a HulkSweep's name starts with a letter and has only lower-case letters, digits and dashes, "
        "because its HulkJobs are named after it",
    ),
)

_HAS_GRID = "(has(self.grid) && self.grid.size() > 0)"
_HAS_LIST = "(has(self.list) && self.list.size() > 0)"

PARAMETERS = (
    Rule(
        f"{_HAS_GRID} != {_HAS_LIST}",
        lambda self: bool(self.get("grid")) != bool(self.get("list")),
        "parameters needs exactly one of grid and list",
    ),
    Rule(
        f"!has(self.grid) || {_grid_size()} <= {names.MAX_TRIALS}",
        lambda self: num_trials({"grid": self.get("grid")}) <= names.MAX_TRIALS,
        f"parameters.grid has more than {names.MAX_TRIALS} points; take fewer values, or name the points in list",
        ".grid",
    ),
)
SHARED_DEVICES = (
    Rule(
        "self.devices == 'cuda' || has(self.deviceMemoryBytes)",
        lambda self: self["devices"] == "cuda" or "deviceMemoryBytes" in self,
        "sharp.devices host needs sharp.deviceMemoryBytes",
        ".deviceMemoryBytes",
    ),
)
SWEEP_SPEC = (
    Rule(
        "has(self.sharp) == (self.mode == 'sharp')",
        lambda self: ("sharp" in self) == (self["mode"] == "sharp"),
        "sharp is for mode sharp, which needs it",
        ".sharp",
    ),
    Rule(
        "self.mode == 'jobs' || !has(self.fields) || self.fields.size() == 0",
        lambda self: self["mode"] == "jobs" or not self.get("fields"),
        "fields is for mode jobs; in mode sharp all parameters go to the model's function",
        ".fields",
    ),
    Rule(
        "self.mode == 'jobs' || "
        f"(!has(self.parameters.list) || self.parameters.list.size() <= {MAX_SHARED_TRIALS}) && "
        f"(!has(self.parameters.grid) || {_grid_size().replace('self.', 'self.parameters.')} <= {MAX_SHARED_TRIALS})",
        lambda self: self["mode"] == "jobs" or num_trials(self["parameters"]) <= MAX_SHARED_TRIALS,
        f"mode sharp takes at most {MAX_SHARED_TRIALS} trials, because they share the workers of one HulkJob",
        ".parameters",
    ),
    Rule(
        "!has(self.halving) || self.mode == 'jobs'",
        lambda self: "halving" not in self or self["mode"] == "jobs",
        "halving is for mode jobs: trials that share devices are not stopped between steps",
        ".halving",
    ),
    Rule(
        "!has(self.halving) || (has(self.template.spec.training.steps) && "
        "self.halving.minSteps < self.template.spec.training.steps)",
        lambda self: (
            "halving" not in self or self["halving"]["minSteps"] < self["template"]["spec"]["training"].get("steps", 0)
        ),
        "halving.minSteps must be below template.spec.training.steps: no trial would be stopped",
        ".halving",
    ),
    Rule(
        "!has(self.halving) || has(self.template.spec.checkpoint)",
        lambda self: "halving" not in self or "checkpoint" in self["template"]["spec"],
        "halving needs template.spec.checkpoint: a trial that waits for the others resumes from it",
        ".halving",
    ),
    Rule(
        "!self.template.spec.suspend",
        lambda self: not self["template"]["spec"]["suspend"],
        "template.spec.suspend must be false; suspend the sweep",
        ".template",
    ),
    Rule(
        f"!has(self.template.spec.managedBy) || self.template.spec.managedBy == '{names.CONTROLLER}'",
        lambda self: self["template"]["spec"].get("managedBy") in (None, names.CONTROLLER),
        "template.spec.managedBy must be absent: a sweep's trials are run by this operator",
        ".template",
    ),
    Rule(
        "!has(self.template.spec.runPolicy.ttlSecondsAfterFinished)",
        lambda self: "ttlSecondsAfterFinished" not in self["template"]["spec"]["runPolicy"],
        "template.spec.runPolicy.ttlSecondsAfterFinished must be absent: a trial that is gone would be run again",
        ".template",
    ),
)

SWEEP_RULES: Final = (*HULK_SWEEP, *PARAMETERS, *SHARED_DEVICES, *SWEEP_SPEC)
