"""The texts in which a name and its secret stand: lines of a shell, YAML, JSON, code, tables, sentences, commands.

Each is a pattern with the groups "name" and "value", and a decision whether the value of a match is masked: what refers
to a secret (a variable, an attribute, an argument) isn't. Patterns are linear in the text: repetitions are of one class
of characters, and bounded where something follows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from trackers.support.secret_names import Secrecy, meaning, split, word_set
from trackers.support.secret_values import (
    MASK,
    is_mark,
    is_none,
    is_release,
    is_secret,
    is_template,
    looks_made,
    looks_random,
    refers,
)


class Context(NamedTuple):
    """hints: one of them is in the text, in small letters. decides: whether the value of a match is masked."""

    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    decides: Callable[[re.Match[str]], bool]


_ROOTS = word_set(
    "self cls this args arg cfg config conf configuration settings setting os env environ environment process opt "
    "opts option options param params parameters hparams flags ctx context request req response resp kwargs ns "
    "namespace secrets vars var local data inputs input steps github app state model module client session user "
    "account creds credentials obj item row values each"
)
"""Names whose attributes code passes on: config.password."""
_STATUS = word_set(
    "not missing none ok set unset found invalid valid expired expires required optional enabled disabled done loaded "
    "yes no true false empty present absent wrong incorrect correct stored saved used using given accepted rejected "
    "refreshed updated created deleted available unavailable unknown hidden masked redacted and or the a an is in of "
    "to for from with this that it must should can will has was be value description type default name meaning count "
    "please input string your you loss accuracy id ids per length size"
)
"""Words behind a secret's name in a sentence or a table's head that are none."""
_SENTENCE = _STATUS | word_set(
    "if when as on by which flag option argument parameter instead via at then so all any are due provided again"
)
_QUERY = frozenset({"sig", "signature", "code", "key", "auth", "password", "pwd", "x-amz-credential"})
_NAMERS = word_set(
    "get load read fetch find add next to use require mount has is check create delete remove describe list resolve "
    "lookup ref make from generate parse"
)
"""First words of functions that take a secret's name, not the secret."""

_WORD = re.compile(r"\w")
_WORD_AFTER = re.compile(r" [a-z]{2,20}[ ,.]")
_ARGUMENT = re.compile(r"[A-Za-z_]\w{0,80}=(?=[^=\s])")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,100}")
_ATTRIBUTE = re.compile(r"[A-Za-z_]\w{0,100}(?:\.[A-Za-z_]\w{0,100}){1,20}")
_CALL = re.compile(
    r"[A-Za-z_][\w.]{0,100}[(\[]|(?:await|not|lambda|new|yield|return|typeof|if|None|True|False)\b|[frbu]{0,2}[\"'`]"
)
_SIGNS = tuple("([{&|!*^")
"""What begins with a call, a keyword or one of these is an expression."""
_COMPARED = re.compile(r"""["'`\])]{0,3}\s{0,8}[=!]==?(?!>)""")
_TYPED = re.compile(r"[\w\[\], .|]{1,100} = ")


def _by_name(match: re.Match[str]) -> bool:
    return is_secret(match["name"], match["value"])


def _always(match: re.Match[str]) -> bool:
    value = match["value"]
    return value != MASK and not is_template(value) and not is_mark(value) and not is_none(value)


def _of_header(match: re.Match[str]) -> bool:
    return _always(match) and not is_release(match["value"]) and not _is_code(match["value"])


def _of_assignment(match: re.Match[str]) -> bool:
    """name: type = "value"; what is the type may be the name: $env:NAME = "value". What is compared may be any text."""
    if _COMPARED.match(match.string, match.end("name")) and meaning(match["name"]) is not Secrecy.PASSWORD:
        return _by_name(match) and looks_made(match["value"])
    return _by_name(match) or (bool(match["type"]) and is_secret(match["type"].strip(), match["value"]))


def _of_list(match: re.Match[str]) -> bool:
    return meaning(match["name"]) >= Secrecy.SECRET and not refers(match["value"].strip(" ,\"'"))


def _of_pair(match: re.Match[str]) -> bool:
    """("name", "value"), or name: NAME and value: value, not two names."""
    name, value = match["name"], match["value"]
    if value.startswith("--") or _is_code(value) or meaning(value):
        return False
    return is_secret(name, value) and ((name != "token" and value[0] != "-") or looks_made(value))


def _of_quoted(match: re.Match[str]) -> bool:
    """name 'value', as messages have it."""
    return "_" in match["name"] and _by_name(match) and looks_made(match["value"])


def _of_call(match: re.Match[str]) -> bool:
    """Of a method that takes a secret, not of one that takes its name: get_password("database")."""
    return _by_name(match) and _NAMERS.isdisjoint(split(match["name"].rpartition(".")[2])[:1])


def _of_block(match: re.Match[str]) -> bool:
    return match["value"][-1] != ":" and not _is_code(match["value"]) and _by_name(match)


def _of_shell(match: re.Match[str]) -> bool:
    """NAME=value without spaces: of a shell, an option, a connection string, or an argument of a function."""
    name, value, text = match["name"], match["value"], match.string
    before, after = text[: match.start()].rstrip(" ")[-1:], text[match.end() : match.end() + 1]
    if after in ("(", "[", "{") or (after in ("'", '"', "`") and len(value) < 3):  # a call, an f-string
        return False
    if (
        value.startswith(("=", "%", "$", "<", "~="))
        or not is_secret(name, value.rstrip(":"))
        or _is_number(name, value)
    ):
        return False
    indented = not before and after in (",", ")") and text[: match.start()][-1:] == " "
    argument = before in ("(", ",") and after in (",", ")", "")
    if (indented or argument) and not name.isupper():  # login(token=hub_token), also with arguments of a line each
        return _is_chosen(name, value) or not _is_name(value) or looks_made(value)
    return not _is_attribute(name, value) and not _is_variable(value)


def _of_line(match: re.Match[str]) -> bool:
    """NAME=value, NAME = value or NAME: value alone on a line: of a shell, INI, YAML, or code."""
    name, value, separator = match["name"], match["value"], match["separator"]
    bare, spaced = value.rstrip(",;"), " " in value or "\t" in value
    if not bare or not is_secret(name, bare) or _is_number(name, bare) or _CALL.match(value) or _TYPED.match(value):
        return False
    if name.isupper() and separator == "=" and not spaced:
        return True
    password = meaning(name) is Secrecy.PASSWORD
    if value[0] in "([{&|!*^=<>" and (spaced or not password or _IDENTIFIER.fullmatch(value[1:])):
        return False
    if (value[0] == "<" and value[-1] == ">") or (value[0] == "/" and bare.rstrip("gimsu")[-1:] == "/"):
        return False
    if spaced:
        return _is_phrase(name, value)
    if (bare != value or match["quote"]) and _is_name(bare):  # an argument or a dict's item, whose value is a variable
        return _is_chosen(name, bare) and not _is_attribute(name, bare) and not _is_type(name, bare)
    if _is_attribute(name, bare) or (bare == name.rpartition(".")[2] and ":" not in separator):
        return False
    if _IDENTIFIER.fullmatch(bare) and not any(map(str.isdigit, bare)):
        # Of code, "token = line" is a variable; what people choose as a password may be a word.
        said = password or ":" in separator or separator.strip() == separator or not bare[1:].islower()
        return said and not _is_variable(bare) and not _is_type(name, bare)
    return True


def _of_option(match: re.Match[str]) -> bool:
    name, value = match["name"], match["value"]
    if match["quote"] or not is_secret(name, value):
        return is_secret(name, value)
    if value.lower() in _SENTENCE or value.replace("_", "-").lower() == name.replace("_", "-").lower():  # of help
        return False
    word = value.isalpha() and value.islower() and len(value) < 12 and meaning(name) is not Secrecy.PASSWORD
    if word and _WORD_AFTER.match(match.string, match.end()):
        return False
    if value.startswith(("|", "&", ">", "\\", "2>", "(")) or value[-1] == ":" or "=" in value[:-2]:
        return False
    return not _is_attribute(name, value) and (not value.startswith("-") or looks_made(value))


def _of_flow(match: re.Match[str]) -> bool:
    """{name: value} of YAML or JavaScript."""
    name, value = match["name"], match["value"].rstrip()
    if match["quote"] and not value.isdigit():  # of Python: {"token": token}
        return False
    if _is_code(value) or _is_attribute(name, value) or _is_number(name, value) or " " in value:
        return False
    return is_secret(name, value) and not _is_variable(value) and not _is_type(name, value)


def _of_sentence(match: re.Match[str]) -> bool:
    """Your API key: value."""
    value, text, verb = match["value"].rstrip(".,;:!?)*_'\"`}"), match.string, match["verb"].strip()
    name = "_".join(match["what"].lower().split())
    if not is_secret(name, value) or value.lower() in _SENTENCE or _is_code(value) or is_template(value):
        return False
    if _is_attribute(name, value) or _is_type(name, value) or _ARGUMENT.match(value):
        return False
    mixed = any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and len(value) > 5
    if not verb:
        if match["whose"]:  # for whom it is
            return looks_made(value) and not match["quote"]
        if match["quote"] and name not in ("token", "secret", "bearer"):
            return True
        return looks_made(value) or (mixed and meaning(name) is Secrecy.PASSWORD)
    if mixed or looks_made(value):
        return True
    last = text[match.end() :].strip(" \t.,;:!?)*_'\"`|") == ""
    if verb[-1] not in ":=->\u2192":
        return name != "token" and (bool(match["quote"]) or (last and not value.islower()))
    if verb == "=" and _IDENTIFIER.fullmatch(value) and value.islower() and not match["before"]:
        return False
    return (name != "token" or match["before"] != "") and last and len(value) > 3 and not _is_number(name, value)


def _of_cell(match: re.Match[str]) -> bool:
    name, value = match["name"].strip(), match["value"].strip()
    return _STATUS.isdisjoint(value.lower().split()) and is_secret(name, value)


def _of_query(match: re.Match[str]) -> bool:
    name, value = match["name"].lower(), match["value"]
    if is_mark(value) or is_template(value) or value == MASK or refers(value):
        return False
    if name in _QUERY or name.endswith(("signature", "token")):
        return name not in ("code", "key", "auth") or looks_random(value)
    return _by_name(match)


def _is_code(value: str) -> bool:
    """Does the text begin as an expression does?"""
    return _CALL.match(value) is not None or value.startswith(_SIGNS)


def _is_name(value: str) -> bool:
    """Is it a variable, or an attribute of one?"""
    return _IDENTIFIER.fullmatch(value) is not None or _ATTRIBUTE.fullmatch(value) is not None


def _is_chosen(name: str, value: str) -> bool:
    """Is it, under a password's name, what people choose sooner than they name a variable so?"""
    return meaning(name) is Secrecy.PASSWORD and (value[:1].isupper() or any(map(str.isdigit, value)))


def _is_attribute(name: str, value: str) -> bool:
    """Is it an attribute of an object that code passes on? ``config.password`` is; ``Summer.Rain2026`` is none."""
    if not _ATTRIBUTE.fullmatch(value):
        return False
    *above, last = value.split(".")
    if above[0] in _ROOTS or (not last[-1].isdigit() and meaning(last)):
        return True
    return meaning(name) is not Secrecy.PASSWORD and not any(map(str.isdigit, value))


def _is_variable(value: str) -> bool:
    """Is it a variable's name that says itself that it holds a secret: ``hub_token``, ``apiKey``?"""
    if not _IDENTIFIER.fullmatch(value) or any(map(str.isdigit, value)) or value.isupper():
        return False
    return len(split(value)) > 1 and meaning(value) is not Secrecy.NOTHING


def _is_type(name: str, value: str) -> bool:
    """Is it a type, as code says behind a colon: ``Secret``, ``SecretStr``?"""
    if not value[:1].isupper() or not _IDENTIFIER.fullmatch(value):
        return False
    words = split(value)
    return words == split(name) or (len(words) > 1 and max(map(meaning, (value, *words))) > Secrecy.WEAK)


def _is_number(name: str, value: str) -> bool:
    """Is it a number, and no password or key that is one?"""
    if not value.lstrip("+-").replace(".", "", 1).isdigit():
        return False
    if meaning(name) is Secrecy.PASSWORD or "secret" in name.lower():
        return len(value) < 4
    return len(value) < 6 or "token" in name.lower()


def _is_phrase(name: str, value: str) -> bool:
    """Are these words a secret, not a sentence about one, nor an expression?"""
    words = value.lower().split()
    if not all(map(_WORD.search, words)):
        return False
    if "phrase" in name.lower() or "mnemonic" in name.lower():
        return True
    return meaning(name) is Secrecy.PASSWORD and len(words) < 7 and _SENTENCE.isdisjoint(words)


_SAID = (
    r"(?:access|secret|private|auth|account|client|encryption|signing|license)[ _\-]key|api[ _\-]?key|client secret|"
    r"seed phrase|password|passwd|passphrase|passcode|pwd|secret|token|credentials?|bearer"
)
_FRAGMENTS = {
    "NAME": r"(?P<name>[A-Za-z_][\w.\-]{0,80})",
    # Between quotes; one before a letter is part of the text: 'it's'.
    "QUOTED": r"""[a-zA-Z]{0,2}(?P<quote>\\?(?:"{3}|'{3}|["'`]))"""
    r"""(?P<value>(?:(?!(?P=quote)(?:\W|$))(?:\\[^\n]|[^\n\\])){1,4000})(?P=quote)""",
    "WORD": r"""(?P<quote>["']?)(?P<value>[^\s"'\-][^\s"']{0,400})(?P=quote)""",
    "BEGIN": r"^[+\- ]?[ \t]{0,80}",  # of a line, of a patch, too
    "END": r"[ \t]{0,80}\\?\r?$",
    "BAR": "[|\u2502\u2503]",
    "CELL": "[^|\u2502\u2503\\n`]",
    "NAMED": r"""(?:[nN]ame|[kK]ey|[pP]arameterKey|[vV]ariable|[fF]ield)["']?\s{0,4}[:=]\s{0,4}["']?""",
    "VALUED": r"""["']?(?:[a-z]{1,12}V|[vV]|[pP]arameterV)al(?:ue)?["']?\s{0,4}[:=][ \t]{0,4}""",
    "SAID": _SAID,
}
_FRAGMENT = re.compile("~([A-Z]+)~")


def _in(*parts: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern of parts, in which ``~NAME~`` is a fragment."""
    return re.compile(_FRAGMENT.sub(lambda match: _FRAGMENTS[match[1]], "".join(parts)), re.MULTILINE | flags)


CONTEXTS = (
    # name = "value", "name": "value", name == "value", name = Secret("value"), in whatever language.
    Context(("=", ":"), _in(
        r"""(?<![\w.])(?<!\w-)-{0,2}\\?["'`]?~NAME~\\?["'`]?\]?(?:\[\d{0,6}\])?\s{0,8}""",
        r"""(?::\s{0,8}(?P<type>[\w\[\]. |]{0,60}))?(?:=>|:=|[=!]==?|[?+]?=|:)\s{0,8}""",
        r"(?:(?:(?:SecretStr|Secret|Field|str|bytes|String|Some|Literal|Password)?\(\s{0,100}(?:default=)?)",
        r"|[\w.]{1,60}\(\s{0,100}default(?:_factory=lambda:\s?|=))?~QUOTED~",
    ), _of_assignment),
    # names = ["value", "value"]
    Context(("[",), _in(
        r"""(?<![\w.])~NAME~["']?\s{0,8}[=:]\s{0,8}[\[(]""",
        r"""(?P<value>\s{0,8}["'][^\n\[\](){}]{1,4000}["'],?\s{0,8})[\])]""",
    ), _of_list),
    # .password("value"), set_password("value")
    Context(("(",), _in(
        r"(?:\.|\bset_?|\bwith_?|(?<=[a-z])(?=Password|Secret|Token|ApiKey))~NAME~\(\s{0,8}",
        r"""(?:["'][^"'\n]{0,100}["'],\s{0,8}){0,2}~QUOTED~\s{0,8}\)""",
    ), _of_call),
    # key = given or "value"
    Context((" or ", "||", "??", " else "), _in(
        r"(?<![\w.])~NAME~\s?[:=][^\n]{0,200}?(?:\bor|\|\||\?\?|\belse)\s?~QUOTED~",
    ), _by_name),
    # environ.get("name") or "value"
    Context((" or ", "||", "??"), _in(
        r"""["']~NAME~["']\s?[\])]{1,2}\s?(?:\bor|\|\||\?\?)\s?~QUOTED~""",
    ), _by_name),
    # invalid name 'value'
    Context((" '", ' "'), _in(r"""(?<![\w.\-"'`])~NAME~[ ]~QUOTED~"""), _of_quoted),
    # <name>value</name>, <string name="name">value</string>
    Context(("</",), _in(
        r"<(?:[\w\-]{1,20}:)?~NAME~(?:\s[^<>\n]{0,200})?>\s{0,20}(?P<value>[^<>\s][^<>]{0,4000}?)\s{0,20}</",
    ), _by_name),
    Context(("</",), _in(
        r"""\b(?:name|key|id)=["']~NAME~["'][^<>\n]{0,200}>(?P<value>[^<>\s][^<>\n]{0,4000})</""",
    ), _by_name),
    # {name: value}
    Context((":",), _in(
        r"""[{,]\s{0,8}(?P<quote>["']?)~NAME~(?P=quote):(?:\s{1,8}|(?<=["']:))""",
        r"""(?P<value>[^\s,{}\[\]"'`()][^\n,{}\[\]"'`()]{0,4000})(?=[,}])""",
    ), _of_flow),
    # name: value and name = value alone on a line of YAML, INI or a patch of one; export NAME=value
    Context(("=", ":", "->"), _in(
        r"~BEGIN~(?:(?:-|\*|#{1,3}|//)[ ]?){0,2}(?:export[ ]|set[ ]|ENV[ ]|ARG[ ]|env[ ])?",
        r"""(?P<quote>["']?)~NAME~["']?""",
        r"(?P<separator>[ \t]{0,8}(?:[:?+]?=>?|:|->)(?:[ \t]{1,8}|(?<==)|(?<=:)(?![:/])))",
        r"(?:!!\w{1,20}[ ]|&\w{1,20}[ ])?",
        r"""(?P<value>[^\s"'`][^\n]{0,4000}?)(?:[ \t]{1,80}#[^\n]{0,400})?~END~""",
    ), _of_line),
    # NAME=value; without spaces, as in a shell or a connection string.
    Context(("=",), _in(
        r"(?<![\w.])(?:\$env:|-{1,2}[\w\-]{1,40}=(?=[A-Za-z_][\w.\-]{0,80}=[^=\s])|-{1,2})?",
        r"""~NAME~=(?P<value>[^\s"'`;,&()\[\]{}<>|]{1,4000})""",
    ), _of_shell),
    # ENV NAME value, pip config set name value
    Context(("env ", "arg ", "set", "put ", "add ", "modify", "define"), _in(
        r"(?:~BEGIN~(?:ENV|ARG|%env|setenv|SetEnv|set[ ]-[gxU]{1,3}|#[ ]?define)|\bsetx",
        r"|(?:\b(?:config|configure|conda|npm|pip|secrets?|kaggle|remote)[ ]|[ ]--)",
        r"(?:set|put|add|modify|config[ ]set|config[ ]--set))",
        r"(?:[ ]-{1,2}[a-z]{1,20})?(?:[ ](?=[a-z]{1,20}[ ])\S{1,20})?",
        r"""[ \t]{1,8}(?:\S{0,200}:)?["']?~NAME~["']?[ \t]{1,8}["']?(?P<value>[^\s"'=\-][^\s"']{0,4000})""",
    ), _by_name),
    # spark.hadoop.fs.account.key value
    Context((" ",), _in(
        r"~BEGIN~(?P<name>[a-z]\w{0,40}(?:\.[\w\-]{1,40}){2,12})[ ](?P<value>[^\s=:]{1,4000})~END~",
    ), _by_name),
    Context(("requirepass", "masterauth"), _in(
        r"~BEGIN~(?P<name>requirepass|masterauth)[ \t]{1,8}(?P<value>\S{1,400})",
    ), _by_name),
    # | name | value |
    Context(("|", "\u2502", "\u2503"), _in(
        r"~BEGIN~(?:~BAR~[ \t`*]{0,40}(?=[A-Za-z_])|(?=[\w.\-]{1,80}[ \t]{0,80}~BAR~))",
        r"(?P<name>[A-Za-z_][\w. \-]{0,80}?)",
        r"[ \t`*]{0,80}~BAR~[ \t`]{0,40}(?P<value>(?!\s)~CELL~{1,400}?)[ \t`]{0,80}(?:~BAR~|$)",
    ), _of_cell),
    # name ..... value; name,value
    Context(("...", "  ", "\t", ",", ";"), _in(
        r"""~BEGIN~["']?~NAME~["']?(?:[ \t]?\.{3,200}[ \t]?|[ \t]{2,80}|\t|[,;])["']?""",
        r"""(?P<value>[^\s,"']{3,4000})["']?~END~""",
    ), _of_cell),
    # --name value
    Context(("-",), _in(
        r"(?<![\w\-})`])-{1,2}~NAME~[ \t]{1,8}",
        r"""(?P<quote>["']?)(?P<value>(?<=["'])[^\n"']{1,4000}|(?!--)[^\s"'][^\s"'\])]{0,4000})(?P=quote)""",
    ), _of_option),
    Context(("/",), _in(r"""(?<![^\s])/~NAME~:(?P<value>[^\s"']{1,400})"""), _by_name),
    # Your API key: value. The password is "value".
    Context((" ",), _in(
        r"(?<![\w.\-/$])(?P<before>(?:[a-z]{1,20}[ ]){0,2}?)(?P<what>~SAID~)(?![\w/\-])[*`]{0,3}",
        r"(?P<whose>[ ](?:for|of)[ ][^\n:=]{1,60}?)?(?:[ ](?:provided|given|used|received|found|created)(?=:))?",
        r"(?P<verb>[ ]{0,3}[:=]|[ ](?:is|was|to)[ ]?:?|[ ](?:[-=]?>|\u2192|-)|)\*{0,2}[ \t]{1,8}\*{0,2}",
        r"""(?P<quote>[`"']?)(?P<value>(?<=[`"'])[^\n"'`]{1,400}|[^\s"'`<]{3,400})(?P=quote)""",
        flags=re.IGNORECASE,
    ), _of_sentence),
    # auth=("user", "value"), HTTPBasicAuth("user", "value"), smtp.login("user", "value")
    Context(("auth", "login", "credential"), _in(
        r"(?:\bauth\s?[=:]\s?|BasicAuth|DigestAuth|ProxyAuth|Credentials?|\.login)[(\[]\s{0,8}",
        r"""[a-zA-Z]?["'][^"'\n]{0,200}["']\s{0,8},\s{0,8}~QUOTED~""",
    ), _always),
    Context(("<<<",), _in(
        r"(?:login|token|password|passwd|secret)\b[^\n]{0,200}?<<<[ ]?~WORD~",
    ), _always),
    Context(("fernet(", "hmac.new(", "session("), _in(
        r"""(?:\b(?:Fernet|hmac\.new)\([ \t]{0,8}b?""",
        r"""|\b(?:boto3|aioboto3|session)\.Session\([ ]?["'][^"'\n]{1,40}["'],[ ]?)~QUOTED~""",
    ), _always),
    Context(("login", "experiment", "init", "api"), _in(
        r"\b(?:wandb|comet_ml|neptune|huggingface_hub|mlflow|openai|clearml|swanlab|aim)\.(?:login|init|Experiment|API)",
        r"""\([ \t]{0,8}(?:key[ \t]{0,8}=[ \t]{0,8})?(?P<quote>["'])(?P<value>[^"'\n]{8,400})(?P=quote)""",
    ), _always),
    # Of netrc.
    Context(("password",), _in(
        r"\b(?:login|account|user)[ \t]+(?!and[ ]|or[ ])\S{1,200}[ \t]+password[ \t]+(?P<value>[^\s$]\S{0,400})",
    ), _always),
    Context(("password",), _in(
        r"~BEGIN~(?P<name>password)[ \t]{1,8}(?P<value>[^\s=:,;]{3,400})~END~",
    ), _of_cell),
    # Of SQL, PowerShell and HTML.
    Context(("identified", "password '", "secret '", "securestring"), _in(
        r"\b(?:identified[ ](?:with[ ]\w{1,40}[ ])?by|password|secret|ConvertTo-SecureString(?:[ ]-String)?)[ ]",
        r"""(?P<quote>['"])(?P<value>[^'"\n]{1,400})(?P=quote)""",
        flags=re.IGNORECASE,
    ), _always),
    Context(("password",), _in(r"""\btype=["']password["'][^<>\n]{0,200}?\bvalue=~QUOTED~"""), _always),
    # Programs' own options.
    Context(("login",), _in(
        r"\b(?:wandb|swanlab|comet|clearml|neptune)[ ]login[ ][^\n]{0,100}?(?:--key|-k|--api-key)[ =]~WORD~",
    ), _always),
    Context(("login",), _in(
        r"\b(?:wandb|vault)[ \t]+login[ \t]+(?:--?[\w\-=.:/]{1,100}[ \t]+){0,4}",
        r"""(?P<value>[^\s"'=\-][^\s"'=]{3,400})(?=["'\s=]|$)""",
    ), _always),
    Context(("secret", "kaggle", "net user"), _in(
        r"(?:\bsecrets?[ ](?:set|put|create|add)[ ][^\n]{0,200}?(?:--body|-b|--value|--secret-string|--data)",
        r"|\bkaggle[ ]config[ ]set[^\n]{0,80}?[ ]-v|\bnet[ ]user[ ]\S{1,80})[ =](?!/)~WORD~",
    ), _always),
    Context(("sqlplus", "oracle"), _in(
        r"""(?:\bsqlplus\b[^\n]{0,80}?[ ]|jdbc:oracle:\w{1,10}:)[\w.\-]{1,80}/(?P<value>[^\s@"'/]{1,200})@""",
    ), _always),
    Context(("curl", "http", "wget", "ftp", "smbclient"), _in(
        r"\b(?:curl|https?|wget|l?ftp|smbclient|rpcclient)\b[^\n]{0,400}?[ \t](?:-u|--user|-a|--auth|-U)[ \t=]{0,4}",
        r"""["']?[^\s:,%"']{0,100}[:,%](?P<value>[^\s"']{1,400})""",
    ), _always),
    Context(("mysql", "maria", "mycli", "7z", "rar", "sshpass"), _in(
        r"\b(?:mysql\w{0,20}|mariadb[\w\-]{0,20}|mycli|7za?|(?:un)?rar|sshpass)\b[^\n]{0,400}?[ \t]-p~WORD~",
    ), _always),
    Context(("sshpass", "login", "mongo"), _in(
        r"\b(?:sshpass|(?:docker|podman|nerdctl|buildah|helm|oras|crane|az|oc)\b[^\n]{0,60}?[ ]login|mongo\w{0,20})\b",
        r"[^\n]{0,400}?[ \t]-p[ \t]{0,8}~WORD~",
    ), _always),
    Context(("plink", "pscp", "zip", "sqlcmd", "bcp", "isql", "redis-cli", "ldap", "htpasswd", "rabbitmqctl",
             "mosquitto"), _in(
        r"\b(?:(?:plink|pscp|putty)\b[^\n]{0,400}?[ \t]-pw",
        r"|(?:(?:un)?zip|sqlcmd|bcp|isql|mosquitto_\w{1,20})\b[^\n]{0,400}?[ \t]-P",
        r"|redis-cli\b[^\n]{0,200}?[ \t]-a|ldap(?:search|add|modify|delete|whoami|passwd)\b[^\n]{0,400}?[ \t]-w",
        r"|htpasswd(?:[ ]-\w{1,8}){0,3}[ ]-\w{0,4}b\w{0,4}(?:[ ]-\w{1,8}){0,3}[ ]\S{1,200}[ ]\S{1,100}",
        r"|rabbitmqctl[ ](?:add_user|change_password)[ ]\S{1,100})",
        r"[ \t]{1,8}~WORD~",
    ), _always),
    Context(("alias set", "host add"), _in(
        r"\bmc[ ](?:alias[ ]set|config[ ]host[ ]add)[ ]\S{1,80}[ ]\S{1,200}[ ]\S{1,200}[ ]~WORD~",
    ), _always),
    Context(("ssh-keygen", "ipmitool"), _in(
        r"\b(?:ssh-keygen\b[^\n]{0,400}?[ \t]-[NP]|ipmitool\b[^\n]{0,400}?[ \t]-P)[ \t]{1,8}",
        r"""(?P<quote>["']?)(?P<value>(?<=["'])[^"'\n]{1,400}|[^\s"']{1,400})(?P=quote)""",
    ), _always),
    # Of .pgpass.
    Context((":543", ":6432:"), _in(
        r"~BEGIN~[\w.\-*]{1,200}:(?:543\d|6432):[\w.\-*]{1,80}:[\w.\-*]{1,80}:(?P<value>\S{1,400})$",
    ), _always),
    Context(("echo", "printf"), _in(
        r"""\b(?:echo|printf)[ ](?:-n[ ])?(?P<quote>["']?)(?P<value>[^\s"'|]{3,400})(?P=quote)[ ]?\|[ ]?""",
        r"(?:sudo[ ]-S|[^\n|]{0,200}(?:--password-stdin|--with-token|--stdin|-pass[ ]stdin)|chpasswd|kinit)",
    ), _always),
    Context(("pass:",), _in(
        r"""[ \t]-(?:pass|passin|passout|k)[ \t]{1,8}["']?pass:(?P<value>[^\s"']{1,400})""",
    ), _always),
    # Headers.
    Context((":",), _in(
        r"\b(?:x-[a-z\-]{0,40}(?:key|token|secret|auth|signature)|(?:set-)?cookie|api-key|apikey|private-token|job-token",
        r"""|(?<=-H ["'])[a-z][a-z\-]{0,40}(?:key|token|secret|auth))\\?["']?[ \t]{0,8}:[ \t]{0,8}["']?""",
        r"""(?P<value>[^"'\n\\]{4,4000})""",
        flags=re.IGNORECASE,
    ), _of_header),
)  # fmt: skip
"""Those of a line."""

SPANNING = (
    # ("name", "value"), setdefault("NAME", "value"), environ.get("NAME", "value")
    *(
        Context((",",), _in(
            r"\(\s{0,100}", before,
            r"""["']~NAME~["']\s{0,8},\s{0,100}(?:default=)?~QUOTED~(?=\s{0,100}[,)])""",
        ), _of_pair)
        for before in ("", r"""(?:[^()\n"']{0,40},\s?|["'][^()\n"']{0,100}["'],\s?)""")
    ),
    # add_argument("--name", default="value")
    Context(("default",), _in(r"""["']-{1,2}~NAME~["'][^()]{0,300}?\bdefault\s?=\s?~QUOTED~"""), _by_name),
    # name = (, and the value below
    Context(("(",), _in(r"(?<![\w.\-])~NAME~\s?[=:]\s?\(\s{1,100}~QUOTED~"), _by_name),
    # name: NAME, value: value; also in JSON, XML and over two lines
    Context(("val",), _in(
        r"""\b~NAMED~~NAME~["']?[ \t,;]{0,8}""",
        r"""\r?\n?[ \t+\-]{0,100}(?:[\w"']{1,40}\s{0,4}[:=]\s{0,4}[\w"']{1,40},?[ \t]{0,8})??\r?\n?[ \t+\-]{0,100}""",
        r"""~VALUED~(?P<quote>["']?)(?P<value>[^\s"',;{}\[\]<>][^\n"'<>,;}]{0,4000}?)""",
        r"""(?=["'<>,;}]|[ ]/>|[ \t]{0,80}\r?$)""",
    ), _of_pair),
    # <name>NAME</name><value>value</value>
    Context(("<value>", "<string>"), _in(
        r"<(?:name|key)>\s{0,20}~NAME~\s{0,20}</(?:name|key)>\s{0,200}<(?:value|string)>(?P<value>[^<>\n]{1,4000})</",
    ), _by_name),
    # variable "name" { default = "value" }
    Context(("variable",), _in(
        r"""\bvariable\s{1,8}["']~NAME~["']\s{0,8}\{[^{}]{0,400}?\bdefault\s{0,8}=\s{0,8}~QUOTED~""",
    ), _by_name),
    # name:, and value: below
    Context(("val", "default"), _in(
        r"""^(?P<indent>[+\- ]?[ \t]{0,80})(?:-[ ])?["']?~NAME~["']?:[ \t]{0,8}\{?[ \t]{0,8}\r?\n""",
        r"""(?:(?P=indent)[ \t]{1,80}[\w"']{1,40}:[ ][^\n]{0,200}\n){0,2}(?P=indent)[ \t]{1,80}""",
        r"""["']?(?:value|default)["']?:[ \t]{1,8}["']?(?P<value>[^\s"'{\[][^\n"']{0,4000})""",
    ), _by_name),
    # name:, and the value below
    Context((":",), _in(
        r"""^(?P<indent>[+\- ]?[ \t]{0,80})(?:-[ ])?["']?~NAME~["']?:[ \t]{0,8}\r?\n(?P=indent)[ \t]{1,80}["']?""",
        r"""(?P<value>[^\s"'\-{\[][^\s"']{2,4000})["']?,?[ \t]{0,8}$""",
    ), _of_block),
    # name: |, and the first line of the text below
    Context(("|", ">"), _in(
        r"""^(?P<indent>[+\- ]?[ \t]{0,80})(?:-[ ])?["']?~NAME~["']?:[ \t]{1,8}[|>][+\-]?\d?[ \t]{0,8}\r?\n""",
        r"(?P=indent)[ \t]{1,80}(?P<value>[^\s][^\n]{0,4000})",
    ), _by_name),
)  # fmt: skip
"""Those that may span lines."""

QUERY = Context(("=",), _in(
    r"""(?:[?&;]|(?:^|(?<=["'\s]))(?=[^\s"'#;]{1,4000}&))(?P<name>[\w.\-]{1,80})=(?P<value>[^&\s"'#;]{1,4000})""",
    r"""(?=[&\s"'#;]|$)""",
), _of_query)  # fmt: skip
"""That of addresses."""

COMMANDS = (
    "curl", "wget", "http -", "https -", "ftp ", "smbclient", "mysql", "maria", "mycli", "7z", "rar ", "sshpass",
    "login", "mongo", "plink", "pscp", "zip ", "sqlcmd", "bcp ", "isql", "redis-cli", "ldap", "htpasswd",
    "rabbitmqctl", "mosquitto", "echo ", "printf ", "identified", "securestring", "pass:", "sqlplus", "oracle",
    "kaggle", "net user", ".init(", ".experiment(", ".api(", "fernet(", "hmac.new(", "session(", "mc alias",
    "mc config", "<<<", "ssh-keygen", "ipmitool", ":543", ":6432:",
)  # fmt: skip
"""What tells of a secret without a name, in small letters."""

_NAME_OF_NEXT = re.compile(
    r"""(?:(?:\b(?:name|key|Name|Key)["']?[ ]{0,4}[:=][ ]{0,4}["']?|<(?:name|key)>)"""
    r"""(?P<name>[A-Za-z_][\w.\-]{0,80})(?:["']?,?|</(?:name|key)>)"""
    r"""|["']?(?P<block>[A-Za-z_][\w.\-]{0,80})["']?:(?:[ ]{1,8}(?:[|>][+\-]?|\{))?"""
    r"""|\bvariable[ ]{1,8}["'](?P<variable>[A-Za-z_][\w.\-]{0,80})["'][ ]{0,8}\{)[ ]{0,8}\r?$"""
)


def names_next(line: str) -> str:
    """The line, if it ends with a name whose value may be in the next one; else nothing."""
    if line.rstrip()[-1:] not in tuple(":|>-+,\"'{") and "name" not in line.lower():
        return ""
    found = _NAME_OF_NEXT.search(line[-200:])
    return line[-2000:] if found is not None and meaning(found["name"] or found["block"] or found["variable"]) else ""
