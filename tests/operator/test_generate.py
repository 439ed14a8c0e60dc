"""Generated files: fresh in the repository, and the chart's copy renders to exactly the CRDs."""

import re
from pathlib import Path

import pytest
import yaml
from hulk_operator.api.crds import crds
from hulk_operator.api.generate import CHART, chart_crd, escape_template, generated, stale, to_yaml
from hulk_operator.api.reference import reference

ROOT = Path(__file__).parents[2]


def rendered(template: str, *, keep: bool) -> str:
    """What Helm makes of a CRD template when CRDs are installed (only the constructs that `chart_crd` writes)."""
    kept = re.sub(
        r"  \{\{- if \.Values\.crds\.keep \}\}\n(.*?)  \{\{- end \}\}\n", r"\1" if keep else "", template, flags=re.S
    )
    whole = re.fullmatch(r"\{\{- if \.Values\.crds\.install \}\}\n(.*)\{\{- end \}\}\n", kept, flags=re.S)
    assert whole is not None
    return whole[1].replace('{{ "{{" }}', "{{")


def test_files_in_the_repository_are_fresh() -> None:
    assert stale(ROOT) == []


def test_generating_twice_gives_the_same_bytes() -> None:
    assert generated() == generated()


def test_a_changed_file_is_stale(tmp_path: Path) -> None:
    for path, text in generated().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert stale(tmp_path) == []
    changed = CHART / "hulkjobs.yaml"
    (tmp_path / changed).write_text("kind: Other\n")
    (tmp_path / "crds" / "nodeprofiles.yaml").unlink()
    assert set(stale(tmp_path)) == {Path("crds/nodeprofiles.yaml"), changed}


@pytest.mark.parametrize("keep", [True, False])
def test_the_charts_copy_renders_to_the_crd(keep: bool) -> None:
    for document in crds():
        found = yaml.load(rendered(chart_crd(document), keep=keep), Loader=yaml.CSafeLoader)
        annotations = found["metadata"].pop("annotations", {})
        assert found == document
        assert annotations == ({"helm.sh/resource-policy": "keep"} if keep else {})


def test_braces_in_a_description_survive_helm() -> None:
    document = {"kind": "X", "metadata": {"name": "x"}, "spec": {"description": "like {{ this }}"}}
    assert "{{ this" not in chart_crd(document).replace('{{ "{{" }}', "")
    assert yaml.load(rendered(chart_crd(document), keep=False), Loader=yaml.CSafeLoader) == document
    assert escape_template("{{{{") == '{{ "{{" }}{{ "{{" }}'


def test_yaml_has_no_aliases() -> None:
    shared = {"a": 1}
    assert "&" not in to_yaml({"x": shared, "y": shared})


def test_the_reference_names_every_kind_and_the_table_of_changes() -> None:
    text = reference()
    for heading in ("## HulkJob", "## NodeProfile", "## HulkTopology", "## Which field of a HulkJob may change"):
        assert heading in text
    never = next(line for line in text.splitlines() if line.startswith("| never |"))
    assert "`model`" in never
    assert "`training.steps`" not in never
