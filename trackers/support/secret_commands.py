"""Commands that take a secret without a name beside it: ``curl -u user:secret``, ``docker login -p secret``.

A table says of each program where its secrets stand; a line's words are taken apart as a shell does.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from trackers.support.secret_shapes import is_shaped
from trackers.support.secret_values import MASK, is_mark, is_none, is_template, refers

_TABLE = """
curl: -E: --cert:
curl wget http https xh ftp lftp: -u: --user: -a: --auth: -U: --proxy-user: -b= --cookie=
lftp: -u, --user,
smbclient rpcclient smbget winexe: -U% --user%
mysql mysqldump mysqladmin mysqlimport mariadb mariadb-dump mycli 7z 7za rar unrar: -p+ -hp+
sshpass mongo mongosh mongodump mongorestore mongoimport mongoexport: -p+ -p
docker/login podman/login nerdctl/login buildah/login helm/login oras/login crane/login az/login oc/login: -p+ -p
psexec rdesktop useradd usermod twine rancher/login flit/publish cqlsh cypher-shell rabbitmqadmin: -p
plink pscp psftp putty: -pw
zip unzip sqlcmd bcp isql ipmitool mosquitto_pub mosquitto_sub: -P -P+
redis-cli: -a auth/1 AUTH/1
ldapsearch ldapadd ldapmodify ldapdelete ldapwhoami ldappasswd ldapcompare: -w
snmpwalk snmpget snmpset snmpbulkwalk snmptrap: -A -X
openssl: -k -K -passin: -passout: -pass:
ssh-keygen: -N -P
x11vnc: -passwd
wandb/login yolo/hub/login swanlab/login comet/login clearml/login neptune/login: 1? -k --key --api-key
vault/login cargo/login vault/operator/unseal ngrok/authtoken ngrok/config/add-authtoken: 1?
kaggle/config/set: -v
openssl/passwd: 1
rclone/obscure bw/unlock neo4j-admin/dbms/set-initial-password neo4j-admin/set-initial-password: 1
composer/config: http-basic/2
etcdctl: --user:
mkpasswd: sha/1 md5/1
pdftotext pdftoppm pdftocairo pdfimages pdfinfo: -upw -opw
signtool schtasks xfreerdp wfreerdp: /p /rp /p:+
security/add-generic-password security/add-internet-password: -w
bw/login radtest wpa_passphrase net/user rabbitmqctl/add_user rabbitmqctl/change_password: 2
mc/alias/set mc/config/host/add: 4
poetry/config: http-basic/2 pypi-token/1
net/use: 3
nmcli: password/1
secret/set secrets/set secret/put secrets/put secret/create secrets/create secret/add secrets/add: -b --body --value
 --secret-string --data
"""
"""Programs, with the words behind them, and where their secrets stand: behind an option (``-p``), in the same word
(``-p+``), behind a sign in the word (``-u:``), or in the word of a number, counted without options (``2``; ``1?``: only
what looks made; ``auth/1``: behind a word that begins so)."""


class _Place(NamedTuple):
    begin: str
    """Of an option, or the word from which is counted."""
    number: int
    sign: str


def _place(text: str) -> _Place:
    sign = text[-1] if text[-1] in ":%+?=," else ""
    text = text.removesuffix(sign)
    if text.startswith(("-", "/")):
        return _Place(text, 0, sign)
    begin, _, number = text.rpartition("/")
    return _Place(begin, int(number), sign)


def _table() -> dict[str, list[tuple[list[str], list[_Place]]]]:
    """Of each program: the words that follow it, and the places of its secrets."""
    found: dict[str, list[tuple[list[str], list[_Place]]]] = {}
    for row in _TABLE.strip().replace("\n ", " ").splitlines():
        programs, _, places = row.partition(": ")
        for program in programs.split():
            name, *words = program.split("/")
            found.setdefault(name, []).append((words, [_place(place) for place in places.split()]))
    return found


_PROGRAMS = _table()
PROGRAMS = (*(f"{program}{end}" for program in _PROGRAMS for end in (" ", "',", '",')), "psexec.exe ")
"""What a line with a command has, in small letters."""
_NAMES = "|".join(  # by their first letters, which are looked for quicker
    f"{letter}(?:{'|'.join(sorted((re.escape(name[1:]) for name in names), key=len, reverse=True))})"
    for letter, names in itertools.groupby(sorted(_PROGRAMS), lambda name: name[0])
)
_PROGRAM = re.compile(rf"(?<![\w.\-])(?P<name>{_NAMES})(?:\.exe)?(?=[ \t]|[\"'],)", re.IGNORECASE)
_LISTED = re.compile(r"""[\"'],[ ]?[\"']([^\"'\n]{0,400})(?=[\"'])""")
"""A word of a command that is a list, as subprocess.run takes it."""
_WORD = re.compile(r"""(?:"[^"\n]*"|'[^'\n]*'|\\[^\n]|[^\s"'|;&<>`()\\]){1,4000}|[|;&<>`()\n"']""")
_MOST_WORDS = 60


class _Word(NamedTuple):
    begin: int
    text: str

    def behind(self, count: int) -> tuple[int, str]:
        """What stands in the word behind so many characters, without quotes."""
        text = self.text[count:]
        bare = text.lstrip("\"'=")
        return self.begin + count + len(text) - len(bare), bare.rstrip("\"'")


def in_commands(line: str) -> str:
    """A line with the secrets of its commands masked."""
    found: set[tuple[int, str]] = set()
    called: dict[str, int] = {}
    for match in reversed(list(_PROGRAM.finditer(line))):
        name = match["name"].lower()
        found.update(_secrets(name, list(_words(line, match.end(), called.get(name, len(line))))))
        called[name] = match.start()
    parts, position = [], 0
    for begin, text in sorted(found):
        if begin >= position:
            parts += [line[position:begin], MASK]
            position = begin + len(text)
    return "".join([*parts, line[position:]])


def in_words(words: list[Any]) -> list[Any]:
    """A list with its secrets masked, if it is a command's words."""
    if not words or not all(isinstance(word, str) for word in words) or words[0].rpartition("/")[2] not in _PROGRAMS:
        return words
    masked = in_commands(str([word.replace("\n", " ") for word in words]))
    with contextlib.suppress(ValueError, SyntaxError):
        return [mine if MASK in mine else word for word, mine in zip(words, ast.literal_eval(masked), strict=True)]
    return words


def _words(line: str, begin: int, until: int) -> Iterator[_Word]:
    """The words of a command behind its program, up to where that is called again, but in quotes."""
    if line[begin] in "\"'":
        while (item := _LISTED.match(line, begin)) is not None:
            if item[1]:
                yield _Word(item.start(1), item[1])
            begin = item.end()
        return
    for number, match in enumerate(_WORD.finditer(line, begin)):
        again = match.start() >= until or (match.end() > until and match[0][0] not in "\"'")
        if match[0] in tuple("|;&`()\n\"'") or number == _MOST_WORDS or again:
            return
        yield _Word(match.start(), match[0])


def _secrets(program: str, words: list[_Word]) -> Iterator[tuple[int, str]]:
    """Where the secrets of a command stand, and each of them."""
    plain = [word for word in words if word.text[0] != "-" and not word.text.startswith("/user:")]
    for must, places in _PROGRAMS[program]:
        if [word.text for word in plain[: len(must)]] != must:
            continue
        for place in places:
            for begin, text in _at(place, words, plain[len(must) :]):
                if _is_secret(text) and (place.sign != "?" or is_shaped(text)):
                    yield begin, text


def _at(place: _Place, words: list[_Word], plain: list[_Word]) -> Iterator[tuple[int, str]]:
    """What stands at a place."""
    if place.number:
        if place.begin:
            plain = next((plain[at + 1 :] for at, word in enumerate(plain) if word.text.startswith(place.begin)), [])
        yield from (word.behind(0) for word in plain[place.number - 1 : place.number])
        return
    for number, word in enumerate(words):
        if word.text[0] not in "-/":
            continue
        following = words[number + 1] if number + 1 < len(words) else None
        if place.sign == "+":
            if word.text.startswith(place.begin) and len(word.text) > len(place.begin):
                yield word.behind(len(place.begin))
        elif word.text == place.begin and following is not None:
            yield from _of_word(place, following, 0)
        elif word.text.startswith(place.begin) and (place.sign or word.text[len(place.begin) :][:1] == "="):
            yield from _of_word(place, word, len(place.begin))


def _of_word(place: _Place, word: _Word, count: int) -> Iterator[tuple[int, str]]:
    """A secret in a word behind so many characters: behind its sign, if it has one; a password's file is none."""
    if not place.sign:
        yield word.behind(count)
    elif (at := word.text.find(place.sign, count)) >= 0:
        kind = word.text[count:at].strip("\"'=")
        if kind not in ("file", "env", "fd", "stdin"):
            yield word.behind(at + 1)


def _is_secret(text: str) -> bool:
    if len(text) < 3 or text.startswith(MASK):  # what was masked stays as it is
        return False
    return not (is_template(text) or is_mark(text) or is_none(text) or refers(text))
