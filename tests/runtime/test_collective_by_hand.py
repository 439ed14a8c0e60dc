"""Two shells and a list of addresses: what docs/guides/hulk-all-reduce.md shows, run as shown."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hulk_runtime.collective.__main__ import address, by_region

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "hulk-all-reduce.md").read_text()
PATIENCE_S = 120.0
Shell = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def documented(unused_port: Callable[[], int]) -> list[str]:
    """The commands of the guide's block, with ports that are free here, and small vectors."""
    (block,) = [
        block for block in re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL) if "hulk_runtime.collective" in block
    ]
    addresses = sorted(set(re.findall(r"10\.\d+\.\d+\.\d+:\d+", block)))
    for place in addresses:
        block = block.replace(place, f"127.0.0.1:{unused_port()}")
    return block.replace("\\\n", " ").splitlines()


@pytest.fixture
def shell(tmp_path: Path):
    """Runs a command line in a folder of its own; the process ends with the test."""
    started = []

    def run(command: str) -> subprocess.Popen[str]:
        line = command.replace("python ", f"exec {sys.executable} ", 1)
        process = subprocess.Popen(
            line, shell=True, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ends(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, output and errors."""
    output, errors = process.communicate(timeout=PATIENCE_S)
    return process.returncode, output, errors


def test_the_commands_of_the_guide_time_all_reduces(shell: Shell, documented: list[str]) -> None:
    secret, *ranks = documented
    assert ends(shell(secret))[0] == 0
    for code, output, errors in [ends(process) for process in [shell(command) for command in ranks]]:
        assert (code, errors) == (0, "")
        assert [line.rpartition(", ")[2] for line in output.splitlines()] == ["right", "right"]
        assert re.match(r"1 MB: median \d\.\d+ s of 5, right\n16 MB: median ", output)


@pytest.mark.whole  # in short: test_collective_faults' strangers at the door
def test_another_secret_is_refused_at_once_and_says_so(shell: Shell, documented: list[str], tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(32))
    (tmp_path / "other").write_bytes(bytes(31) + b"\1")
    first, second = (f"{command} --connect-seconds 10" for command in documented[1:])
    waits, refused = shell(first), shell(second.replace("--secret-file secret", "--secret-file other"))
    code, output, errors = ends(refused)
    assert (code, output) == (69, "")
    assert re.fullmatch(r"PeerLostError: rank 0 at 127.0.0.1:\d+: it has another secret\n", errors)
    code, output, errors = ends(waits)
    assert (code, output) == (69, "")
    assert errors == (
        "PeerLostError: ranks [1] did not connect within 10 s; refused ::ffff:127.0.0.1: it has another secret\n"
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"--rank": "2"}, "rank 2 of 2 addresses"),
        ({"--rank": "one"}, "argument --rank: invalid int value: 'one'"),
        ({"--addresses": "10.0.0.1,10.9.0.1:29401"}, "address '10.0.0.1' is not HOST:PORT"),
        ({"--addresses": "10.0.0.1:29401,10.9.0.1:99999"}, "address '10.9.0.1:99999' is not HOST:PORT"),
        ({"--regions": "eu"}, "1 regions for 2 addresses"),
        ({"--secret-file": "nowhere"}, "No such file or directory: 'nowhere'"),
        ({"--secret-file": "short"}, "a secret of 5 bytes: at least 16 are needed"),
        ({"--megabytes": "1,-3"}, "'-3' MB is no size"),
        ({"--runs": "0"}, "rank 0 of 2 addresses, 0 runs"),
        ({"--connect-seconds": "0"}, "connect 0.0 s"),
        ({"--plan": "nowhere.json.gz"}, "nowhere.json.gz"),
    ],
)
def test_bad_arguments_are_named(
    changes: dict[str, str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from hulk_runtime.collective import __main__ as command

    (tmp_path / "secret").write_bytes(bytes(32))
    (tmp_path / "short").write_bytes(bytes(5))
    given = {"--rank": "0", "--addresses": "127.0.0.1:29401,127.0.0.1:29402", "--secret-file": "secret", **changes}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["python", *(word for pair in given.items() for word in pair)])
    try:
        code = command.main()
    except SystemExit as ended:
        code = ended.code
    assert code in (2, 64)
    assert says in capsys.readouterr().err


def test_ranks_by_region() -> None:
    assert by_region(["eu", "us", "eu", "ap"]) == [[0, 2], [1], [3]]
    assert address("db.example:29401").host == "db.example"
