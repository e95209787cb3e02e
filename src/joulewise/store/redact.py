"""Secrets in a command's arguments, which nobody wants in a file that is passed around."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MASK: Final = "***"

# What the last word of a name is if a secret follows: --token, --hftoken, dbPassword, --pat.
_SECRET: Final = re.compile(
    r"\w*(?:pass(?:word|wd|phrase|code)|pwd|secret|token|credential|(?:api|access|private)key)s?"
    r"|pass|pat|auth|authorization|bearer|cookies?"
)
# Whose key or tokens are a secret: --wandb-key, --api-keys. A dictionary's key is none.
_KEY_OF: Final = re.compile(
    r"api|access|auth|secret|private|wandb|hf|openai|anthropic|comet|neptune|mlflow|clearml|aws"
    r"|azure|gcp|account|storage|ssh|signing|encryption|license|service|refresh|bearer"
)
# A language model's tokens are none.
_TOKEN_OF: Final = re.compile(
    r"pad|padding|eos|bos|sos|unk|mask|sep|cls|class|special|stop|start|end|first|last|image|video"
    r"|audio|text|prompt|per|max|num|min|new|next|decoder|placeholder|register"
)
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORDS: Final = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s"'])+""")
_OPTION: Final = re.compile(
    r"^(?P<name>(?:-{0,2}|\+{0,2})[A-Za-z][\w.\-]*)=(?P<value>.+)$", re.DOTALL
)
_FLAG: Final = re.compile(r"^--?[A-Za-z][\w.\-]*$")
# One with two dashes is another option: the one before had no value.
_LONG_FLAG: Final = re.compile(r"^--[A-Za-z][\w.\-]*$")
_SHAPES: Final = (
    re.compile(r"\bhf_[A-Za-z0-9]{16,}"),
    re.compile(r"\bsk-[A-Za-z0-9_\-]{16,}"),
    re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,})"),
    re.compile(r"\bglpat-[\w\-]{16,}"),
    re.compile(r"\bxox[abprs]-[\w\-]{10,}"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"\bAIza[\w\-]{30,}"),
    re.compile(r"\beyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*"),
)
_URL: Final = re.compile(
    r"(?P<scheme>(?<![a-z0-9+.\-])[a-z][a-z0-9+.\-]*://)[^/\s]+@", re.IGNORECASE
)
_USER: Final = ("-u", "--user", "--proxy-user")
_PASSWORD: Final = re.compile(r"(?!\d+:\d+$)(?P<user>[^:/\s]+:)(?!//).+", re.DOTALL)
_GLUED_USER: Final = re.compile(r"-u(?P<value>[^-=].*:.*)", re.DOTALL)
# Whose -p is a password with no space before it; elsewhere -p8080 is a port. Those of the first
# two groups also take it with a space, and behind sshpass comes a command with options of its own.
_TAKES_PASSWORD: Final = re.compile(
    r"(?:.*/)?(?:(?P<only_first>sshpass)"
    r"|(?P<separate>mongo(?:sh|dump|restore|export|import|stat|top)?)"
    r"|(?:mysql|mariadb)[\w-]*|mycli|7z[arz]?|(?:un)?rar)"
)
_HEADER: Final = re.compile(
    r"(?P<name>(?<![\w-])(?:(?:proxy-)?authorization|x-[\w-]*(?:key|token)|(?:set-)?cookie))"
    r"(?P<colon>\s*:\s*).+",
    re.IGNORECASE | re.DOTALL,
)
_QUERY: Final = re.compile(r"(?P<head>[?&](?P<name>[\w.\-]+)=)(?P<value>[^&#\s\"']+)")
_IN_QUERY: Final = re.compile(r"sig|key|.*signature|.*credential", re.IGNORECASE)
# In JSON and in scripts: "api_key": "abc", token='abc', environ["KEY"] = "abc".
_QUOTED: Final = r"""(?P<quote>\\?["'])(?P<value>(?:(?!(?P=quote))(?:\\.|[^\\]))*)(?P=quote)"""
_ASSIGNED: Final = re.compile(
    rf"""(?P<head>(?<![\w.\-])(?P<name>[A-Za-z][\w.\-]*)(?:\\?["'])?\]?\s*[:=]\s*){_QUOTED}""",
    re.DOTALL,
)
_LISTED: Final = re.compile(
    r"""(?P<head>[{,]\s*(?:\\?["'])?(?P<name>[A-Za-z][\w.\-]*)(?:\\?["'])?\s*:\s*)"""
    r"""(?P<value>[^\s,}"'\\]+)"""
)
# In prose and YAML: "password: abc". A small number behind it counts something ("pass: 2").
_TOLD: Final = re.compile(
    r"""(?P<head>(?<![\w.\-])(?P<name>[A-Za-z][\w.\-]*)\s*:\s+)(?!\d{1,3}(?:$|[\s,;]))"""
    r"""(?P<value>[^\s,;}"'\\]+)"""
)
# The same without a space. What lies at a path (a volume, secrets:/run/secrets) is none, and
# auth:latest is an image.
_GLUED_VALUE: Final = re.compile(
    r"""(?P<head>(?<![\w.\-])(?P<name>[A-Za-z][\w.\-]*)(?<!auth)(?<!pat):)"""
    r"""(?![/.~]|\*{3}|\d{1,3}(?:$|[\s,;]))(?P<value>[^\s,;}"'\\]+)""",
    re.IGNORECASE,
)
_NAME_WITH_COLON: Final = re.compile(r"^[A-Za-z][\w.\-]*:$")
# Without a scheme: user:password@host. A digest of an image (name:tag@sha256:…) is none.
_AT_HOST: Final = re.compile(
    r"(?P<user>(?<![\w./:@\-])[\w.+\-]+:)[^\s:@/]+(?=@(?!sha\d+:)[A-Za-z0-9][\w.\-]*)"
)
# -pSECRET of a program that is not known for it. Flags are lower case (-pthread, -pedantic), and
# ports, sizes and shares are numbers: so a capital, or letters, digits and a sign together.
_GLUED_PASSWORD: Final = re.compile(
    r"-p(?![./~])(?=[^=]{4,}$)(?:(?=.*[A-Z])|(?=.*[a-z])(?=.*\d)(?=.*[!@#$%^&*?]))(?!.*[/:]).+"
)
_LOGIN: Final = re.compile(r"(?P<head>\blogin\()(?P<arguments>[^)]+)")


def mask(arguments: Iterable[str]) -> tuple[str, ...]:
    """The arguments with every secret in them replaced by ``***``."""
    masked: list[str] = []
    before = ""
    taker: re.Match[str] | None = None
    for argument in arguments:
        if _announces_secret(before, argument):
            masked.append(MASK)
        elif before in _USER:
            masked.append(_user_masked(argument))
        elif taker and argument.startswith("-p") and argument != "-p":
            masked.append(f"-p{MASK}")
            taker = None if taker["only_first"] else taker
        elif taker and before == "-p" and (taker["only_first"] or taker["separate"]):
            masked.append(MASK)
            taker = None if taker["only_first"] else taker
        else:
            masked.append(_masked(argument))
            taker = _TAKES_PASSWORD.fullmatch(argument) or taker
        before = argument
    return tuple(masked)


def _announces_secret(before: str, argument: str) -> bool:
    """Whether ``before`` is an option, or a name with a colon, whose value is a secret."""
    if _FLAG.match(before) and not _GLUED_PASSWORD.fullmatch(before):
        return _names_secret(before) and not _LONG_FLAG.match(argument)
    is_count = argument.isdigit() and len(argument) <= 3
    return bool(_NAME_WITH_COLON.match(before)) and _names_secret(before) and not is_count


def _user_masked(user: str) -> str:
    found = _PASSWORD.fullmatch(user)
    return f"{found['user']}{MASK}" if found else _masked(user)


def _names_secret(name: str) -> bool:
    words = [word for word in re.split(r"[^a-z0-9]+", _HUMP.sub("-", name).lower()) if word]
    whose, last = ["", *words][-2:] if words else ("", "")
    if last in {"key", "keys", "tokens"}:
        return bool(_KEY_OF.fullmatch(whose))
    if last.endswith("token") and _TOKEN_OF.fullmatch(last.removesuffix("token") or whose):
        return False
    return bool(_SECRET.fullmatch(last))


def _masked(argument: str) -> str:
    option = _OPTION.match(argument)
    if option and _names_secret(option["name"]):
        return f"{option['name']}={MASK}"
    if option and option["name"] in _USER:
        return f"{option['name']}={_user_masked(option['value'])}"
    glued = _GLUED_USER.fullmatch(argument)
    if glued:
        return f"-u{_user_masked(glued['value'])}"
    if _GLUED_PASSWORD.fullmatch(argument):
        return f"-p{MASK}"
    argument = _URL.sub(rf"\g<scheme>{MASK}@", argument)
    argument = _AT_HOST.sub(rf"\g<user>{MASK}", argument)
    argument = _HEADER.sub(rf"\g<name>\g<colon>{MASK}", argument)
    argument = _LOGIN.sub(_login_masked, argument)
    for named in (_QUERY, _ASSIGNED, _LISTED, _TOLD, _GLUED_VALUE):
        argument = named.sub(_value_masked, argument)
    for shape in _SHAPES:
        argument = shape.sub(MASK, argument)
    return _masked_within(argument)


def _value_masked(found: re.Match[str]) -> str:
    in_url = found.re is _QUERY and _IN_QUERY.fullmatch(found["name"])
    if not (in_url or _names_secret(found["name"])):
        return found[0]
    quote = found.groupdict().get("quote", "")
    return f"{found['head']}{quote}{MASK}{quote}"


def _login_masked(call: re.Match[str]) -> str:
    return call["head"] + re.sub(_QUOTED, rf"\g<quote>{MASK}\g<quote>", call["arguments"])


def _masked_within(line: str) -> str:
    """An argument that is itself a command line, as a shell's is."""
    words = _WORDS.findall(line)
    if len(words) < 2:
        return line
    masked = iter(mask(words))
    return _WORDS.sub(lambda _: next(masked), line)
