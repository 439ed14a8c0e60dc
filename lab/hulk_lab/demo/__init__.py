"""The demo: what a user does by hand, one command after the other, with the time beside every line."""

from __future__ import annotations

from pathlib import Path

from hulk_lab.demo.chapters import Demo, Target
from hulk_lab.demo.story import Story
from hulk_lab.errors import LabError

__all__ = ["Story", "Target", "run"]


def run(target: Target, repository: Path, story: Story, picture: Path | None = None) -> int:
    """Run the demo; 0 when the job succeeded, 1 with a sentence when not. `picture`: also write the output as SVG."""
    try:
        succeeded = Demo(target, repository, story).run(repository / "examples/hulkjob.yaml")
    except LabError as error:
        story.title("The demo stopped")
        story.block(str(error))
        return 1
    if picture is not None:
        story.save(picture)
    return 0 if succeeded else 1
