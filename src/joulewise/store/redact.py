"""Masking secrets in a command's arguments, because run directories are passed around.

Found are values after names that announce a secret (``--token``, ``api_key=``, ``password:``),
passwords in URLs, headers and ``user:password`` pairs, and tokens that are known by their form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MASK: Final = "***"

# The last word of a name after which a secret follows: --token, --hftoken, dbPassword, --pat.
_SECRET: Final = re.compile(
    r"\w*(?:pass(?:word|wd|phrase|code)|pwd|secret|token|credential|(?:api|access|private)key)s?"
    r"|pass|pat|auth|authorization|bearer|cookies?"
)
# The word before key or tokens where these are secret: --wandb-key, --api-keys. Else they are not.
_KEY_OF: Final = re.compile(
    r"api|access|auth|secret|private|wandb|hf|openai|anthropic|comet|neptune|mlflow|clearml|aws"
    r"|azure|gcp|account|storage|ssh|signing|encryption|license|service|refresh|bearer"
)
# The word before token where that is one of a language model, and no secret.
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
# With two dashes it is another option, and the one before had no value.
_LONG_FLAG: Final = re.compile(r"^--[A-Za-z][\w.\-]*$")
_KNOWN_TOKENS: Final = (
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
# Programs whose -p is followed by a password without a space; elsewhere -p8080 is a port. Those of
# the first two groups also take it after a space, and sshpass is followed by another command.
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
_AFTER_COLON: Final = re.compile(
    r"""(?P<head>(?<![\w.\-])(?P<name>[A-Za-z][\w.\-]*)\s*:\s+)(?!\d{1,3}(?:$|[\s,;]))"""
    r"""(?P<value>[^\s,;}"'\\]+)"""
)
# The same without a space. A path (a volume, secrets:/run/secrets) is no secret, and auth:latest is
# an image.
_GLUED_VALUE: Final = re.compile(
    r"""(?P<head>(?<![\w.\-])(?P<name>[A-Za-z][\w.\-]*)(?<!auth)(?<!pat):)"""
    r"""(?![/.~]|\*{3}|\d{1,3}(?:$|[\s,;]))(?P<value>[^\s,;}"'\\]+)""",
    re.IGNORECASE,
)
_NAME_WITH_COLON: Final = re.compile(r"^[A-Za-z][\w.\-]*:$")
# Without a scheme: user:password@host. The digest of an image (name:tag@sha256:…) is no secret.
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
            masked.append(_mask_user(argument))
        elif taker and argument.startswith("-p") and argument != "-p":
            masked.append(f"-p{MASK}")
            taker = None if taker["only_first"] else taker
        elif taker and before == "-p" and (taker["only_first"] or taker["separate"]):
            masked.append(MASK)
            taker = None if taker["only_first"] else taker
        else:
            masked.append(_mask_argument(argument))
            taker = _TAKES_PASSWORD.fullmatch(argument) or taker
        before = argument
    return tuple(masked)


def _announces_secret(before: str, argument: str) -> bool:
    """Whether ``before`` is an option, or a name with a colon, whose value is a secret."""
    if _FLAG.match(before) and not _GLUED_PASSWORD.fullmatch(before):
        return _names_secret(before) and not _LONG_FLAG.match(argument)
    is_count = argument.isdigit() and len(argument) <= 3
    return bool(_NAME_WITH_COLON.match(before)) and _names_secret(before) and not is_count


def _mask_user(user: str) -> str:
    pair = _PASSWORD.fullmatch(user)
    return f"{pair['user']}{MASK}" if pair else _mask_argument(user)


def _names_secret(name: str) -> bool:
    """Whether the value of an option or variable of that name is a secret."""
    words = [word for word in re.split(r"[^a-z0-9]+", _HUMP.sub("-", name).lower()) if word]
    before, last = ["", *words][-2:] if words else ("", "")
    if last in {"key", "keys", "tokens"}:
        return bool(_KEY_OF.fullmatch(before))
    if last.endswith("token") and _TOKEN_OF.fullmatch(last.removesuffix("token") or before):
        return False
    return bool(_SECRET.fullmatch(last))


def _mask_argument(argument: str) -> str:
    option = _OPTION.match(argument)
    if option and _names_secret(option["name"]):
        return f"{option['name']}={MASK}"
    if option and option["name"] in _USER:
        return f"{option['name']}={_mask_user(option['value'])}"
    glued = _GLUED_USER.fullmatch(argument)
    if glued:
        return f"-u{_mask_user(glued['value'])}"
    if _GLUED_PASSWORD.fullmatch(argument):
        return f"-p{MASK}"
    argument = _URL.sub(rf"\g<scheme>{MASK}@", argument)
    argument = _AT_HOST.sub(rf"\g<user>{MASK}", argument)
    argument = _HEADER.sub(rf"\g<name>\g<colon>{MASK}", argument)
    argument = _LOGIN.sub(_mask_login, argument)
    for named in (_QUERY, _ASSIGNED, _LISTED, _AFTER_COLON, _GLUED_VALUE):
        argument = named.sub(_mask_value, argument)
    for known_token in _KNOWN_TOKENS:
        argument = known_token.sub(MASK, argument)
    return _mask_within(argument)


def _mask_value(match: re.Match[str]) -> str:
    in_url = match.re is _QUERY and _IN_QUERY.fullmatch(match["name"])
    if not (in_url or _names_secret(match["name"])):
        return match[0]
    quote = match.groupdict().get("quote", "")
    return f"{match['head']}{quote}{MASK}{quote}"


def _mask_login(call: re.Match[str]) -> str:
    return call["head"] + re.sub(_QUOTED, rf"\g<quote>{MASK}\g<quote>", call["arguments"])


def _mask_within(line: str) -> str:
    """Mask an argument that is itself a command line, as after ``sh -c``."""
    words = _WORDS.findall(line)
    if len(words) < 2:
        return line
    masked = iter(mask(words))
    return _WORDS.sub(lambda _: next(masked), line)
