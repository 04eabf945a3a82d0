"""What a text under a name is: a secret, a reference to one, or what says that there is none.

Where the name says secret, all is one but references, marks ("<your key>", "***") and what says how ("none", "oauth").
Where it says perhaps, what the text looks like decides.
"""

from __future__ import annotations

import functools
import re

from trackers.support.secret_names import Secrecy, meaning, names_in, split, word_set

MASK = "***"


_NO_VALUE = word_set(
    "none null nil nan true false yes no on off undefined required optional disabled enabled n/a unset str string "
    "bytes bytearray object callable unknown bool int float dict list redacted"
)
"""Texts that are no password, either."""
_MODES = _NO_VALUE | word_set(
    "basic digest bearer oauth oauth2 oidc token tokens iam kerberos ldap saml sso ssl tls mtls default auto munge "
    "gssapi ntlm password key keyfile file env anonymous public jwt cookie int float bool bytes any text rbac inherit "
    "write read prompt interactive cli ambient managed netrc secret secrets empty"
)
"""Texts that say how, not what."""
_LICENSES = re.compile(
    r"(?i)(?:apache|mit|bsd|[al]?gpl|mpl|cc|cc0|unlicense|isc|openrail|creativeml|bigscience|bigcode|llama|gemma|"
    r"artistic|wtfpl|zlib|ofl|odbl|odc|ms|eupl|epl|proprietary|other|unknown)(?:[\-_. ].{0,80}|[\d+].{0,20})?"
)
_MARK = re.compile(
    r"<[^<>]{1,200}>|\[[A-Za-z_]{1,40}\]|\{[\w.\[\]:!, \"'\-]{1,200}\}|[\W_]{0,8}|\*+|[xX]{3,}|\.{3}|-+|(?:\\[nrt])+"
    r"|[\u0120\u2581][^\d\s]{0,80}|(?:hf_|sk-|[A-Za-z_\-]{1,20}[_\-])?[xX]{3,}|[A-Za-z0-9_\-]{1,20}(?:\.{3}|…)"
)
_BETWEEN = re.compile(r"<[^\s<>]{8,400}>")
_FORMAT = re.compile(r"%(?:\(|[A-Za-z_]\w*%|[\d.]{0,6}[sdrfgxq](?!\w)|$|\W)")
"""A value that is filled in, or a variable of cmd.exe; ``%41`` is a character, as addresses have it."""
_YOURS = re.compile(
    r"(?i)(?:your|insert|enter|replace)[\-_ ][a-z\-_ ]{1,60}|[a-z\-_ ]{2,60}[\-_ ]here|todo|tbd|placeholder"
)
_REFERENCE = re.compile(
    r"\$\{|\$\(|\{\{|`[^`]+`|%[A-Za-z_]\w*%|%\([^)]+\)s?|%[sdr]$|\$[A-Za-z_]\w*(?:[.:]\w+)*(?:\[[^\]]*\])?$|\$\d$"
    r"|(?:os\.environ|os\.getenv|getenv|env|environ|ENV|process\.env|secrets|vars|input|getpass|keyring)[.\[(]"
    r"|(?:env|vault|file|op|ssm|arn|awssm|aws-sm|gcp-secret|gsm|azurekv|keyvault|keyring|sops|doppler|infisical|conjur|bw"
    r"|oc\.env|secretref|secretsmanager|kubernetes|k8s|exec)(?:[+\-][a-z]{1,20})?:[\w/.:\-@#?=+,~ ]+$"
    r"|[A-Z][A-Z0-9_]*=[A-Z][A-Z0-9_]*$|(?:id|env|src|source)=[\w./,=\-]+$"
    r"|projects/[\w\-]+/secrets/|!(?:ENV|vault|Ref|secret|Sub|GetAtt|env|env_var)\b"
)
"""What begins so refers to a secret in the environment or in a store of secrets."""
_REFERENCES = re.compile(
    r"\$\{\{[^{}]{0,200}\}\}|\$\{[^{}]{0,200}\}|\$\([^()]{0,200}\)|\{\{[^{}]{0,200}\}\}|[A-Za-z_]\w{0,80}=|[^A-Za-z0-9]"
)
"""What may stand beside references: nothing else that is a secret."""
_ENV_NAME = re.compile(r"_?[A-Z][A-Z0-9]{1,23}(?:_[A-Z][A-Z0-9]{0,23}){1,8}")
_SCHEME = re.compile(r"^(?:[Bb]earer|[Bb]asic|[Tt]oken|(?:Api-?)?Key) ")
_PATH = re.compile(r"(?:~|\.{1,2}|[A-Za-z]:|@|/?[\w.@+\-$]{0,100})?(?:[/\\][\w.@+\-$ {}*%:~]{0,200}){1,40}")
_FILE = re.compile(
    r"(?i)[\w.\-]{1,200}\.(?:json|ya?ml|txt|pem|key|p12|pfx|crt|cer|cert|der|env|ini|toml|cfg|conf|gpg|asc|enc|age|kdbx|"
    r"jks|pub|netrc|token|secret|keytab|csv|xml|properties|ppk|pgpass|sh|py)"
    r"|\.?(?:env|netrc|pgpass|htpasswd|dockercfg)|id_(?:rsa|dsa|ecdsa|ed25519)"
)
_PLACES = word_set(
    "secrets secret creds credentials keys key certs cert ssl tls config configs conf etc home root run var opt usr "
    "mnt data tmp vault kv tokens token auth env project projects path to users srv private ssh aws kube docker"
)
"""Folders in which files of secrets lie."""
_VERSION = re.compile(r"(?<!\d)[-_ ]?v?\d{1,8}(?:\.\d{1,8}){1,6}")
_RELEASE = re.compile(
    r"[~^<>=]{0,2} ?v?\d{1,8}(?:\.(?:\d{1,8}|[x*])){1,3}(?:[.\-]?(?:a|b|rc|alpha|beta|dev|post)\.?\d{0,8})?"
)
"""A version of a package, as its dependents name it."""
_KEYS_OF_DATA = [["storage"], ["account"], ["shared"], ["master"]]
_HOW = re.compile(r"[a-z]{2,20}(?:[\-_][a-z]{2,20}){0,3}")
_WORDED = re.compile(r"[a-z]{2,}(?:[_\-.][a-z]{2,}){1,8}")
_FIELD = re.compile(r"\{[^{}]{0,80}\}")
_RANDOM = re.compile(r"[A-Za-z0-9+/_\-=.~]{16,}")
_HEX32 = re.compile(r"[0-9a-fA-F]{32,}")
_RUN = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{4,}")
"""Letters as words have them: of random ones few stand in such runs."""
_ESCAPED = re.compile(r"%[0-9A-Fa-f]{2}")
"""A character as addresses have it."""
_UUID = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LABELS = re.compile(r"(?:[A-Za-z]{1,20}[ =:])*")
_UNSPEAKABLE = re.compile(r"(?i)[bcdfghjklmnpqrstvwxz]{5}|^[^aeiouy]+$")
_DIGIT = re.compile(r"\d")
_ALTERNATION = re.compile(r"[a-z](?=\d)|\d(?=[a-z])", re.IGNORECASE)


@functools.lru_cache(4096)
def is_secret(name: str, value: str) -> bool:
    """Is the text under a name secret?"""
    says = meaning(name)
    if says is Secrecy.NOTHING or not value or value == MASK:
        return False
    value = _SCHEME.sub("", value)
    if is_mark(value) or refers(value) or is_none(value) or _is_address(name, value):
        return False
    if says is Secrecy.PASSWORD:
        return True
    return not _describes(name, value, says) and _fits(name, value, says)


def _describes(name: str, value: str, says: Secrecy) -> bool:
    """Does the text say which secret is meant, how one signs in, or that there will be one?"""
    if is_release(value) or _is_name_of_one(name, value, says) or value.count(" ") > 3:
        return True
    if value.lower() in _MODES or _YOURS.fullmatch(value) or _ENV_NAME.fullmatch(value):
        return True
    return value.isdigit() and len(value) < 4


def _fits(name: str, value: str, says: Secrecy) -> bool:
    """Does the text look as secrets of this name do? The less the name says, the more the text must look like one."""
    words = split(name)
    last = words[-1]
    if last == "key" and words[-2:-1] in _KEYS_OF_DATA and _WORDED.fullmatch(value):
        return False
    if last == "auth" and _HOW.fullmatch(value):
        return False
    if says is Secrecy.SECRET:
        return not (last == "jwt" or last.startswith("webhook")) or looks_random(value) or "://" in value
    if says is Secrecy.PERHAPS and words[-2:] == ["license", "key"]:
        return not _LICENSES.fullmatch(value)
    if says is Secrecy.PERHAPS:
        made = looks_made(value) or (value.isdigit() and len(value) > 7)
        return made or "://" in value or (":" in value and last == "auth")
    return looks_random(value) or (words[-2:] == ["secret", "id"] and _UUID.fullmatch(value) is not None)


def is_release(value: str) -> bool:
    """Is it a version of a package, ``^1.4.4``?"""
    return _RELEASE.fullmatch(value.strip(" ,")) is not None


def _is_address(name: str, value: str) -> bool:
    """Is it an address in which no secret is? Those of webhooks, and where alerts go, are secrets themselves."""
    if not value.startswith(("https://", "http://")):
        return False
    parts = re.split(r"[/?&=;#:@]", value)
    words = split(name)
    if words[-2:-1] == ["alert"]:
        return False
    if any("hook" in word for word in words):
        return _MARK.fullmatch(parts[-1]) is not None
    return not any(map(looks_random, parts))


def _is_name_of_one(name: str, value: str, says: Secrecy) -> bool:
    """Does the text name a secret, as ``client_secret: clientSecret`` and ``key: api-token`` do?"""
    words = split(value)
    if "".join(words) == "".join(split(name.rpartition(".")[2])):
        return True
    if says >= Secrecy.SECRET or len(words) < 2 or " " in value or any(map(str.isdigit, value)):
        return False
    return meaning(value) > Secrecy.PERHAPS


def is_mark(value: str) -> bool:
    """Does the text stand for another, as ``<your key>``, ``***`` and ``<|endoftext|>`` do?"""
    if _is_between(value):
        return False
    if _MARK.fullmatch(value) is not None or (len(value) > 2 and value.isalpha() and len(set(value.lower())) == 1):
        return True
    rest = _FIELD.sub("", value) if "{" in value else value  # of a format: "{user}:{password}"
    if rest == value:
        return False
    return not any(map(str.isalnum, rest)) or any(form.fullmatch(rest) for form in (_LABELS, _ENV_NAME))


def is_none(value: str) -> bool:
    """Does the text say that there is no secret, as ``null`` does?"""
    return value.lower().rstrip(")]}.,;") in _NO_VALUE or value.lower() == "not set"


def is_template(value: str) -> bool:
    """Does the text begin as a variable, a format or a placeholder does?"""
    if value.startswith("<"):
        return not _is_between(value)
    return value.startswith(("$", "{")) or _FORMAT.match(value) is not None


def _is_between(value: str) -> bool:
    """Is it a secret between < and >, where a placeholder stands else?"""
    inside = value[1:-1]
    mixed = inside != inside.lower() and inside != inside.upper() and any(map(str.isdigit, inside))
    return mixed and _BETWEEN.fullmatch(value) is not None and looks_made(inside)


@functools.lru_cache(4096)
def refers(value: str) -> bool:
    """Does the text refer to a secret: to a variable, a path, a store of secrets?"""
    if value.startswith(("https://", "http://")):
        return False
    if _REFERENCE.match(value) or (_ENV_NAME.fullmatch(value) and any(names_in(value, value.lower()))):
        return True
    if "{" in value and (filled := _FIELD.sub("x", value)) != value and _FILE.fullmatch(filled.replace("/", "_")):
        return True
    if any(sign in value for sign in ("${", "$(", "{{")) and len(_REFERENCES.sub("", value)) < 4:
        return True
    return _FILE.fullmatch(value) is not None or (("/" in value or "\\" in value) and _is_path(value))


def _is_path(value: str) -> bool:
    if not _PATH.fullmatch(value):
        return False
    *folders, name = re.split(r"[/\\]", value)
    if any(len(part) >= 12 and looks_random(part.ljust(16, "-")) for part in (*folders, name)):
        return False
    rooted = value.startswith(("/", "~", "./", "../", "@/", "$")) or value[1:3] in (":\\", ":/")
    return rooted or _FILE.fullmatch(name) is not None or any(folder.lower() in _PLACES for folder in folders)


def looks_random(text: str) -> bool:
    """Is it what a machine made, not words, a path, a name or a version?"""
    text = _ESCAPED.sub("+", text)
    if _HEX32.fullmatch(text) and not text.isdigit():
        return True
    if not _RANDOM.fullmatch(text) or text.count("/") > 3 or text.startswith(("/", ".")) or len(set(text)) < 8:
        return False
    kinds = (text != text.upper(), text != text.lower(), _DIGIT.search(text))
    if text.endswith("=") and len(text) % 4 == 0 and len(text) > 23 and all(kinds):
        return True
    mixed = all(kinds) or (text.isalnum() and len(text) >= 20 and len(_ALTERNATION.findall(text)) >= 6)
    return mixed and not _is_worded(text)


def looks_made(text: str) -> bool:
    """Is it letters and digits, or a long mixture of letters, that don't read as words and versions?"""
    if looks_random(text) or _UUID.fullmatch(text):
        return True
    if ":" in text and "://" not in text:
        return any(len(part) >= 16 and looks_random(part) for part in text.split(":"))
    text = _VERSION.sub("", text)
    if len(text) < 8 or not text.isascii() or _is_worded(text):
        return False
    letters = sum(c.isalpha() for c in text)
    return letters >= 3 and (any(c.isdigit() for c in text) or len(text) >= (20 if text.islower() else 16))


def _is_worded(text: str) -> bool:
    """Does it consist of words, more than of anything else?"""
    return 2 * sum(len(run) for run in _RUN.findall(text) if not _UNSPEAKABLE.search(run)) > len(text)
