"""All that a lab needs and that can be made before it exists, in the order in which it is needed."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from hulk_lab.builds import golang, images, prune, python, template
from hulk_lab.builds.oci import Image
from hulk_lab.prerequisites import check_machine
from hulk_lab.progress import Progress
from hulk_lab.wan import relay

_CONTROL_PLANE = ("kubernetes", "kwok", "helm")


def build(progress: Progress, *, with_nodes: bool = True, extra: Collection[str] = ()) -> tuple[Image, ...]:
    """Build what is missing, each stage with its seconds; the images that nodes need (none without nodes).

    `extra`: the names of optional parts that are wanted as well.
    """
    check_machine()
    for part in golang.PARTS:
        is_wanted = part.name in extra or (not part.optional and (with_nodes or part.name in _CONTROL_PLANE))
        if not part.built and is_wanted:
            with progress.stage(f"build {part.name}") as stage:
                golang.build(part, lambda words, stage=stage: setattr(stage, "note", words))  # type: ignore[misc]
    if with_nodes:
        if not relay.binary().exists():
            with progress.stage("build relay"):
                relay.build()
        return _build_images(progress)
    return ()


def _needed() -> set[Path]:
    """What labs that are built from these sources need beside their images."""
    programs = [part.output for part in golang.PARTS]
    libraries = [python.torch_folder().parent, python.wheels_folder(), python.pip_folder()]
    return {*programs, *libraries, relay.binary().parent, images.runtime_spec(), images.base().archive}


def _build_images(progress: Progress) -> tuple[Image, ...]:
    for name, what, folder, build_it in (
        ("torch", "the base's, hard links into uv's cache", python.torch_folder(), python.build_torch),
        ("wheels", "dependencies of the image", python.wheels_folder(), python.build_wheels),
    ):
        if not folder.is_dir():
            with progress.stage(f"build {name}", what):
                build_it()
    with progress.stage("images", images.HULK_REFERENCE) as stage:
        built = images.every()
        stage.note = "unpack"
        template.build(built)
        prune.prune(built, _needed())
        stage.note = ", ".join(image.reference for image in built)
    return built
