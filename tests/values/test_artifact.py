"""Artifacts: what is logged is the files as they were then, whatever becomes of them later."""

from __future__ import annotations

import base64
import errno
import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trackers
from trackers import records
from trackers.errors import UsageError
from trackers.media import Image, PartitionedTable, RunMedia, Table
from trackers.values import artifact as artifacts
from trackers.values import file_snapshot
from trackers.values.artifact import Artifact


@pytest.fixture
def store(tmp_path: Path) -> RunMedia:
    return RunMedia(tmp_path / "run")


def log(value: Any, store: RunMedia, **more: Any) -> records.ArtifactRecord:
    return artifacts.record(value, store=store, time=2.0, step=1, **more)


def kept(store: RunMedia, record: records.ArtifactRecord) -> dict[str, bytes]:
    return {file.path: (store.directory / file.file).read_bytes() for file in record.files if file.file}


def everything(store: RunMedia) -> list[Path]:
    return [path for path in store.directory.rglob("*") if path.is_file()]


def test_checkpoint_that_is_overwritten_in_place_arrives_as_it_was(tmp_path: Path, store: RunMedia) -> None:
    """``torch.save`` over the same path a second time doesn't reach what was logged the first time."""
    import torch

    path = tmp_path / "ckpt.pt"
    logged = []
    for step in range(3):
        torch.save({"step": torch.tensor(step)}, path)
        logged.append(log(path, store))
    path.unlink()
    for step, record in enumerate(logged):
        assert torch.load(store.directory / record.files[0].file)["step"] == step
    assert (logged[0].name, logged[0].type, logged[0].step) == ("ckpt.pt", "model", 1)
    assert logged[0].metadata == {"path": str(path)}


def test_link_survives_a_file_that_is_replaced(tmp_path: Path, store: RunMedia) -> None:
    """With policy="link" the file isn't copied, and what is renamed over it doesn't reach what was logged."""
    path, new = tmp_path / "a.bin", tmp_path / "new"
    path.write_bytes(b"old")
    record = log(path, store, policy="link")
    assert (store.directory / record.files[0].file).samefile(path)
    assert record.files[0].digest.startswith("stat:")
    new.write_bytes(b"newer")
    new.replace(path)
    assert kept(store, record) == {"a.bin": b"old"}
    assert kept(store, log(path, store, policy="link")) == {"a.bin": b"newer"}


def test_link_across_filesystems_is_a_copy(tmp_path: Path, store: RunMedia, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no hard link can be made the file is copied."""

    def refuse(*arguments: Any, **more: Any) -> None:
        raise OSError(errno.EXDEV, "cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    record = log(path, store, policy="link")
    path.write_bytes(b"new")
    assert kept(store, record) == {"a.bin": b"old"}


def test_copy_is_kept_once_by_its_content(tmp_path: Path, store: RunMedia) -> None:
    """The same content under two names takes its space once; its digest is that of the content."""
    for name in ("a.bin", "b.bin"):
        (tmp_path / name).write_bytes(b"same")
    first, second = log(tmp_path / "a.bin", store), log(tmp_path / "b.bin", store)
    assert first.files[0].file == second.files[0].file
    assert first.files[0].digest == "blake2b:" + hashlib.blake2b(b"same", digest_size=20).hexdigest()
    assert first.files[0].size == 4
    assert len(everything(store)) == 1


def test_reflink_is_used_where_the_filesystem_has_it(
    tmp_path: Path, store: RunMedia, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone that the filesystem grants is kept without being read; a later state gets a file of its own."""

    def clone(target: int, request: int, source: int) -> int:
        assert request == file_snapshot.FICLONE
        os.write(target, os.pread(source, 1 << 20, 0))
        return 0

    monkeypatch.setattr(fcntl, "ioctl", clone)
    path = tmp_path / "a.bin"
    found = []
    for word in (b"one", b"two"):
        path.write_bytes(word)
        os.utime(path, ns=(1, 1))
        found.append(log(path, store))
    assert [kept(store, record)["a.bin"] for record in found] == [b"one", b"two"]
    assert all(record.files[0].digest.startswith("stat:") for record in found)


def test_file_that_changes_while_it_is_copied_is_copied_again(
    tmp_path: Path, store: RunMedia, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file written to during the copy is copied once more; one that never rests is refused, and nothing kept."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"x" * 100)
    writes = iter([b"y" * 50])
    real = hashlib.blake2b

    class Meddling:
        def __init__(self, **more: Any) -> None:
            self.real = real(**more)

        def update(self, chunk: bytes) -> None:
            self.real.update(chunk)
            if (more := next(writes, None)) is not None:
                path.write_bytes(more)

        def hexdigest(self) -> str:
            return self.real.hexdigest()

    monkeypatch.setattr(hashlib, "blake2b", Meddling)
    record = log(path, store)
    assert kept(store, record) == {"a.bin": b"y" * 50}
    assert record.files[0].digest == "blake2b:" + real(b"y" * 50, digest_size=20).hexdigest()
    before = everything(store)
    writes = iter([b"1" * n for n in range(1, 9)])
    with pytest.raises(file_snapshot.Changing, match="complete"):
        log(path, store)
    assert everything(store) == before


def test_long_copy_is_announced_once(tmp_path: Path, store: RunMedia, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy above the limit says so once, with the way around it; a quick one says nothing."""
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(100))
    said: list[str] = []
    monkeypatch.setattr(file_snapshot, "CHUNK_BYTES", 10)
    log(path, store, say=said.append)
    assert said == []
    monkeypatch.setattr(file_snapshot, "ANNOUNCE_S", -1.0)
    log(path, store, say=said.append)
    assert len(said) == 1
    assert "policy='link'" in said[0]


def test_missing_file_is_an_error_before_anything_is_kept(
    tmp_path: Path, store: RunMedia, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a path nor an artifact with one file gone, too large to be held, leaves a record or a file behind."""
    monkeypatch.setattr(artifacts, "HELD_BYTES", 3)
    with pytest.raises(FileNotFoundError):
        log(tmp_path / "missing", store)
    artifact = Artifact("a")
    for name in ("here", "gone"):
        (tmp_path / name).write_text(name)
        artifact.add_file(tmp_path / name)
    (tmp_path / "gone").unlink()
    with pytest.raises(FileNotFoundError, match="gone"):
        log(artifact, store)
    assert everything(store) == []
    with pytest.raises(FileNotFoundError):
        Artifact("a").add_file(tmp_path / "missing")
    with pytest.raises(FileNotFoundError):
        Artifact("a").add_dir(tmp_path / "missing")


def test_directory_keeps_relative_paths(tmp_path: Path, store: RunMedia) -> None:
    """Files of a directory keep their places; links are followed, circles, broken links and pipes are left out."""
    root = tmp_path / "data"
    (root / "sub/deeper").mkdir(parents=True)
    (root / "a.txt").write_text("a")
    (root / "sub/b.txt").write_text("b")
    (root / "sub/deeper/c").write_text("c")
    (root / "link.txt").symlink_to(root / "a.txt")
    (root / "linked").symlink_to(root / "sub/deeper")
    (root / "sub/circle").symlink_to(root)
    (root / "broken").symlink_to(root / "nothing")
    (root / "itself").symlink_to("itself")
    os.mkfifo(root / "pipe")
    expected = {
        "a.txt": b"a", "link.txt": b"a", "linked/c": b"c", "sub/b.txt": b"b", "sub/deeper/c": b"c",
    }  # fmt: skip
    assert kept(store, log(root, store)) == expected
    artifact = Artifact("data", type="dataset")
    artifact.add_dir(root, name="inside")
    assert kept(store, log(artifact, store)) == {f"inside/{name}": text for name, text in expected.items()}


def test_directory_that_holds_the_run_leaves_the_run_out(tmp_path: Path) -> None:
    """Logging the working directory, with the runs in it, doesn't copy the copies."""
    store = RunMedia(tmp_path / "runs/p/id")
    (tmp_path / "a.txt").write_text("a")
    store.put(b"x", "bin")
    assert set(kept(store, log(tmp_path, store))) == {"a.txt"}


@pytest.mark.parametrize("name", ["..", "../x", "a/../../x", "/etc/passwd", "", ".", "a\0b", "..\\x", "C:\\x"])
def test_names_cannot_leave_the_artifact(name: str, tmp_path: Path) -> None:
    """A name that leads out of the artifact, or to nowhere, is refused."""
    path = tmp_path / "a"
    path.write_text("a")
    artifact = Artifact("a")
    for add in (
        lambda: artifact.add_file(path, name=name),
        lambda: artifact.add_reference("s3://b/k", name=name),
        lambda: artifact.new_file(name).__enter__(),
    ):
        with pytest.raises(UsageError, match="relative path"):
            add()
    assert artifact.files == []


def test_artifact_speaks_wandb(tmp_path: Path, store: RunMedia) -> None:
    """What W&B scripts call on an artifact ends in its record."""
    path = tmp_path / "w.bin"
    path.write_bytes(b"w")
    artifact = Artifact("model", type="model", description="d", metadata={"acc": 0.5})
    artifact.add_file(str(path), name="weights/w.bin", policy="immutable")
    artifact.add_reference("s3://bucket/data.csv")
    with artifact.new_file("note.txt") as file:
        file.write("hello")
    with artifact.new_file("raw.bin", mode="wb") as file:
        file.write(b"\0")
    artifact.add(Table(["a"], [[1]]), "table")
    artifact.add(Image(np.zeros((2, 2), np.uint8)), "picture")
    artifact.add(PartitionedTable("parts"), "whole")
    with pytest.raises(UsageError, match="already"):
        artifact.add_file(path, name="note.txt")
    with pytest.raises(UsageError, match="address"):
        artifact.add_reference("nowhere")
    with pytest.raises(UsageError, match="can't be added"):
        artifact.add(3, "n")
    entries = artifact.manifest.entries
    assert sorted(entries) == [
        "data.csv", "note.txt", "picture.image-file.json", "raw.bin", "table.table.json", "weights/w.bin",
        "whole.partitioned-table.json",
    ]  # fmt: skip
    assert (entries["weights/w.bin"].local_path, entries["data.csv"].ref) == (str(path), "s3://bucket/data.csv")
    for aliases in ("best", ["best"]):
        record = log(artifact, store, aliases=aliases, metadata={"more": 1})
        assert (record.name, record.type, record.description, record.aliases) == ("model", "model", "d", ["best"])
        assert record.metadata == {"acc": 0.5, "more": 1}
    files = kept(store, record)
    assert files["weights/w.bin"] == b"w"
    assert (files["note.txt"], files["raw.bin"]) == (b"hello", b"\0")
    table = json.loads(files["table.table.json"])
    assert (table["columns"], table["data"], table["log_mode"]) == (["a"], [[1]], "IMMUTABLE")
    whole = {"_type": "partitioned-table", "parts_path": "parts"}
    assert json.loads(files["whole.partitioned-table.json"]) == whole
    with pytest.raises(UsageError, match="log the tables"):
        PartitionedTable("parts").items(store)
    assert files[json.loads(files["picture.image-file.json"])["path"]].startswith(b"\x89PNG")
    assert [file.uri for file in record.files if not file.file] == ["s3://bucket/data.csv"]
    assert records.decode(records.encode(record)[:-1]) == record


def test_files_that_follow_one_another_at_a_path_are_each_kept(tmp_path: Path, store: RunMedia) -> None:
    """As in W&B, ``add_file`` takes the file as it is then; the script may write the next one, or remove it."""
    artifact = Artifact("a")
    for number in range(3):
        (tmp_path / "sample.txt").write_text(str(number))
        artifact.add_file(tmp_path / "sample.txt", name=f"{number}.txt")
    (tmp_path / "sample.txt").unlink()
    said: list[str] = []
    record = log(artifact, store, say=said.append)
    assert kept(store, record) == {f"{number}.txt": str(number).encode() for number in range(3)}
    assert said == []
    assert {Path(file.file).suffix for file in record.files} == {".txt"}
    assert all(source.content is None for source in artifact._sources.values())


def test_file_of_this_machine_has_its_size_and_digest_as_an_address(tmp_path: Path, store: RunMedia) -> None:
    """W&B's client compares them when it fetches one; a file that changes is another version."""
    (tmp_path / "a").write_text("content")
    artifact = Artifact("a")
    artifact.add_reference((tmp_path / "a").as_uri())
    artifact.add_reference((tmp_path / "a").as_uri(), "unchecked", checksum=False)
    artifact.add_reference("s3://bucket/b")
    found = {file.path: (file.size, file.digest) for file in log(artifact, store).files}
    digest = base64.b64encode(hashlib.md5(b"content").digest()).decode()
    assert found == {"a": (7, f"md5:{digest}"), "unchecked": (7, ""), "b": (0, "")}


def test_large_file_that_changed_after_it_was_added_is_said(
    tmp_path: Path, store: RunMedia, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An artifact's large files are taken when it is logged; a change since ``add_file`` is named."""
    monkeypatch.setattr(artifacts, "HELD_BYTES", 5)
    path = tmp_path / "a"
    path.write_text("before")
    artifact = Artifact("a")
    artifact.add_file(path)
    path.write_text("after!!")
    said: list[str] = []
    assert kept(store, log(artifact, store, say=said.append)) == {"a": b"after!!"}
    assert len(said) == 1
    assert "changed" in said[0]


def test_file_added_twice_is_one_file(tmp_path: Path, store: RunMedia) -> None:
    """As in W&B, the same content under the same name may be added again; other content may not."""
    (tmp_path / "a").write_text("same")
    (tmp_path / "b").write_text("same")
    (tmp_path / "c").write_text("other")
    artifact = Artifact("a")
    for name in ("a", "a", "b"):
        artifact.add_file(tmp_path / name, "one")
    with pytest.raises(UsageError, match="already"):
        artifact.add_file(tmp_path / "c", "one")
    assert kept(store, log(artifact, store)) == {"one": b"same"}


def test_wrong_arguments_are_usage_errors(tmp_path: Path, store: RunMedia) -> None:
    """An unknown policy, an object that is no path and an artifact without a name say what is known."""
    (tmp_path / "a").write_text("a")
    with pytest.raises(UsageError, match="copy, link"):
        log(tmp_path / "a", store, policy="move")
    with pytest.raises(UsageError, match="path or an Artifact"):
        log(3, store)
    with pytest.raises(UsageError, match="name"):
        Artifact("")


def test_a_name_is_a_file_or_a_directory(tmp_path: Path) -> None:
    """What could never be written below one directory is refused when it is added, whichever comes first."""
    path = tmp_path / "a"
    path.write_text("a")
    artifact = Artifact("a")
    artifact.add_file(path, "x")
    artifact.add_file(path, "y/z/w")
    artifact.add_file(path, "xy")
    for name in ("x/y", "x/y/z", "y", "y/z"):
        with pytest.raises(UsageError, match="can't be a file and a directory"):
            artifact.add_file(path, name)
    artifact.remove("x")
    artifact.add_file(path, "x/y")
    assert sorted(artifact.files) == ["x/y", "xy", "y/z/w"]


def test_each_way_to_add_gives_an_entry(tmp_path: Path) -> None:
    """A file's entry has its name, size, MD5 and path; an address its own; a value the name of its file."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"12345")
    artifact = Artifact("data", "dataset")
    entry = artifact.add_file(path, "in/a.bin")
    assert (entry.path, entry.size, entry.local_path, entry.ref) == ("in/a.bin", 5, str(path), None)
    assert entry.digest == "gnzLDuqKcGxMNKFokfhOew=="
    (far,) = artifact.add_reference("s3://bucket/key.csv")
    assert (far.path, far.ref, far.size, far.digest) == ("key.csv", "s3://bucket/key.csv", None, "s3://bucket/key.csv")
    assert artifact.add(Table(["a"], [[1]]), "table").path == "table.table.json"
    assert artifact.get_added_local_path_name(str(path)) == "in/a.bin"
    assert set(artifact.manifest.entries) == {"in/a.bin", "key.csv", "table.table.json"}
    artifact.remove(entry)
    assert set(artifact.manifest.entries) == {"key.csv", "table.table.json"}


def test_directory_of_this_machine_is_an_address_for_each_file(tmp_path: Path) -> None:
    """Each has its size; one that isn't there is refused."""
    (tmp_path / "folder" / "in").mkdir(parents=True)
    (tmp_path / "folder" / "one").write_text("1")
    (tmp_path / "folder" / "in" / "two").write_text("22")
    artifact = Artifact("data", "dataset")
    entries = artifact.add_reference((tmp_path / "folder").as_uri(), name="under")
    assert {entry.path: entry.size for entry in entries} == {"under/one": 1, "under/in/two": 2}
    with pytest.raises(FileNotFoundError):
        artifact.add_reference((tmp_path / "gone").as_uri())


@pytest.mark.parametrize(
    ("name", "type"),
    [
        ("a b", "t"), ("a/b", "t"), ("a:b", "t"), ("ä", "t"), ("n" * 129, "t"), ("", "t"), ("a", "job"),
        ("a", "wandb-history"), ("run-a", "run_table"), ("source-a", "code"), ("a", None),
    ],
)  # fmt: skip
def test_names_that_wandb_refuses_are_refused_where_they_are_given(name: str, type: Any) -> None:
    """As by wandb 0.31; the message has a name that is taken."""
    import wandb

    with pytest.raises(UsageError):
        Artifact(name, type)
    with pytest.raises((ValueError, AttributeError)):
        wandb.Artifact(name, type)


@pytest.mark.parametrize(("name", "type"), [("a", "run_table"), ("a", "code"), ("-._", "t/u"), ("n" * 128, "")])
def test_names_that_wandb_takes_are_taken(name: str, type: str) -> None:
    """As by wandb 0.31."""
    import wandb

    assert Artifact(name, type).name == wandb.Artifact(name, type).name == name


def test_artifact_that_is_finalized_takes_nothing_more(tmp_path: Path) -> None:
    """Nothing that is added would be recorded, so it is an error, of which W&B's is the class."""
    path = tmp_path / "a"
    path.write_text("a")
    artifact = Artifact("a", "t")
    artifact.finalize()
    for call in (
        lambda: artifact.add_file(path),
        lambda: artifact.add_reference("s3://b/c"),
        lambda: artifact.add(Table(["a"], [[1]]), "t"),
        lambda: artifact.remove("x"),
    ):
        with pytest.raises(artifacts.Finalized):
            call()


def test_policy_that_is_unknown_is_refused_where_it_is_given(tmp_path: Path) -> None:
    """Not when the artifact is logged, which would lose it."""
    path = tmp_path / "a"
    path.write_text("a")
    with pytest.raises(UsageError, match="known are mutable"):
        Artifact("a", "t").add_file(path, policy="strange")


def test_aliases_and_tags_of_a_new_artifact_are_recorded(store: RunMedia) -> None:
    """Those that were set before it is logged."""
    artifact = Artifact("a", "t")
    artifact.aliases, artifact.tags = ["best"], ["x"]
    record = log(artifact, store, aliases=["last"])
    assert (record.aliases, record.metadata["tags"]) == (["last", "best"], ["x"])


def test_pixels_that_were_added_leave_the_picture_alone(store: RunMedia) -> None:
    """What only the picture was made of isn't kept, of a table's cells and masks neither."""
    picture = Image(np.zeros((2, 2, 3), np.uint8), masks={"m": {"mask_data": np.ones((2, 2), np.uint8)}})
    artifact = Artifact("a", "dataset")
    artifact.add(picture, "picture")
    artifact.add(Table(["i"], [[Image(np.ones((3, 3), np.uint8))]]), "table")
    record = log(artifact, store)
    files = {str(path.relative_to(store.directory)) for path in store.directory.rglob("*") if path.is_file()}
    assert files == {file.file for file in record.files}
    assert len([file for file in files if file.endswith("png")]) == 3


def tables_of(module: Any) -> dict[str, Any]:
    """Tables with cells of each type, made with a module that has W&B's names."""
    pixels = np.zeros((2, 2, 3), np.uint8)
    layers: dict[str, Any] = {
        "boxes": {"p": {"class_labels": {1: "cat"}, "box_data": [
            {"position": {"middle": [1, 1], "width": 1, "height": 1}, "domain": "pixel", "class_id": 1,
             "scores": {"sure": 0.5}}]}},
        "masks": {"m": {"mask_data": np.zeros((2, 2), np.uint8), "class_labels": {0: "ground", 2: "dog"}}},
    }  # fmt: skip
    plain, drawn = module.Image(pixels), module.Image(pixels, **layers)
    columns = {
        "number": [1, 2.5], "text": ["a", None], "truth": [True, False], "nothing": [None, None], "list": [[1, 2], [3]],
        "texts": [["x", None], ["y", "z"]], "any": [["x", None], [None, None]],
        "mapping": [{"a": 1, "b": [True]}, {"a": 2, "b": [False]}],
        "picture": [plain, plain], "drawn": [drawn, plain], "page": [module.Html("<b>"), None],
    }  # fmt: skip
    rows = list(zip(*columns.values(), strict=True))
    tables = {"all": module.Table(columns=list(columns), data=rows), "none": module.Table(columns=["a"], data=[])}
    mixed: list[list[Any]] = [[1], ["x"], [[1]]]
    tables["mixed"] = module.Table(columns=["a"], data=mixed, allow_mixed_types=True)
    for mode in ("MUTABLE", "INCREMENTAL"):
        tables[mode] = module.Table(columns=["a"], data=[[1]], log_mode=mode)
    return tables


def test_table_in_an_artifact_is_described_as_by_wandbs_client(store: RunMedia) -> None:
    """The types of its columns and its mode, which W&B's pages read."""
    import wandb

    theirs, ours = wandb.Artifact("a", "t"), Artifact("a", "t")
    for name, table in tables_of(wandb).items():
        theirs.add(table, name)
    for name, table in tables_of(trackers).items():
        ours.add(table, name)
    files = kept(store, log(ours, store))
    of_older = {"box_class_maps", "mask_class_maps"}  # of which clients before 0.31 know nothing

    def described(content: str | bytes) -> Any:
        return json.loads(content, object_hook=lambda found: {
            key: value for key, value in found.items() if key not in of_older}) | {"data": None}  # fmt: skip

    for name in tables_of(trackers):
        entry = theirs.manifest.entries[f"{name}.table.json"]
        assert described(files[f"{name}.table.json"]) == described(Path(str(entry.local_path)).read_text()), name
