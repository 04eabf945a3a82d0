"""Every kind of secret is masked wherever text is kept, and nothing of real configurations is taken for one."""

from __future__ import annotations

import json
import math
import re
import string
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import trackers
from benchmarks import masking
from trackers.support import redaction, secret_following
from trackers.support.redaction import LineMask, mask, mask_addresses, mask_argv, mask_source, mask_text
from trackers.support.secret_contexts import Context, Contexts
from trackers.support.secret_patterns import FORMS

LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"


def made(count: int, letters: str = LETTERS, seed: int = 7) -> str:
    """Characters as a machine makes them: the same ones at each run, and no real key is in this file."""
    random = Random(seed * 1000 + count)
    found = "".join(random.choice(letters) for _ in range(count - 3))
    return found + letters[0] + letters[-1] + letters[len(letters) // 2]


A20, A24, A32, A36, A40, A64 = (made(count) for count in (20, 24, 32, 36, 40, 64))
H32, H40, H64 = (made(count, HEX) for count in (32, 40, 64))
UP16, DIGITS = made(16, string.ascii_uppercase + string.digits), made(11, string.digits)

KINDS: dict[str, tuple[str, str]] = {
    # name: text with the secret in it, as it stands in a line of anything; the secret, of which nothing may be left
    "wandb key 40 hex in login": (f'wandb.login(key="{H40}")', H40),
    "wandb login of the shell": (f"wandb login --relogin {H40}", H40),
    "wandb variable": (f"export WANDB_API_KEY={H40}", H40),
    "wandb variable before a command": (f"WANDB_API_KEY={H40} python train.py", H40),
    "wandb v1": (f"key is wandb_v1_{A32}", A32),
    "wandb local": (f"local-{H40}", H40),
    "comet": (f'comet_ml.init("{A24}")', A24),
    "neptune": (f'neptune.init(api_token="eyJ{A64}==")', A64),
    "hugging face": (f"hf_{A36}", A36),
    "openai": (f"sk-{A40}", A40),
    "openai project": (f"sk-proj-{A40}_{A20}", A40),
    "anthropic": (f"sk-ant-api03-{A64}", A64),
    "groq": (f"gsk_{A40}", A40),
    "nvidia": (f"nvapi-{A64}", A64),
    "replicate": (f"r8_{A36}", A36),
    "langsmith": (f"lsv2_pt_{H32}_{made(10, HEX)}", H32),
    "xai": (f"xai-{A64}", A64),
    "perplexity": (f"pplx-{A40}", A40),
    "databricks": (f"dapi{H32}", H32),
    "aws id": (f"AKIA{UP16}", UP16),
    "aws session id": (f"ASIA{UP16}", UP16),
    "aws secret, ini": (f"aws_secret_access_key = {A40}", A40),
    "aws secret, variable": (f"export AWS_SECRET_ACCESS_KEY={A40}", A40),
    "aws session token": (f'"aws_session_token": "{A64}"', A64),
    "aws signed address": (f"https://b.s3.amazonaws.com/k?X-Amz-Credential=a%2Fb&X-Amz-Signature={H64}&x=1", H64),
    "google api": (f"AIza{made(35)}", made(35)),
    "google oauth client": (f"GOCSPX-{A24}", A24),
    "google access token": (f"ya29.{A64}", A64),
    "google service account": (f'"key": "-----BEGIN PRIVATE KEY-----\\n{A64}\\n-----END PRIVATE KEY-----\\n"', A64),
    "google signed address": (f"https://storage.googleapis.com/b/o?X-Goog-Signature={H64}", H64),
    "azure sas": (f"https://a.blob.core.windows.net/c?sv=2022-11-02&sp=r&sig={A40}%3D", A40),
    "azure storage": (f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={A64}==;EndpointSuffix=core", A64),
    "azure service bus": (f"Endpoint=sb://a/;SharedAccessKeyName=n;SharedAccessKey={A40}=", A40),
    "azure client": (f"abc8Q~{made(34)}", made(34)),
    "alibaba": (f"LTAI{A20}", A20),
    "digitalocean": (f"dop_v1_{H64}", H64),
    "heroku": (f"HRKU-{A40}", A40),
    "vault": (f"hvs.{A24}{A64}", A64),
    "terraform": (f"{made(14)}.atlasv1.{A64}", A64),
    "pulumi": (f"pul-{H40}", H40),
    "github": (f"ghp_{A36}", A36),
    "github oauth": (f"gho_{A36}", A36),
    "github app": (f"ghs_{A36}", A36),
    "github fine-grained": (f"github_pat_{A24}_{A36}", A36),
    "gitlab": (f"glpat-{A20}", A20),
    "gitlab deploy": (f"gldt-{A20}", A20),
    "gitlab runner": (f"glrt-{A20}", A20),
    "gitlab header": (f'curl -H "PRIVATE-TOKEN: {A20}" https://gitlab', A20),
    "bitbucket": (f"ATBB{A32}", A32),
    "atlassian": (f"ATATT3{A64}", A64),
    "npm": (f"npm_{A36}", A36),
    "npmrc": (f"//registry.npmjs.org/:_authToken={A36}", A36),
    "pypi": (f"pypi-AgEIcHlwaS5vcmc{A64}", A64),
    "pypirc": (f"password = {A24}9", A24),
    "rubygems": (f"rubygems_{H40}", H40),
    "docker hub": (f"dckr_pat_{A32}", A32),
    "docker configuration": (f'{{"auths": {{"r": {{"auth": "{A32}="}}}}}}', A32),
    "slack bot": (f"xoxb-{DIGITS}-{DIGITS}-{A24}", A24),
    "slack user": (f"xoxp-{DIGITS}-{DIGITS}-{A24}", A24),
    "slack app": (f"xapp-1-A0-{DIGITS}-{H64}", H64),
    "slack hook": (f"https://hooks.slack.com/services/T0AB/B0CD/{A24}", A24),
    "discord hook": (f"https://discord.com/api/webhooks/{DIGITS}/{A64}", A64),
    "discord bot": (f"M{A24}.{made(6)}.{made(30)}", made(30)),
    "teams hook": (f"https://x.webhook.office.com/webhookb2/{H32}/IncomingWebhook/{H32}", H32),
    "telegram": (f"1234567890:AA{made(33)}", made(33)),
    "stripe": (f"sk_live_{A24}", A24),
    "stripe restricted": (f"rk_live_{A24}", A24),
    "stripe hook": (f"whsec_{A32}", A32),
    "square": (f"sq0atp-{A24}", A24),
    "shopify": (f"shpat_{H32}", H32),
    "twilio": (f"SK{H32}", H32),
    "sendgrid": (f"SG.{made(22)}.{made(43)}", made(43)),
    "brevo": (f"xkeysib-{H64}-{UP16}", H64),
    "mailgun": (f"key-{H32}", H32),
    "mailchimp": (f"{H32}-us12", H32),
    "notion": (f"ntn_{A64}", A64),
    "linear": (f"lin_api_{A40}", A40),
    "figma": (f"figd_{A40}", A40),
    "airtable": (f"pat{made(14)}.{H64}", H64),
    "postman": (f"PMAK-{made(24, HEX)}-{made(34, HEX)}", made(34, HEX)),
    "grafana": (f"glsa_{A32}_{made(8, HEX)}", A32),
    "new relic": (f"NRAK-{A24}", A24),
    "dynatrace": (f"dt0c01.{A24}.{A64}", A64),
    "sentry": (f"sntryu_{H64}", H64),
    "sentry address": (f"https://{H32}@o1.ingest.sentry.io/2", H32),
    "tailscale": (f"tskey-auth-{A20}-{A24}", A24),
    "planetscale": (f"pscale_tkn_{A36}", A36),
    "supabase": (f"sbp_{H40}", H40),
    "pinecone": (f"pcsk_{A40}", A40),
    "doppler": (f"dp.pt.{A40}", A40),
    "age": (f"AGE-SECRET-KEY-1{made(58, string.ascii_uppercase)}", made(58, string.ascii_uppercase)),
    "openshift": (f"sha256~{made(43)}", made(43)),
    "json web token": (f"eyJ{A20}.eyJ{A24}.{A40}", A40),
    # By what stands around them.
    "bearer": (f"Authorization: Bearer {A32}", A32),
    "bearer, lower case, one word": (f"authorization: bearer {A20}", A20),
    "basic": (f"Authorization: Basic {A24}==", A24),
    "token scheme": (f"-H 'Authorization: token {A40}'", A40),
    "bearer in a mapping": (f'{{"Authorization": "Bearer {A32}"}}', A32),
    "bearer alone": (f"Bearer {A32}", A32),
    "proxy": (f"Proxy-Authorization: Basic {A24}", A24),
    "header x-api-key": (f'-H "X-Api-Key: {A20}"', A20),
    "header cookie": ("Cookie: session=opensesame; id=hunter2", "opensesame"),
    "header set-cookie": (f"Set-Cookie: sid={A20}; Path=/", A20),
    "curl user": ("curl -u ada:hunter2222 https://host", "hunter2222"),
    "sshpass": ("sshpass -p hunter2222 ssh host", "hunter2222"),
    "address with login": ("postgresql://ada:hunter2222@db:5432/x", "hunter2222"),
    "address with a password alone": ("redis://:hunter2222@cache:6379/0", "hunter2222"),
    "address with an at in the password": ("mysql://ada:hunter@opensesame2@db/x", "opensesame2"),
    "address with a slash in the password": ("amqp://ada:hunter/opensesame2@mq/x", "opensesame2"),
    "address with a token": (f"https://{A20}@github.com/a/b.git", A20),
    "address with a short token": ("http://opensesame@host/x", "opensesame"),
    "address with oauth2": (f"https://oauth2:{A20}@gitlab.com/a/b.git", A20),
    "address, query": (f"https://host/x?a=1&access_token={A20}&b=2", A20),
    "address, query api_key": ("https://host/x?api_key=opensesame", "opensesame"),
    "jdbc": ("jdbc:postgresql://db/x?user=ada&password=hunter2222", "hunter2222"),
    "connection string": ("Server=db;Database=x;User Id=ada;Password=hunter2222;", "hunter2222"),
    "odbc": ("Driver={x};Server=db;UID=ada;PWD=hunter2222;", "hunter2222"),
    "netrc": (f"machine api.wandb.ai login user password {H40}", H40),
    "netrc, line": (f"  password {H40}", H40),
    "kubeconfig": (f"    token: {A40}", A40),
    "kubeconfig, key": (f"    client-key-data: {A64}", A64),
    "yaml": ("db_password: hunter2222", "hunter2222"),
    "yaml, list": ("  - password: opensesame", "opensesame"),
    "ini": ("password=hunter2222", "hunter2222"),
    "shell": ("export DB_PASSWORD=opensesame", "opensesame"),
    "powershell": (f"$env:HF_TOKEN={A20}", A20),
    "docker -e": (f"docker run -e HF_TOKEN={A20} x", A20),
    "make": (f"API_TOKEN := '{A20}'", A20),
    "ruby": (f'"secret_key" => "{A20}"', A20),
    "python": ('os.environ["MY_PASSWORD"] = "opensesame"', "opensesame"),
    "python, call": ('connect(user="ada", password="opensesame")', "opensesame"),
    "python, annotated": ('api_key: str | None = "opensesame"', "opensesame"),
    "json, escaped": (r'{\"api_key\": \"opensesame\"}', "opensesame"),
    "properties, escaped": (r"mail.smtp.password\=opensesame", "opensesame"),
    "rust, optional": ('client.basic_auth("ada", Some("open-sesame-7"))', "open-sesame-7"),
    "option": ("--hub-token hunter2222", "hunter2222"),
    "option with equals": ("--db-password=opensesame", "opensesame"),
    "pem": (f"-----BEGIN RSA PRIVATE KEY-----\n{A64}\n{H64}\n-----END RSA PRIVATE KEY-----", A64),
    "openssh": (f"-----BEGIN OPENSSH PRIVATE KEY-----\n{A64}\n-----END OPENSSH PRIVATE KEY-----", A64),
    "pgp": (f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{A64}\n-----END PGP PRIVATE KEY BLOCK-----", A64),
    "pem, cut": (f"-----BEGIN EC PRIVATE KEY-----\n{A64}\n{H64}", H64),
}  # fmt: skip


def test_each_kind_of_secret_is_masked_in_every_text() -> None:
    """In a configuration under a name that says nothing, in a patch, an argument, a message; the rest stays."""
    told, lost = [], []
    for kind, (text, secret) in KINDS.items():
        patch = "".join(f"+{line}\n" for line in ("lr = 0.1", *text.split("\n"), "seed = 3"))
        masked = [
            mask({"note": text})["note"],
            mask_source(patch),
            mask_source(f"OSError: can't go on\n{text}\n"),
            " ".join(mask_argv(["train.py", "--lr", "0.1", text])),
            " ".join(mask_argv(text.split(" "))) if text.startswith(("--h", "--d", "WANDB", "wandb")) else "",
        ]
        told += [(kind, one) for one in masked if secret in one]
        kept = ("lr = 0.1",) if kind == "pem, cut" else ("lr = 0.1", "seed = 3")
        lost += [(kind, masked[1]) for line in kept if line not in masked[1]]
    assert (told, lost) == ([], [])


NAMED = [
    "pwd",
    "passwd",
    "password",
    "db_password",
    "PGPASSWORD",
    "MYSQL_PWD",
    "rootpassword",
    "pass",
    "db_pass",
    "auth",
    "cookie",
    "session_cookie",
    "cookies",
    "secret",
    "client_secret",
    "clientSecret",
    "token",
    "hub_token",
    "HFToken",
    "api_key",
    "APIKEY",
    "apikey",
    "access_key",
    "secret_key",
    "private_key",
    "ssh_key",
    "encryption_key",
    "signing_key",
    "account_key",
    "credentials",
    "creds",
    "passphrase",
    "authorization",
    "Authorization",
    "bearer",
    "mnemonic",
    "otp",
    "authToken",
    "accesstoken",
    "refresh_token",
    "connection_string",
    "webhook_secret",
    "kaggle.secret",
    "license_key",
]


@pytest.mark.parametrize("name", NAMED)
def test_text_under_a_secrets_name_is_masked(name: str) -> None:
    """In a configuration, as an option and as a variable; numbers and what says how, not what, stay."""
    assert mask({name: "open sesame 11"}) == {name: "***"}
    assert mask({"deep": [{name: "open-sesame-11"}]}) == {"deep": [{name: "***"}]}
    assert mask({name: 3, "x": True}) == {name: 3, "x": True}
    assert mask_argv([f"--{name}=open-sesame-11"]) == [f"--{name}=***"]
    assert mask_source(f'+    {name} = "open-sesame-11"\n') == f'+    {name} = "***"\n'
    for text in ("none", "true", "${oc.env:X}", "${{ secrets.X }}", "$X", "<your key>", ""):
        assert mask({name: text}) == {name: text}


@pytest.mark.parametrize("name", ["key", "sig", "signature", "session", "sid", "app.key", "license"])
def test_text_under_a_weak_name_is_masked_where_it_looks_like_a_secret(name: str) -> None:
    """A key may be a name of something, or what opens it."""
    secret = "license" not in name
    assert mask({name: A32}) == {name: "***" if secret else A32}
    for text in ("loss", "train/loss", "model.layers.0.weight", "2024-01-01", "k", "a b c", "observation_image_top_2"):
        assert mask({name: text}) == {name: text}
    assert mask({name: 3}) == {name: 3}


@pytest.mark.parametrize("between", [" was rotated, and now reads ", '=%s", "', " (see the wiki) ==> ", " 7 of 9, x, "])
def test_what_looks_made_behind_a_secrets_name_is_masked(between: str) -> None:
    """In the rest of its line, whatever stands between; neither before it nor behind a name that says nothing."""
    assert A36 not in mask_source(f"the client_secret{between}{A36}")
    assert A36 in mask_source(f"the client_secret\n{between}{A36}")
    assert A36 in mask_source(f"{A36}{between}client_secret")
    assert A36 in mask_source(f"the batch_size{between}{A36}")


REAL: list[dict[str, Any]] = [
    # Of Hydra, OmegaConf and Lightning.
    {
        "defaults": ["_self_", {"model": "gpt2"}],
        "hydra": {"run": {"dir": "outputs/${now:%Y-%m-%d}"}, "job": {"name": "a"}},
        "trainer": {"_target_": "lightning.Trainer", "key": 3, "monitor": "val/loss"},
        "author": "Ada",
        "authors": ["A", "B"],
        "authority": "x",
        "key": "val_loss",
        "keys": ["input_ids", "labels"],
        "sort_key": "length",
        "primary_key": "id",
    },
    # Of Transformers: model, tokenizer, generation, Trainer.
    {
        "pad_token": "<|endoftext|>",
        "eos_token": "</s>",
        "bos_token": "<s>",
        "unk_token": "UNK",
        "mask_token": "[MASK]",
        "image_token": "image",
        "pad_token_id": 50256,
        "tokenizer_class": "GPT2TokenizerFast",
        "num_key_value_heads": 8,
        "additional_special_tokens": ["<a>", "b"],
        "add_bos_token": False,
        "max_new_tokens": 20,
        "decoder_start_token_id": 0,
        "forced_bos_token_id": None,
        "token_type_ids": "x",
        "token_healing": False,
        "hub_token": None,
        "push_to_hub": False,
        "key_dim": 64,
        "use_cache": True,
        "stop_strings": ["\n"],
        "vision_start_token": "start",
        "sep_token": "|",
        "extra_special_tokens": {"image_token": "<image>"},
        "chat_template": "{{ bos_token }}{% for m in messages %}",
    },
    # Of Megatron and NeMo.
    {
        "moe_token_dispatcher_type": "alltoall",
        "moe_token_drop_policy": "probs",
        "tokenizer_type": "HuggingFaceTokenizer",
        "tokenizer_model": "meta-llama/Llama-3.1-8B",
        "vocab_file": "/data/vocab.json",
        "kv_channels": 128,
        "apply_query_key_layer_scaling": False,
        "moe_token_dispatcher": {"type": "flex"},
        "num_tokens": "300B",
        "tokens_per_sample": 2048,
        "wandb_project": "p",
        "qk_layernorm": True,
        "attention_softmax_in_fp32": True,
        "master_key": 3,
        "key_value_heads": "8",
    },
    # Of others: layers, data, paths, addresses, commits.
    {
        "token_type_embeddings": "learned",
        "token_pooling": "mean",
        "token_dropout": "uniform",
        "loss_per_token": "mean",
        "password_file": "/run/secrets/db",
        "secret_name": "db-credentials-v1",
        "token_path": "~/.cache/huggingface/token",
        "token_url": "https://login.example.com/oauth2/token",
        "credentials_file": "~/.aws/credentials",
        "key_file": "id.pub",
        "url": "http://127.0.0.1:5000/x",
        "registry": "https://registry:5000/@scope/pkg",
        "path": "abfss://box@store.dfs.core.windows.net/x",
        "remote": "git@github.com:a/b.git",
        "s3": "s3://bucket/key",
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "sha256": "a" * 64,
        "uuid": "123e4567-e89b-12d3-a456-426614174000",
        "cache_key": H64,
        "s3_key": "checkpoints/model.pt",
        "redis_key": "queue:jobs",
        "jira_key": "PROJ-12",
        "num_pass": "two",
        "test_pass": "3 of 4",
        "run_id": "3f2a9c",
        "monkey": "see",
        "signature": "forward",
        "session": "night",
        "auth": "kerberos",
        "pass": "none",
        "forward_pass": "x",
        "state_dict_key": "model.0.w",
    },
    # Text that says how something is run.
    {
        "cmd": "python train.py --max-tokens 512 --tokenizer gpt2 --key val_loss --author ada",
        "note": "the token: a word",
        "prompt": "Q: what is the key? A: a token = 4 letters, bearer of news",
        "env": "PAD_TOKEN=0 MAX_TOKENS=5 CUDA_VISIBLE_DEVICES=0",
        "code": "token = tokenizer.decode(x)\nsecret: Secret\npassword: str = None\nlogin(token=hub_token, key=key)",
    },
]


@pytest.mark.parametrize("config", REAL)
def test_nothing_of_real_configurations_is_masked(config: dict[str, Any]) -> None:
    """Settings of tokenizers, layers and data, paths, addresses and hashes stay as they are."""
    assert mask(config) == config
    flat = [f"--{name}={value}" for name, value in config.items() if isinstance(value, str) and "\n" not in value]
    assert mask_argv([word for word in flat if "commit" not in word]) == [word for word in flat if "commit" not in word]


def test_names_behind_each_other_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows the next secret's name is that one's: of nothing but names, each looks at few."""
    asked: list[str] = []
    texts = secret_following._texts
    monkeypatch.setattr(
        secret_following, "_texts", lambda *where: (asked.append(found.text) or found for found in texts(*where))
    )
    for word in ("password: ", "token ", "--api-key "):
        for count in (10, 100, 1000):
            asked.clear()
            mask_source(word * count)
            assert len(asked) <= 10 * count, word


def test_forms_are_a_table_that_is_used_whole() -> None:
    """Each form has a vendor of its own and words in small letters; there are more than a hundred."""
    vendors = [vendor for vendor, _, _ in FORMS]
    assert len(set(vendors)) == len(vendors) >= 95
    assert all(words == words.lower() and words for _, words, _ in FORMS)


PIECES = [
    "a=",
    "://a:",
    "https://",
    "key:",
    "x",
    "-----BEGIN PRIVATE KEY-----",
    "password ",
    "Authorization: Bearer ",
    "--token ",
    "curl -u ",
    'token="',
    "eyJ",
    "sk-",
    ".",
    "login a password ",
    "?token",
    "&sig=",
    "key-",
    "token = ",
    "1",
    ":AA",
    "[",
    "wandb login ",
    " ",
    "\\",
    "'",
    "${",
    "\t",
    "@",
    "glpat-",
    "-us",
]


@pytest.mark.heavy
@pytest.mark.parametrize("piece", PIECES)
def test_masking_is_linear(piece: str) -> None:
    """Ten times the text takes ten times as long, not a hundred: no text, however odd, holds up what masks it."""

    def seconds(count: int) -> float:
        text, least = (piece * count)[:count], math.inf
        for _ in range(2):
            began = time.process_time()
            mask_source(text)
            least = min(least, time.process_time() - began)
        return least

    assert seconds(100_000) < 50 * max(seconds(10_000), 0.005)


@pytest.mark.heavy
@given(st.lists(st.sampled_from([*PIECES, "\n", "open", A20, "token", "=", '"']), max_size=40).map("".join))
@example('login a password ://a:\ttoken="token="')
@example("curl -u '://a:'a='a=")
@example("Authorization: Bearer ?token=Authorization: Bearer ")
@example("password a=e4bkzeALDF82JEdCpa9Fpassword ?token?token")
@settings(max_examples=200, deadline=None)
def test_masking_again_changes_nothing(text: str) -> None:
    """What was masked is masked: readers may mask what writers have."""
    once = mask_source(text)
    assert mask_source(once) == once
    assert mask_text(mask_text(text)) == mask_text(text)


def test_run_keeps_no_secret_of_any_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configuration, notes, tags, group, name, logged texts, metadata, the exception at the end: no file has one."""
    monkeypatch.setenv("TRACKER_NOTES", "\n".join(text for text, _ in KINDS.values()))
    whole = {kind: text for kind, (text, _) in KINDS.items()}
    run = trackers.init("json,csv", project="p", id="r", inline=True, config={"kinds": whole}, group=whole["github"],
                        tags=[whole["stripe"], whole["gitlab"]], name=whole["npm"])  # fmt: skip
    run.config.update({"later": whole})
    forms = {name: text for name, text in whole.items() if mask_text(text) != text}
    run.log({f"text/{number}": text for number, text in enumerate(forms.values())}, step=0)
    Path("model.bin").write_text("weights")
    run.log_artifact("model.bin", metadata=whole)
    run.finish(exit_code=1)
    files = {path: path.read_text("utf-8", "replace") for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    files = {path: text for path, text in files.items() if path.suffix != ".bin"}
    for kind, (_, secret) in KINDS.items():
        assert [path.name for path, text in files.items() if secret in text] == [], kind
    info = json.loads((tmp_path / "runs/p/r/run.json").read_text())
    assert info["config"]["kinds"].keys() == KINDS.keys()


@pytest.mark.parametrize(
    "text",
    ["export HF_TOKEN=${HF_TOKEN:?is missing}", "env: {KEY: ${API_KEY:?unset}}", "login --password-stdin ghcr.io"],
)
def test_what_says_that_a_secret_is_needed_is_kept(text: str) -> None:
    """A shell's message for a variable that isn't set, and an option that reads its secret elsewhere."""
    assert mask_source(text) == text


def test_block_of_secrets_ends_where_its_indentation_does() -> None:
    """What says something of a secret in it, and what stands below it, is kept."""
    block = f"credentials:\n  id: {H40}\n  path: runs/{H40}\n  value: {{}}\ncommit: {H40}\ndigest:\n  value: {H40}"
    assert mask_source(block.format(A40)) == block.format("***")
    manifest = f"kind: Secret\ndata:\n  url: {{}}\n  port: '5432'\nstep 3\n  name: {H40}"
    assert mask_source(manifest.format(f"{A40}")) == manifest.format("***")


def test_columns_of_pppd_and_blocks_of_openvpn_are_masked_and_what_follows_is_kept() -> None:
    """The third column is the secret, also in quotes; a block ends with its tag; line by line as at once."""
    for text in (
        '# client server secret IP\n# of ada\n"ada" * "Gr3en tea" 10.0.0.2\nbob * sunflower\n',
        "<auth-user-pass>\nada\nsunflower\n</auth-user-pass>\nremote vpn.example 1194\n",
        "<tls-auth>\n-----BEGIN OpenVPN Static key V1-----\n6acef03f62675b4b1bbd03e53b187727\n"
        "-----END OpenVPN Static key V1-----\n</tls-auth>\nremote vpn.example 1194\n",
    ):
        lines = LineMask()
        for masked in (mask_source(text), "\n".join(map(lines.line, text.split("\n")))):
            assert not any(secret in masked for secret in ("Gr3en tea", "sunflower", "6acef03f"))
            assert masked.split("\n")[-2] == text.split("\n")[-2] or "sunflower" in text.split("\n")[-2]
            assert masked.startswith(text.split("\n")[0])


def test_rows_of_documentation_are_kept() -> None:
    """A list's row of reStructuredText says what a parameter is; between < and > stands what to fill in."""
    for text in (
        "   * - Password\n     - The account's password.\n   * - ``token``\n     - A token (str).",
        "token=<sha256:32bytes>", "api_key=<your_key_123>", "password=<your-password>",
    ):  # fmt: skip
        assert mask_source(text) == text
    assert mask_source("TOKEN=<x9Fq2LmZ7>") == "TOKEN=***"


@pytest.mark.parametrize("behind", ["", ";", "; then", ", x", ".", ")", "]", "}", "|", "&", ">", "`", "'", " "])
def test_login_of_an_address_is_masked_whatever_stands_behind_it(behind: str) -> None:
    """Signs of a sentence, a list or a command end the address."""
    for address in ("http://joe:Winter-9x@h:5000", "postgresql://joe:Winter-9x@h.example"):
        assert mask_text(f"see {address}{behind}") == f"see {address.replace('Winter-9x', '***')}{behind}"


def test_logins_in_addresses_of_messages_are_masked() -> None:
    """Messages name a source as it was given; what stands around the address stays."""
    text = "no experiment 'token: nope' in http://joe:Winter-9x@h:5000; known: 'mlflow:postgresql://u:pw@h/db#e'"
    assert mask_addresses(text) == (
        "no experiment 'token: nope' in http://joe:***@h:5000; known: 'mlflow:postgresql://u:***@h/db#e'"
    )


def test_environment_of_a_process_is_masked() -> None:
    """Entries between NUL signs, as ``/proc/PID/environ`` and ``env -0`` have them."""
    text = "PATH=/bin\0DB_PASSWORD=Winter-Rain77\0HOME=/x\0"
    assert mask_source(text) == "PATH=/bin\0DB_PASSWORD=***\0HOME=/x\0"
    begun = "A=-----BEGIN RSA PRIVATE KEY-----\nMIIE"
    text = f"{text}{text}\0NOTE=a\npassword: Winter-Rain77\0{begun}\0LAST=1"
    masked = "PATH=/bin\0DB_PASSWORD=***\0HOME=/x\0"
    assert mask_source(text) == f"{masked}{masked}\0NOTE=a\npassword: ***\0A=***\0LAST=1"


@pytest.mark.parametrize("line", [
    'password = "it"s Winter-Rain77"', "password = 'it's Winter-Rain77'", "password == 'it's Winter-Rain77'",
    '"it"s-Winter-Rain77" == password', 'f("x\\"y") if "Winter-Rain77" == password', "x or a = b or password or 'x'",
    'password = given["a:b"] or "Winter-Rain77"', "https://x/?why?=1&token=Winter-Rain77?a", "?token=Winter?Rain77&a=1",
])  # fmt: skip
def test_quotes_and_signs_within_a_secret_end_it_late(line: str) -> None:
    """A quote before a letter is part of the text, so is a question mark of an address' value."""
    assert "Rain77" not in mask_source(line)


def test_same_command_again_is_looked_at_by_itself() -> None:
    """A user may be called as the program; what follows that name belongs to it."""
    assert mask_source("mysql -u mysql -pWinterRain77 db") == "mysql -u mysql -p*** db"
    assert mask_source("curl a curl b curl -u me:WinterRain77 c") == "curl a curl b curl -u me:*** c"


SHAPES = [
    "[db]\npassword =\n    {}\nport = 3",
    "db_password =\n\t{}",
    "+password:\n+    {}",
    "password = \\\n  {}",
    "password:\u00a0{}",
    "password\u202f=\u00a0{}",
    "password\uff1a{}",
    "lftp -u me,{} -e ls sftp://h",
    "printf %s {} | gh auth login --with-token",
    r'printf "%s\n" "{}" | docker login -u me --password-stdin',
    "echo -e {} | docker login --password-stdin",
    "cat <<< {} | docker login --password-stdin",
    "WIFI:S:net;T:WPA;P:{};;",
    "WIFI:P:{};T:WPA;S:my net;;",
    "//me:{}@db.example.org/x",
    "see <//me:{}@h:5432>",
    r'"{{\"a\": \"{{\\\"password\\\": \\\"{}\\\"}}\"}}"',
    r"{{\\\\\\\"password\\\\\\\": \\\\\\\"{}\\\\\\\"}}",
    "https://conda.anaconda.org/t/{}/me",
    "conda install -c https://conda.anaconda.org/t/{} x",
    "====  ========\nuser  password\n====  ========\nada   {}\nbob   x\n====  ========\n\nada   3",
    "+------+----------+\n| user | password |\n+======+==========+\n| ada  | {} |\n+------+----------+",
    "  -p, --password TEXT  What for.  [env var: X; default: {}; required]",
    "  --password X  what for (default: {})",
    "password: ${{X:-{}}}",
    'export PASSWORD="${{X:={}}}"',
    "spring.datasource.password=${{PG:{}}}",
    "password: ${{oc.env:X,{}}}",
    "Environment=DB_PASSWORD={}",
    '  ~ password = "old-1x8" -> "{}"',
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("secret", ["swordfish", "Winter.orbit7340#", "correct-horse-battery", A24, H32])
def test_secret_of_a_rare_shape_is_masked(shape: str, secret: str) -> None:
    """As a whole and line by line, whatever it looks like; all around it stays."""
    text = shape.format(secret)
    mask_lines = LineMask()
    for masked in (mask_source(text), "\n".join(map(mask_lines.line, text.split("\n")))):
        assert secret not in masked
        assert masked.startswith(text[:3])
        assert masked.count("\n") == shape.count("\n")


@pytest.mark.parametrize(
    "text",
    [
        "password =\nuser = ada",
        "api_key =\n    config.api_key",
        "password =\n    user_password",
        "token =\n    tokenizer.encode(text)",
        "tokens\u00a0=\u00a0512",
        "le mot\u00a0: bonjour",
        "printf '%s' hello | tee log",
        "WIFI:S:net;T:nopass;P:;;",
        "WIFI: connected to net",
        "//comment: see me@example.org",
        "// TODO(ada): ask bob@example.org",
        "https://h.example.org:8080/a@b",
        "====  =====\nuser  score\n====  =====\nada   swordfish\n====  =====",
        "== a == b\nx  y\nswordfish  z",
        "  --pad-token TEXT  [default: <pad>]",
        "  --password TEXT  [default: None]",
        "  --max-tokens INTEGER  [default: 512]",
        "width: ${WIDTH:-512}",
        "password: ${DB_PASSWORD:-}",
        "password: ${DB_PASSWORD:?is missing}",
        "community 12 of 40",
        'default = "a1b2c3d4e5" # of the run',
        "Use layer_norm2 as the token mixer.",
        "Each run is identified by its name, a user is identified by tag.",
        "You are not authenticated. Set HF_TOKEN to authenticate.",
        "  --password PASSWORD, -p PASSWORD",
        "| token | probability |\n|---|---|\n| the | 0.31 |",
        '{"token": "\u0120the", "logprob": -0.31, "bytes": [32, 116]}',
        'token: "\u2581world" prob 0.21',
        "jwt_alg: HS256",
        "? password of the user\n",
        'output "loss" {\n  value = "Winter.orbit7340"\n}',
        "xfreerdp /port:3389 /v:h",
        "rman target /@db",
    ],
)
def test_what_only_looks_like_a_rare_shape_is_kept(text: str) -> None:
    """Code, numbers, what refers to a secret, and what is under no secret's name."""
    mask_lines = LineMask()
    assert mask_source(text) == text
    assert [mask_lines.line(line) for line in text.split("\n")] == text.split("\n")


@pytest.mark.parametrize("sign", ["=", " = ", ": ", " : "])
@pytest.mark.parametrize("first", ["password: {}", "password={}", "the API key is {}"])
@pytest.mark.parametrize("comma", [",", ", ", ";"])
def test_secret_behind_another_one_is_masked(first: str, comma: str, sign: str) -> None:
    """What follows a comma is the next one's name, not part of the first: tags are written so."""
    masked = mask_source(f"{first.format('Winter.orbit7340')}{comma}password{sign}Summer.orbit7341 x")
    assert "orbit" not in masked


def test_lines_that_masking_left_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second pass over a text, for what masks uncover, costs little: its lines are settled by then, and lines that
    are the same once they are masked are one."""
    looked: list[str] = []
    beside = redaction._beside
    monkeypatch.setattr(redaction, "_beside", lambda line: (looked.append(line), beside(line))[1])
    for name, times in (("password_{number}", 100), ("password", 1)):
        looked.clear()
        text = "".join(f'{name.format(number=number)} = "word{number}"\n' for number in range(100))
        assert "word" not in mask_source(text).replace("password", "")
        assert len(looked) == times


def test_text_that_is_made_to_be_slow_costs_little_more() -> None:
    """Than plain text: quotes that never end cost 270 times as much, addresses of questions 100, NUL signs 80."""
    assert {figure.name: figure.value for figure in masking.measure(True)}["  against plain text"] < 60


def test_only_contexts_that_a_text_hints_at_are_tried() -> None:
    """In their order, each once."""
    first, second, third = (Context(hints, re.compile("x"), bool) for hints in (("=", ":"), ("<",), ("=",)))
    contexts = Contexts(first, second, third)
    assert contexts.hinted("a = b: c") == [first, third]
    assert contexts.hinted("<a=b>") == [first, second, third]
    assert contexts.hinted("a") == []
