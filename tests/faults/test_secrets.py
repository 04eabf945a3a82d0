"""Secrets stay out of every file, names from outside stay text, and files belong to whom the umask says."""

from __future__ import annotations

import ast
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import trackers
from tests import forked
from tests.faults.driven import ROOT
from tests.helpers import wait_for
from tests.object_storage.support import run_directory, store
from tests.stores import read_csv, read_json, read_mlflow, read_tensorboard, read_trackio
from trackers.analysis.diff import portrait
from trackers.analysis.number_index import NumberIndex
from trackers.backends import registry
from trackers.journal import messages
from trackers.journal.fingerprint_cache import FingerprintCache
from trackers.journal.run_directory import RunDirectory, find_runs
from trackers.object_storage import mirror
from trackers.object_storage.shipping import Sender
from trackers.ranks import launch
from trackers.ranks.transport import RankStream
from trackers.readers.cache import Cache
from trackers.readers.wandb.fetch import RunCache
from trackers.records import Metrics, Text
from trackers.reductions import Layout
from trackers.relay.delivery.cursor_file import delivery_report, read_account
from trackers.relay.delivery.delivery import DeadLetters
from trackers.support.redaction import mask, mask_argv, mask_source

HF, GITHUB = "hf_" + "a1B2" * 10, "ghp_" + "c3D4" * 10
SECRETS = ("sesame", "opensaysme", "hunter2222", "wand4444", HF, GITHUB, "k" * 40)

TRAIN = f"""
import sys, trackers
run = trackers.init("json,mlflow,wandb", project="p", id="r", config={{
    "api_key": "sesame11", "nested": [{{"db": {{"password": "hunter2222"}}}}], "url": "http://me:opensaysme@host/x",
    "max_tokens": 5, "tokenizer": "gpt2", "secret_sauce": 3, "hub": {HF!r},
}})
run.config.update({{"auth_token": "sesame22", "later": {{"client_secret": "sesame33"}}}})
run.log({{"token": 7.0, "secret": 8.0, "password_entropy": 9.0}}, step=0)
run.finish(timeout=4)
"""


@pytest.mark.slow
def test_secrets_reach_no_file_and_no_terminal(tmp_path: Path) -> None:
    """Config, later changes, arguments, addresses, the repository's patch, failing logins: none of it is written."""
    repository = tmp_path / "work"
    repository.mkdir()
    script = repository / "train.py"
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    script.write_text("# nothing yet\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    script.write_text(TRAIN)
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "MLFLOW_TRACKING_URI": "http://ada:wand4444@127.0.0.1:9",
        "WANDB_API_KEY": "k" * 40,
        "WANDB_MODE": "online",
        "WANDB_BASE_URL": "http://127.0.0.1:9",
        "HUB_TOKEN": GITHUB,
    }
    words = ["--api-key", "sesame44", f"--hub={HF}", f"HUB_TOKEN={GITHUB}", "--max-tokens", "512"]
    done = forked.run([sys.executable, str(script), *words], preload=forked.HELPERS, cwd=repository, env=env)
    assert done.returncode == 0, done.stderr
    run = RunDirectory(repository / "runs/p/r")
    try:
        wait_for(lambda: read_account(run, "mlflow").error and read_account(run, "wandb").failures)
        wait_for(lambda: read_account(run, "json").closed)
        command = [sys.executable, "-m", "trackers", "show", "p/r"]
        shown = forked.run(command, preload=forked.HELPERS, cwd=repository, env=env)
    finally:
        lease = json.loads((run.path / "relay.lease").read_bytes())
        os.kill(lease["pid"], 9)
    files = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    everything = {**files, Path("stderr"): done.stderr.encode(), Path("show"): shown.stdout.encode()}
    found = [(str(path), secret) for path, text in everything.items() for secret in SECRETS if secret.encode() in text]
    assert not found
    log = read_json(run.read_info(), None)
    assert log.config is not None
    assert (log.config["max_tokens"], log.config["tokenizer"], log.config["secret_sauce"]) == (5, "gpt2", 3)
    assert log.config["api_key"] == log.config["auth_token"] == "***"
    assert {name: points[0].value for name, points in log.metrics.items()} == {
        "token": 7.0, "secret": 8.0, "password_entropy": 9.0,
    }  # fmt: skip
    assert "512" in (run.path / "run.json").read_text()


def test_secrets_beside_the_configuration_are_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An artifact's metadata, results, and what the environment or the script says of a run are masked as well."""
    for name in ("TRACKER_NOTES", "TRACKER_TAGS", "TRACKER_GROUP"):
        monkeypatch.setenv(name, f"first,from {HF}")
    run = trackers.init("json", project="p", id="r", inline=True)
    Path("model.bin").write_text("weights")
    settings = {"lr": 0.1, "hub": {"api_key": "sesame11", "max_tokens": 5}}
    run.log_artifact("model.bin", metadata=settings)
    run.log_artifact(trackers.Artifact("data", metadata=settings))
    run.summary.update({"best": 2.0, "db": {"password": "hunter2222"}, "note": "ends well"})
    run.name, run.notes, run.tags = f"with {HF}", f"and {GITHUB}", ("first", GITHUB)
    run.finish()
    files = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    assert not [(path, word) for path, text in files.items() for word in SECRETS if word.encode() in text]
    stream = (tmp_path / "runs/p/r/streams/rank-0.1.jsonl").read_text()
    assert stream.count('"metadata"') == 2
    assert stream.count('"hub":{"api_key":"***","max_tokens":5}') == 2
    assert '"tags":["first","***"]' in stream
    info = RunDirectory(tmp_path / "runs/p/r").read_info()
    assert (info.tags, info.notes, info.group) == (["first", "from ***"], "first,from ***", "first,from ***")
    assert "ends well" in stream


def test_secrets_around_what_is_logged_are_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and commands of the configuration, the kind of job, NCCL's variables, the branch, captions, spans' names,
    descriptions and addresses of artifacts: the run keeps each, without what is secret in it."""
    monkeypatch.setenv("NCCL_AUTH_TOKEN", "sesame11")
    monkeypatch.setenv("NCCL_NOTE", "password=sesame22")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text(f"ref: refs/heads/fix-{GITHUB}\n")
    config = {HF: 1, "below": {"of": {GITHUB: "x"}}, "fetch": ["/usr/bin/curl", "-u", "ada:sesame33", "https://host/x"]}
    run = trackers.init("json", project="p", id="r", inline=True, job_type=f"eval {HF}", config=config)
    molecule = Path("one.pdb")
    molecule.write_text("ATOM\n")
    run.log({"shape": trackers.Molecule(str(molecule), caption=f"drawn with {HF}")})
    with run.span(f"call with {GITHUB}"):
        pass
    made = trackers.Artifact("data", description="password: sesame44")
    made.add_reference("https://ada:opensaysme@host/x.bin")
    made.add_reference("https://host/y.bin?versionId=7&sig=sesame55")
    run.log_artifact(made)
    content = "npm_" + "e5F6" * 9
    run.log({f"by/{content}": 1.0, "table": trackers.Table(columns=["answer"], data=[[content]])})
    run.finish()
    files = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    assert not [(path, word) for path, text in files.items() for word in SECRETS if word.encode() in text]
    stream = (tmp_path / "runs/p/r/streams/rank-0.1.jsonl").read_text()
    for kept in (f'"by/{content}":1.0', f'"rows":[["{content}"]]', "drawn with ***", "call with ***", "password: ***", "https://ada:***@host/x.bin",
                 "https://host/y.bin?versionId=7&sig=***", '"NCCL_NOTE":"password=***"'):  # fmt: skip
        assert kept in stream, kept
    info = RunDirectory(tmp_path / "runs/p/r").read_info()
    assert (info.job_type, info.git["branch"]) == ("eval ***", "fix-***")
    assert info.config["fetch"] == ["/usr/bin/curl", "-u", "ada:***", "https://host/x"]


@pytest.mark.slow
def test_secrets_in_an_exception_are_not_recorded(tmp_path: Path) -> None:
    """The exception that ends training often names an address; its login and known keys are masked in every file."""
    code = (
        "import trackers; run = trackers.init('json,tensorboard', project='p', id='r'); "
        f"raise OSError('403 from https://me:opensaysme@host/x?token=wand4444 with {HF}')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    files = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    assert not [(path, word) for path, text in files.items() for word in SECRETS if word.encode() in text]
    assert any(b"403 from https://me:***@host/x?token=*** with ***" in text for text in files.values())


EVIL = (
    "../../../evil", "/evil/absolute", "a/../../evil", "..\\\\evil", "%2e%2e/evil", "~/evil", "evil\n# heading",
    "<script>evil()</script>", "'; DROP TABLE metrics; -- evil", "[evil](javascript:alert(1))", "\x1b[31mevil\x07",
    '"\nCONFIG_TRACKER="evil', "evil\N{RIGHT-TO-LEFT OVERRIDE}", "`evil`", "$(touch evil)", "{{evil}}", "evil,|;=",
)  # fmt: skip
"""Names that somebody might send."""


@pytest.mark.slow
def test_names_from_outside_stay_text(tmp_path: Path) -> None:
    """As names of projects, runs, metrics, texts, images, artifacts: everything arrives, nothing leaves its place."""
    import numpy

    values: dict[str, object] = {}
    for number, name in enumerate(EVIL):
        values[f"{name}/number"] = float(number)
        values[f"{name}/text"] = name
        values[f"{name}/image"] = trackers.Image(numpy.zeros((4, 4, 3), dtype="uint8"), caption=name)
    names = "json,csv,tensorboard,trackio,mlflow"
    place = tmp_path / "place"
    place.mkdir()
    os.chdir(place)
    run = trackers.init(names, project=EVIL[0], name=EVIL[8], group=EVIL[9], tags=list(EVIL[5:7]), config={EVIL[3]: 1})
    run.log(values, step=0)
    for name in EVIL[:4]:
        run.log_artifact(__file__, name=name)
    run.finish(timeout=120)
    (found,) = find_runs(place / "runs")
    states = delivery_report(found, names.split(","))
    assert {entry["state"] for entry in states.values()} == {"delivered"}, states
    assert not any(entry["rejected"] for entry in states.values()), states
    # What is outside of the run, trackio's and MLflow's places is what was there before.
    assert {path.name for path in place.iterdir()} <= {"runs", "mlflow.db", "mlruns", "mlartifacts"}
    assert [path.name for path in (place / "runs").iterdir()] == ["%2E.%2F..%2F..%2Fevil"]
    assert not (tmp_path / "evil").exists()
    assert not Path("/evil").exists()
    info = found.read_info()
    (database,) = Path(os.environ["TRACKIO_DIR"]).rglob("*.db")
    assert database.parent == Path(os.environ["TRACKIO_DIR"])
    for read in (read_json, read_csv, read_tensorboard, read_trackio, read_mlflow):
        info.project = database.stem if read is read_trackio else EVIL[0]
        more = {"uri": f"sqlite:///{place}/mlflow.db"} if read is read_mlflow else {}
        series = read(info, None, **more).metrics
        assert sorted(points[0].value for points in series.values() if len(points) == 1)[-len(EVIL) :] == [
            float(number) for number in range(len(EVIL))
        ], read.__name__


PRIVATE = """
import os, trackers
os.umask(0o002)
for private in (True, False):
    options = {"TRACKER_PRIVATE": private, "TRACKER_SHARE": "umask"}
    run = trackers.init("json", project="p", id="private" if private else "open", options=options)
    run.log({"loss": 1.0}, step=0)
    run.finish(timeout=60)
"""


@pytest.mark.slow
def test_uncommitted_patch_is_its_owners_alone(tmp_path: Path) -> None:
    """What no mask knew in it is in one file of mode 0600, where `trackers diff` reads it; TRACKER_PRIVATE=n records it
    with the environment, for a group to read."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "train.py").write_text("# nothing yet\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    (tmp_path / "train.py").write_text(f"{PRIVATE}# unmasked word of a patch\n")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = forked.run([sys.executable, "train.py"], preload=forked.HELPERS, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    modes = {}
    for id in ("private", "open"):
        run = RunDirectory(tmp_path / "runs/p" / id)
        files = [path for path in run.path.rglob("*") if path.is_file()]
        found = [path for path in files if b"unmasked word of a patch" in path.read_bytes()]
        modes[id] = {(path.name, path.stat().st_mode & 0o777) for path in found}
        assert "unmasked word of a patch" in portrait(trackers.load(str(run.path))).git["patch"]
    assert modes["private"] == {("git-1.patch", 0o600)}
    assert ("node-0.1.jsonl", 0o664) in modes["open"]


@pytest.mark.parametrize("private", [True, False])
def test_refused_records_are_their_owners_alone(private: bool, tmp_path: Path) -> None:
    """The file of what a tracker refused is made so, whatever the umask; TRACKER_PRIVATE=n leaves it to that."""
    path = RunDirectory(tmp_path / "run").delivery / "mlflow.rejected.jsonl"
    before = os.umask(0o002)
    try:
        path.parent.mkdir(parents=True)
        DeadLetters(path, private).add(Metrics(step=1, time=1.0, values={"a": 1.0}), "too long")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == (0o600 if private else 0o664)


SHARED = ["json", "csv", "tensorboard", "benchmark"]
SHARING = [
    # TRACKER_SHARE, umask, what a directory and a file of the run have at least, and no other bits than these.
    ("owner", 0o000, 0o700, 0o600),
    ("owner", 0o077, 0o700, 0o600),
    ("group", 0o022, 0o750, 0o640),
    ("group", 0o002, 0o770, 0o660),
    ("umask", 0o002, 0o775, 0o664),
]


@pytest.mark.parametrize(
    ("share", "umask", "folder", "file"),
    [SHARING[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in SHARING[1:])],
)
def test_files_of_a_run_are_for_whom_it_is_shared_with(
    share: str, umask: int, folder: int, file: int, tmp_path: Path
) -> None:
    """The owner alone by default, whatever the umask: journal, state, console, media, and what deliveries write
    elsewhere. TRACKER_SHARE opens them, but for the text of the program's files (TRACKER_PRIVATE)."""
    code = (
        "import os, numpy, trackers\n"
        f"os.umask({umask})\n"
        f"run = trackers.init({','.join(SHARED)!r}, project='p', id='r',"
        f" options={{'TRACKER_SHARE': {share!r}}})\n"
        "print('hello')\n"
        "run.log({'loss': 1.0, 'image': trackers.Image(numpy.zeros((4, 4, 3), dtype='uint8'))})\n"
        "run.finish(timeout=60)\n"
    )
    Path("train.py").write_text(code)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
    done = forked.run([sys.executable, "train.py"], preload=forked.HELPERS, env=env)
    assert done.returncode == 0, done.stderr
    seen = [
        Path("runs/p/r"),
        *(path for top in ("runs/p/r", "logs", "benchmark_results") for path in Path(top).rglob("*")),
    ]
    assert len(seen) > 20
    assert Path("runs/p").stat().st_mode & 0o777 == 0o777 & ~umask, "the project's folder"
    for path in seen:
        mode, wanted = path.stat().st_mode & 0o777, folder if path.is_dir() else file
        if path.name == "code-1.zip" or path.parent.name == "console":
            wanted = 0o600
        assert mode == wanted, (path, oct(mode))


def test_files_of_ranks_are_as_private_as_the_run(tmp_path: Path) -> None:
    """The launch's folder, which any rank may make first, is the owner's until the run says who else reads it."""
    run = RunDirectory(tmp_path / "runs/p/r")
    folder = tmp_path / "runs/.ranks/l"
    before = os.umask(0o022)
    try:
        run.make("group")
        stream = RankStream(folder, 1, 2, print)
        stream.add(1, 1.0, Layout(("n",), ("sum",)), [1.0])
        assert folder.stat().st_mode & 0o777 == 0o700
        assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o600]
        launch.register(folder, run, 1, 1.0)
        assert folder.stat().st_mode & 0o777 == 0o750
    finally:
        os.umask(before)


def _keep_a_fingerprint(place: Path) -> None:
    shelf = FingerprintCache("key", "1")
    shelf.put("name", "print", 1)
    shelf.save()


def _keep_numbers(place: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"name": ["loss"], "step": [1], "time": [1.0], "value": [0.5]})
    NumberIndex(str(place), stepless=False).add([("run", "print", table)], {"run": "print"})


def _keep_a_stores_copy(place: Path) -> None:
    Sender(store(place), run_directory(place / "run"), "p/abc").finish()
    mirror.copy(f"file://{place}/store", place / "cache/trackers/stores/x")


def _keep_what_was_read(place: Path) -> None:
    Cache("csv:x.csv").append({}, 1, [], [Text(time=1.0, step=1, values={"note": "seen"})])


CACHES = {
    "fingerprints": _keep_a_fingerprint,
    "numbers": _keep_numbers,
    "a store's copy": _keep_a_stores_copy,
    "what was read": _keep_what_was_read,
    "W&B's rows": lambda place: RunCache("host/e/p/r", "2026").add([{"_step": 1, "loss": 0.5}]),
    "W&B's index": lambda place: RunCache("host/e/p/r", "2026").complete("token"),
}


@pytest.mark.parametrize("kind", CACHES)
def test_caches_are_their_owners(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of runs that were read is in directories of mode 0700, whatever the umask."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = os.umask(0)
    try:
        CACHES[kind](tmp_path)
    finally:
        os.umask(before)
    kept = list((tmp_path / "cache").rglob("*"))
    assert any(path.is_file() for path in kept)
    assert {path.stat().st_mode & 0o777 for path in kept if path.is_dir()} == {0o700}


def test_stores_of_several_users_follow_the_umask() -> None:
    """MLflow's database, that others write to, stays theirs to write to."""
    common = {name for name in registry.BUILT_IN if getattr(registry.precheck(name), "common", False)}
    assert common == {"mlflow", "trackio"}


@pytest.mark.parametrize(
    "key",
    ["api_key", "API_KEY", "apiKey", "APIKey", "api_keys", "hub.token", "HFToken", "db-password", "clientSecret",
     "auth_tokens", "private_key", "credentials"],
)  # fmt: skip
def test_key_of_a_secret_hides_every_text_under_it(key: str) -> None:
    """However it is spelt, and however deep below it the text lies; what isn't text stays."""
    assert mask({key: "sesame"}) == {key: "***"}
    assert mask({key: [{"hub": "sesame", "uses": 3}, "sesame", ""]}) == {key: [{"hub": "***", "uses": 3}, "***", ""]}


@pytest.mark.parametrize(
    "key", ["tokenizer", "max_tokens", "MaxTokens", "tokens", "key", "keys", "keystone", "secretary", "passwordless"]
)
def test_words_that_hold_a_secrets_word_hide_nothing(key: str) -> None:
    """Only whole words count."""
    assert mask({key: {"name": "gpt2"}}) == {key: {"name": "gpt2"}}


@pytest.mark.parametrize("text", ["</s>", "<|endoftext|>", "<pad>", "[MASK]"])
def test_tokens_of_a_model_are_no_secrets(text: str) -> None:
    """Special tokens and settings of layers that work on tokens stay; a text right under such a name is hidden."""
    config = {"eos_token": text, "special": {"pad_token": [text]}, "token_mixer": {"type": "attention"}}
    assert mask(config) == config
    assert mask({"hub_token": f"{text}sesame", "token_mixer": "pool"}) == {"hub_token": "***", "token_mixer": "pool"}


@pytest.mark.parametrize(
    "key",
    [HF, GITHUB, "gho_" + "c3D4" * 10, "github_pat_" + "c3D4_" * 10, "sk-ant-" + "x9-_" * 10, "AKIA" + "Z2" * 8,
     "ASIA" + "Z2" * 8, "xoxb-" + "12-ab" * 4, "AIza" + "x9-_z" * 7, "wandb_v1_" + "a1B2" * 8,
     "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"],
)  # fmt: skip
def test_keys_are_known_by_their_form(key: str) -> None:
    """Whatever stands around a key of a known vendor, the key itself isn't written."""
    assert mask({"note": f"with '{key}', and more"}) == {"note": "with '***', and more"}
    assert mask_argv(["train.py", key, f"--hub={key}", f"HUB={key}"]) == ["train.py", "***", "--hub=***", "HUB=***"]


def test_texts_of_other_libraries_and_messages_have_no_keys(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is taken from a TensorBoard writer, texts of results, alerts, and what the package says, to a person and
    in ``relay.log``, are masked as well."""
    monkeypatch.chdir(tmp_path)
    run = trackers.init("json", project="p", mode="offline", options={"TRACKER_RELAY": False})
    run._recorder.take(Text(step=1, time=1.0, values={"note": f"with {HF}"}))
    run.summary["said"] = f"with {HF}"
    run.alert(f"raised with {HF}", f"told with {HF}")
    run._recorder.problem(f"a message with {HF}")
    run.finish()
    assert HF not in "".join(path.read_text() for path in Path(run.dir).rglob("*") if path.is_file())
    written = logging.LogRecord("trackers", logging.ERROR, "x.py", 1, f"failed with {HF}", None, None)
    messages.show_once(f"once said with {HF}", set())
    error = ValueError(f"raised with {HF}")
    messages.print_masked(ValueError, error, None)
    said = f"{messages.Masking().format(written)}\n{capsys.readouterr().err}"
    assert said.count("with ***") == 4
    assert HF not in said


def test_command_line_shows_no_secret() -> None:
    """After a secret's option, behind its equals sign, and W&B's older keys of 40 hexadecimal digits."""
    old = "0123456789abcdef" * 2 + "01234567"
    said = ["--api-key", "x", "--lr", "0.1", "--auth-token=y", "password=z", old, f"--wandb={old}", "--token", "--go"]
    hidden = ["--api-key", "***", "--lr", "0.1", "--auth-token=***", "password=***", "***", "--wandb=***"]
    assert mask_argv(said) == [*hidden, "--token", "--go"]
    hashes = ["--revision", old, f"--git_sha={old}", f"data.commit={old}"]
    assert mask_argv([*hashes, old, "--wandb", old]) == [*hashes, "***", "--wandb", "***"]


def test_source_keeps_everything_but_secrets() -> None:
    """Of a patch only literals under a secret's name are hidden, whatever the language; the rest stays as it is."""
    patch = (
        '+api_key = "abc123"\n-    "db_password": \'x y\',\n+secret: str = f"{x}y"\n+tokenizer = "gpt2"\n'
        '+max_tokens = 5\n+token = tokenizer("text")\n+{"name": "token", "auth-token": "t"}\n+key = "a/b"\n'
    )
    assert mask_source(patch) == (
        '+api_key = "***"\n-    "db_password": \'***\',\n+secret: str = f"***"\n+tokenizer = "gpt2"\n'
        '+max_tokens = 5\n+token = tokenizer("text")\n+{"name": "token", "auth-token": "***"}\n+key = "a/b"\n'
    )


def test_nothing_that_is_read_is_executed() -> None:
    """The package unpickles nothing, evaluates nothing, and loads YAML safely and arrays without objects."""
    package = Path(trackers.__file__).parent
    found = []
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
                found += [
                    (path.name, name) for name in names if name.split(".")[0] in ("pickle", "dill", "marshal", "shelve")
                ]
            if isinstance(node, ast.Call):
                call = ast.unparse(node.func)
                if call in ("eval", "exec", "compile", "yaml.load", "yaml.unsafe_load", "torch.load", "os.system"):
                    found.append((path.name, call))
                if (
                    call.endswith((".load", ".loads"))
                    and "numpy" in call
                    and "allow_pickle=False" not in ast.unparse(node)
                ):
                    found.append((path.name, call))
                shells = [k for k in node.keywords if k.arg == "shell" and ast.unparse(k.value) != "False"]
                found += [(path.name, "shell=True") for _ in shells]
    assert not found


def test_who_continues_a_run_leaves_its_permissions(tmp_path: Path) -> None:
    """A run that its owner opened to the group stays as open: directory and files as they were, new files no more."""
    for attempt in range(2):
        run = trackers.init("json", project="p", id="r", inline=True, resume="allow" if attempt else "never")
        run.log({"loss": 1.0}, step=attempt)
        run.finish()
        if not attempt:
            before = set(Path("runs/p/r").rglob("*"))
            assert Path("runs/p/r").stat().st_mode & 0o777 == 0o700
            for path in [Path("runs/p/r"), *before]:
                path.chmod(0o750 if path.is_dir() else 0o640)
    assert Path("runs/p/r").stat().st_mode & 0o777 == 0o750
    for path in Path("runs/p/r").rglob("*"):
        mode = path.stat().st_mode & 0o777
        assert mode & ~(0o750 if path.is_dir() else 0o640) == 0, (path, oct(mode))
