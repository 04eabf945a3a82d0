"""The corpus by which the masking of secrets is judged, and the command that prints what it comes to:
``python -m tests.support.secret_corpus [--list]`` (``make secrets``).

Secrets are generated: no real one is here. They stand in texts of every kind that holds one, under names that say so,
or alone if a vendor's form tells. Harmless values are of the kinds that public configurations of training have: of
Hydra, YAML and argparse, typed anew. The same ones come at each run.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import json
import string
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.support import secret_grammar
from trackers.support.redaction import LineMask, mask, mask_argv, mask_source, mask_text

LEAST_RECALL = 0.99
MOST_FALSE_MASKS = 0.005
LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"


class Secret(NamedTuple):
    """A text and the secret in it. context: what kind of text it is."""

    context: str
    text: str
    secret: str


class Harmless(NamedTuple):
    """A name and a value of a configuration, or a line of a text under no name."""

    kind: str
    name: str
    value: str


def made(random: Random, count: int, letters: str = LETTERS) -> str:
    """Characters as a machine makes them: with a letter of either case and a digit, if the alphabet has them."""
    sure = [random.choice(part) for part in (string.ascii_lowercase, string.ascii_uppercase, string.digits)
            if set(part) <= set(letters)][:count]  # fmt: skip
    drawn = sure + [random.choice(letters) for _ in range(count - len(sure))]
    random.shuffle(drawn)
    return "".join(drawn)


def _base64(random: Random, count: int) -> str:
    return base64.b64encode(random.randbytes(count)).decode()


SHAPES: dict[str, Callable[[Random], str]] = {
    # As people choose them.
    "word": lambda r: r.choice(("Winterthur", "Bellinzona", "opensesame", "swordfish", "Marmalade", "liechtenstein")),
    "two words": lambda r: f"{r.choice(('Summer', 'winter'))}.{r.choice(('Rain', 'sun'))}{r.randrange(2020, 2030)}",
    "dotted words": lambda r: f"{r.choice(('blue', 'Red'))}.{r.choice(('mountain', 'Harbour'))}",
    "hyphens": lambda r: "-".join(r.sample(("correct", "horse", "battery", "staple", "velvet", "onion"), 3)),
    "digits": lambda r: str(r.randrange(10**7, 10**9)),
    "word and digits": lambda r: f"{r.choice(('hunter', 'dragon', 'Zürich', 'monkey'))}{r.randrange(100, 9999)}",
    "signs": lambda r: f"{made(r, 4)}{r.choice('!@%^*?')}{made(r, 4)}{r.choice('!+~^*')}{made(r, 3)}",
    "leet": lambda r: r.choice(("p4ssw0rd", "s3cr3t", "l3tm31n", "tr0ub4dor")) + str(r.randrange(10, 99)),
    # As machines make them.
    "base64": lambda r: _base64(r, 32),
    "base64, two of padding": lambda r: _base64(r, r.choice((16, 64))),
    "hex 32": lambda r: made(r, 32, HEX),
    "hex 40": lambda r: made(r, 40, HEX),
    "uuid": lambda r: "-".join(made(r, count, HEX) for count in (8, 4, 4, 4, 12)),
    "letters and digits": lambda r: made(r, r.choice((20, 24, 32, 40))),
    "url-safe": lambda r: made(r, 43, LETTERS + "-_"),
    "short": lambda r: made(r, 6),
    "small letters": lambda r: made(r, 24, string.ascii_lowercase + string.digits),
    "capitals": lambda r: "-".join(made(r, 5, string.ascii_uppercase + string.digits) for _ in range(4)),
    "dots": lambda r: f"{made(r, 8)}.{made(r, 12)}",
    "letter and dot": lambda r: f"s.{made(r, 24)}",
}  # fmt: skip
PEOPLE = ("word", "two words", "dotted words", "hyphens", "digits", "word and digits", "signs", "leet")
MACHINES = tuple(shape for shape in SHAPES if shape not in PEOPLE)

PASSWORDS = [
    "password",
    "passwd",
    "db_password",
    "DB_PASSWORD",
    "MYSQL_ROOT_PASSWORD",
    "PGPASSWORD",
    "SSHPASS",
    "pwd",
    "db_pw",
    "pw",
    "admin_password",
    "ansible_become_password",
    "redis.password",
    "REDIS_PASSWORD",
    "smtp_pass",
    "passphrase",
    "spring.datasource.password",
    "keystorePassword",
    "ftp_password",
    "imap_password",
]
TOKENS = [
    "api_key",
    "API_KEY",
    "OPENAI_API_KEY",
    "WANDB_API_KEY",
    "apiKey",
    "client_secret",
    "CLIENT_SECRET",
    "clientSecret",
    "secret_key",
    "SECRET_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "aws_session_token",
    "access_token",
    "VAULT_TOKEN",
    "HF_TOKEN",
    "github_token",
    "NPM_TOKEN",
    "auth_token",
    "refresh_token",
    "private_key_id_secret",
    "sas_token",
    "account_key",
    "AZURE_STORAGE_KEY",
    "signing_key",
    "encryption_key",
    "webhook_secret",
    "jwt_secret",
    "bearer_token",
    "hub_token",
    "slack_bot_token",
    "COMET_API_KEY",
    "databricks_token",
    "connection_string",
    "credentials",
    "session_cookie",
    "DJANGO_SECRET",
]

# A context's template, whose names, and whose shapes fit: "p" of people, "m" of machines.
CONTEXTS: dict[str, tuple[str, str]] = {
    "environment file": ("{NAME}={value}", "pm"),
    "shell export": ("export {NAME}={value}", "pm"),
    "shell, before a command": ("{NAME}={value} python train.py --lr 0.1", "pm"),
    "YAML": ("  {name}: {value}", "pm"),
    "YAML, quoted": ("  {name}: '{value}'", "pm"),
    "YAML, list": ("  - {name}: {value}", "pm"),
    "YAML, flow": ("database: {{host: db, {name}: {value}, port: 5432}}", "pm"),
    "YAML, block": ("{name}: |\n  {value}\nnext: 3", "pm"),
    "INI": ("[section]\n{name} = {value}\nnext = 3", "pm"),
    "properties": ("{name}={value}", "pm"),
    "JSON": ('{{"user": "ada", "{name}": "{value}", "port": 5432}}', "pm"),
    "JSON over lines": ('{{\n  "{name}": "{value}",\n  "port": 5432\n}}', "pm"),
    "JSON, name and value": ('[{{"name": "{NAME}", "value": "{value}"}}]', "pm"),
    "JSON, name and value over lines": ('  {{\n    "name": "{NAME}",\n    "value": "{value}"\n  }}', "pm"),
    "TOML": ('{name} = "{value}"  # of the service', "pm"),
    "Dockerfile ENV": ("ENV {NAME} {value}", "pm"),
    "Dockerfile ENV with equals": ("ENV {NAME}={value}", "pm"),
    "Dockerfile ARG": ("ARG {NAME}={value}", "pm"),
    "docker -e": ("docker run --rm -e {NAME}={value} image", "pm"),
    "docker compose": ("    environment:\n      - {NAME}={value}", "pm"),
    "Kubernetes name and value": ("        - name: {NAME}\n          value: {value}", "pm"),
    "Kubernetes name and value, quoted": ('        - name: {NAME}\n          value: "{value}"', "pm"),
    "Kubernetes secret": ("stringData:\n  {name}: {value}", "pm"),
    "kubectl": ("kubectl create secret generic db --from-literal={name}={value}", "pm"),
    "XML": ("<{name}>{value}</{name}>", "pm"),
    "XML attribute": ('<connection user="ada" {name}="{value}"/>', "pm"),
    "XML, key and value": ('<add key="{name}" value="{value}" />', "pm"),
    "XML, Hadoop": ("<property>\n  <name>fs.{name}</name>\n  <value>{value}</value>\n</property>", "pm"),
    "XML, entry": ('<entry key="{name}">{value}</entry>', "pm"),
    "libpq": ("host=db port=5432 user=ada password={value} dbname=runs", "p"),
    "libpq, quoted": ("conn = connect(\"host=db password='{value}' user=ada\")", "p"),
    "ODBC": ("Driver={{x}};Server=db;Uid=ada;Pwd={value};Encrypt=yes", "p"),
    "JDBC": ("jdbc:postgresql://db/x?user=ada&password={value}", "p"),
    "address": ("postgresql://ada:{value}@db:5432/runs", "u"),
    "option": ("python train.py --{option} {value} --lr 0.1", "pm"),
    "option with equals": ("python train.py --{option}={value} --lr 0.1", "pm"),
    "Hydra override": ("python train.py model.{name}={value} lr=0.1", "pm"),
    "Python": ('{name} = "{value}"', "pm"),
    "Python, annotated": ("    {name}: str = '{value}'", "pm"),
    "Python, argument": ('client = connect(user="ada", {name}="{value}")', "pm"),
    "Python, setdefault": ("os.environ.setdefault('{NAME}', '{value}')", "pm"),
    "Python, environ": ('os.environ["{NAME}"] = "{value}"', "pm"),
    "Python, get": ("key = os.environ.get('{NAME}', '{value}')", "pm"),
    "Python, getenv": ('key = os.getenv("{NAME}", "{value}")', "pm"),
    "Python, auth": ("requests.get(url, auth=('ada', '{value}'))", "pm"),
    "Python, HTTPBasicAuth": ('session.auth = HTTPBasicAuth("ada", "{value}")', "pm"),
    "Python, login": ('server.login("ada@example.org", "{value}")', "pm"),
    "Python, argparse": ('parser.add_argument("--{option}", type=str, default="{value}")', "pm"),
    "Python, wrapped": ('{name}=SecretStr("{value}")', "pm"),
    "Python, tuple": ('headers = [("{name}", "{value}"), ("a", "b")]', "pm"),
    "Python, comparison": ('if {name} == "{value}":', "pm"),
    "JavaScript": ("const config = {{ {name}: '{value}', port: 5432 }};", "pm"),
    "Terraform": ('  {name} = "{value}"', "pm"),
    "patch": ('+{name} = "{value}"', "pm"),
    "patch of YAML": ("-  {name}: {value}", "pm"),
    "header": ("Authorization: Bearer {value}", "m"),
    "header, X-Api-Key": ("curl -H 'X-Api-Key: {value}' https://host/x", "m"),
    "curl": ("curl -u ada:{value} https://host/x", "pm"),
    "mysql": ("mysql -h db -u root -p{value} runs", "p"),
    "docker login": ("docker login -u ada -p {value} registry", "pm"),
    "echo": ("echo {value} | docker login -u ada --password-stdin", "pm"),
    "sshpass": ("sshpass -p {value} ssh ada@host", "p"),
    "SAS": ("sv=2022-11-02&ss=b&srt=co&sp=rl&se=2027-01-01T00:00:00Z&sig={value}", "s"),
    "query": ("https://host/x?a=1&{name}={value}&b=2", "m"),
    "netrc": ("machine api.wandb.ai login user password {value}", "pm"),
    "table": ("| {name} | {value} |", "pm"),
    "table of lines": ("│ {name} │ {value} │", "pm"),
    "columns": ("{name}        {value}", "m"),
    "arguments as Megatron prints them": ("  {name} ................................ {value}", "pm"),
    "sentence": ("Your API key: {value}", "m"),
    "sentence, password": ("The new password is: {value}", "p"),
    "sentence, token": ("INFO:root:using access token {value}", "t"),
    "sentence, log": ("2026-01-01 12:00:00 INFO password: {value}", "p"),
    "SQL": ("CREATE USER ada WITH PASSWORD '{value}';", "p"),
    "PowerShell": ('$env:{NAME} = "{value}"', "pm"),
    "fish": ("set -gx {NAME} {value}", "pm"),
    "Makefile": ("{NAME} := {value}", "pm"),
    "notebook, %env": ("%env {NAME} {value}", "pm"),
    "notebook, a cell's JSON": ('   "os.environ[\\"{NAME}\\"] = \\"{value}\\"\\n",', "pm"),
    "Python, set_key": ("dotenv.set_key('.env', '{NAME}', '{value}')", "pm"),
    "Python, keyring": ("keyring.set_password('service', 'ada', '{value}')", "p"),
    "Python, Fernet": ('box = Fernet(b"{value}")', "m"),
    "Python, AWS session": ("boto3.Session('AKIA2E0A8F3B244C9986', '{value}')", "m"),
    "Python, dict": ("os.environ |= dict({NAME}='{value}')", "pm"),
    "Python, printed": ("Namespace(lr=0.1, {name}='{value}', epochs=3)", "pm"),
    "Ray": ('ray.init(runtime_env={{"env_vars": {{"{NAME}": "{value}"}}}})', "pm"),
    "Slurm": ("srun --export=ALL,{NAME}={value} python train.py", "m"),
    "Terraform, -var": ("terraform apply -var '{name}={value}'", "pm"),
    "Helm, --set": ("helm install x y --set auth.{name}={value},replicas=2", "m"),
    "Vault": ("vault kv put secret/hub {name}={value}", "pm"),
    "MinIO": ("mc alias set s3 http://host:9000 ada {value}", "m"),
    "ssh-keygen": ("ssh-keygen -t ed25519 -N '{value}' -f key", "p"),
    "ipmitool": ("ipmitool -H host -U ada -P {value} power status", "p"),
    "pgpass": ("db.example.org:5432:runs:ada:{value}", "p"),
    "form": ("grant_type=password&username=ada&password={value}", "p"),
    "PHP": ("define('{NAME}', '{value}');", "pm"),
    "Ruby": ("  :password => '{value}',", "p"),
    "Java, property": ('System.setProperty("javax.net.ssl.keyStorePassword", "{value}");', "p"),
    "GitLab, variable of a block": ('variables:\n  {NAME}:\n    value: "{value}"\n    description: "x"', "pm"),
    "Terraform, variable": ('variable "{name}" {{\n  type    = string\n  default = "{value}"\n}}', "m"),
    "dataclass, field": ('    {name}: Optional[str] = field(default="{value}")', "pm"),
    "absl": ('flags.DEFINE_string("{name}", "{value}", "what for")', "pm"),
    "Python, environment or": ('key = os.environ.get("{NAME}") or "{value}"', "pm"),
    "arrow": ("secret key \u2192 {value}", "m"),
    "error": ("ValidationError: invalid api_token '{value}'", "m"),
    "key that is refused": ("Invalid API key provided: {value}", "m"),
    "Mosquitto": ("mosquitto_pub -u ada -P {value} -t runs", "p"),
    "htpasswd, more flags": ("htpasswd -b -c users ada {value}", "p"),
    "DVC, modify": ("dvc remote modify --local store secret_access_key {value}", "m"),
    "Spark, file": ("spark.hadoop.fs.azure.account.key.ada.blob.core.windows.net {value}", "m"),
    "nginx, header": ('proxy_set_header Authorization "Basic {value}";', "m"),
    "here-string": ('gh auth login --with-token <<< "{value}"', "m"),
    "hmac": ('hmac.new(b"{value}", message, "sha256")', "m"),
    "Airflow": ("fernet_key = {value}", "m"),
    "Telegram": ("https://api.telegram.org/bot123456789:AAEhBP0av28SbM{value}/getMe", "t"),
}
PER_CONTEXT = 12
SHAPES_OF = {"p": PEOPLE, "m": MACHINES, "u": ("signs", "word", "hyphens"), "s": ("base64",),
             "t": ("letters and digits", "hex 40")}  # fmt: skip
PARSED = (
    "a configuration",
    "a configuration's list",
    "name and value of a configuration",
    "arguments",
    "arguments with equals",
)
"""What isn't text when it is masked."""

# Vendors' forms, of their own documentation and of scanners' public rules: what precedes, alphabet, length, what
# follows.
ALPHABETS = {
    "alnum": LETTERS, "hex": HEX, "url": LETTERS + "-_", "word": LETTERS + "_", "base64": LETTERS + "+/",
    "dotted": LETTERS + "-_.", "small": string.ascii_lowercase + string.digits,
    "capitals": string.ascii_uppercase + "234567",
}  # fmt: skip
FORMS = """
IQoJb3JpZ2luX2VjE base64 300 ==; 1//0 url 60; hf_oauth_ dotted 80; tvly-dev- alnum 32; tvly- alnum 32; sb_secret_
url 31; sk_ hex 48; napi_ small 64; npg_ alnum 14; phx_ alnum 43; CCIPAT_ alnum 22
_0a1b0a1b0a1b0a1b0a1b0a1b0a1b0a1b0a1b0a1b; bkua_ hex 40; KGAT_ hex 32; ghp_ alnum 36; github_pat_ word 82; glpat-
url 20; hf_ alnum 34; sk-ant-api03- url 95; sk-proj- url 74; sk-or-v1- hex 64; gsk_ alnum 52; xai- alnum 80; nvapi-
url 64; r8_ alnum 37; AKIA capitals 16; AIzaSy url 33; GOCSPX- url 28; ya29. url 120;
xoxb-123456789012-123456789012- alnum 24; sk_live_ alnum 24; whsec_ alnum 32; SG. url 22
.aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3x; dop_v1_ hex 64; dapi hex 32; npm_ alnum 36; pypi-AgEIcHlwaS5vcmc url
80; lin_api_ alnum 40; ntn_ alnum 46; figd_ url 40; pul- hex 40; hvs. url 95; dckr_pat_ url 27; tskey-auth- alnum
30; fc- hex 32; jina_ word 60; pa- url 43; csk- small 48; tgp_v1_ url 43; lsv2_pt_ hex 32 _0a1b2c3d4e; pplx- alnum
48; rpa_ alnum 44; apify_api_ alnum 36; rzp_live_ alnum 14; ramp_sec_ alnum 48; secret-token: url 40;
LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQ alnum 200 ==; squ_ hex 40; BBDC- alnum 44; cfut_ alnum 40 0a1b2c3d; ddp_
alnum 36; wandb_v1_ word 77; pcsk_ word 70; t1.9euelZ url 80
.aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3xy; AQVN url 36; mdb_sa_sk_ url
40; sbp_ hex 40; ATCTT3xFfG url 150 =ABCD1234; rootly_ hex 64; shltm_ url 40; FlyV1␣fm2_ base64 500; 4/0A url 70;
sl. url 135; retool_api_ alnum 32; rubygems_ hex 48; pdl_live_apikey_ alnum 40; csb_api_ alnum 30; n8n_api_ alnum 40
"""


def _forms() -> Iterator[tuple[str, str, int, str]]:
    """What precedes a secret, its alphabet, its length, what follows."""
    for row in FORMS.replace("\n", " ").split(";"):
        before, alphabet, count, *behind = row.split()
        yield before.replace("␣", " "), ALPHABETS[alphabet], int(count), "".join(behind)


def secrets(seed: int = 1) -> Iterator[Secret]:
    """Texts with a secret in them."""
    for context, (template, kinds) in CONTEXTS.items():
        random = Random(f"{seed} {context}")
        for number in range(PER_CONTEXT):
            kind = kinds[number % len(kinds)]
            names = PASSWORDS if kind in "pu" else TOKENS
            name = names[random.randrange(len(names))]
            shapes = SHAPES_OF[kind]
            value = SHAPES[shapes[random.randrange(len(shapes))]](random)
            if kind == "s":
                value = value.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
            text = template.format(
                name=name, NAME=name.replace(".", "_").upper(), option=name.replace("_", "-").lower(), value=value
            )
            yield Secret(context, text, value)
    for context in PARSED:
        random = Random(f"{seed} {context}")
        for number in range(2 * PER_CONTEXT):
            names, shapes = ((PASSWORDS, PEOPLE), (TOKENS, MACHINES))[number % 2]
            name, value = random.choice(names), SHAPES[random.choice(shapes)](random)
            option = "--" + name.replace("_", "-")
            parsed: list[object] = [{"model": {name: value, "lr": 0.1}}, {name: [value, value]},
                                    {"env": [{"name": name.upper(), "value": value}]}, [option, value],
                                    [f"{option}={value}"]]  # fmt: skip
            yield Secret(context, json.dumps(parsed[PARSED.index(context)]), value)
    yield from (Secret(*filled) for filled in secret_grammar.filled(seed, PER_CONTEXT // 3))
    random = Random(f"{seed} forms")
    for before, letters, count, behind in _forms():
        secret = made(random, count, letters)
        for text in (f"failed with {before}{secret}{behind}", f'call("{before}{secret}{behind}")'):
            yield Secret(f"form {before}", text, secret)


# Names and values as public configurations have them. Of the pairs of each kind, some are drawn.
CONFIGURATIONS: dict[str, tuple[int, str, str]] = {
    # kind: how many, names, values (separated by spaces)
    "tokens of a vocabulary": (220,
        "pad_token eos_token bos_token unk_token mask_token sep_token cls_token image_token video_token audio_token "
        "start_of_turn_token end_of_turn_token vision_start_token boi_token eot_token additional_special_tokens "
        "PAD_TOKEN IMAGE_TOKEN DEFAULT_IM_START_TOKEN fim_prefix_token think_end_token eod_token tool_call_token",
        "<|endoftext|> </s> <s> <pad> [PAD] [CLS] [MASK] <image> <|image_pad|> <|im_end|> <unk> <extra_id_0> "
        "<|reserved_special_token_0|> [gMASK] ▁ <｜end▁of▁sentence｜> ｜DSML｜ <video_soft_token> <0x0A> <TEST_EOS>"),
    "words as tokens": (150,
        "initializer_token rare_token instance_token placeholder_token trigger_token draft_token separator_token "
        "class_token concept_token delimiter_token space_token blank_token token_str prompt_token modifier_token",
        "toy sks ### painting cat ohwx dog person <cat-toy> zwx concept | , <new1> ktn+pll+ucd sofa ;; -- = ___"),
    "settings of tokens": (190,
        "moe_token_dispatcher_type token_mixer token_dropout moe_token_drop_policy token_type_embeddings token_level "
        "tokenizer_type tokenizer_class tokenizer_mode token_pooling token_shift loss_per_token layerwise_token "
        "token_selection token_weighting inference_moe_token_dispatcher_type MOE_TOKEN_DISPATCHER_TYPE "
        "tokenizer_library",
        "alltoall allgather flex probs position pooling attention mean sum uniform HuggingFaceTokenizer nccl "
        "GPT2TokenizerFast sentencepiece tiktoken last fast strict nvls identity learned megatron topk"),
    "keys of data": (330,
        "image_key label_key text_key prompt_key target_key input_key answer_key context_key obs_key action_key "
        "state_key reward_fn_key monitor_key video_key audio_key messages_key task_key best_metric_key key sort_key "
        "cache_key state_dict_key unet_key source_key question_key output_key depth_key image_obs_keys "
        "proprio_obs_keys pixel_key reward_model_key metric_key prefix_key a_log_key norm_key camera_key "
        "dataset_kwargs.image_key",
        "image jpg observation.images.front observation.images.cam_high_wrist RGBCamera0FrontLeft1280x720 "
        "observation/exterior_image_1_left val/loss train_action_mse_error test_mean_score eval_accuracy input_ids "
        "model.layers.0.mlp.experts.down_projs model.language_model.layers.0.linear_attn._fp32_params.A_log "
        "robot0_eye_in_hand_image transformers.models.qwen3_5.modeling_qwen3_5.Qwen3_5ForConditionalGeneration "
        "canonical_solution target_audio_filepath audio.array data_source pixel_values_videos state_dict_ema "
        "image_primary agentview_rgb_256x256 front_camera_left_640x480_30fps RightWristCameraImage2 steps_1000 "
        "params-decoder-layers_0-self_attention-key-kernel .lora_down.weight cond_stage_models.0. F1Score2024Macro"),
    "keys of layers": (110,
        "num_key_value_heads key_dim qk_layernorm key_value_heads key_proj query_key_value key_padding_mask key_norm "
        "attention_key_size add_bias_kv query_key_layer_scaling use_key_bias key_prefix exclude_key_regex lock_key",
        "offload remat device 8 64 true false none model.embed .*_extra_state.* single_layers. auto"),
    "paths of secrets": (130,
        "ssh_key private_key token_file credentials key_file api_key_file client_key tls_key password_file "
        "GOOGLE_APPLICATION_CREDENTIALS SSH_AUTH_SOCK_KEY aws_credentials token_path signing_key encryption_key "
        "HF_TOKEN_PATH",
        "~/.ssh/id ~/.ssh/id_ed25519 /run/secrets/db /etc/ssl/private/host.key secrets/api.json id_rsa "
        "credentials.json ./keys/server.pem ../creds/token.txt /home/ada/.netrc ~/.aws/credentials certs/client.key "
        "/secrets/hf_token C:\\keys\\id.pem config/credentials.yaml ${HOME}/.kaggle/kaggle.json $HOME/.ssh/id_rsa"),
    "references": (260,
        "api_key password token hf_token wandb_api_key secret_key auth_token db_password HF_TOKEN WANDB_API_KEY "
        "access_token client_secret GITHUB_TOKEN hub_token slack_webhook OPENAI_API_KEY AWS_SECRET_ACCESS_KEY secret",
        "${HF_TOKEN} $HF_TOKEN ${oc.env:WANDB_API_KEY} ${oc.env:HF_TOKEN,null} {{vault_token}} "
        "${{secrets.GITHUB_TOKEN}} os.environ['HF_TOKEN'] ${WANDB_API_KEY:-} vault:secret/data/hf#token env:HF_TOKEN "
        "op://vault/hf/token arn:aws:secretsmanager:eu-west-1:123456789012:secret:hf HF_TOKEN_ENV secrets.HF_TOKEN "
        "ssm:/prod/token projects/p/secrets/hf/versions/latest %HF_TOKEN% $(cat) ${TOKEN} env.HF_TOKEN"),
    "no value": (150,
        "api_key password token hf_token wandb_api_key auth client_secret hub_token use_auth_token access_token "
        "HF_TOKEN secret credentials passphrase",
        "null none true false <your-key> *** xxxx ... <token> None optional required hf_xxxx [TOKEN] '' ???"),
    "licenses": (30,
        "license_key license data_license_key",
        "apache-2.0 mit cc-by-nc-4.0 bsd-3-clause llama3.1 gpl-3.0 cc0-1.0 gemma openrail++ other cc-by-sa-3.0"),
    "modes": (70,
        "auth auth_type authentication token_type session signature sasl_auth http_auth_mode",
        "bearer kerberos oidc none basic oauth2 token iam mtls anonymous ldap auto"),
    "what is said of secrets": (110,
        "secret_name token_url password_length api_key_env_var token_expiry credentials_provider key_id "
        "token_endpoint password_policy secret_store auth_mode cookie_policy credential_type api_key_header "
        "token_count token_budget",
        "db-credentials-v1 https://login.example.org/oauth2/token 3600 HF_TOKEN strict aws default X-Api-Key env lax "
        "OPENAI_API_KEY service_account 8192 vault"),
    "names of models and data": (170,
        "model_name_or_path tokenizer_model dataset_name tokenizer_path hub_model_id run_name revision commit "
        "base_model tokenizer_name pretrained_tokenizer sha256 data_path experiment_key digest image_digest "
        "wandb_run_id",
        "meta-llama/Llama-3.1-8B-Instruct EleutherAI/gpt-neox-20b deepseek-ai/DeepSeek-V3 "
        "openai/clip-vit-large-patch14 0123456789abcdef0123456789abcdef01234567 HuggingFaceFW/fineweb-edu "
        "sha256:9f86d081884c7d659a2feaa0c55ad015 gs://bucket/webli_en_b16_224_63724782.npz qwen3-30b-a3b-2507 "
        "s3://data/tokenized/part-00-00001.npy 3f2a9c1b 123e4567-e89b-12d3-a456-426614174000 "
        "Qwen2.5-VL-7B-Instruct-AWQ-Int4 2025-01-01T00:00:00Z"),
    "numbers": (90,
        "max_tokens num_tokens tokens_per_sample max_token_len_per_gpu ppo_max_token_len_per_gpu min_new_tokens "
        "lr_decay_tokens train_tokens tokens_to_generate PPO_MAX_TOKEN_LEN_PER_GPU stop_token_ids tokens",
        "512 2048 16384 1.5e9 300B 157286400000 32768 0 1000000 -1"),
}  # fmt: skip

LINES = """
token = tokenizer.decode(ids)
self.pad_token = pad_token
tokens = batch["input_ids"]
login(token=hub_token, add_to_git_credential=True)
def __init__(self, token: str | None = None, api_key: Optional[str] = None):
    api_key: str,
    token: np.ndarray
    "token": token,
key = jax.random.PRNGKey(0)
key, subkey = jax.random.split(key)
for key, value in state_dict.items():
parser.add_argument("--hub_token", type=str, default=None, help="The token to use to push to the Model Hub.")
parser.add_argument("--pad_token", default="<pad>")
os.environ["HF_TOKEN"] = args.hf_token
api_key = os.environ.get("WANDB_API_KEY")
api_key = os.getenv("OPENAI_API_KEY", None)
headers = {"Authorization": f"Bearer {token}"}
password = getpass.getpass("Password: ")
password = input("Password: ")
secret: Secret
assert pool in ("token", "avg")
export HF_TOKEN=$HF_TOKEN
export WANDB_API_KEY=${WANDB_API_KEY}
hf auth login --token "$HF_TOKEN"
wandb login --relogin $WANDB_API_KEY
git remote set-url origin https://x-access-token:${GH_TOKEN}@github.com/a/b.git
curl -H "Authorization: Bearer $TOKEN" https://host/x
docker run -e HF_TOKEN -e WANDB_API_KEY image
You cannot use both --report_to=wandb and --hub_token due to a security risk of exposing your token.
wandb: You can find your API key in your browser here: https://wandb.ai/authorize
wandb: Paste an API key from your profile and hit enter, or press ctrl+c to quit:
wandb: ERROR api_key not configured (no-tty). call wandb.login(key=[your_api_key])
Token indices sequence length is longer than the specified maximum sequence length for this model (1042 > 1024).
Setting `pad_token_id` to `eos_token_id`:50256 for open-end generation.
The new embeddings will be initialized from the mean of the token embeddings.
 iteration 100/ 500 | consumed samples: 25600 | tokens/s/GPU: 11703.2 | lm loss: 2.345678E+00 |
[INFO] tokens per second: 12345.6, key frames: 12, pass rate: 0.93
Missing keys: ['lm_head.weight'], unexpected keys: ['transformer.h.0.attn.bias']
the token: a word or a part of one
What is the key? The key is to use small learning rates.
session: night, signature: forward, pass: 2
{"num_key_value_heads": 8, "pad_token_id": 0, "tokenizer_class": "LlamaTokenizerFast", "key": "val_loss"}
| Key | Value |
| pad_token | <pad> |
| token | count |
  pad_token_id .................................... 0
  tokenizer_type .................................. HuggingFaceTokenizer
  moe_token_dispatcher_type ....................... alltoall
  patch_dim ....................................... 16
KeyError: 'input_ids'
OSError: You are trying to access a gated repo. Pass a token having permission with `token=<your_token>`.
password: ${{ secrets.DOCKERHUB_TOKEN }}
    secrets: inherit
  id-token: write
          key: pre-commit-${{ hashFiles('.pre-commit-config.yaml') }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef:
      name: hf-secret
      key: token
- name: IMAGE_KEY
  value: observation.images.front
<token>[PAD]</token> is replaced
model.pad_token=<pad> +data.image_key=RGBCamera0FrontLeft1280x720
--token-mixer pooling --image-key observation.images.top --label_key answer
ENV TOKENIZERS_PARALLELISM=false
ENV HF_TOKEN=
ARG HF_TOKEN
pass@1: 0.42
pass^3: 0.5
pass_at_1: 0.3
pin_memory: true
pin: 5
cookie: null
cookies: none
gpg --batch --passphrase-fd 0 -d data.gpg
mc alias set --help
mc cp local/file s3/bucket
ssh-keygen -t ed25519 -N '' -f key
ipmitool -I lanplus -H host sdr
train.py:543:12:W503:line break before binary operator
kubectl create secret generic wandb --from-file=key.txt
passed=12 failed=0
tests/test_auth.py::test_token_refresh PASSED
credible_interval: 0.95
forward_pass_ms: 12.3
secretion_rate: 0.3
Symmetric(Fernet)
session("night")
if token == "integer":
"cookie-parser": "^1.4.4",
"cookie": "0.4.0",
"registry-auth-token": "~4.0.2",
    proxy_pass          http://backend:8000;
    hf_token=hf_effective,
        auth=auth,
        cookies=cookies,
self.password = password
        token = Operator
    def __init__(self, password: bytes):
    cookies: RequestsCookieJar
step.apply(gcp.use_gcp_secret('user-gcp-sa'))
env['GOOGLE_APPLICATION_CREDENTIALS'] = '{}/{}.json'.format(mount, name)
auth = f"{auth}:{password}"
"client_secret": "clientSecret",
"--token": "Use a User Access Token. Prefer setting the environment variable.",
storage_key = "cond_frame_outputs" if first else "non_cond_frame_outputs"
class="sk-toggleable__label sk-toggleable__label-arrow">
def simple_version_match(pat=r'[-.\\d]+', ignore='', start=''):
_SAS_MARCH1_4000 = 745154
sas_datetimes : Series
Get your docker registry user and password encoded in base64 <br>
Loading Docker credentials for repository 'gcr.io/project/job:F47EE88D'
token = '__' + language + '__'
headers.pop("Authorization", None)
self.headers = [(b"Proxy-Authorization", authorization)]
"Authorization": header_map.get("authorization_header"),
headers["authorization"] = f"Key {api_key}"
adminSecretNamespace: "kube-system"
_HEX_PAT = "[0-9A-Fa-f]{1,4}"
MovedAttribute("HTTPCookieProcessor", "urllib2", "urllib.request"),
os.getenv("STORE_API_KEY", "Not set")
<h2>Token Usage</h2>
existingSecret: postgres-credentials
authorization: disabled
"""
"""Lines of code, logs, help and configuration of which nothing is secret."""


def harmless(seed: int = 1) -> Iterator[Harmless]:
    """Names and values of configurations, and lines, of which nothing is to be masked."""
    for kind, (count, names, values) in CONFIGURATIONS.items():
        random = Random(f"{seed} {kind}")
        pairs = [(name, value) for name in names.split() for value in values.split()]
        yield from (Harmless(kind, *pair) for pair in random.sample(pairs, min(count, len(pairs))))
    yield from (Harmless("line", "", line) for line in LINES.strip("\n").split("\n"))


def missed(seed: int = 1) -> tuple[int, list[tuple[Secret, str]]]:
    """How many secrets there are, and those of which eight characters, or all, are left, with the masked text."""
    found = [(secret, _masked(*secret[:2])) for secret in secrets(seed)]
    return len(found), [(secret, text) for secret, text in found if _is_left(secret.secret, text)]


def _is_left(secret: str, text: str) -> bool:
    return any(secret[place : place + 8] in text for place in range(max(1, len(secret) - 7)))


def _masked(context: str, text: str) -> str:
    """A text masked as a whole; its lines one by one must give the same."""
    if context in PARSED:
        parsed = json.loads(text)
        words = mask_argv(["train.py", *parsed]) if context.startswith("arguments") else parsed
        return json.dumps(mask(parsed) if isinstance(parsed, dict) else words, ensure_ascii=False)
    mask_lines = LineMask()
    lines = "\n".join(mask_lines.line(line) for line in text.split("\n"))
    whole = mask_source(text)
    return whole if lines == whole else f"{whole}\n{lines}"


def wrongly_masked(seed: int = 1) -> tuple[int, list[tuple[Harmless, str]]]:
    """How many harmless values there are, and those that are masked in any text that configurations come as."""
    every = list(harmless(seed))
    return len(every), [(value, text) for value in every if (text := _changed(value)) is not None]


def _changed(value: Harmless) -> str | None:
    if not value.name:
        masked = mask_source(value.value)
        return masked if masked != value.value else None
    if mask({value.name: value.value}) != {value.name: value.value}:
        return "in a configuration"
    name, text = value.name, value.value
    texts = (f"  {name}: {text}", f"{name} = {text}", f"--{name}={text}", f"model.{name}={text}",
             f"  {json.dumps(name)}: {json.dumps(text)},")  # fmt: skip
    argv = [f"--{value.name}", value.value]
    if "0123456789abcdef" not in value.value and mask_argv(argv) != argv:
        return "in a command"
    return next((masked for text in texts if (masked := mask_source(text)) != text), None)


_BEHIND = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
"""How most of gitleaks' rules end."""
NOT_OF_FORM = """curl-auth-header curl-auth-user kubernetes-secret-yaml nuget-config-password sidekiq-sensitive-url
 private-key jwt jwt-base64 flutterwave-public-key freemius-secret-key slack-webhook-url sourcegraph-access-token
 slack-config-access-token sendgrid-api-token"""
"""Rules whose examples, drawn from their expression, are none: a dot that matches anything, a text around a secret, a
commit's hash, a public key."""


def rules_not_masked(rules: str) -> dict[str, str]:
    """Rules of gitleaks that tell a secret by its form alone, with an example that isn't masked.

    Args:
        rules: the text of gitleaks' config/gitleaks.toml.
    """
    tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

    found: dict[str, str] = {}
    for rule in tomllib.loads(rules)["rules"]:
        expression = rule.get("regex", "")
        if not expression or r"[\w.-]{0,50}?" in expression or rule["id"] in NOT_OF_FORM.split():
            continue
        for theirs, ours in ((_BEHIND, ""), ("[[:alnum:]]", "[A-Za-z0-9]"), (r"\z", ""), ("(?-i:", "(?:"), ("(?i)", ""),
                             (r"\b", ""), (r"(?:[^\w-]|)", ""), ("(?:[^a-zA-Z0-9+/]|)", "")):  # fmt: skip
            expression = expression.replace(theirs, ours)
        lines = [f'failed with "{text}"' for text in _examples(expression)]
        if left := [line for line in lines if mask_text(line) == line]:
            found[rule["id"]] = left[0]
    return found


def _examples(expression: str) -> list[str]:
    """Texts that match, of at least 14 characters that differ."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    found: list[str] = []
    printable = st.characters(min_codepoint=32, max_codepoint=126)

    @settings(max_examples=40, database=None, deadline=None, suppress_health_check=list(HealthCheck),
              phases=[Phase.generate])  # fmt: skip
    @given(st.from_regex(expression, fullmatch=True, alphabet=printable))
    def draw(text: str) -> None:
        if len(set(text)) >= 14:
            found.append(text)

    draw()
    return found


def main(arguments: list[str]) -> int:
    """Print recall and false masks; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--list", action="store_true", help="show what is missed and what is wrongly masked")
    parser.add_argument("--seed", type=int, default=1, help="which corpus (default: 1, the tests')")
    parser.add_argument("--gitleaks", metavar="FILE", type=Path, help="gitleaks' rules (config/gitleaks.toml): name "
                        "those by form of which an example isn't masked")  # fmt: skip
    options = parser.parse_args(arguments)
    if options.gitleaks is not None:
        unknown = rules_not_masked(options.gitleaks.read_text())
        print("\n".join(f"{rule}: {example}" for rule, example in unknown.items()) or "each rule's examples are masked")
        return int(bool(unknown))
    count, left = missed(options.seed)
    values, wrong = wrongly_masked(options.seed)
    contexts = len(CONTEXTS) + len(PARSED) + len(secret_grammar.CONTEXTS.strip().splitlines())
    recall, false = 1 - len(left) / count, len(wrong) / values
    print(f"secrets masked: {count - len(left):,} of {count:,}, recall {recall:.2%} (at least {LEAST_RECALL:.0%}); "
          f"{contexts} contexts, {len(list(_forms()))} vendors' forms")  # fmt: skip
    print(f"harmless values masked: {len(wrong):,} of {values:,}, {false:.2%} (at most {MOST_FALSE_MASKS:.1%})")
    if options.list:
        for secret, text in left:
            print(f"missed: {secret.context}: {secret.text!r} -> {text!r}")
        for value, text in wrong:
            print(f"masked: {value.kind}: {value.name} {value.value!r}: {text!r}")
    return int(recall < LEAST_RECALL or false > MOST_FALSE_MASKS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
