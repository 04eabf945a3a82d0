"""What a name says of the text under it: nothing, a secret, or perhaps one.

A name is split into words (``hfToken``, ``HF_TOKEN`` and ``hf-token`` are the words hf and token), and must hold a
word whole: ``max_tokens`` and ``tokenizer`` say nothing. Names of tokens and keys are the hard ones, since models have
tokens and data has keys: whose they are decides.
"""

from __future__ import annotations

import enum
import functools
import itertools
import re
from collections.abc import Iterator


class Secrecy(enum.IntEnum):
    """What a text under a name is."""

    NOTHING = 0
    """No secret, whatever it looks like."""
    WEAK = 1
    """A secret if it looks like one of a machine: a key or a signature."""
    PERHAPS = 2
    """A secret unless it looks like words, a version or a mark: ``draft_token``, ``license_key``."""
    SECRET = 3
    """A secret, whatever it looks like."""
    PASSWORD = 4
    """A secret that people choose: a word or a number, too."""


def word_set(text: str) -> frozenset[str]:
    """The words of a text, as tables of this and other modules are written."""
    return frozenset(text.split())


_PASSWORDS = word_set(
    "password passwords passwd passphrase passcode pwd pswd psswd paswd pswrd sshpass askpass pgpass requirepass "
    "masterauth mnemonic psword pssword passwrd paswrd pasword paasword psswrd passwort passwörter kennwort contraseña "
    "contrasena clave senha parola wachtwoord lösenord losenord hasło haslo heslo jelszo şifre sifre salasana mdp "
    "motdepasse пароль 密码 密碼 口令 パスワード 暗証番号 비밀번호 비번 암호 패스워드"
) | {
    f"{whose}{what}"
    for whose in word_set(
        "bind root user admin db mysql sql pg postgres redis mongo smtp mail email ftp ssh login vault ldap key store "
        "trust keystore proxy http wifi sudo become"
    )
    for what in ("pw", "pass", "pwd")
}
_PASSWORDS_LAST = word_set("pw psk pswd")
"""Words that are a password's as a name's last one alone: "pw" is pointwise, too."""
_PASSWORD_ENDS = (
    "password", "userpwd", "passwd", "passphrase", "passcode", "passwort", "kennwort", "密码", "密碼", "パスワード"
)  # fmt: skip
_MISSPELT = re.compile("passw[a-z]{1,5}d")
_SECRETS = word_set(
    "secret secrets credential credentials creds cred apikey apikeys authtoken authkey accesstoken refreshtoken "
    "dockerconfigjson bearertoken apitoken apisecret idtoken bottoken usertoken apptoken sessiontoken hubtoken "
    "clientsecret appsecret secretkey secretid accesskey privatekey privkey sharedkey masterkey encryptionkey "
    "signingkey sshkey bearer jwt cookie cookies authorization totp otp webhook webhooks keytab sastoken "
    "connectionstring connstr geheimnis secreto секрет токен 密钥 密鑰 秘钥 令牌 トークン 秘密鍵 토큰"
)
_SECRET_ENDS = ("apikey", "secret", "secretkey", "accesskey", "privatekey")
_HOOKS = word_set("webhook webhooks hook")
_VENDORS = word_set(
    "hub hf huggingface hugging github gh gitlab bitbucket gitea npm pypi vault consul nomad slack discord telegram "
    "wandb comet neptune mlflow clearml swanlab trackio databricks azure aws gcp openai anthropic kube k8s docker jira "
    "notion replicate modal runpod vast ngc nvidia kaggle roboflow cloudflare cf heroku netlify vercel circle circleci "
    "travis codecov coveralls snyk sonar sentry dd datadog newrelic grafana influx influxdb pagerduty twilio stripe "
    "paypal shopify mapbox ngrok tailscale digitalocean linode hetzner pulumi tfe artifactory nexus jfrog conda "
    "anaconda quay prefect dagster airflow langsmith langfuse cohere mistral groq pinecone qdrant weaviate zilliz "
    "supabase neon planetscale mongodb redis upstash anyscale tavily serper deepseek openrouter xai gemini sendgrid "
    "mailgun mailchimp postmark brevo elevenlabs deepgram assemblyai fireworks perplexity voyage jina exa firebase "
    "algolia mixpanel amplitude rollbar bugsnag honeycomb opsgenie trello linear airtable square braintree plaid "
    "coinbase binance okta auth0 fastly vultr railway nuget rubygems snowflake labelbox google alchemy infura "
    "etherscan dropbox figma asana zendesk intercom hubspot typeform contentful sanity firecrawl apify helicone "
    "braintrust portkey litellm cerebras sambanova dashscope zhipu moonshot minimax baidu tencent alibaba aliyun oss "
    "cos minio s3 r2 b2 backblaze wasabi dagshub coreweave logtail lepton nebius crusoe tigris scw scaleway mosaicml "
    "lakefs ovh exoscale civo paperspace baseten cerebrium deepinfra novita hyperstack polyaxon determined skypilot "
    "modelscope"
)
_STORES = word_set(
    "s3 oss cos minio r2 b2 redis upstash consul jira kube k8s docker mlflow trackio mongodb artifactory nexus jfrog "
    "conda anaconda quay prefect dagster airflow npm pypi neon hub trello notion asana google aws gcp azure snowflake "
    "hf huggingface"
)
"""Vendors of whose things keys are names, too: the key of an object in S3."""
_PAIRS = frozenset(
    {(first, second) for first in ("api", "access", "secret", "private", "auth", "authentication", "authorization")
     for second in ("key", "keys", "tokens", "secret")}
    | {(first, "key") for first in (
        "account", "shared", "storage", "encryption", "decryption", "signing", "ssh", "subscription", "master", "hmac",
        "fernet", "aes", "rsa", "ecdsa", "ed25519", "gpg", "pgp", "wireguard", "wg", "cipher", "crypto", "encrypt",
        "decrypt", "write", "deploy", "unseal", "ingest", "ingestion", "activation", "webhook", "azure",
        *(_VENDORS - _STORES))}
    | {(first, "auth") for first in ("basic", "proxy", "http", "registry", "npm")}
    | {("alert", "to"), ("alert", "smtp")}
    | {("key", "data"), ("key", "base"), ("key", "material"), ("key", "content"), ("mot", "passe"), ("de", "passe")}
    | {("connection", "string"), ("conn", "string"), ("conn", "str"), ("connection", "str")}
    | {(first, "phrase") for first in ("seed", "recovery", "pass", "backup", "mnemonic")}
    | {(first, "code") for first in ("pass", "recovery", "backup", "mfa", "2fa", "verification", "pairing", "unlock")}
    | {("pass", "word"), ("p", "w"), ("sonar", "login"), ("facebook", "key"), ("twitter", "key")}
    | { ("totp", "seed"), ("otp", "seed"), ("password", "hash")}
)  # fmt: skip
_PASSES = word_set(
    "forward forwards backward backwards first second third fourth one two three single multi multiple low high band "
    "all by test tests num n nb per each every full final post pre main train eval validation epoch shader render "
    "compiler opt optimization optimizer lowering ir fx graph quant quantization prune pruning export tile sampling "
    "warmup dry fast slow current last next prev previous refine refinement coarse fine depth color shadow lighting is "
    "did can must should do does will would on if any k at of to the a fusion fuse inductor custom extra additional "
    "grad gradient inner outer left right up down decode prefill encode decoder encoder model partition scan sort "
    "merge reduce reduction copy view flow data cleanup bypass sub over over_the max min max_num total total_num ckpt"
)
"""Words before "pass" under which it is one of some work, not a password."""
_PINS = frozenset(
    {("pass", "word"), ("pin", "code")} | {(whose, "pin") for whose in ("user", "sim", "card", "hsm", "token")}
)
_KEYS_PERHAPS = word_set(
    "app application function functions service client host tls ssl consumer admin session license github gitlab "
    "registry vault"
)
"""Words before "key" under which a text is secret unless it looks like words."""
# A number of plain "tokens" or "keys" says what a model works on; "api_keys" and "auth_tokens" are secrets.
_OF_MODELS = word_set(
    "pad bos eos unk cls sep mask image video audio vision speech special start end stop think thinking reasoning "
    "prompt decoder encoder begin system assistant tool tools next extra additional boi eoi boa eoa fim prefix suffix "
    "middle sentinel class classification null blank object register modality text word sub byte first last current "
    "previous target source reserved placeholder initializer init rare trigger instance concept draft separator split "
    "space newline eot bot_turn turn patch frame point box region mem memory latent query lang language task per each "
    "sil silence noise oov pos neg positive negative answer question context doc document state action cond condition "
    "uncond style phoneme char character motion time timestep step img vid aud obs eop sop soh eoh sequence layer max "
    "min num n total avg expert masked unmasked non_existent content role user_turn response soft hard learnable "
    "global local summary pool pooling dist distillation distill sample annotation scene sensor category pose data "
    "lidar camera radar log_entry span sentence paragraph eoc bom eom human gpt kwarg optimal label delimiter fallback "
    "pause fill filler dummy padding ignore ignored unknown"
)
"""Words before "token" that say which one of a model's vocabulary, or what of the data, it is."""
_OF_CREDENTIALS = _VENDORS | word_set(
    "api access refresh auth authentication authorization oauth oauth2 bearer id session csrf xsrf jwt sas sso saml "
    "mfa bot app user service account deploy deployment personal pat aim admin root cluster node worker join registry "
    "private secret client server write read upload download webhook device push fcm apns security verification reset "
    "invite login signin lambda fly render elastic jupyter notebook tracker ci job runner release repo git ssh tunnel "
    "tg hook identity agent do terraform harbor together ray consumer ingest ingestion publish publisher provisioning "
    "bootstrap enrollment registration activation installation delegation impersonation proxy gateway cloud"
)
"""Words before "token" that say whose credential it is."""
_DESCRIBING = word_set(
    "type types kind policy file files filename filepath path paths dir directory folder name names id ids index idx "
    "len length lengths count size limit limits url uri endpoint format class mode method strategy style side position "
    "positions prefix suffix dtype dispatcher drop dropout pooling reduction weight weights weighting ratio budget "
    "level counter field column separator sep embed embedding embeddings vocab merge merging choice router routing "
    "order mask masks dim dims shape required enabled provider manager store backend version expiry expires ttl env "
    "var variable row rows indices stride expert experts capacity dispatch permute stats usage cost cap start end "
    "offset offsets window regex pattern scope scopes audience issuer algorithm jar mixer helper chain entropy score "
    "loss rate template status valid verified domain secure httponly samesite selector location mount arn rotation fd "
    "generator created updated time timeout interval date age bits strength rules hint label title description desc "
    "help input form callback fn func function module ref present missing exists changed fingerprint thumbprint "
    "namespace namespaces processor mgr handler alias region service username user group owner email role alg algo "
    "host port address realm header headers arg args info struct stdin"
)
"""Last words that say something about a secret, which isn't one."""
_OF_DATA = word_set(
    "cache sort primary foreign partition hash dedup idempotency content commit object state public pub publishable "
    "image video audio text label prompt metric monitor dict answer input output target source obs observation action "
    "reward data dataset batch column field feature group shard row index lookup translation i18n locale tag weight "
    "model param parameter config layer module tensor checkpoint task step best score loss camera depth view random "
    "rng prng jax rank node edge name message messages experiment run context question response query value"
)
"""Words before "key" that say whose it is, though it looks like a secret."""
_NAMES_OF = frozenset(
    (what, said) for what in ("secret", "token", "key", "credential", "credentials", "password")
    for said in ("name", "id", "path", "file", "arn", "type", "length", "env", "var")
)  # fmt: skip
_WEAK = word_set("key auth pass pat sid sig signature session sessionid")
_SPLIT = re.compile(r"[\W_]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SCORE = re.compile(r"pass[@^]")
"""pass@1: how many of a model's answers pass."""
_POLICY = re.compile(r"(?i)access-control-")
"""Headers that say who may."""
_EDITION = re.compile(
    r"\d+|v\d+|prod|production|dev|staging|old|new|backup|default|value|val|plain|raw|base64|b64|secure|again|"
    r"confirm|confirmation|repeat|current|temp|tmp|local|live|main|primary|secondary|unencrypted|cleartext|text"
)
"""Last words that say which one of several it is."""

STEMS = (
    "pass", "pwd", "pswd", "secret", "token", "key", "auth", "cred", "cookie", "jwt", "bearer", "otp", "mnemonic",
    "hook", "dockerconfigjson", "signature", "session", "phrase", "conn", "alert_", "recovery", "backup_c", "pssw",
    "pasw", "psw", "paasw", "dpw", "tpw", "rpw", "npw", "bpw", "lpw", "gpw", "ppw", "패스워드", "kennwort", "contrase",
    "clave", "senha", "parola", "wachtwoord", "lösenord", "losenord", "hasło", "haslo", "heslo", "jelszo", "şifre",
    "sifre", "salasana", "mdp", "пароль", "密码", "密碼", "口令", "パスワード", "暗証番号", "비밀번호", "비번", "암호",
    "geheimnis", "secreto", "секрет", "токен", "密钥", "密鑰", "秘钥", "令牌", "トークン", "秘密鍵", "토큰",
)  # fmt: skip
SHORT_STEMS = ("pw", "psk", "sas", "pat", "sig", "sid", "pin")
"""Each name that means anything has one of these, in small letters; behind a short one no letter follows."""
_AROUND = re.compile(r"[\w.\-]{0,80}")


def names_in(text: str, small: str) -> Iterator[tuple[int, str]]:
    """Where words of secrets' names stand in a text, and the whole name around each, in their order.

    Args:
        small: the text in small letters, character for character.
    """
    hits: list[tuple[int, int]] = []
    for stem in STEMS + SHORT_STEMS:
        at = small.find(stem)
        while at >= 0:
            end = at + len(stem)
            if len(stem) > 3 or stem not in SHORT_STEMS or not small[end : end + 1].isalpha():
                hits.append((at, end))
            at = small.find(stem, end)
    whole = -1
    for at, end in sorted(hits):
        if at >= whole:  # of a name with several words each would be the same again
            sides = _AROUND.match(text[max(0, at - 80) : at][::-1]), _AROUND.match(text, end)
            before, after = (side[0] for side in sides if side is not None)
            name = f"{before[::-1]}{text[at:end]}{after}"
            bare = name[2:] if name.startswith("-D") else name.lstrip("-.0123456789")
            yield at - len(before) + len(name) - len(bare), bare
            whole = end + len(after) if max(len(before), len(after)) < 80 else -1


def split(name: str) -> list[str]:
    """The words of a name, in small letters."""
    return list(_split(name[:200]))


@functools.lru_cache(8192)
def _split(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _SPLIT.split(name) if word)


@functools.lru_cache(8192)
def meaning(name: str) -> Secrecy:
    """What the text under a name is."""
    if _SCORE.search(name) or _POLICY.match(name):
        return Secrecy.NOTHING
    words = _without_edition(split(name))
    if not words:
        return Secrecy.NOTHING
    last, pairs = words[-1], set(itertools.pairwise(words))
    if last in ("url", "uri", "endpoint", "address") and not _HOOKS.isdisjoint(words):  # who knows a hook's may post
        return Secrecy.PERHAPS
    if words[-2:] == ["secret", "id"]:  # of Vault's AppRole a secret, of others a name
        return Secrecy.WEAK
    if words[0] == "existing" or _is_about_one(last, pairs):  # Helm's existingSecret names one
        return Secrecy.NOTHING
    is_pass = any(pair in _PINS or (pair[1] == "pass" and pair[0] not in _PASSES) for pair in pairs)
    if last in _PASSWORDS_LAST or any(map(_is_password, words)) or is_pass:
        return Secrecy.PASSWORD
    if last == "sas" or any(map(_is_secret, words)) or not _PAIRS.isdisjoint(pairs):
        return Secrecy.SECRET
    upper = name.isupper()
    found = _of_token(words, upper)
    if found or last not in _WEAK:
        return found
    if last == "key":
        return _of_key(words, upper)
    return _of_login(words, upper) if last in ("auth", "pass", "pat") else Secrecy.WEAK


def is_of_secrets(name: str) -> bool:
    """Does the name end with a secret's word, "credentials", not "secret_rotation"? Then all texts below are secret."""
    words = split(name)
    if not words:
        return False
    known = _is_secret(words[-1]) or _is_password(words[-1]) or tuple(words[-2:]) in _PAIRS
    return known or (words[-1] == "token" and meaning(name) >= Secrecy.SECRET)


def _without_edition(words: list[str]) -> list[str]:
    """The words without what says which one of several it is: of password2_old, password."""
    while len(words) > 1 and _EDITION.fullmatch(words[-1]):
        words.pop()
    return [*words[:-1], words[-1].rstrip("0123456789") or words[-1]] if words else []


def _is_about_one(last: str, pairs: set[tuple[str, str]]) -> bool:
    """Does the name say something of a secret, as secret_name and password_length do, and not the secret itself?"""
    if last in _DESCRIBING:
        return not _is_secret(last)
    return not _NAMES_OF.isdisjoint(pairs) and not (_is_secret(last) or _is_password(last))


def _of_token(words: list[str], upper: bool) -> Secrecy:
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        if word == "tokens" and before in _OF_CREDENTIALS:
            return Secrecy.PERHAPS
        if word != "token":
            continue
        if before in _OF_MODELS:
            return Secrecy.WEAK if upper else Secrecy.NOTHING
        if before in _OF_CREDENTIALS:
            return Secrecy.SECRET
        if place == len(words) - 1:
            return Secrecy.SECRET if not place or upper or not _VENDORS.isdisjoint(words) else Secrecy.PERHAPS
    return Secrecy.NOTHING


def _of_key(words: list[str], upper: bool) -> Secrecy:
    """Of a name that ends with "key": the words before say whose it is."""
    if not _KEYS_PERHAPS.isdisjoint(words[-2:-1]):
        return Secrecy.PERHAPS if _VENDORS.isdisjoint(words[:-2]) else Secrecy.SECRET
    if not _OF_DATA.isdisjoint(words):
        return Secrecy.NOTHING
    return Secrecy.PERHAPS if upper else Secrecy.WEAK


def _of_login(words: list[str], upper: bool) -> Secrecy:
    """Of a name that ends with "auth", "pass" or "pat": alone or in capitals it is a secret's."""
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "pat":
        return Secrecy.SECRET if (upper and not before) or before in _OF_CREDENTIALS else Secrecy.WEAK
    if not before or upper:
        return Secrecy.SECRET
    return Secrecy.PERHAPS if last == "auth" else Secrecy.WEAK


def _is_password(word: str) -> bool:
    return word in _PASSWORDS or word.endswith(_PASSWORD_ENDS) or _MISSPELT.fullmatch(word) is not None


def _is_secret(word: str) -> bool:
    return word in _SECRETS or word.endswith(_SECRET_ENDS)
