"""A version as a script gets it: its files come back as they were logged, and nothing is written anywhere else."""

from __future__ import annotations

import io
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as pillow

import trackers
from tests.artifacts.conftest import Begin, log
from trackers.artifacts import versions
from trackers.artifacts.stored import StoredArtifact, set_aliases
from trackers.errors import Damaged, NotFound, UsageError
from trackers.support import confined
from trackers.values.artifact import NotLogged

RUNS = Path("runs")


def stored(reference: str = "digits/dataset:latest") -> StoredArtifact:
    return StoredArtifact(RUNS.absolute(), versions.find(RUNS.absolute(), reference))


def folder_of_two(begin: Begin) -> StoredArtifact:
    """A version with a file, one in a folder, and a reference."""
    Path("data/sub").mkdir(parents=True)
    Path("data/rows.csv").write_text("1,2\n")
    Path("data/sub/labels.txt").write_text("cat\n")
    artifact = trackers.Artifact("dataset", "dataset", "rows", {"rows": 1})
    artifact.add_dir("data")
    artifact.add_reference("s3://bucket/raw.bin")
    run = begin("maker")
    run.log_artifact(artifact, aliases=["raw"])
    run.finish()
    return stored()


def test_version_has_wandbs_names(begin: Begin) -> None:
    """Name with number, aliases, type, metadata, digest, size, files, and who made it."""
    found = folder_of_two(begin)
    assert isinstance(found, trackers.Artifact)
    assert (found.name, found.version, found.type) == ("dataset:v0", "v0", "dataset")
    assert (found.aliases, found.description, found.metadata) == (["latest", "raw"], "rows", {"rows": 1})
    assert (found.qualified_name, found.collection_name, found.project) == ("digits/dataset:v0", "dataset", "digits")
    assert (len(found.digest), found.size, found.file_count) == (32, 8, 3)
    assert sorted(one.name for one in found.files()) == ["raw.bin", "rows.csv", "sub/labels.txt"]
    assert sorted(found.manifest.entries) == ["raw.bin", "rows.csv", "sub/labels.txt"]
    assert found.logged_by().name == "maker"
    assert found.created_at.startswith("20")
    assert not found.is_draft()
    assert found.wait() is found


@pytest.mark.parametrize("metadata", [{}, {"rows": 3}, {"tags": ["own"], "n": [1]}, {"tags": "own"}])
@pytest.mark.parametrize("by_call", [True, False])
def test_tags_are_not_among_the_metadata_that_the_script_gave(
    metadata: dict[str, Any], by_call: bool, begin: Begin
) -> None:
    """Nor in what is made of it; the trackers have them there, and a version that is saved keeps them."""
    Path("rows.csv").write_text("1")
    metadata = dict(metadata)
    artifact = trackers.Artifact("dataset", "dataset", metadata=dict(metadata))
    artifact.add_file("rows.csv")
    if not by_call:
        artifact.tags = ["clean"]  # type: ignore[attr-defined]
    run = begin()
    run.log_artifact(artifact, **({"tags": ["clean"]} if by_call else {}))
    assert stored()._stored.metadata == {"tags": ["clean"], **metadata}
    for _ in range(2):
        found = run.use_artifact("dataset:latest")
        assert (found.metadata, found.tags) == (metadata, ["clean"])
        assert found.new_draft().metadata == metadata
        found.metadata["more"] = metadata["more"] = 1
        found.save()


def test_download_writes_the_files(begin: Begin, caplog: pytest.LogCaptureFixture) -> None:
    """All of them with their paths, by default into artifacts/NAME:vN; references are named, not fetched."""
    found = folder_of_two(begin)
    assert found.download() == "artifacts/dataset:v0"
    assert "references are named, not fetched: s3://bucket/raw.bin" in caplog.text
    assert Path("artifacts/dataset:v0/sub/labels.txt").read_text() == "cat\n"
    assert found.get_path("rows.csv").download("elsewhere") == "elsewhere/rows.csv"
    assert Path("elsewhere/rows.csv").read_text() == "1,2\n"
    assert found.get_entry("raw.bin").ref_target() == "s3://bucket/raw.bin"
    found.download("part", path_prefix="sub/")
    assert [path.name for path in Path("part").rglob("*.*")] == ["labels.txt"]
    with pytest.raises(NotFound, match=r"'raw.bin' is a reference to s3://bucket/raw.bin"):
        found.get_entry("raw.bin").download()
    with pytest.raises(NotFound, match=r"dataset:v0 has no file 'row.csv': did you mean 'rows.csv'\?"):
        found.get_entry("row.csv")
    with pytest.raises(UsageError, match="3 files: use download"):
        found.file()


def test_second_download_mends(begin: Begin) -> None:
    """What is there and the same is left as it is, what differs is replaced; ``verify`` tells."""
    found = folder_of_two(begin)
    found.download("out")
    before = os.stat("out/rows.csv").st_ino
    Path("out/sub/labels.txt").write_text("dog\n")
    with pytest.raises(Damaged, match=r"sub/labels.txt isn't what dataset:v0 has"):
        found.verify("out")
    found.download("out")
    found.verify("out")
    assert os.stat("out/rows.csv").st_ino == before
    assert Path("out/sub/labels.txt").read_text() == "cat\n"


def test_directory_of_downloads_is_wandbs(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """WANDB_ARTIFACT_DIR, as in W&B."""
    log(begin(), "a")
    monkeypatch.setenv("WANDB_ARTIFACT_DIR", "cache")
    assert stored().file() == "cache/dataset:v0/rows.csv"


def test_gone_content_is_taken_from_another_run(begin: Begin) -> None:
    """Any run that logged the same content has it; when none does, one line says which file is gone."""
    runs = [begin("one"), begin("two")]
    for run in runs:
        log(run, "same")
    for run in runs:
        assert Path(stored().download("out"), "rows.csv").read_text() == "same"
        Path("out/rows.csv").unlink()
        for path in Path(run.path, "media").rglob("*.csv"):
            path.unlink()
    with pytest.raises(NotFound, match=r"the content of 'rows.csv' is gone \(.*No such file") as error:
        stored().download("out")
    assert "\n" not in str(error.value)


def test_damaged_content_is_not_written(begin: Begin) -> None:
    """Content that isn't what was logged is said so, and what was downloaded before stays."""
    run = begin()
    log(run, "abc")
    stored().download("out")
    Path("out/rows.csv").write_text("old")
    next(Path(run.path, "media").rglob("*.csv")).write_text("xyz")
    with pytest.raises(Damaged, match="isn't what was logged"):
        stored().download("out")
    assert Path("out/rows.csv").read_text() == "old"
    assert [path.name for path in Path("out").iterdir()] == ["rows.csv"]


def forged(begin: Begin, **fields: object) -> StoredArtifact:
    """A version whose record somebody else wrote: one file with these fields."""
    run = begin()
    log(run, "abc")
    run.finish()
    path = Path(run.path, "streams/rank-0.1.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["kind"] == "artifact":
            line["files"][0].update(fields)
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return stored()


@pytest.mark.parametrize("name", ["../../evil.csv", "/tmp/evil.csv", "a/../../../evil.csv", "..\\evil.csv", ".."])
def test_entry_never_leads_out_of_the_directory(begin: Begin, tmp_path: Path, name: str) -> None:
    """Whatever a record calls its file, it is written below the directory."""
    found = forged(begin, path=name)
    before = {path for path in tmp_path.rglob("*") if "out" not in path.parts}
    found.download("out")
    assert {path for path in tmp_path.rglob("*") if "out" not in path.parts} == before
    assert len([path for path in Path("out").rglob("*") if path.is_file()]) == 1


def test_every_file_is_written_however_it_is_named(begin: Begin, caplog: pytest.LogCaptureFixture) -> None:
    """Names that aren't ones everywhere are written otherwise, each to a file of its own, and that is said."""
    names = ["a.txt", "a\nb", "a\rb", "a_b", "back\\slash", "sub/\n", "sub/x", "col:on", "ünï"]
    for name in names:
        Path("d", name).parent.mkdir(exist_ok=True, parents=True)
        Path("d", name).write_bytes(name.encode())
    run = begin()
    run.log_artifact("d", name="odd")
    found = stored("odd")
    found.download("out")
    written = [path.read_bytes().decode() for path in Path("out").rglob("*") if path.is_file()]
    assert sorted(written) == sorted(names)
    assert Path("out/back/slash").read_text() == "back\\slash"
    assert Path("out/a_b").read_text() == "a_b"
    assert "names that not every system can have are written otherwise: 'a\\nb' as " in caplog.text
    found.verify("out")


def test_directory_in_the_place_of_a_file_is_named(begin: Begin) -> None:
    """What can't be replaced is named by its path."""
    log(begin(), "abc")
    Path("out/rows.csv").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"^out/rows\.csv can't be written: "):
        stored().download("out")


@pytest.mark.parametrize("file", ["../../secret", "/etc/hostname", "media/../../../secret"])
def test_content_outside_of_the_run_is_not_read(begin: Begin, file: str) -> None:
    """A record can't have a file of the reader's copied."""
    Path("secret").write_text("secret")
    with pytest.raises(NotFound, match="gone"):
        forged(begin, file=file, digest="").download("out")
    assert not Path("out/rows.csv").exists()


def test_links_are_not_followed(begin: Begin) -> None:
    """Neither a link in the place of kept content, nor one in the directory that is written to."""
    run = begin()
    log(run, "abc")
    Path("victim").mkdir()
    Path("victim/secret").write_text("secret")
    kept = next(Path(run.path, "media").rglob("*.csv"))
    content = kept.read_bytes()
    kept.unlink()
    kept.symlink_to(Path("victim/secret").absolute())
    with pytest.raises(NotFound, match="is gone"):
        stored().download("out")
    kept.unlink()
    kept.write_bytes(content)
    Path("out").mkdir(exist_ok=True)
    Path("out/rows.csv").symlink_to(Path("victim/secret").absolute())
    stored().download("out")
    assert Path("victim/secret").read_text() == "secret"
    assert Path("out/rows.csv").read_text() == "abc"


def test_link_in_place_of_the_directory_is_followed_where_it_is_named(begin: Begin) -> None:
    """One that came with a repository would lead into the home of whoever is in it; a larger disk may have them all."""
    log(begin(), "abc")
    Path("victim").mkdir()
    Path("artifacts").mkdir()
    Path("artifacts/dataset:v0").symlink_to(Path("victim").absolute())
    for write in (stored().download, stored().file, stored().files()[0].download):
        with pytest.raises(UsageError, match=r"artifacts/dataset:v0 is a link, .*--to DIR"):
            write()
    assert not list(Path("victim").iterdir())
    stored().download("artifacts/dataset:v0")
    assert Path("victim/rows.csv").read_text() == "abc"
    Path("artifacts/dataset:v0").unlink()
    Path("artifacts").rmdir()
    Path("disk").mkdir()
    Path("artifacts").symlink_to("disk")
    stored().download()
    assert Path("disk/dataset:v0/rows.csv").read_text() == "abc"


def test_directory_that_cannot_be_written_is_one_line(begin: Begin) -> None:
    """A file in its place is named."""
    log(begin(), "abc")
    Path("out").write_text("a file")
    with pytest.raises(UsageError, match="out can't be written"):
        stored().download("out")


def test_table_comes_back(begin: Begin) -> None:
    """A table that was added is a Table again; a name without one is None."""
    artifact = trackers.Artifact("tables", "dataset")
    artifact.add(trackers.Table(columns=["a", "b"], data=[[1, "x"], [2, "y"]]), "rows")
    begin().log_artifact(artifact)
    found = stored("digits/tables")
    table = found.get("rows")
    assert (table.columns, table.data) == (["a", "b"], [[1, "x"], [2, "y"]])
    assert found.get("nothing") is None


class Downloaded:
    """A version as ``from_json`` of W&B's client takes one."""

    def __init__(self, found: Any) -> None:
        self.found = found

    def get_entry(self, name: str) -> Any:
        """One file."""
        return self.found.get_entry(name)

    def get(self, name: str) -> Any:
        """The classes of an image."""
        import wandb

        return wandb.Classes.from_json(json.loads(Path(self.get_entry(name).download()).read_text()), self)


def test_media_come_back_and_wandbs_client_reads_them(begin: Begin) -> None:
    """What was added under a name is given back by it: pixels, boxes, masks, pages, cells, frames. W&B's own classes
    read the same files."""
    import wandb

    pixels = (np.arange(48).reshape(4, 4, 3) * 5).astype(np.uint8)
    box = {"position": {"minX": 0.1, "maxX": 0.2, "minY": 0.3, "maxY": 0.4}, "class_id": 1}
    boxes = {"found": {"box_data": [box], "class_labels": {1: "cat"}}}
    mask = np.eye(4, dtype=np.uint8)
    image = trackers.Image(pixels, caption="a", boxes=boxes, masks={"m": {"mask_data": mask}})
    artifact = trackers.Artifact("media", "dataset")
    artifact.add(image, "image")
    artifact.add(trackers.Html("<b>x</b>"), "page")
    table = trackers.Table(columns=["a", "b"], data=[[float("nan"), trackers.Image(pixels)], [1, [2, "NaN"]]])
    artifact.add(table, "below/table")
    artifact.add(trackers.Audio(np.zeros(100), sample_rate=100), "sound")
    artifact.add(trackers.Video(np.zeros((3, 3, 8, 8), np.uint8), fps=2), "film")
    artifact.add(trackers.Object3D(np.zeros((2, 3))), "cloud")
    begin().log_artifact(artifact)
    found = stored("digits/media")

    image = found.get("image")
    assert image.caption == "a"
    assert (np.asarray(image.image) == pixels).all()
    assert image._boxes == {"found": {"box_data": [box], "class_labels": {"1": "cat"}}}
    assert found.get("page").html == "<b>x</b>"
    (nan, inner), (one, texts) = found.get("below/table").data
    assert math.isnan(nan)
    assert (np.asarray(inner.image) == pixels).all()
    assert (one, texts) == (1, [2, "NaN"])
    kinds = [type(found.get(name)).__name__ for name in ("sound", "film", "cloud")]
    assert kinds == ["Audio", "Video", "Object3D"]
    assert found.get("film.gif") is None

    def theirs(kind: Any, name: str) -> Any:
        described = Path(found.get_entry(kind.with_suffix(name)).download())
        return kind.from_json(json.loads(described.read_text()), Downloaded(found))

    image = theirs(wandb.Image, "image")
    assert (np.asarray(image.image) == pixels).all()
    assert image._boxes["found"]._val == [box]
    with pillow.open(image._masks["m"]._path) as drawn:
        assert (np.asarray(drawn) == mask).all()
    assert theirs(wandb.Html, "page").html == "<b>x</b>"
    assert (np.asarray(theirs(wandb.Table, "below/table").data[0][1].image) == pixels).all()
    with pillow.open(theirs(wandb.Video, "film")._path) as film:
        assert film.size == (8, 8)
    assert theirs(wandb.Audio, "sound")._path.endswith(".wav")
    assert theirs(wandb.Object3D, "cloud")._path.endswith(".pts.json")


def test_damaged_description_is_named(begin: Begin) -> None:
    """What a run's directory says of media is data: no file but the version's own is read."""
    for number, content in enumerate(
        ('{"_type": "image-file", "path": "/etc/passwd"}', "[1]", '{"_type": "html-file"}')
    ):
        artifact = trackers.Artifact(f"bad-{number}", "dataset")
        Path("x.image-file.json").write_text(content)
        artifact.add_file("x.image-file.json")
        begin(f"run-{number}").log_artifact(artifact)
        with pytest.raises((Damaged, NotFound), match="bad-"):
            stored(f"digits/bad-{number}").get("x")


def test_logged_version_is_not_changed(begin: Begin) -> None:
    """Files are added to a draft, which becomes the next version with all files."""
    folder_of_two(begin)
    run = begin("two")
    found = run.use_artifact("dataset:raw")
    Path("more.csv").write_text("3")
    with pytest.raises(UsageError, match=r"dataset:v0 is logged and stays as it is: change new_draft\(\)"):
        found.add_file("more.csv")
    draft = found.new_draft()
    assert draft.version is None
    draft.add_file("more.csv")
    draft.remove("rows.csv")
    assert run.log_artifact(draft).version == "v1"
    assert sorted(one.name for one in stored().files()) == ["more.csv", "raw.bin", "sub/labels.txt"]


def test_aliases_of_a_version_can_be_changed(begin: Begin) -> None:
    """``aliases`` and ``save``, as in W&B; what can be no alias is refused."""
    run = begin()
    for content in "ab":
        log(run, content, aliases=["best"])
    found = stored("digits/dataset:v0")
    found.aliases.append("best")
    found.save()
    assert stored("digits/dataset:best").version == "v0"
    found.aliases.remove("best")
    found.save()
    with pytest.raises(NotFound, match="no version 'best'"):
        stored("digits/dataset:best")
    found.aliases.append("v7")
    with pytest.raises(UsageError, match="given by itself"):
        found.save()


def test_description_and_metadata_can_be_changed(begin: Begin) -> None:
    """With ``save``, of a version and of the artifact that was logged; secrets are masked, and JSON values needed."""
    Path("rows.csv").write_text("a")
    artifact = trackers.Artifact("dataset", "dataset", metadata={"rows": 1})
    artifact.add_file("rows.csv")
    begin().log_artifact(artifact)
    artifact.metadata["rows"] = 2
    artifact.aliases.append("best")
    artifact.save()
    assert (stored("digits/dataset:best").metadata, stored().aliases) == ({"rows": 2}, ["best", "latest"])
    found = stored()
    found.description = "all rows"
    found.metadata["api_key"] = "sk-0123456789abcdef0123456789abcdef"
    found.save()
    assert stored().description == "all rows"
    assert "0123456789abcdef" not in str(stored().metadata)
    found.metadata["odd"] = object()
    with pytest.raises(UsageError, match="metadata of digits/dataset:v0 must be JSON values"):
        found.save()
    artifact.aliases.remove("best")
    artifact.save()
    assert stored().aliases == ["latest"]


def test_what_needs_a_run_or_the_command_line_says_so(begin: Begin) -> None:
    """Links and removals."""
    log(begin(), "a")
    with pytest.raises(UsageError, match=r"run\.link_artifact\(artifact, 'registry/zoo'\)"):
        stored().link("registry/zoo")
    with pytest.raises(UsageError, match="trackers artifacts rm digits/dataset:v0"):
        stored().delete()


def test_new_artifact_says_what_it_lacks(begin: Begin) -> None:
    """Before it is logged there is nothing to download; afterwards it has all that a version has."""
    Path("rows.csv").write_text("abc")
    artifact = trackers.Artifact("dataset", "dataset")
    artifact.add_file("rows.csv")
    with pytest.raises(NotLogged, match=r"isn't logged: download is there after run\.log_artifact"):
        artifact.download()
    with pytest.raises(AttributeError, match=r"no 'downlod': did you mean 'download'\?"):
        artifact.downlod()
    assert not hasattr(artifact, "logged_by")
    begin("maker").log_artifact(artifact, aliases=["raw"])
    assert (artifact.wait().version, artifact.aliases, artifact.name) == ("v0", ["raw", "latest"], "dataset")
    assert Path(artifact.download("out"), "rows.csv").read_text() == "abc"
    assert artifact.logged_by().name == "maker"


def test_alias_survives_a_torn_line_before_it(begin: Begin) -> None:
    """A change that was half written, by a full disk or a kill, costs itself alone."""
    log(begin(), "a")
    set_aliases(stored()._stored, ["one"])
    path = Path("runs/digits/.artifacts/changes.jsonl")
    with path.open("ab") as file:
        file.write(b'{"what":"alias","name":"data')
    set_aliases(stored()._stored, ["two"])
    assert stored().aliases == ["latest", "one", "two"]
    assert path.read_bytes().count(b"\n\n") == 0


def test_change_that_is_not_written_whole_is_an_error(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk takes half of a line: who set the alias is told."""
    log(begin(), "a")
    whole = confined.open_file

    class Half(io.BytesIO):
        def write(self, line: Any) -> int:
            return len(line) // 2

    monkeypatch.setattr(
        confined, "open_file", lambda path, mode="rb", **more: Half() if "a" in mode else whole(path, mode, **more)
    )
    with pytest.raises(UsageError, match="can't be written: No space left"):
        set_aliases(stored()._stored, ["one"])


def test_parts_of_a_table_are_read_as_one(begin: Begin) -> None:
    """As W&B's ``get`` gives a ``PartitionedTable``: rows of all parts, numbered through; each table with its mode."""
    artifact = trackers.Artifact("dataset", "dataset")
    artifact.add(trackers.media.PartitionedTable("parts"), "whole")
    for name, rows in {"parts/one": [[1], [2]], "parts/two": [[3]], "other/three": [[4]]}.items():
        artifact.add(trackers.Table(["a"], rows, log_mode="MUTABLE"), name)
    artifact.add(trackers.media.PartitionedTable("."), "odd")
    run = begin("maker")
    run.log_artifact(artifact)
    run.finish()
    whole = stored().get("whole")
    assert isinstance(whole, trackers.media.PartitionedTable)
    assert (whole.parts_path, list(whole.iterrows())) == ("parts", [(0, [1]), (1, [2]), (2, [3])])
    assert list(stored().get("odd").iterrows()) == []
    assert stored().get("parts/two").log_mode == "MUTABLE"
