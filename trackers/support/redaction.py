"""Secrets stay out of everything that is written: masked by the name of their key, by what stands around them, or by
their known form (:mod:`trackers.support.secret_patterns`).

Only text is masked, and a key must hold one of the words whole: ``max_tokens`` and ``tokenizer`` stay. Patterns are
linear in the text: repetitions are of one class of characters, and bounded where something follows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trackers.support import secret_patterns

MASK = "***"
CARRIER = "TRACKER_SECRET_"
"""Prefix of the environment variables by which options with a login in them reach the relay, never a file."""

_kept: dict[str, str] = {}


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORDS = _set(
    "password passwords passwd passphrase passcode pwd secret secrets credential credentials creds apikey apikeys "
    "authtoken accesstoken refreshtoken bearertoken apitoken secretkey accesskey privatekey sshkey bearer jwt cookie "
    "cookies authorization mnemonic totp otp webhook webhooks keytab pgpass"
)
"""Words of a name under which text is secret."""
_PAIRS = frozenset(
    {(first, second) for first in ("api", "access", "secret", "private", "auth")
     for second in ("key", "keys", "tokens")}
    | {(first, "key") for first in ("account", "shared", "storage", "encryption", "signing", "ssh", "license",
                                    "subscription", "wandb")}
    | {(first, "pass") for first in ("db", "database", "user", "smtp", "mail", "email", "ftp", "ssh", "pg", "mysql",
                                     "postgres", "redis", "proxy", "admin", "root", "http", "login", "my", "sudo")}
    | {("alert", "to"), ("alert", "smtp")}
    | {("key", "data"), ("connection", "string"), ("conn", "string"), ("seed", "phrase"), ("recovery", "phrase")}
)  # fmt: skip
# A number of plain "tokens" or "keys" says what a model works on; "api_keys" and "auth_tokens" are secrets.
_OF_MODELS = _set(
    "pad bos eos unk cls sep mask image video audio vision speech special start end stop think thinking prompt decoder "
    "encoder begin system assistant tool tools next extra additional boi eoi boa eoa fim prefix suffix middle sentinel "
    "class classification null blank object register modality text word sub byte first last new current previous "
    "target source reserved placeholder patch frame point box region mem memory latent query lang language task "
    "per each space"
)
"""Words before "token" that say which one of a model's vocabulary, or what of the data, it is."""
_DESCRIBING = _set(
    "type types kind policy file files filename path paths dir directory folder name names id ids index idx len length "
    "lengths count size limit limits url uri endpoint format class mode method strategy style side position positions "
    "prefix suffix dtype dispatcher drop dropout pooling reduction weight weights weighting ratio budget level counter "
    "field column separator sep embed embedding embeddings vocab merge merging choice router routing order mask masks "
    "dim dims shape required enabled provider manager store backend version expiry expires ttl env var variable "
    "row rows indices stride expert experts capacity dispatch permute stats usage cost cap start end offset offsets "
    "window regex pattern scope scopes audience issuer algorithm jar"
)
"""Last words that say something about a secret, which isn't one."""
_WEAK = _set("key auth pass pat sid sig signature session sessionid token")
"""Words under which a text is secret where it looks like one."""
_OF_DATA = _set("cache sort primary foreign partition hash dedup idempotency content commit object state")
"""Words before "key" that say whose it is, though it looks like a secret."""
_MODES = _set(
    "none basic digest bearer oauth oauth2 oidc token tokens iam kerberos ldap saml sso ssl tls mtls default auto true "
    "false yes no on off null required optional disabled enabled munge gssapi ntlm password key keyfile file env "
    "required anonymous public jwt cookie str string int float bool bytes any optional text rbac"
)
"""Texts that say how, not what."""
# What models call tokens, "<|endoftext|>" under "eos_token" say, is no secret; nor is a reference to one.
_SPECIAL = re.compile(
    r"<[^<>]{1,40}>|\[[A-Z]{1,12}\]|\$\{[^{},]{1,200}\}|\$[A-Za-z_]\w{0,80}|\$?\{\{[^{}]{1,200}\}\}|\*+|x{3,}|\.{3}|…"
)
_SPLIT = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_RANDOM = re.compile(r"[A-Za-z0-9+/_\-=.~]{16,}")
_HEX32 = re.compile(r"[0-9a-fA-F]{32,}")
_ATTRIBUTE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_VARIABLE = re.compile(r"-{0,2}[\w.\-/]{1,200}")
_OPTION_NAME = re.compile(r"-{1,2}[\w.\-]{1,200}")
_HEX40 = re.compile(r"[0-9a-f]{40}")

# Somewhere in a line there must be one of these before anything is looked for around it.
_HINT = re.compile(
    r"pass|pwd|secret|token|key|auth|cred|cookie|jwt|bearer|otp|mnemonic|webhook|sig|login|session|sid|phrase|string|\.init\(|data|curl",
    re.IGNORECASE,
)
_NAME = r"[A-Za-z_][\w.\-]{0,80}"
# name = "value", "name": "value", in whatever language.
_ASSIGNED = re.compile(
    rf"""(?<![\w.\-])((\\?["']?)({_NAME})\2\]?\s{{0,8}}(?::\s{{0,8}}[\w\[\]. |]{{0,60}})?"""
    r"""(?::=|=>|[:=])\s{0,8}[a-z]{0,2})"""
    r"""(\\?["'`])((?:(?!\4)[^\n]){1,4000})\4"""
)
# NAME=value and name=value; without spaces, as in a shell or a connection string.
_SHELL = re.compile(rf"""(?<![\w.])((?:\$env:|-{{1,2}})?({_NAME})=)([^\s"'`;,&()\[\]{{}}<>|]{{1,4000}})(?=(.?))""")
# name: value and name = value alone on a line of YAML, INI, netrc or a patch of one.
_LINE = re.compile(
    rf"""^([+\- ]?[ \t]{{0,80}}(?:-[ ])?(?:export[ ]|set[ ]|setenv[ ])?["']?({_NAME})["']?"""
    r"""[ \t]{0,8}(?:[:=][ \t]{0,8}|[ \t]{1,8}))"""
    r"""([^\s"'`,;()\[\]{}<>]{3,4000})[ \t]{0,80}(?:#[^\n]{0,400})?\r?$""",
    re.MULTILINE,
)
# --token value, login … password value.
_OPTION = re.compile(rf"""(?<![\w\-}}])(-{{1,2}}({_NAME})[ \t]{{1,8}})(["']?)([^\s"'\-][^\s"']{{0,4000}})\3""")
_NETRC = re.compile(r"(\b(?:login|account|user)[ \t]+\S{1,200}[ \t]+password[ \t]+)([^\s$]\S{0,400})")
_LOGIN = re.compile(
    r"""(\b(?:wandb|comet_ml|neptune|huggingface_hub|mlflow|openai|clearml|swanlab|aim)\.(?:login|init|Experiment|API)"""
    r"""\([ \t]{0,8}(?:key[ \t]{0,8}=[ \t]{0,8})?)(["'])([^"'\n]{8,400})\2"""
)
_LOGIN_COMMAND = re.compile(r"(\bwandb[ \t]+login[ \t]+(?:--[\w\-=.:/]{1,100}[ \t]+){0,4})([\w\-]{16,400})")
_CURL_USER = re.compile(
    r"""(\bcurl\b[^\n]{0,400}?[ \t](?:-u|--user)[ \t=]{1,4}["']?[^\s:"']{0,100}:)([^\s"']{1,400})"""
)
_SSHPASS = re.compile(r"(\bsshpass[ \t]+-p[ \t]*)(\S{1,400})")
_SCHEMES = r"(?:Bearer|Basic|Token|ApiKey|Api-Key|Digest|Negotiate|AWS4-HMAC-SHA256|SharedKey|SharedAccessSignature)"
_AUTHORIZATION = re.compile(
    rf"""(?i)(\b(?:proxy-)?authorization\\?["']?[ \t]{{0,8}}[:=,][ \t]{{0,8}}(?:[frb]{{0,2}}\\?["'])?"""
    rf"""(?:{_SCHEMES}[ \t]{{1,8}}|(?!{_SCHEMES}[ \t])))([^\s"',;\\${{][^\s"',;\\]{{3,4000}})"""
)
_BEARER = re.compile(r"""(\b[Bb]earer[ \t]{1,8})([A-Za-z0-9._~+/\-]{12,4000}=*)""")
_HEADER = re.compile(
    r"""(?i)(\b(?:x-[a-z\-]{0,40}(?:key|token|secret|auth|signature)|(?:set-)?cookie|api-key|apikey|private-token|job-token)"""
    r"""\\?["']?[ \t]{0,8}:[ \t]{0,8}["']?)([^"'\n\\]{4,4000})"""
)
_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]{0,60}(?:PRIVATE KEY|OPENSSH KEY)(?: BLOCK)?-----|PuTTY-User-Key-File-\d:")
_PASSES = 4
"""Maximum number of passes over one line."""
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,80}-----|Private-MAC:[^\n]{0,200}")
_URL_LOGIN = re.compile(
    r"""(://[^/\s:@"'<>]{0,200}):(?!\d{1,5}(?:[/?#\s"']|$))([^\s"'<>]{1,400})@(?=[\w\[][\w.\-\]:]{0,253}(?:[/?#,\s"')]|$))"""
)
_URL_TOKEN = re.compile(r"""(https?://)(?!git@)([^/\s:@"'<>?#]{4,1000})@""")
_URL_QUERY = re.compile(r"""([?&;])([\w.\-]{1,80})=([^&\s"'#;]{1,4000})""")
_SIGNED = frozenset({"sig", "signature", "code", "key", "auth", "password", "pwd", "x-amz-credential"})


def is_secret_key(key: str) -> bool:
    """Does a value under this key have to be masked?"""
    return _is_named(_split_key(key))


def _is_named(words: list[str]) -> bool:
    if not words or (words[-1] in _DESCRIBING and words[-1] not in _WORDS):
        return False
    for index, word in enumerate(words):
        if _is_secret(word):
            return True
        before = words[index - 1] if index else ""
        if (before, word) in _PAIRS:
            return True
        if word == "token" and before not in _OF_MODELS:
            return True
    return False


def _is_secret(word: str) -> bool:
    return word in _WORDS or word.endswith(("password", "passwd", "apikey"))


def _is_of_secrets(key: str) -> bool:
    """Does the name end with a secret's: "credentials", not "token_mixer"?"""
    words = _split_key(key)
    return bool(words) and (_is_secret(words[-1]) or words[-1] == "token" or tuple(words[-2:]) in _PAIRS)


def _split_key(key: str) -> list[str]:
    return [word.lower() for word in _SPLIT.split(key[:200]) if word]


def _looks_random(text: str) -> bool:
    """Is it what a machine made, not a word, a path, a name or a version?"""
    if _HEX32.fullmatch(text) and not text.isdigit():
        return True
    if not _RANDOM.fullmatch(text) or text.count("/") > 3 or text.startswith(("/", ".")):
        return False
    kinds = (any(c.islower() for c in text), any(c.isupper() for c in text), any(c.isdigit() for c in text))
    return sum(kinds) == 3 and len(set(text)) >= 8


def _hides(key: str, value: str) -> bool:
    """Whether a text under a name is secret."""
    if not value or _SPECIAL.fullmatch(value) or value.lower() in _MODES:
        return False
    words = _split_key(key)
    if _is_named(words):
        if words[-1] == "pwd" and value.startswith(("/", "~", ".")):  # a directory
            return False
        return not (words[-1] == "jwt" or words[-1].startswith("webhook")) or _looks_random(value) or "://" in value
    if not words or words[-1] not in _WEAK or words[-1] == "token":
        return False
    if words[-1] in ("auth", "pass") and len(words) == 1:
        return True
    if words[-1] == "key" and not _OF_DATA.isdisjoint(words):
        return False
    return _looks_random(value)


def mask_text(text: str) -> str:
    """Text with known forms of keys, and logins inside addresses and headers, masked."""
    if len(text) < 8:
        return text
    if "-----BEGIN" in text or "PuTTY" in text:
        text = _without_pem(text)
    if "://" in text:
        text = _URL_LOGIN.sub(r"\1:" + MASK + "@", text)
        text = _URL_TOKEN.sub(_hide_url_token, text)
        if "=" in text:
            text = _URL_QUERY.sub(_hide_query, text)
    small = text.lower()
    if "authorization" in small:
        text = _AUTHORIZATION.sub(rf"\1{MASK}", text)
    if "bearer" in small:
        text = _BEARER.sub(_hide_bearer, text)
    return secret_patterns.hide(text, MASK) if len(text) >= 12 else text


def mask_source(text: str) -> str:
    """Text such as a patch, a command or a message, with known forms masked, and what a secret's name is given."""
    text = mask_text(text)
    if _HINT.search(text) is None:
        return text
    if len(text) < 2000:
        return _mask_line(text)
    return "".join(_mask_line(line) if _HINT.search(line) else line for line in text.splitlines(keepends=True))


class LineMask:
    """Masks text that comes line by line, as :func:`mask_source` does whole; a private key may span lines."""

    def __init__(self) -> None:
        self._lines_of_key = 0

    def lines(self, texts: Sequence[str]) -> list[str]:
        """Lines that follow each other, masked; quicker than one by one."""
        whole = "\n".join(texts)
        if not self._lines_of_key and "-----BEGIN" not in whole and "PuTTY" not in whole:
            masked = mask_source(whole).split("\n")
            if len(masked) == len(texts):
                return masked
        return [self.line(text) for text in texts]

    def line(self, text: str) -> str:
        """A line, masked."""
        if self._lines_of_key:
            end = _PEM_END.search(text)
            self._lines_of_key = 0 if end is not None else (self._lines_of_key + 1) % KEY_LINES
            return MASK if end is None else MASK + mask_source(text[end.end() :])
        if "-----BEGIN" in text or "PuTTY" in text:
            begin = _PEM.search(text)
            if begin is not None and _PEM_END.search(text, begin.end()) is None:
                self._lines_of_key = 1
        return mask_source(text)


KEY_LINES = 200
"""Maximum number of lines of a private key: one without an end hides no more than these."""


def _mask_line(text: str) -> str:
    """A line masked until nothing changes: what is masked may uncover the form of what stands beside it."""
    for _ in range(_PASSES):
        before, text = text, _mask_once(text)
        if text == before:
            break
    return text


def _mask_once(text: str) -> str:
    if "=" in text or ":" in text:
        text = _ASSIGNED.sub(_hide_assigned, text)
        text = _HEADER.sub(rf"\1{MASK}", text)
    if "=" in text:
        text = _SHELL.sub(_hide_shell, text)
    if "-" in text:
        text = _OPTION.sub(_hide_option, text)
    text = _LINE.sub(_hide_line, text)
    if "login" in text or "Experiment" in text or "init" in text or "API" in text:
        text = _LOGIN.sub(rf"\1\2{MASK}\2", text)
        text = _LOGIN_COMMAND.sub(rf"\1{MASK}", text)
    if "password" in text:
        text = _NETRC.sub(rf"\1{MASK}", text)
    if "curl" in text:
        text = _CURL_USER.sub(rf"\1{MASK}", text)
    return _SSHPASS.sub(rf"\1{MASK}", text) if "sshpass" in text else text


def _without_pem(text: str) -> str:
    """Text without private keys; one without an end is cut there."""
    parts, position = [], 0
    while (begin := _PEM.search(text, position)) is not None:
        parts += [text[position : begin.start()], MASK]
        end = _PEM_END.search(text, begin.end())
        if end is None:
            return "".join(parts)
        position = end.end()
    return "".join([*parts, text[position:]])


def _hide_url_token(match: re.Match[str]) -> str:
    return match[0] if match[2] == MASK or match[2].startswith("$") else f"{match[1]}{MASK}@"


def _hide_query(match: re.Match[str]) -> str:
    name, value = match[2].lower(), match[3]
    hidden = (name in _SIGNED or name.endswith(("signature", "token"))) and not _SPECIAL.fullmatch(value)
    hidden = hidden and (name not in ("code", "key", "auth") or _looks_random(value))
    return f"{match[1]}{match[2]}={MASK}" if hidden or _hides(match[2], value) else match[0]


def _hide_bearer(match: re.Match[str]) -> str:
    return f"{match[1]}{MASK}" if any(c.isdigit() for c in match[2]) or len(match[2]) >= 24 else match[0]


def _hide_assigned(match: re.Match[str]) -> str:
    return f"{match[1]}{match[4]}{MASK}{match[4]}" if _hides(match[3], match[5]) else match[0]


def _hide_shell(match: re.Match[str]) -> str:
    name, value, after = match[2], match[3], match[4]
    if after in ("(", "[", '"', "'", "`", "{") or _is_reference(value) or not _hides(name, value):
        return match[0]
    # In lower case it may be an argument of a function, whose value is a name: login(token=hub_token).
    named = value.isidentifier() and not any(c.isdigit() for c in value)
    if name.islower() and named and not match[1].startswith("-") and after != ";":
        return match[0]
    return match[0] if value.isdigit() and not _is_password(name) else f"{match[1]}{MASK}"


def _is_reference(value: str) -> bool:
    """Is it a variable, an attribute, a format or a placeholder?"""
    return (
        value == MASK
        or value.startswith(("$", "%", "<"))
        or value.endswith("...")
        or _ATTRIBUTE.fullmatch(value) is not None
    )


def _is_password(name: str) -> bool:
    return any(
        word in ("pwd", "secret", "passphrase") or word.endswith(("password", "passwd")) for word in _split_key(name)
    )


def _hide_line(match: re.Match[str]) -> str:
    name, value = match[2], match[3]
    if _is_reference(value) or value in ("|", ">", "=", "==", ":", "|-") or value.endswith((":", "=")):
        return match[0]
    separator = match[1].rstrip("\"' \t")[-1:]
    if separator not in ":=":  # a word, a space and a word: netrc alone
        return f"{match[1]}{MASK}" if name == "password" and value.lower() not in _MODES else match[0]
    if not _hides(name, value) or (value.isdigit() and not _is_password(name)):
        return match[0]
    # Of code, "token = hub_token" and "secret: Secret" are names; a password may be a word.
    plain = value.isidentifier() and not any(c.isdigit() for c in value)
    if plain and (separator == "=" or value[:1].isupper() or not _is_password(name)):
        return match[0]
    return f"{match[1]}{MASK}"


def _hide_option(match: re.Match[str]) -> str:
    value = match[4]
    if _is_reference(value) or "=" in value or not _hides(match[2], value):
        return match[0]
    if value.isalpha() and len(value) < 16 and not match[3] and not _is_password(match[2]):  # of a sentence
        return match[0]
    return f"{match[1]}{match[3]}{MASK}{match[3]}"


def mask(value: Any, key: str = "", inside: bool = False) -> Any:
    """A nested value with secrets masked; numbers and other types are untouched.

    Args:
        inside: a key around this one is of secrets.
    """
    if isinstance(value, dict):
        inside = inside or _is_of_secrets(key)
        return {name: mask(item, str(name), inside) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [mask(item, key, inside) for item in value]
    if isinstance(value, str):
        return _mask_value(value, key, inside)
    return value


def _mask_value(value: str, key: str, inside: bool) -> str:
    if inside and value and not _SPECIAL.fullmatch(value):
        return MASK
    return MASK if key and _hides(key, value) else mask_source(value)


def mask_argv(argv: Sequence[str]) -> list[str]:
    """A command line with secrets masked: ``--api-key X``, ``--api-key=X``, ``TOKEN=X``, and known forms."""
    masked: list[str] = []
    hide_next = False
    for word in argv:
        name, equals, value = word.partition("=")
        if hide_next and not word.startswith("--"):
            masked.append(MASK)
            hide_next = False
            continue
        hide_next = False
        secret = is_secret_key(name.lstrip("-"))
        if equals and value and _VARIABLE.fullmatch(name) and _hides(name.lstrip("-"), value):
            masked.append(f"{name}={MASK}")
        elif secret and _OPTION_NAME.fullmatch(word):
            masked.append(word)
            hide_next = True
        elif _HEX40.fullmatch(value or word):  # the older form of a W&B key
            masked.append(f"{name}={MASK}" if equals else MASK)
        else:
            masked.append(mask_source(word))
    return masked


def hide(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as they may be written, logins masked. What was masked is kept for this process's helpers."""
    hidden = {}
    for symbol, value in options.items():
        hidden[symbol] = mask(value, symbol)
        if hidden[symbol] != value and isinstance(value, str):
            _kept[symbol] = value
    return hidden


def reveal(options: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of :func:`hide`, where this process knows: from ``init``, its relay, or an option's variable."""
    revealed = {}
    for symbol, value in options.items():
        if isinstance(value, str) and MASK in value:
            value = _kept.get(symbol) or os.environ.get(CARRIER + symbol) or os.environ.get(symbol) or value
        revealed[symbol] = value
    return revealed


def carried() -> dict[str, str]:
    """Environment variables that take what is hidden to a helper process."""
    return {CARRIER + symbol: value for symbol, value in _kept.items()}
