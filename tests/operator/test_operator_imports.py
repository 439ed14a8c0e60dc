"""The serving process loads no search: those take more memory than all of the operator."""

import subprocess
import sys

SEARCHES = {"hulk_native", "ortools", "highspy", "pandas", "scipy", "torch", "hulk_placement.solve"}
SERVING = ("hulk_operator.handlers.operator", "hulk_operator.handlers.serving", "hulk_operator.handlers.workers")


def loaded(*modules: str) -> set[str]:
    """What is loaded in a new process that imports some modules."""
    program = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_serving_process_loads_no_search() -> None:
    modules = loaded("hulk_operator.__main__", *SERVING)
    assert {"kopf", "hulk_operator.planning.process"} <= modules
    assert not modules & SEARCHES


def test_the_planner_loads_no_solver_before_a_search_needs_it() -> None:
    modules = loaded("hulk_placement.solve", "hulk_placement.replan.replan")
    assert "hulk_native" in modules
    assert not modules & {"ortools", "pandas", "highspy", "jinja2"}
    assert {"ortools", "pandas"} <= loaded("hulk_placement.schedule.exact")
