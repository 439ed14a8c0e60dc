"""Objects and texts -> the same without credentials: values of environment variables, and what looks like a secret.

Programs print what they like, so a log without any cannot be promised; whoever hands a bundle on looks at it first.
"""

import re
from typing import Any, Final

from hulk_operator import names
from hulk_operator.cluster import Object

HIDDEN: Final = "[redacted]"
SHOWN: Final = frozenset(names.RESERVED_ENV)
"""Variables that only Hulk sets: ranks, ports, paths."""
LEFT_OUT: Final = ("managedFields",)
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"  # the whole object, as it was written

_SECRET_WORD: Final = r"(?:password|passwd|passphrase|secret|token|api[-_]?key|access[-_]?key(?:[-_]id)?|credentials?)"
_PATTERNS: Final = (
    re.compile(r"(?P<keep>)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"(?P<keep>\w://)[^\s/@'\"]+:[^\s/@'\"]+(?=@)"),
    re.compile(r"(?P<keep>\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}", re.IGNORECASE),
    re.compile(r"(?P<keep>\bX-Amz-(?:Signature|Credential|Security-Token)=)[^&\s'\"]+", re.IGNORECASE),
    re.compile(r"(?P<keep>)\b(?:(?:AKIA|ASIA)[A-Z0-9]{16}|gh[pousr]_\w{20,}|hf_\w{20,}|xox[abprs]-[\w-]{10,})"),
    re.compile(r"(?P<keep>)\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    # Not a number: programs that train print how many tokens they read.
    re.compile(
        rf"(?P<keep>\b[\w-]*{_SECRET_WORD}['\"]?\s*[:=]\s*['\"]?)(?![\d.,e+-]+(?:[\s,;)'\"]|$))[^\s'\",;&)]{{4,}}",
        re.IGNORECASE,
    ),
)
_SECRET_FLAG: Final = re.compile(rf"--?[\w-]*{_SECRET_WORD}", re.IGNORECASE)


def redact_text(text: str) -> str:
    """A text without what looks like a credential.

    >>> redact_text("GET s3://me:hunter2@host/a with api_key=abcdef12, tokens: 4096")
    'GET s3://[redacted]@host/a with api_key=[redacted], tokens: 4096'
    """
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\g<keep>{HIDDEN}", text)
    return text


def redact_object(item: Object, own: bool = False) -> Object:
    """An object without values of environment variables, and its texts by `redact_text`.

    Variables in `SHOWN` stay, and in `own` objects, Hulk's own, those named `HULK_...` as well.
    """
    redacted: Object = _redacted(item, own)
    return redacted


def _redacted(node: Any, own: bool) -> Any:
    if isinstance(node, str):
        return redact_text(node)
    if isinstance(node, list):
        return [_redacted(entry, own) for entry in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _variables(child, own)
        if key == "env" and isinstance(child, list)
        else _arguments(child)
        if key in ("args", "command") and isinstance(child, list)
        else _redacted(child, own)
        for key, child in node.items()
        if key not in LEFT_OUT and key != LAST_APPLIED
    }


def _variables(variables: list[Any], own: bool) -> list[Any]:
    """Names stay, and what they refer to; values go."""

    def shown(name: str) -> bool:
        return name in SHOWN or (own and name.startswith("HULK_"))

    return [
        {**entry, "value": HIDDEN}
        if isinstance(entry, dict) and "value" in entry and not shown(str(entry.get("name")))
        else entry
        for entry in variables
    ]


def _arguments(words: list[Any]) -> list[Any]:
    """Also `--token VALUE` in two words."""
    texts = [redact_text(str(word)) for word in words]
    hidden = [bool(number) and bool(_SECRET_FLAG.fullmatch(texts[number - 1])) for number in range(len(texts))]
    return [HIDDEN if is_hidden else text for text, is_hidden in zip(texts, hidden, strict=True)]
