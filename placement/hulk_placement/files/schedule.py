"""An explicit schedule: for each stage its blocks in order, like `F0 F1 B0 B1`, checked to run to its end.

F is a micro-batch's forward pass, B its backward pass. A stage's F waits for that of the stage before it, a B for that
of the stage after it, and on the last stage for its own F.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from hulk_placement.plan import Block

Blocks = tuple[tuple[Block, ...], ...]
_MOST_SHOWN = 4
_BLOCK = re.compile(r"([FB])(\d+)")


def parse_blocks(lines: Sequence[str]) -> Blocks:
    """The blocks of each stage, from a line for each. ValueError where they are no schedule, or wait for ever.

    >>> parse_blocks(["F0 B0"])
    ((('F', 0), ('B', 0)),)
    """
    blocks = tuple(tuple(_block(word, stage) for word in line.split()) for stage, line in enumerate(lines))
    num_micro_batches = 1 + max((number for line in blocks for _, number in line), default=-1)
    most = max(map(len, blocks), default=0)
    if num_micro_batches > most:
        raise ValueError(
            f"a stage has {most} blocks at most, and one is of micro-batch {num_micro_batches - 1}, counted from 0"
        )
    wanted = {(kind, number) for kind in "FB" for number in range(num_micro_batches)}
    for stage, line in enumerate(blocks):
        wrong = sorted((Counter(line) - Counter(wanted)) + (Counter(wanted) - Counter(line)))
        if wrong or not line:
            listed = f": wrong are {', '.join(map(_word, wrong[:_MOST_SHOWN]))}" if wrong else ""
            raise ValueError(
                f"stage {stage}: F and B of each micro-batch, 0 to {num_micro_batches - 1}, must be there once{listed}"
            )
    _require_end(blocks)
    return blocks


def write_blocks(blocks: Blocks) -> list[str]:
    """The lines that `parse_blocks` reads."""
    return [" ".join(map(_word, line)) for line in blocks]


def _block(word: str, stage: int) -> Block:
    found = _BLOCK.fullmatch(word)
    if found is None:
        raise ValueError(f"stage {stage}: {word!r} is no block; F0 and B0 are")
    return found[1], int(found[2])


def _word(block: Block) -> str:
    return f"{block[0]}{block[1]}"


def _require_end(blocks: Blocks) -> None:
    """Run the blocks as early as they can; ValueError names one that waits for ever."""
    done: set[tuple[int, Block]] = set()
    positions = [0] * len(blocks)
    is_moving = True
    while is_moving:
        is_moving = False
        for stage, line in enumerate(blocks):
            while positions[stage] < len(line) and _needed(stage, line[positions[stage]], len(blocks)) <= done:
                done.add((stage, line[positions[stage]]))
                positions[stage] += 1
                is_moving = True
    for stage, line in enumerate(blocks):
        if positions[stage] < len(line):
            raise ValueError(f"stage {stage}: {_word(line[positions[stage]])} waits for ever for what comes after it")


def _needed(stage: int, block: Block, num_stages: int) -> set[tuple[int, Block]]:
    kind, number = block
    if kind == "F":
        return {(stage - 1, block)} if stage else set()
    last = stage == num_stages - 1
    return {(stage, ("F", number))} if last else {(stage + 1, block), (stage, ("F", number))}
