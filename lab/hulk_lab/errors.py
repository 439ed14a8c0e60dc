"""What the lab raises on purpose: the message is for the person at the terminal."""


class LabError(RuntimeError):
    """Something of the lab failed; the message says what, and what helps."""
