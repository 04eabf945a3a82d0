"""Contexts by names by shapes: further texts for :mod:`tests.support.secret_corpus`, filled in systematically.

A row is a context's name, its template (``{n}`` a name in snake case, ``{N}`` in capitals, ``{k}`` with hyphens,
``{c}`` and ``{C}`` in camel case, ``{w}`` in words, ``{v}`` the secret, ``{b}`` in base64) and who chose the secret:
``p`` people, ``m`` machines, ``u`` people, in an address, ``t`` and ``h`` letters and digits, ``b`` base64.
"""

from __future__ import annotations

import base64
import string
from collections.abc import Iterator
from random import Random

LETTERS = string.ascii_letters + string.digits

PASSWORDS = """
database_password db_password root_pw mysql_pwd user_pass user_pwd ssh_passphrase key_password key_pass passphrase
admin_pass login_password wifi_psk bind_pw ldap_bind_password basic_auth_password proxy_password jks_password
minio_root_password twine_password dockerhub_password registry_password mlflow_tracking_password vault_pass
ansible_ssh_pass sudo_pass become_pass password passwd pwd pass pgpassword smtp_password gpg_passphrase keystore_pass
truststore_password elastic_password grafana_admin_password rabbitmq_default_pass postgres_password redis_password
mongo_initdb_root_password user_password default_password new_password old_password confirm_password master_password
encrypted_password app_password jenkins_password svn_password email_host_password db_passwd
""".split()  # noqa: SIM905
TOKENS = """
secret api_secret consumer_secret app_secret hmac_secret cookie_secret webhook_signing_secret slack_signing_secret
jwt_signing_key secret_key_base encryption_key aes_key private_key azure_openai_key openai_key openai_api_key
anthropic_api_key huggingfacehub_api_token hugging_face_hub_token wandb_key wandb_api_key neptune_api_token
mlflow_tracking_token aws_secret_key aws_session_token s3_secret s3_secret_key minio_secret_key gcp_api_key
google_api_key github_pat gh_token gitlab_token ci_job_token npm_auth_token pypi_token sentry_auth_token
datadog_api_key dd_app_key new_relic_license_key sendgrid_key mailgun_key twilio_auth_token telegram_bot_token
discord_token slack_token stripe_secret stripe_key paypal_client_secret firebase_token auth_key access_token
access_key_secret account_key storage_account_key sas_token shared_access_key subscription_key service_account_key
master_key otp_secret totp_secret mfa_secret session_secret session_token csrf_token bearer_token x_api_key api_token
id_token refresh_token oauth_token oauth_token_secret deploy_key ssh_private_key credential creds client_secret token
api_key secret_token user_token admin_token write_key ingest_key hf_write_token trackio_write_token databricks_token
snowflake_private_key pinecone_api_key cohere_key mistral_api_key
""".split()  # noqa: SIM905
SAID = {
    "p": ("password", "database password", "admin password", "passphrase", "login password", "Wi-Fi password"),
    "m": ("API key", "access token", "secret key", "auth token", "client secret", "API token", "Hugging Face token"),
}
CONTEXTS = r"""
quoted env|{N}="{v}"|pm
export then command|export {N}='{v}'; python x.py|pm
yaml nested quoted comment|auth:\n  {n}: "{v}"  # prod|pm
yaml flow name value|env: [{{name: {N}, value: "{v}"}}]|pm
ini colon|[db]\n{n} : {v}|pm
toml inline table|db = {{ host = "x", {n} = "{v}" }}|pm
json compact|{{"{c}":"{v}","x":1}}|pm
logfmt|level=info msg="start up" {n}={v} port=80|pm
python dict repr|{{'user': 'bob', '{n}': '{v}'}}|pm
attribute|cfg.{n} = "{v}"|pm
dataclass repr|Settings(host='x', {n}='{v}', port=3)|pm
pydantic field|    {n}: SecretStr = Field("{v}", description="x")|pm
java constant|    private static final String {N} = "{v}";|pm
go struct|\t{C}: "{v}",|pm
rust from|let {n} = String::from("{v}");|pm
c define|#define {N} "{v}"|pm
kotlin|val {c}: String = "{v}"|pm
ruby env|ENV['{N}'] ||= '{v}'|pm
php array|    '{n}' => '{v}',|pm
perl|my ${n} = '{v}';|pm
shell default|{N}=${{{N}:-{v}}}|pm
github env|echo "{N}={v}" >> $GITHUB_ENV|pm
setx|setx {N} "{v}"|pm
build-arg|docker build --build-arg {N}={v} -t x .|pm
compose mapping|    environment:\n      {N}: "{v}"|pm
ansible -e|ansible-playbook site.yml -e "{n}={v}"|pm
aws configure|aws configure set {n} {v}|m
ssm|aws ssm put-parameter --name /prod/{n} --type SecureString --value {v}|pm
heroku|heroku config:set {N}={v} -a app|pm
gh secret|gh secret set {N} --body "{v}"|pm
wget password|wget --user ada --http-password={v} https://h/x|p
httpie|http POST https://h/x {n}={v}|pm
mongodb srv|mongodb+srv://ada:{v}@cluster0.abc.mongodb.net/x|u
redis -a|redis-cli -h cache -a {v} ping|p
paramiko|ssh.connect("h", username="u", password="{v}")|p
markdown bullet|- **{n}**: `{v}`|pm
prose is|The {w} is {v}|pm
prose for|{w} for the staging server: {v}|pm
error value|ValueError: bad {n}: '{v}'|pm
url error|requests.exceptions.HTTPError: 401 Client Error for url: https://h/x?{n}={v}|m
maven|<server><id>x</id><username>u</username><password>{v}</password></server>|p
plist|<key>{c}</key>\n<string>{v}</string>|pm
bindpw|bindpw {v}|p
systemd|Environment="{N}={v}"|pm
tf var env|TF_VAR_{n}={v} terraform apply|pm
msbuild|msbuild /p:{C}={v} x.sln|pm
hydra plus|python t.py ++a.b.{n}="{v}" lr=1|pm
wandb yaml|{n}:\n  desc: null\n  value: {v}|pm
csv header|user,password\nada,{v}|p
curl json|curl -X POST -d '{{"{n}":"{v}"}}' https://h/x|pm
curl form|curl -F {n}={v} https://h/x|pm
bytes|{n} = b"{v}"|pm
update|os.environ.update({N}="{v}")|pm
yoda|if "{v}" == {n}:|pm
fragment|https://h/cb#access_token={v}&x=1|m
german|Passwort: {v}|p
spanish|contraseña = "{v}"|p
chinese|密码：{v}|p
json log|{{"level":"info","msg":"cfg","{n}":"{v}"}}|pm
self attribute|        self._{n} = '{v}'|pm
click|@click.option("--{k}", default="{v}")|pm
csharp property|public string {C} {{ get; set; }} = "{v}";|pm
c pointer|const char *{n} = "{v}";|pm
c array|static char {n}[] = "{v}";|pm
swift|let {c} = "{v}"|pm
ruby symbol|  {n}: "{v}",|pm
php index|$config['{n}'] = '{v}';|pm
r setenv|Sys.setenv({N} = "{v}")|pm
bash array|{N}=("{v}")|pm
set cmd|set {N}={v}|pm
docker --env|docker run --env {N}={v} img|pm
helm set-string|helm upgrade x y --set-string secrets.{c}={v}|pm
gcloud printf|printf '{v}' ¦ gcloud secrets create {k} --data-file=-|pm
secretsmanager|aws secretsmanager create-secret --name prod/{n} --secret-string '{v}'|pm
fly|fly secrets set {N}={v}|pm
wget header|wget --header "X-Api-Key: {v}" https://h/x|m
sqlalchemy|engine = create_engine("postgresql+psycopg2://user:{v}@h/db")|u
smtp|smtp.login(user, "{v}")|p
markdown table|¦ `{N}` ¦ `{v}` ¦|pm
prose use|use {w} {v} to log in|m
prose my|my {w} = {v}|pm
prose sentence|Please log in with the {w} "{v}" today.|pm
rejected|Error: {w} rejected: {v}|m
dotnet|<add name="x" connectionString="Server=a;User Id=b;Password={v};"/>|p
spring|spring.cloud.{k}={v}|pm
rootpw|rootpw {v}|p
wpa|    psk="{v}"|p
supervisor|environment={N}="{v}",HOME="/x"|pm
crontab|*/5 * * * * {N}={v} /usr/bin/job|pm
tfvars|{n} = "{v}"|pm
colon option|tool /{n}:{v} /x|pm
single dash|java -D{n}={v} -jar x.jar|pm
yaml folded|{n}: >-\n  {v}|pm
yaml tag|{n}: !!str {v}|pm
escaped json|"{{\"{n}\":\"{v}\"}}"|pm
monkeypatch|monkeypatch.setenv("{N}", "{v}")|pm
env merge|env={{**os.environ, "{N}": "{v}"}}|pm
subprocess dict|env=dict(os.environ, {N}="{v}")|pm
assert equal|self.assertEqual({n}, "{v}")|pm
urlencode|curl --data-urlencode "{n}={v}" https://h/x|pm
cookie|Cookie: sessionid={v}|m
js env|process.env.{N} = "{v}";|pm
typescript|  {c}: '{v}' as const,|pm
scala|val {c} = "{v}" // x|pm
haskell record|cfg {{ {c} = "{v}" }}|pm
elixir|config :app, {n}: "{v}"|pm
julia|ENV["{N}"] = "{v}"|pm
matlab|setenv('{N}', '{v}')|pm
vba|{C} = "{v}" ' x|pm
properties spaces|{n}   =   {v}|pm
dotenv list|- "{N}={v}"|pm
slurm export|#SBATCH --export=ALL,{N}={v}|pm
kube data|  {n}: {b}|b
jupyter env|%env {N}={v}|pm
kwargs multi|    {n}="{v}",\n    region="eu",|pm
pprint|'{n}': '{v}',|pm
rich|{n}  │ {v}|m
tuple list|("{n}", "{v}"),|pm
header dict|headers = {{"X-Auth-Token": "{v}"}}|m
french|mot_de_passe: {v}|p
portuguese|senha = {v}|p
japanese|パスワード: {v}|p
russian|пароль: {v}|p
config get|config.get("{n}", "{v}")|pm
getattr|getattr(cfg, "{n}", "{v}")|pm
two on line|user=ada {n}={v}|pm
nix|services.x.{c} = "{v}";|pm
puppet|  {n} => '{v}',|pm
chef|node['x']['{n}'] = '{v}'|pm
actions with|      with:\n        {k}: {v}|pm
jenkins withEnv|withEnv(['{N}={v}']) {{|pm
bazel|bazel run --action_env={N}={v} //x|pm
cmake|cmake -D{N}={v} ..|pm
tox|setenv = {N}={v}|pm
procfile|web: {N}={v} gunicorn app|pm
json5|  {c}: '{v}',|pm
hocon|  {c} = {v}|pm
sql insert|INSERT INTO users (name, password) VALUES ('ada', '{v}');|p
sql set|UPDATE users SET password = '{v}' WHERE id = 1;|p
ldif|userPassword: {v}|p
smb|smbclient //h/s -U ada%{v}|p
rsync|RSYNC_PASSWORD={v} rsync -a x h::y|p
ftp url|lftp ftp://ada:{v}@h/|u
openssl|openssl rsa -in k.pem -passin pass:{v}|p
gpg|gpg --batch --passphrase {v} -d x.gpg|p
keytool|keytool -list -keystore k.jks -storepass {v}|p
az|az storage blob list --account-name a --account-key {v}|m
s3cmd|s3cmd --access_key=AKIA --secret_key={v} ls|m
rclone|rclone config create r s3 secret_access_key {v}|m
debug repr|DEBUG:x:{n}='{v}'|pm
print two|print("{n}:", "{v}")|pm
creds repr|Credentials(access_key='x', secret_key='{v}', expiry=None)|m
angle repr|<Config host=x {n}={v}>|pm
http dump|> X-Auth-Key: {v}|m
http body|POST /login HTTP/1.1\nHost: h\n\nuser=ada&password={v}|p
access log|"GET /api?apikey={v} HTTP/1.1" 200 12|m
aws credentials|[default]\naws_access_key_id = x\naws_secret_access_key = {v}|m
kubeconfig|users:\n- name: a\n  user:\n    token: {v}|m
pip conf|index-url = https://ada:{v}@host/simple|u
npmrc|//registry.npmjs.org/:_authToken={v}|m
netrc lines|machine h\n  login a\n  password {v}|p
toml dotted|auth.{n} = "{v}"|pm
yaml list below|api_keys:\n  - {v}|m
json list|"api_keys": ["{v}"],|m
registry|"{C}"="{v}"|pm
mail|Username: ada\nPassword: {v}|p
chat pw|the pw is {v}|p
chat pass|pass: {v}|p
go setenv|os.Setenv("{N}", "{v}")|pm
go short|{c} := "{v}"|pm
rust set_var|env::set_var("{N}", "{v}");|pm
java props|props.setProperty("{n}", "{v}");|pm
java builder|builder.withPassword("{v}").build()|p
gradle|    storePassword '{v}'|p
dart|const {c} = '{v}';|pm
powershell flag|Connect-X -{C} "{v}"|pm
powershell hash|$h = @{{ {C} = "{v}" }}|pm
bat quoted|set "{N}={v}"|pm
fish|set -x {N} {v}|pm
tcsh|setenv {N} {v}|pm
inventory|host1 ansible_user=root ansible_password={v}|p
sql server|Data Source=h;User ID=a;Password={v}|p
mongosh|mongosh -u ada --password={v} h|p
yaml quoted key|'{n}' : {v}|pm
html input|<input type="hidden" name="{n}" value="{v}">|pm
html meta|<meta name="csrf-token" content="{v}">|m
xml param|<param name="{n}">{v}</param>|pm
comment hash|# {n}: {v}|pm
comment slashes|// {n} = {v}|pm
comment dashes|-- password: {v}|p
comment block|/* {n}: {v} */|pm
comment html|<!-- {n}: {v} -->|pm
log bracket|[INFO] {w} = {v}|pm
log key|2026-01-02 03:04:05,678 - root - INFO - {w}: {v}|pm
w paren|{w} (production): {v}|pm
env in json|{{"env": {{"{N}": "{v}"}}}}|pm
vscode|        "env": {{ "{N}": "{v}", "X": "1" }}|pm
sbatch env|sbatch --export={N}={v},X=1 job.sh|pm
mpirun|mpirun -x {N}={v} -np 8 python t.py|pm
accelerate|accelerate launch t.py --{n}={v}|pm
torchrun|torchrun --nproc 8 t.py --{k} {v}|pm
omegaconf|{n}: ${{oc.env:{N},{v}}}|pm
wandb sweep|parameters:\n  {n}:\n    value: {v}|pm
ray env|runtime_env={{"env_vars": {{"{N}": "{v}"}}}}|pm
hf login|huggingface-cli login --token {v}|m
notebook bang|!export {N}={v}|pm
colab|userdata = {{"{N}": "{v}"}}|pm
env cmd|env {N}={v} python train.py|pm
openai client|client = OpenAI(api_key="{v}", base_url="x")|m
python -c|python -c "import wandb; wandb.login(key='{v}')"|m
s3fs|fs = s3fs.S3FileSystem(key="x", secret="{v}")|m
storage options|storage_options={{"account_key": "{v}"}}|m
psycopg|psycopg2.connect("dbname=x user=y password={v}")|p
redis py|redis.Redis(host="h", password="{v}")|p
mongo uri|MONGO_URI=mongodb://ada:{v}@h:27017/x|u
broker url|CELERY_BROKER_URL = "amqp://ada:{v}@h//"|u
proxy|export HTTPS_PROXY=http://ada:{v}@proxy:3128|u
slack hook|SLACK_WEBHOOK=https://hooks.slack.com/services/T0AAAA/B0BBBB/{v}|h
wrong|ValueError: wrong password: {v}|p
login failed|Login failed for user 'ada' with password '{v}'|p
in parens|FATAL: authentication failed ({n}={v})|pm
bracket log|[2026-01-01] {n}={v} loaded|pm
set to|Set {N} to {v}|m
guillemet|{w} » {v}|m
csv pair|"{n}","{v}"|pm
tsv|{n}\t{v}|m
yaml anchor|{n}: &pw {v}|pm
json spaced|  "{n}" : "{v}",|pm
json value below|"{n}": {{"value": "{v}"}}|pm
toml triple|{n} = '''\n{v}\n'''|m
ini semicolon|{n}="{v}" ; note|pm
hcl block|{n} {{ value = "{v}" }}|pm
xml single|<x {n}='{v}'/>|pm
cdata|<{n}><![CDATA[{v}]]></{n}>|pm
here string|read -r {N} <<< "{v}"|pm
heredoc|cat <<EOF > .env\n{N}={v}\nEOF|pm
ssh remote|ssh h "{N}={v} ./run.sh"|pm
singularity|singularity exec --env {N}={v} x.sif python t.py|pm
kubectl set env|kubectl set env deploy/x {N}={v}|pm
oc literal|oc create secret generic x --from-literal {k}={v}|pm
keyvault|az keyvault secret set --vault-name x --name {k} --value {v}|pm
doppler|doppler secrets set {N} {v}|pm
conda vars|conda env config vars set {N}={v}|pm
git clone|git clone https://{v}@github.com/a/b.git|t
pip index|pip install --index-url https://__token__:{v}@h/simple x|t
twine|twine upload -u __token__ -p {v} dist/*|t
ngrok|ngrok config add-authtoken {v}|t
tailscale|tailscale up --authkey={v}|t
vault login|vault login {v}|t
consul|consul kv get -token={v} x|t
neptune|run = neptune.init_run(api_token="{v}")|m
clearml conf|credentials {{ "access_key" = "x"  "secret_key" = "{v}" }}|m
notebook token|jupyter lab --NotebookApp.token={v}|m
notebook conf|c.NotebookApp.password = u'{v}'|p
notebook url|http://localhost:8888/?token={v}|m
ray start|ray start --head --redis-password={v}|p
dask|DASK_GATEWAY__AUTH__PASSWORD={v} dask|p
airflow conn|AIRFLOW_CONN_X=postgres://u:{v}@h/db|u
airflow users|airflow users create --username a --password {v}|p
psql string|psql "sslmode=require password={v} host=h"|p
czech|Heslo: {v}|p
korean|비밀번호: {v}|p
italian|La password è {v}|p
spring value|@Value("${{x.password:{v}}}")|p
bash colon|: "${{{N}:={v}}}"|pm
make cond|{N} ?= {v}|pm
graphql|login(user: "a", password: "{v}")|p
assert|assert {n} == "{v}"|pm
in tuple|if {n} in ("{v}", "x"):|m
ternary|{n} = "{v}" if x else None|pm
or default|{n} = x or "{v}"|pm
kwargs item|kwargs["{n}"] = "{v}"|pm
dict of pairs|d = dict([("{n}", "{v}")])|pm
final|{n}: Final = "{v}"|pm
annotated|{n}: Annotated[str, x] = "{v}"|pm
walrus|if ({n} := "{v}"):|pm
lambda|f = lambda {n}="{v}": 0|pm
def default|def f(a, {n}="{v}"):|pm
unpacked first|{n}, user = "{v}", "ada"|m
unpacked second|user, {n} = "ada", "{v}"|m
logger|logger.info("{n}=%s", "{v}")|m
set_defaults|parser.set_defaults({n}="{v}")|pm
argv list|["train.py", "--{k}", "{v}"]|pm
argv append|sys.argv += ["--{k}={v}"]|pm
patch dict|@patch.dict(os.environ, {{"{N}": "{v}"}})|pm
decoded|{n} = base64.b64decode("{v}")|m
concat|{n} = "{v}" + suffix|pm
fstring|print(f"{n}: {v}")|m
markdown code|Set `{N}={v}` first.|pm
markdown key|**{w}:** {v}|m
bullet prose|* {w} - {v}|m
nginx fastcgi|fastcgi_param {N} "{v}";|pm
apache setenv|SetEnv {N} {v}|pm
uwsgi ini|env = {N}={v}|pm
supervisor program|environment=PATH="/usr/bin",{N}="{v}"|pm
pm2 ecosystem|      env_production: {{ NODE_ENV: 'production', {N}: '{v}' }},|pm
serverless yml|  environment:\n    STAGE: prod\n    {N}: {v}|pm
cloudformation json param|{{"ParameterKey": "{C}", "ParameterValue": "{v}"}}|pm
cloudformation yaml default|Parameters:\n  {C}:\n    Type: String\n    NoEcho: true\n    Default: {v}|pm
ecs task definition|"environment": [{{"name": "REGION", "value": "eu"}}, {{"name": "{N}", "value": "{v}"}}]|pm
sagemaker estimator|estimator = PyTorch(entry_point="t.py", environment={{"{N}": "{v}"}})|pm
sagemaker hyperparameters|hyperparameters = {{"epochs": 3, "{n}": "{v}"}}|pm
vertex custom job|env=[{{"name": "{N}", "value": "{v}"}}],|pm
azureml env vars|environment_variables: {{"{N}": "{v}"}}|pm
skypilot envs|envs:\n  {N}: {v}\nrun: python train.py|pm
modal secret|modal secret create hub {N}={v}|pm
modal from_dict|secrets=[modal.Secret.from_dict({{"{N}": "{v}"}})]|pm
lightning studio|studio.set_env({{"{N}": "{v}"}})|pm
flyte secret|pyflyte run --env {N}={v} wf.py|pm
kubeflow container|task.set_env_variable(name='{N}', value='{v}')|pm
kubeflow v1|.add_env_variable(V1EnvVar(name='{N}', value='{v}'))|pm
argo workflow|        env:\n        - {{name: {N}, value: {v}}}|pm
determined ai|environment:\n  environment_variables:\n    - {N}={v}|pm
mosaicml mcli|env_variables:\n  {N}: {v}|pm
runpodctl|runpodctl create pod --env "{N}={v}" --gpuType H100|pm
vast|vastai create instance 123 --env '-e {N}={v}'|pm
nomad env|      env {{\n        {N} = "{v}"\n      }}|pm
pulumi config|pulumi config set --secret {k} {v}|pm
terraform cloud|tfe_variable {{ key = "{n}" value = "{v}" }}|pm
ansible extra json|ansible-playbook x.yml -e '{{"{n}": "{v}"}}'|pm
ansible task|    mysql_user: name=ada {n}={v} state=present|pm
chef databag|knife data bag create s '{{"id": "db", "{n}": "{v}"}}'|pm
salt pillar|salt '*' state.apply pillar='{{"{n}": "{v}"}}'|pm
vagrant|config.vm.provision "shell", env: {{ "{N}" => "{v}" }}|pm
packer|packer build -var '{n}={v}' x.pkr.hcl|pm
consul put|consul kv put app/{n} {v}|pm
etcdctl|etcdctl put /app/{n} {v}|pm
zookeeper|set /app/{n} {v}|m
redis set|redis-cli SET app:{n} {v}|pm
redis requirepass|requirepass {v}|p
redis config set|CONFIG SET requirepass {v}|p
mongo create user|db.createUser({{user: "ada", pwd: "{v}", roles: []}})|p
mysql alter|ALTER USER 'ada'@'%' IDENTIFIED BY '{v}';|p
mysql grant|GRANT ALL ON *.* TO 'ada'@'%' IDENTIFIED BY '{v}'|p
pg alter|ALTER ROLE ada WITH LOGIN ENCRYPTED PASSWORD '{v}'|p
oracle create|CREATE USER ada IDENTIFIED BY "{v}"|p
snowsql|snowflake.connector.connect(user="ada", password="{v}", account="x")|p
snowflake create|CREATE USER ada PASSWORD = '{v}' MUST_CHANGE_PASSWORD = TRUE|p
clickhouse|clickhouse-client --user ada --password {v} -q 'select 1'|p
duckdb secret|CREATE SECRET s (TYPE S3, KEY_ID 'x', SECRET '{v}')|m
duckdb set|SET s3_secret_access_key='{v}';|m
spark conf|--conf spark.hadoop.fs.s3a.secret.key={v}|m
spark builder|.config("spark.hadoop.fs.s3a.secret.key", "{v}")|m
hadoop core-site one line|<property><name>fs.s3a.secret.key</name><value>{v}</value></property>|m
kafka jaas|sasl.jaas.config=org.apache.kafka.PlainLoginModule required username="ada" password="{v}";|p
kafka python|KafkaProducer(sasl_plain_username="ada", sasl_plain_password="{v}")|p
celery result|result_backend = "redis://:{v}@cache:6379/0"|u
sqlalchemy URL|URL.create("postgresql", username="ada", password="{v}", host="db")|p
django databases|    'PASSWORD': '{v}',|p
rails secrets|  secret_key_base: {v}|m
laravel|APP_KEY=base64:{v}|t
symfony|DATABASE_URL="mysql://ada:{v}@127.0.0.1:3306/app?serverVersion=8"|u
wordpress|define( 'AUTH_KEY', '{v}' );|pm
wp config db|define( 'DB_PASSWORD', '{v}' );|p
aspnet appsettings|  "ConnectionStrings": {{ "Default": "Server=db;Database=x;User Id=sa;Password={v};" }}|p
jdbc args|DriverManager.getConnection("jdbc:mysql://db/x", "ada", "{v}");|p
spring yaml|spring:\n  datasource:\n    username: ada\n    password: {v}|p
quarkus|quarkus.datasource.password={v}|p
gradle properties|signing.password={v}|p
maven cli|mvn deploy -D{c}={v}|pm
android gradle|            keyPassword "{v}"|p
fastlane|  password: ENV["X"] ¦¦ "{v}"|p
cargo login|cargo login {v}|t
npm set|npm config set //registry.npmjs.org/:_authToken {v}|t
yarnrc|npmAuthToken: "{v}"|t
poetry|poetry config pypi-token.pypi {v}|t
poetry http|poetry config http-basic.internal ada {v}|p
uv publish|uv publish --token {v}|t
gem credentials|:rubygems_api_key: {v}|t
docker config auth|  "auths": {{ "https://index.docker.io/v1/": {{ "auth": "{v}" }} }}|t
skopeo|skopeo copy --dest-creds ada:{v} docker://a docker://b|p
helm repo|helm repo add x https://h --username ada --password {v}|p
kubectl docker-registry|kubectl create secret docker-registry r --docker-username=ada --docker-password={v}|p
argocd login|argocd login h --username admin --password {v}|p
rancher|rancher login https://h --token {v}|t
gh auth pipe|echo "{v}" ¦ gh auth login --with-token|t
glab|glab auth login --token {v}|t
git credential store|https://ada:{v}@github.com|u
git extraheader|git -c http.extraheader="AUTHORIZATION: basic {v}" fetch|t
svn|svn co --username ada --password {v} svn://h/r|p
hg|hgweb.password = {v}|p
wandb login positional|wandb login {v}|t
comet|comet_ml.init(api_key="{v}")|t
clearml init|Task.set_credentials(api_host="h", key="x", secret="{v}")|m
mlflow env|MLFLOW_TRACKING_PASSWORD={v} mlflow runs list|p
trackio|trackio sync --token {v}|t
hf hub login|from huggingface_hub import login; login("{v}")|t
hf api|HfApi(token="{v}")|t
openai attr|openai.api_key = "{v}"|t
langchain|ChatOpenAI(model="x", openai_api_key="{v}")|t
litellm yaml|    litellm_params:\n      model: x\n      api_key: {v}|t
vllm serve|vllm serve m --api-key {v}|m
slack sdk|WebClient(token="{v}")|t
boto client|boto3.client("s3", aws_access_key_id="AKIA", aws_secret_access_key="{v}")|m
aws cli env inline|AWS_SECRET_ACCESS_KEY="{v}" aws s3 ls|m
rclone conf|[s3]\ntype = s3\naccess_key_id = x\nsecret_access_key = {v}|m
restic|RESTIC_PASSWORD={v} restic backup|p
borg|export BORG_PASSPHRASE='{v}'|p
samba mount|mount -t cifs //h/s /m -o username=ada,password={v}|p
fstab|//h/s /m cifs username=ada,password={v},uid=1000 0 0|p
ldapsearch|ldapsearch -x -D cn=ada -w {v} -b dc=x|p
kinit|echo '{v}' ¦ kinit ada|p
ansible vault pass|ansible-vault encrypt_string '{v}' --name '{n}'|pm
openssl enc|openssl enc -aes-256-cbc -k {v} -in a|p
zip|zip -P {v} a.zip b|p
7z|7z x -p{v} a.7z|p
unrar|unrar x -hp{v} a.rar|p
cryptsetup|echo -n "{v}" ¦ cryptsetup luksOpen /dev/sdb x -|p
wifi nmcli|nmcli dev wifi connect home password {v}|p
wpa passphrase|wpa_passphrase home {v}|p
hostapd|wpa_passphrase={v}|p
wireguard|PrivateKey = {v}|t
snmp|snmpwalk -v3 -u ada -A {v} -X x h|p
ftp netrc one|machine h login ada password {v} account x|p
curl netrc header|curl --header 'PRIVATE-TOKEN: {v}' https://h/api|t
curl oauth|curl -H "Authorization: token {v}" https://api.github.com|t
curl cookie|curl -b 'session={v}' https://h|m
httpie header|http https://h X-API-Token:{v}|t
httpie auth|http -a ada:{v} https://h|p
postman json|{{"key": "{n}", "value": "{v}", "enabled": true}}|pm
rest client|@{n} = {v}|pm
insomnia|Authorization: ApiKey {v}|t
grpc metadata|metadata=(("authorization", "Bearer {v}"),)|t
aiohttp auth|aiohttp.BasicAuth("ada", "{v}")|p
httpx auth|httpx.Client(auth=("ada", "{v}"))|p
requests params|requests.get(u, params={{"api_key": "{v}"}})|t
traceback locals|    {n} = '{v}'|pm
rich traceback|│ {n} = '{v}' │|pm
pytest assertion|E       assert '{v}' == {n}|m
pydantic repr|api=ApiSettings(url='x', {n}='{v}') debug=False|pm
omegaconf print|{{'model': {{'lr': 0.1}}, 'hub': {{'{n}': '{v}'}}}}|pm
argparse namespace|Namespace(epochs=3, {n}='{v}', lr=0.1)|pm
hydra log|[2026-01-01 10:00:00,000][HYDRA] \t#0 : hub.{n}={v}|pm
hydra overrides yaml|- hub.{n}={v}|pm
accelerate config|  {n}: '{v}'|pm
deepspeed hostfile env|{N}={v}|pm
torchrun env log|W0101 10:00:00.000 torch/distributed: env {N}={v}|pm
slurm scontrol|   Environment={N}={v} USER=ada|m
ps line|ada 123 0.0 python train.py --{k} {v} --lr 1|pm
bash xtrace|+ export {N}={v}|pm
bash xtrace quoted|++ {N}='{v}'|pm
declare -x|declare -x {N}="{v}"|pm
printenv|{N}={v}|pm
zsh typeset|typeset -x {N}={v}|pm
github actions log|  env:\n    {N}: {v}|pm
gitlab ci log|$ export {N}="{v}"|pm
docker inspect|            "Env": [\n                "{N}={v}",\n                "PATH=/bin"|pm
docker history|/bin/sh -c #(nop)  ENV {N}={v}|pm
kubectl describe|      {N}:  {v}|pm
journalctl|Jan 01 10:00:00 h app[1]: {n}={v}|pm
log dict|INFO - config loaded: {{'host': 'db', '{n}': '{v}'}}|pm
log struct key quoted|time="2026-01-01T00:00:00Z" level=debug {n}="{v}"|pm
log arrow|DEBUG {n} -> {v}|m
log is set to|INFO {N} is set to '{v}'|pm
log got|DEBUG Got {w}: {v}|pm
log read from env|Read {n} from environment: {v}|pm
log login as|Logged in as ada with {w} {v}|m
prose note|Remember: the {w} for the cluster is {v}.|pm
prose login pair|Login: ada / {v}|p
prose credentials|credentials are ada:{v}|p
prose paren|the server ({w}: {v}) is back|pm
prose set|I set the {w} to "{v}"|pm
markdown inline|{w}: `{v}`|pm
markdown list bold|* **{w}**: {v}|pm
rst field|:{n}: {v}|pm
org property|#+{N}: {v}|pm
email|Your temporary password is: {v}|p
german prose|Das Passwort lautet {v}|p
french prose|Le mot de passe est {v}|p
spanish prose|La contraseña es {v}|p
dutch|wachtwoord: {v}|p
polish|hasło: {v}|p
swedish|lösenord: {v}|p
turkish|şifre: {v}|p
ini hash comment|; {n} = {v}|pm
lua|local {n} = "{v}"|pm
lua table|  {n} = "{v}",|pm
ocaml|let {n} = "{v}" in|pm
fsharp|let {c} = "{v}"|pm
clojure|{{:user "ada" :{k} "{v}"}}|pm
erlang|{{{n}, "{v}"}},|pm
groovy|def {c} = '{v}'|pm
objective c|NSString *{c} = @"{v}";|pm
vb net|Dim {c} As String = "{v}"|pm
delphi|{C} := '{v}';|pm
ada lang|{C} : constant String := "{v}";|pm
cobol ish|MOVE '{v}' TO {N}.|m
sql plsql|v_{n} := '{v}';|pm
bash local|local {n}="{v}"|pm
bash readonly|readonly {N}='{v}'|pm
bash printf|printf '%s' '{v}' > {n}.txt|m
powershell secure|$pw = ConvertTo-SecureString '{v}' -AsPlainText -Force|p
powershell credential|New-Object PSCredential('ada', (ConvertTo-SecureString "{v}" -AsPlainText -Force))|p
powershell set-item|[Environment]::SetEnvironmentVariable('{N}', '{v}', 'User')|pm
cmd net use|net use Z: \\h\s /user:ada {v}|p
net user|net user ada {v} /add|p
psexec|psexec \\h -u ada -p {v} cmd|p
runas cmdkey|cmdkey /add:h /user:ada /pass:{v}|p
expect spawn|expect "password:" {{ send "{v}\r" }}|p
chpasswd|echo 'ada:{v}' ¦ chpasswd|p
useradd|useradd -p '{v}' ada|p
passwd stdin|echo {v} ¦ passwd --stdin ada|p
sudo -S|echo {v} ¦ sudo -S apt update|p
jupyter passwd|jupyter notebook --NotebookApp.password='{v}'|p
vnc|x11vnc -passwd {v}|p
tmate|set -g tmate-api-key "{v}"|m
json nested escaped log|{{"msg": "{{\"{n}\": \"{v}\"}}"}}|pm
yaml in yaml|config: ¦\n  {n}: {v}\n  port: 1|pm
toml array table|[[accounts]]\nuser = "ada"\n{n} = "{v}"|pm
dhall|{{ {c} = "{v}", port = 1 }}|pm
jsonnet|  {c}: '{v}',|pm
cue|{c}: "{v}"|pm
starlark|env = {{"{N}": "{v}"}},|pm
kdl|{k} "{v}"|pm
edn|:{k} "{v}"|pm
protobuf text|{n}: "{v}"|pm
gin|connect.{n} = '{v}'|pm
fire|python x.py run --{n} {v}|pm
csv row named|service,{n},{v}|m
html td|<tr><td>{n}</td><td>{v}</td></tr>|pm
html definition|<dt>{w}</dt><dd>{v}</dd>|pm
url matrix|https://h/x;{n}={v}|m
oauth redirect|http://127.0.0.1/cb?code=abc&client_secret={v}|m
mailgun smtp|EMAIL_URL=smtp://ada:{v}@smtp.h:587|u
git remote -v|origin\thttps://oauth2:{v}@gitlab.com/a/b.git (fetch)|t
hydra structured print|  hub:\n    {n}: {v}\n    private: true|pm
omegaconf toyaml nested|trainer:\n  logger:\n    _target_: x.Logger\n    {n}: {v}|pm
lightning cli yaml|    init_args:\n      {n}: '{v}'|pm
accelerate env dump|- `{N}`: {v}|pm
transformers args repr|TrainingArguments(\n_n_gpu=1,\n{n}={v},\nhub_model_id=None,\n)|pm
megatron args line|  {n} ........................................ {v}|pm
nemo log|[NeMo I 2026-01-01 10:00:00 exp_manager:100] {n}: {v}|pm
deepspeed json|{{"train_batch_size": 8, "nebula": {{"{n}": "{v}"}}}}|pm
ray job submit|ray job submit --runtime-env-json '{{"env_vars": {{"{N}": "{v}"}}}}' -- python t.py|pm
ray yaml|runtime_env:\n  env_vars:\n    {N}: "{v}"|pm
torchx|torchx run -s slurm dist.ddp --env {N}={v},X=1|pm
sbatch script export|export {N}="{v}" # do not share|pm
sbatch wrap|sbatch --wrap="{N}={v} python t.py"|pm
lsf|bsub -env "all, {N}={v}" python t.py|pm
pbs|qsub -v {N}={v},B=2 job.sh|pm
condor|environment = "{N}={v} B=2"|pm
apptainer|apptainer run --env "{N}={v}" img.sif|pm
enroot|enroot start --env {N}={v} img|pm
docker compose env list quoted|      - "{N}={v}"|pm
devcontainer|  "containerEnv": {{ "{N}": "{v}" }},|pm
vscode launch|            "env": {{"{N}": "{v}"}},|pm
pycharm runconfig|<env name="{N}" value="{v}" />|pm
jupyter kernel json|"env": {{"{N}": "{v}", "PATH": "/bin"}}|pm
ipython magic set_env|%set_env {N}={v}|pm
colab userdata form|{N} = "{v}" #@param {{type:"string"}}|pm
streamlit secrets|[connections.db]\n{n} = "{v}"|pm
gradio env|os.environ["{N}"]="{v}";import gradio|pm
fastapi settings env|APP__{N}={v}|pm
pydantic error|  Input should be valid [type=x, input_value={{'{n}': '{v}'}}, input_type=dict]|pm
click echo|Using {n}: {v}|pm
argparse error|usage: t.py [-h]\nt.py: error: unrecognized arguments: --{k}={v}|pm
sys argv print|sys.argv = ['t.py', '--{k}', '{v}', '--lr', '1']|pm
wandb config print|{{'lr': {{'value': 0.1}}, '{n}': {{'value': '{v}', 'desc': None}}}}|pm
wandb settings|wandb.init(settings=wandb.Settings(api_key="{v}"))|t
mlflow params|Param(key='{n}', value='{v}')|pm
mlflow log_param|mlflow.log_param("{n}", "{v}")|pm
mlflow yaml tag|key: {n}\nvalue: {v}|pm
tensorboard text|hparams/{n}: {v}|pm
git diff yaml|-      {n}: {v}|pm
git diff env|-{N}={v}\n+{N}=|pm
git diff json|+    "{n}": "{v}",|pm
git diff python|+os.environ["{N}"] = "{v}"|pm
git config|git config --global hub.{c} {v}|pm
pre commit json|{{"hooks": [{{"id": "x", "{n}": "{v}"}}]}}|pm
traceback call|  File "t.py", line 3, in main\n    connect({n}="{v}")|pm
traceback error|KeyError: 'x' while reading {{'{n}': '{v}'}}|pm
requests repr|PreparedRequest headers={{'X-Api-Key': '{v}', 'Accept': '*/*'}}|m
http 401 body|{{"error": "bad credentials", "{n}": "{v}"}}|pm
curl verbose|> X-Auth-Token: {v}|m
curl verbose auth|> Authorization: Basic {b}|b
boto debug|DEBUG botocore: 'aws_secret_access_key': '{v}'|m
s3 config block|s3 =\n  {n} = {v}|pm
s3fs passwd|s3fs b /m -o passwd_file=/x -o {n}={v}|m
gcsfuse|GOOGLE_KEY={v} gcsfuse b /m|m
azcopy|azcopy copy "https://a.blob.core.windows.net/c?sv=2022&sig={v}" .|t
snowflake url|snowflake://ada:{v}@acct/db|u
redis url|REDIS_URL=rediss://default:{v}@h:6380/0|u
clickhouse url|clickhouse+http://ada:{v}@h:8123/x|u
neo4j|GraphDatabase.driver("bolt://h", auth=("neo4j", "{v}"))|p
elastic client|Elasticsearch("https://h", basic_auth=("elastic", "{v}"))|p
pymongo|MongoClient("h", username="ada", password="{v}")|p
psycopg kwargs|psycopg.connect(host="h", user="ada", password="{v}")|p
mysql connector|mysql.connector.connect(user='ada', passwd='{v}', host='h')|p
paramiko env|client.connect("h", 22, "ada", "{v}")|p
fabric|Connection("h", connect_kwargs={{"password": "{v}"}})|p
smtplib|s.login("ada@h", "{v}")|p
imaplib|m.login('ada', '{v}')|p
slack app toml|[slack]\nsigning = {{ {n} = "{v}" }}|pm
telegram notifier|TelegramNotifier({n}="{v}", chat_id=1)|pm
pushover yaml|pushover:\n  user: u\n  {n}: {v}|pm
prometheus basic|basic_auth:\n  username: ada\n  password: {v}|p
grafana ini|admin_password = {v}|p
nginx conf header|proxy_set_header X-Api-Key "{v}";|m
traefik label|- "traefik.http.middlewares.x.headers.customrequestheaders.X-Token={v}"|m
caddy|header_up X-Api-Key {v}|m
haproxy|stats auth ada:{v}|p
supervisord http|[unix_http_server]\nusername=ada\npassword={v}|p
systemd dropin|[Service]\nEnvironment={N}={v}|pm
environment d|{N}='{v}'|pm
pam env|{N} DEFAULT={v}|pm
launchd|<key>{N}</key><string>{v}</string>|pm
windows reg|[HKEY_CURRENT_USER\\Environment]\n"{N}"="{v}"|pm
powershell setx|setx {N} {v} /M|pm
ansible vars file|---\n{n}: "{v}"\nport: 1|pm
ansible set_fact|    - set_fact: {n}="{v}"|pm
terraform output|{n} = "{v}"|pm
terraform plan diff|      ~ {n} = "{v}" -> (known after apply)|pm
cdk context|cdk deploy -c {n}={v}|pm
helm values|config:\n  secrets:\n    {c}: {v}|pm
kustomize literal|secretGenerator:\n- literals:\n  - {n}={v}|pm
kubectl get json|{{"data":{{"{n}":"{b}"}}}}|b
argo parameter|      - name: {n}\n        value: "{v}"|pm
github workflow env|        env:\n          {N}: "{v}"|pm
gitlab variables|variables:\n  {N}: "{v}"|pm
circleci|          {N}: {v}|pm
jenkins|environment {{ {N} = '{v}' }}|pm
travis|env:\n  global:\n    - {N}={v}|pm
makefile export|export {N} := {v}|pm
justfile|{n} := "{v}"|pm
dotenv export quoted|export {N}='{v}'|pm
direnv|dotenv_if_exists; export {N}={v}|pm
asdf toml env|[env]\n{N} = "{v}"|pm
cargo config|[registries.x]\ntoken = "{v}"|t
pypirc|[pypi]\nusername = __token__\npassword = {v}|t
condarc|channel_alias: https://ada:{v}@h/conda|u
netrc spaces|machine h\n\tlogin ada\n\tpassword {v}|p
aws config process|aws_session_token={v}|m
kaggle env|KAGGLE_KEY={v} kaggle datasets list|t
modelscope|modelscope login --token {v}|t
ngc config|apikey = {v}|m
dvc config|['remote "s"']\n    password = {v}|p
lakefs|credentials:\n  access_key_id: x\n  secret_access_key: {v}|m
polyaxon|polyaxon login --token={v}|t
neptune ini|api_token={v}|m
note plain|pw {v}|p
note colon caps|PASSWORD: {v}|p
note user pass lines|user: ada\npass: {v}|p
note dash|wifi password - {v}|p
note arrow|{w} => {v}|pm
note bracket|[{w}] {v}|m
note quoted|{w}: "{v}"|pm
note is now|{w} is now {v}|pm
note changed to|the {w} was changed to {v}|pm
note with|connect with {w} {v} on port 5432|m
mapping below|API_KEYS = {{\n  "prod": "{v}",\n  "dev": None,\n}}|t
mapping of passwords below|passwords:\n  ada: "{v}9z!"\n  port: 5432|p
nested below|secrets:\n  hub:\n    value: {v}|t
cluster's secret|kind: Secret\nmetadata:\n  name: db\ndata:\n  url: {b}|m
mapping of one line|{{"API_KEYS": {{"prod": "{v}", "dev": null}}}}|m
plan's change|  ~ {n} = "old-1x8" -> "{v}"|pm
connection with a comma|"Server=db;User ID=u;{C}=a,{v};Encrypt=True;"|pm
keywords with a comma|ATTACH 'host=h {n}=x,{v} dbname=d' AS pg|pm
signature below|StringToSign: {n}:\n{v}|h
told of an account|A temporary password is generated for root@localhost: {v}|p
asked for|Password for 'https://ada@example.org': {v}|p
told to a runner|::add-mask::{v}|pm
runner's variable|##vso[task.setvariable variable=x;issecret=true]{v}|pm
read from a string|sudo -S <<< "{v}" apt install x|p
read from a process|podman secret create x <(echo '{v}')|pm
ruled table| id ¦ {n}\n----+-----------\n  1 ¦ {v}|m
framed table|+----+-----+\n¦ id ¦ {n} ¦\n+----+-----+\n¦  1 ¦ {v} ¦\n+----+-----+|pm
aligned table|USER     PASSWORD\nada      {v}\nbob      x|p
printed structure|&{{Addr:h Username:u {C}:{v} DB:0}}|p
docker's step|Step 4/9 : ENV {N} {v}|pm
command as a list|subprocess.run(['sshpass', '-p', '{v}', 'ssh', 'h'])|p
ftp of python|ftp = FTP('h', 'ada', '{v}')|p
oracle of python|cx_Oracle.connect("u/{v}@h/x")|p
checked|user.check_password("{v}")|p
set by sql|SET PASSWORD FOR 'x'@'h' = PASSWORD('{v}');|p
validation|1 validation error\n{n}\n  String too long [type=string, input_value='{v}', input_type=str]|pm
pppd's secrets|# client\tserver\tsecret\tIP addresses\nada\t*\t{v}\t*|p
login of openvpn|<auth-user-pass>\nada\n{v}\n</auth-user-pass>|p
row of a list|.. list-table::\n\n   * - {n}\n     - {v}|pm
conda's channel|conda config --set channel_alias https://conda.anaconda.org/t/{v}/ada|t
cqlsh|cqlsh -u cassandra -p {v} host|p
etcdctl|etcdctl --user root:{v} get x|p
signtool|signtool sign /f c.pfx /p {v} x.exe|p
radtest|radtest ada {v} localhost 0 testing|p
rclone|rclone obscure {v}|p
markdown table three|¦ staging ¦ {n} ¦ {v} ¦|pm
markdown code fence|```\n{N}={v}\n```|pm
rst literal|``{N}={v}``|pm
html comment|<!-- {n}={v} -->|pm
csv with header|host,{n}\ndb,{v}|m
tsv header|host\t{n}\ndb\t{v}|m
json lines|{{"ts": 1, "cfg": {{"{c}": "{v}"}}}}|pm
json escaped in log|INFO payload="{{\"{n}\": \"{v}\"}}"|pm
msgpack repr|b'{n}': b'{v}'|pm
namedtuple repr|Creds(user='ada', {n}='{v}')|pm
go printf|{{Host:db {C}:{v} Port:1}}|pm
go json tag|{C}: "{v}", // prod|pm
rust debug|Config {{ host: "db", {n}: "{v}" }}|pm
java tostring|Config{{host='db', {c}='{v}'}}|pm
scala case|Config(db,{c} = "{v}")|pm
ruby hash|{{:host=>"db", :{n}=>"{v}"}}|pm
php dump|["{n}"]=> string(8) "{v}"|pm
js console|{{ host: 'db', {c}: '{v}' }}|pm
perl hash|{n} => "{v}",|pm
url query long|https://h/x?region=eu&{n}={v}&v=1|m
websocket|wss://h/ws?token={v}|t
grpc meta|("x-api-key", "{v}")|m
ini below|[db]\n{n} =\n    {v}\nport = 3|pm
ini below with a tab|{n} =\n\t{v}|pm
yaml below|{n}:\n    {v}\nport: 3|pm
patch, below|+{n} =\n+    {v}|pm
assigned below|{n} = \\n  {v}|pm
below, unindented|{n}=\n{v}|h
no-break space|{n}:\u00a0{v}|pm
full-width colon|{N}：{v}|p
lftp|lftp -u ada,{v} -e 'ls' sftp://h|p
printf gh|printf {v} ¦ gh auth login --with-token|pm
printf form docker|printf '%s' {v} ¦ docker login -u ada --password-stdin|pm
printf quoted podman|printf "%s" "{v}" ¦ podman login -u ada --password-stdin h|pm
echo helm|echo -n '{v}'¦helm registry login -u ada --password-stdin h|pm
here string docker|docker login -u ada --password-stdin <<< {v}|pm
here string piped|cat <<< {v} ¦ docker login --password-stdin|pm
wifi code|WIFI:S:net;T:WPA;P:{v};;|p
wifi code last|code = "WIFI:T:WPA2;S:my net;P:{v};H:true;;"|p
address without scheme|url = //ada:{v}@db.example.org/x|u
address without scheme, port|connect to //ada:{v}@h:5432, then wait|u
address without scheme, markup|<img src="//ada:{v}@h/x.png">|u
json three times|"{{\"a\": \"{{\\\"{n}\\\": \\\"{v}\\\"}}\"}}"|pm
json four times|{{\\\\\\\"{n}\\\\\\\": \\\\\\\"{v}\\\\\\\", \\\\\\\"a\\\\\\\": 1}}|pm
conda channel address|  - https://conda.anaconda.org/t/{v}/ada/linux-64|pm
rst table|====  ==========\nuser  {n}\n====  ==========\nada   {v}\n====  ==========|pm
rst grid|+------+------------+\n¦ user ¦ {n} ¦\n+======+============+\n¦ ada  ¦ {v} ¦\n+------+------------+|pm
help default|  --{k} TEXT  [default: {v}]|pm
help default in words|  -x, --{k} TEXT  What for.  [env var: X; default: {v}; required]|pm
help default argparse|  --{k} X  what for (default: {v})|pm
default of another name|{n}: ${{X:-{v}}}|pm
default of spring|{n}=${{SOME_NAME:{v}}}|pm
default of hydra|{n}: ${{oc.env:X,{v}}}|pm
default, quoted|export {N}="${{X:-{v}}}"|pm
perl connect|my $d = DBI->connect("dbi:Pg:dbname=x", "ada", "{v}");|p
pymysql by place|pymysql.connect("h", "ada", "{v}", "runs")|p
tmux|tmux set-environment -g {N} {v}|pm
acl of redis|ACL SETUSER ada on >{v} ~* +@all|p
router's secret|enable secret 0 {v}|p
community|snmp-server community {v} RO|p
password of a scheme|ada:{{PLAIN}}{v}:1000:1000::/home/ada|p
map of a mail server|[smtp.example.org]:587 ada@example.org:{v}|p
poll|poll h user "ada" pass "{v}" ssl|p
told to use|Use {v} as the passphrase when asked.|h
comment behind|default = "{v}" # db admin password|h
long string of lua|local {n} = [[{v}]]|pm
output of terraform|output "{n}" {{\n  value     = "{v}"\n  sensitive = true\n}}|m
parameter of a deployment|{{"parameterName": "{c}", "parameterValue": "{v}"}}|h
escaped quotes of json|{{\u0022{n}\u0022:\u0022{v}\u0022}}|h
quotes of an address|%7B%22{n}%22%3A%22{v}%22%7D|h
certificate of curl|curl -E cert.pem:{v} https://h|p
task of windows|schtasks /create /tn x /ru ada /rp {v}|p
remote desktop|xfreerdp /u:ada /p:{v} /v:h|p
remote desktop, short|rdesktop -u ada -p {v} h|p
keychain|security add-generic-password -a ada -s x -w {v}|p
export of oracle|impdp ada/{v}@db directory=x|h
tool of oracle|rman target sys/{v}@db|h
mysqli|$conn = new mysqli("h", "ada", "{v}", "x");|pm
token as github's user|[url "https://{v}:x-oauth-basic@github.com/"]|h
key of oci|key_content={v}|m
login of yolo|yolo hub login {v}|h
quoted option behind another|Connect-AzAccount -ServicePrincipal -Password "{v}"|p
variable of powershell|Set-Item -Path Env:{N} -Value "{v}"|pm
value below an opened mapping|{{"{n}":\n  "{v}"}}|pm
words of a command|CompletedProcess(args=['curl', '-u', 'ada:{v}'], returncode=22)|h
state of terraform|"type": "random_password",\n "a":1,\n "b":1,\n "b":1,\n "b":1,\n "b":1,\n "b":1,\n "result": "{v}"|h
resource of terraform|resource "random_password" "db" {{\n    length  = 24\n    result  = "{v}"\n}}|h
complex key of yaml|db:\n  ? {n}\n  : {v}|pm
complex key of yaml, quoted|? "{n}"\n: "{v}"|pm
lists of yaml|credentials:\n  - [ada, {v}]|h
anchor of yaml, quoted|{n}: &a "{v}"|pm
login of a host|db.host: ada:{v}@db.example.org:5432/runs|h
login of a host, in words|connect to root:{v}@10.0.0.5:3306 failed|h
expect|expect "assword:"\nsend "{v}\r"|p
expect, one line|expect "*?assword:*"; send -- "{v}\r"|h
pexpect|child.expect('password:')\nchild.sendline('{v}')|p
htpasswd without a file|htpasswd -nb ada {v}|p
htpasswd without a file, bcrypt|htpasswd -bnBC 10 ada {v}|p
passwd of openssl|openssl passwd -6 {v}|p
pipe to vncpasswd|echo {v} ¦ vncpasswd -f > p|p
pipe to pass|echo {v} ¦ pass insert -e db|p
variable of mpiexec|mpiexec -genv {N} {v} -n 4 python t.py|pm
magic of notebooks|%set_env {N} {v}|pm
option of typer|{n}: str = typer.Option("{v}", help="x")|pm
variable of click|@click.option("--x", envvar="{N}", default="{v}")|pm
reference of rust|const {N}: &str = "{v}";|pm
value before its key|{{"value": "{v}", "key": "{n}"}}|m
user of xh|xh -a ada:{v} h/x|p
user of mysql in sql|create user ada identified by {v}|h
user of cifs|mount -t cifs //nas/x /mnt -o username=ada%{v},vers=3.0|p
comment behind a variable|x = "{v}"  # {w}|h
comment behind in c|x = "{v}";  // {w} of ada|h
comment above|# {w}\nx = "{v}"|h
comment above in c|    // {w}:\n    x: "{v}",|h
sentence above|Your new {w} is:\n\n  {v}\n|h
sentence above, quoted|Copy your {w}:\n`{v}`|h
kaggle.json|{{"username":"ada","key":"{h}"}}|x
kaggle.json in lines|{{\n  "username": "ada",\n  "key": "{h}"\n}}|x
printf -v|printf -v {N} '%s' '{v}'|pm
printf -v without a form|printf -v {N} {v}|pm
printf -v bare|printf -v {N} %s {v}; export {N}|pm
nginx authorization|    proxy_set_header Authorization "Bearer {v}";|m
nginx header bare|    proxy_set_header X-Api-Key {v};|pm
nginx header|add_header X-Auth-Token "{v}" always;|pm
apache header|RequestHeader set X-Api-Key "{v}"|pm
apache header always|Header always set X-Auth-Token {v}|pm
caddy header|    header_up X-Api-Key "{v}"|pm
rclone pass|[sftp]\ntype = sftp\nhost = h\nuser = ada\npass = {v}|pm
rclone key|[s3]\ntype = s3\nprovider = AWS\nsecret_access_key = {v}\nregion = eu|m
rclone token|[drive]\ntype = drive\ntoken = {{"access_token":"{v}","expiry":"2030-01-01T00:00:00Z"}}|m
rclone refresh|token = {{"access_token":"","token_type":"Bearer","refresh_token":"{v}"}}|m
frame, first column|{n:>63}   user  lr\n0  {v:>60}    ada 0.1\n1  {v:>60}    bob 0.2|pm
frame, first of two|{n:>63}   user\n0  {v:>60}    ada\n1  {v:>60}    bob|pm
frame, alone|{n:>63}\n0  {v:>60}\n1  {v:>60}|pm
frame, named index|{n:>67}\nuser{e:>63}\nada {v:>63}\nbob {v:>63}|pm
frame, by secrets|{e:>66}user\n{n:<70}\n{v:<66} ada\n{v:<66} bob|pm
frame of pandas|   lr {n:>70}  seed\n0 0.1 {v:>70}     3\n1 0.2 {v:>70}     4|pm
"""


def _made(random: Random, count: int, letters: str = LETTERS) -> str:
    return "".join(random.choice(letters) for _ in range(count))


def _chosen(random: Random) -> str:
    """As people choose them."""
    return random.choice((
        random.choice(("Kilimanjaro", "tangerine", "Sauerkraut", "butterscotch", "gooseberry", "Reykjavik", "letmein")),
        f"{random.choice(('Passw0rd', 'Welcome', 'Spring', 'Müller'))}{random.randrange(1, 2030)}",
        f"{random.choice(('Autumn', 'Lisbon', 'tiger'))}{random.choice('@!_.-+')}{random.randrange(10, 9999)}",
        f"{_made(random, 5)}{random.choice('!@%^*~')}{_made(random, 5)}",
        str(random.randrange(10**5, 10**8)),
        f"{random.choice(('green', 'lazy'))}-{random.choice(('otter', 'lamp'))}-{random.choice(('sings', 'burns'))}",
        f"{random.choice(('Blue', 'cold'))}.{random.choice(('Lagoon', 'river'))}",
    ))  # fmt: skip


def _machines(random: Random) -> str:
    """As machines make them."""
    return random.choice((
        _made(random, random.choice((32, 40, 64)), "0123456789abcdef"),
        _made(random, random.choice((10, 24, 36))),
        base64.b64encode(random.randbytes(random.choice((20, 32)))).decode(),
        "-".join(_made(random, count, "0123456789abcdef") for count in (8, 4, 4, 4, 12)),
        _made(random, 20, string.ascii_lowercase + string.digits),
        _made(random, 16, string.ascii_uppercase + string.digits),
        f"{_made(random, 6)}.{_made(random, 20)}.{_made(random, 27)}",
        f"{random.choice(('tok', 'key', 'live', 'acme'))}_{_made(random, 24)}",
        _made(random, 30, string.ascii_lowercase),
        str(random.randrange(10**11, 10**14)),
    ))  # fmt: skip


def filled(seed: int, each: int) -> Iterator[tuple[str, str, str]]:
    """Context, text and secret: so many of each context."""
    for row in CONTEXTS.strip().splitlines():
        context, _, rest = row.partition("|")
        template, _, kinds = rest.rpartition("|")
        template = template.replace("\\n", "\n").replace("\\t", "\t").replace("\\u00a0", "\u00a0")
        template = template.replace("¦", "|")
        random = Random(f"{seed} {context}")
        for number in range(each):
            kind = kinds[number % len(kinds)]
            name = random.choice(PASSWORDS if kind in "pu" else TOKENS)
            secret = _chosen(random) if kind in "pu" else _machines(random)
            if kind == "m" and len(kinds) > 1 and number % 4 == 3:  # whatever its shape
                secret = _chosen(random)
            secret = _made(random, random.choice((24, 32, 40))) if kind in "th" else secret
            secret = secret.replace("@", "_") if kind == "u" else secret
            camel = "".join(part.capitalize() for part in name.split("_"))
            coded = base64.b64encode(secret.encode()).decode()
            said = random.choice(SAID["p" if kind in "pu" else "m"])
            secret = _made(random, 32, "0123456789abcdef") if kind == "x" else secret
            text = template.format(n=name, N=name.upper(), k=name.replace("_", "-"), C=camel, w=said, v=secret, b=coded,
                                   c=camel[0].lower() + camel[1:], e="", h=secret)  # fmt: skip
            yield f"{context} ({kind})", text, coded if kind == "b" else secret
