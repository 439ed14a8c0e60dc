"""kubectl and helm as a user runs them: the demo and the lab tests go through the same commands as the README."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hulk_lab.errors import LabError


class CommandFailedError(LabError):
    """A command ended with an error; the message holds the command and what it printed."""

    def __init__(self, command: Sequence[str], output: str) -> None:
        super().__init__(f"{' '.join(command)}\n{output.strip()}")
        self.output = output


@dataclass(frozen=True, slots=True)
class Kube:
    """One cluster as seen through its kubeconfig and the `kubectl`, `helm` and `hulk` commands in `bin_path`."""

    kubeconfig: Path
    bin_path: str

    def run(self, *command: str, stdin: str | None = None, timeout_s: float = 300) -> str:
        """Run a command and return what it printed; CommandFailedError with its words when it fails."""
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=self._environment(),
            check=False,
        )
        if done.returncode:
            raise CommandFailedError(command, done.stdout + done.stderr)
        return done.stdout

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 300) -> str:
        """Run kubectl."""
        return self.run("kubectl", *arguments, stdin=stdin, timeout_s=timeout_s)

    def apply(self, manifest: dict[str, Any]) -> None:
        """kubectl apply of one object."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def get(self, *arguments: str) -> dict[str, Any]:
        """`kubectl get ... -o json`, parsed."""
        answer: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return answer

    def find(self, *arguments: str) -> dict[str, Any] | None:
        """As `get`, None when the object does not exist."""
        output = self.kubectl("get", *arguments, "--ignore-not-found", "-o", "json")
        return json.loads(output) if output.strip() else None

    def follow(self, *command: str) -> subprocess.Popen[str]:
        """Start a command whose lines are read while it runs."""
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=self._environment()
        )

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "PATH": f"{self.bin_path}:{os.environ['PATH']}"}
