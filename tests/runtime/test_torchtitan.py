"""torchtitan as released, two replicas of two shards: the same losses by gloo and instrumented."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hulk_lab.builds import python
from test_backend import said, two_regions
from test_instrumented_scripts import FOLDER, SAID, path

SCRIPT = str(Path(__file__).with_name("torchtitan_script.py"))
SETTINGS = {
    "module": "torchtitan_script",
    "config": "llama3",
    "parallelism.data_parallel_replicate_degree": "2",
    "parallelism.data_parallel_shard_degree": "2",
    "training.steps": "4",
    "training.seq_len": "32",
    "training.local_batch_size": "2",
    "debug.seed": "1",
}
GRADIENTS = 6_163_712 // 2 * 4
"""Of a rank's shard, in all steps."""
LOSS = re.compile(r"step: .*?loss: .*?([\d.]+).*?grad_norm: .*?([\d.]+)")


def write_tokenizer(folder: Path, words: list[str]) -> None:
    """A number for each word; the last one ends a text."""
    model = {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(words)}, "unk_token": words[-1]}
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": words[-1]}))


@pytest.mark.whole
def test_torchtitan_learns_as_by_gloo(job: Any, make_plan: Any, tmp_path: Path) -> None:
    words = [f"word{i}" for i in range(100)]
    write_tokenizer(tmp_path / "tokenizer", words)
    (tmp_path / "texts").mkdir()
    texts = [{"text": " ".join(words[i::7] + words[::3])} for i in range(64)]
    (tmp_path / "texts" / "texts.json").write_text("\n".join(map(json.dumps, texts)))
    folders = {"hf_assets_path": "tokenizer", "dataloader.dataset_path": "texts", "dump_folder": "dumped"}
    settings = SETTINGS | {name: str(tmp_path / folder) for name, folder in folders.items()}
    found = {}
    for instrumentation in ("none", "auto"):
        job.write_plan(two_regions(make_plan))
        job.environment |= {"HULK_INSTRUMENTATION": instrumentation, "HF_HOME": str(tmp_path / "hf")}
        ranks = [
            job.start(
                *(SCRIPT, *(f"--{name}={value}" for name, value in settings.items())),
                RANK=str(rank),
                HULK_WORKER=str(rank),
                LOCAL_RANK="0",
                PYTHONPATH=path(FOLDER, python.build_packages("torchtitan")),
            )
            for rank in range(4)
        ]
        assert [rank.wait() for rank in ranks] == [0] * 4, ranks[0].output
        assert (SAID in ranks[0].output) == (instrumentation == "auto")
        sums = [int(line.split()[1]) for line in said(ranks, "planned")]
        assert all((number >= GRADIENTS) if instrumentation == "auto" else (number == 0) for number in sums)
        figures = [[float(figure) for pair in LOSS.findall(rank.output) for figure in pair] for rank in ranks]
        assert figures == [figures[0]] * 4
        found[instrumentation] = figures[0]
    assert len(found["none"]) == 8
    assert found["auto"] == pytest.approx(found["none"], abs=1.5e-4)  # as many digits as it shows
