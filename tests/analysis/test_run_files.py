"""Media, texts and artifacts of a run: listed, chosen by name, fetched; and no name leads out of the output."""

from __future__ import annotations

import io
import os
import resource
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.analysis.support import T0
from trackers.analysis.run_files import LoggedItem, choose, fetch, logged_items, summed
from trackers.errors import NotFound, UsageError
from trackers.records import ArtifactFile, ArtifactRecord, Media, MediaFile, Record, Text

EVIL = ("../../out", "/etc/x", "a/../../b", "..\\..\\b", ".ssh/keys", "\x1b[31m", "a\nb", "", "..", "x" * 400, "\ud800")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's directory with two files, beside one that isn't its own."""
    (tmp_path / "run/media/ab").mkdir(parents=True)
    (tmp_path / "run/media/ab/one.bin").write_bytes(b"one")
    (tmp_path / "run/media/ab/two.bin").write_bytes(b"second")
    (tmp_path / "secret").write_bytes(b"secret")
    return tmp_path / "run"


def artifact(name: str = "model", step: int = 1, path: str = "best.pt", file: str = "media/ab/one.bin") -> Record:
    """An artifact of one file."""
    files = [ArtifactFile(path=path, file=file, size=3)]
    return ArtifactRecord(time=T0 + step, step=step, name=name, type="model", files=files)


def media(name: str = "samples/x", step: int = 1, file: str = "media/ab/one.bin", **more: Any) -> Record:
    """A sound."""
    item = MediaFile(format="wav", file=file)
    return Media(time=T0 + step, step=step, name=name, type="audio", items=[item], **more)


def names(found: Path) -> dict[str, bytes]:
    """All files below a directory, by path."""
    return {str(path.relative_to(found)): path.read_bytes() for path in found.rglob("*") if path.is_file()}


def get(records: list[Record], run: Path, name: str, output: Path, **options: Any) -> list[str]:
    """Fetch by name; why others are not among the files."""
    numbered = options.get("every", False)
    choices = choose(logged_items(records, run), name, options.pop("step", None), options.pop("every", False))
    return fetch(choices, run, output, numbered=numbered, **options)[1]


def test_listing_has_kind_step_files_and_size(run: Path) -> None:
    """Media, texts and artifacts, with the bytes of their files, or of what is kept in the journal itself."""
    histogram = Media(time=T0, step=2, name="h", type="histogram", items=[MediaFile(format="json", data=[1, 2])])
    found = logged_items([media(), artifact(), histogram, Text(time=T0, step=3, values={"note": "é"})], run)
    assert [(one.kind, one.name, one.step, one.files, one.size) for one in found] == [
        ("audio", "samples/x", 1, 1, 3), ("model", "model", 1, 1, 3), ("histogram", "h", 2, 1, 5),
        ("text", "note", 3, 1, 2),
    ]  # fmt: skip
    assert found[1].to_dict()["paths"] == ["best.pt"]
    assert "record" not in found[0].to_dict()


def test_summary_has_a_line_for_each_name(run: Path) -> None:
    """How many, over which steps, how many files and bytes; media apart from artifacts."""
    found = summed(logged_items([media(step=1), media(step=5), artifact(step=4)], run))
    assert found["media"] == [
        {"name": "samples/x", "kind": "audio", "count": 2, "files": 2, "size": 6, "first_step": 1, "last_step": 5}
    ]
    assert [entry["name"] for entry in found["artifacts"]] == ["model"]


def test_last_of_a_name_is_fetched_unless_a_step_is_named(run: Path, tmp_path: Path) -> None:
    """The last by default; one step, or all, each under its own name."""
    records = [artifact(step=1), artifact(step=2, file="media/ab/two.bin"), media(step=3), media(step=4)]
    get(records, run, "model", tmp_path / "last")
    assert names(tmp_path / "last") == {"model/best.pt": b"second"}
    get(records, run, "model", tmp_path / "all", every=True)
    assert names(tmp_path / "all") == {"model-1/best.pt": b"one", "model-2/best.pt": b"second"}
    get(records, run, "samples/*", tmp_path / "media")
    assert names(tmp_path / "media") == {"samples/x-4.wav": b"one"}
    get(records, run, "samples/x", tmp_path / "step", step=3)
    assert names(tmp_path / "step") == {"samples/x-3.wav": b"one"}


def test_one_file_of_an_artifact_is_fetched_by_its_path(run: Path, tmp_path: Path) -> None:
    """``name/path`` is that file alone."""
    files = [ArtifactFile(path=path, file="media/ab/one.bin", size=3) for path in ("a/b.txt", "c.txt")]
    record = ArtifactRecord(time=T0, name="code", files=files)
    get([record], run, "code/a/b.txt", tmp_path / "out")
    assert names(tmp_path / "out") == {"code/a/b.txt": b"one"}


def test_unknown_name_and_step_say_what_there_is(run: Path) -> None:
    """One line with the nearest name, or the steps there are."""
    found = logged_items([artifact(), media()], run)
    for name, said in (("modle", "did you mean 'model'"), ("zzz", "there is model, samples/x")):
        with pytest.raises(NotFound, match=said):
            choose(found, name)
    with pytest.raises(NotFound, match="has nothing at step 7; it has 1"):
        choose(found, "model", 7)
    with pytest.raises(NotFound, match="it keeps no files at all"):
        choose([], "model")


def test_second_fetch_writes_nothing_and_differing_files_stay(run: Path, tmp_path: Path) -> None:
    """What is there is left alone; a file that differs stays, and nothing else is written, unless it is forced."""
    out = tmp_path / "out"
    choices = choose(logged_items([artifact()], run), "model")
    assert [one.created for one in fetch(choices, run, out)[0]] == [True]
    assert [one.created for one in fetch(choices, run, out)[0]] == [False]
    (out / "model/best.pt").write_bytes(b"mine")
    with pytest.raises(UsageError, match="exists and stays"):
        fetch(choices, run, out)
    assert names(out) == {"model/best.pt": b"mine"}
    fetch(choices, run, out, force=True)
    assert names(out) == {"model/best.pt": b"one"}


@pytest.mark.parametrize("evil", EVIL)
def test_hostile_names_stay_in_the_output(run: Path, tmp_path: Path, evil: str) -> None:
    """Names that lead up, are absolute, hidden or too long, of media, artifacts and their files: all below it."""
    before = set(tmp_path.rglob("*"))
    out = tmp_path / "deep/er/out"
    records = [artifact(name=evil), artifact(name="inner", path=evil), media(name=evil)]
    records.append(Media(time=T0, name="form", type="html", items=[MediaFile(format=evil, file="media/ab/one.bin")]))
    fetch(choose(logged_items(records, run), "*"), run, out)
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path not in before]
    assert written
    assert all(path.is_relative_to(out) for path in written)
    assert not [path for path in out.iterdir() if path.name.startswith(".")]
    assert all(path.name.isprintable() for path in written)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(max_size=20), path=st.text(max_size=20))
def test_any_name_is_fetched_below_the_output(run: Path, tmp_path: Path, name: str, path: str) -> None:
    """Whatever a journal calls a file, it is written once, below the output."""
    out = tmp_path / "out"
    found = fetch(choose(logged_items([artifact(name=name, path=path)], run), name), run, out, force=True)[0]
    assert len(found) == 1
    assert found[0].path.is_relative_to(out.resolve())
    assert found[0].path.read_bytes() == b"one"


@pytest.mark.parametrize("file", ["../secret", "/etc/hostname", "media/../../secret", "media/link", "media/up/secret"])
def test_files_outside_of_the_run_are_not_read(run: Path, tmp_path: Path, file: str) -> None:
    """A record that names a file elsewhere, or a link to one, gives nothing; the rest is fetched."""
    (run / "media/link").symlink_to(tmp_path / "secret")
    (run / "media/up").symlink_to(tmp_path)
    out = tmp_path / "out"
    lost = get([artifact(name="bad", file=file), artifact(name="good")], run, "*", out)
    assert names(out) == {"good/best.pt": b"one"}
    assert len(lost) == 1
    with pytest.raises(NotFound):
        get([media(file=file)], run, "samples/x", out)


def test_link_in_the_output_is_not_written_through(run: Path, tmp_path: Path) -> None:
    """A folder of the output that is a link to elsewhere is refused."""
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (out / "model").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is a link"):
        get([artifact()], run, "model", out)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_arrays_become_pictures_and_tables_csv(run: Path, tmp_path: Path) -> None:
    """Images that are arrays become PNG, tables CSV, with raw they stay as they are; what is no image says so."""
    import numpy
    from PIL import Image

    numpy.save(run / "media/ab/image.npy", numpy.eye(4, dtype=numpy.float32))
    table = {"columns": ["a", "b"], "rows": [[1, "x,y"], [None, {"_type": "image"}]]}
    image = MediaFile(format="npy", file="media/ab/image.npy")
    broken = MediaFile(format="npy", file="media/ab/one.bin")
    records = [
        Media(time=T0, step=1, name="i", type="image", items=[image, broken]),
        Media(time=T0, step=1, name="t", type="table", items=[MediaFile(format="json", data=table)]),
    ]
    lost = get(records, run, "*", tmp_path / "out")
    assert len(lost) == 1
    assert "it is no image" in lost[0]
    found = names(tmp_path / "out")
    assert Image.open(io.BytesIO(found["i-1-0.png"])).size == (4, 4)
    assert found["t-1.csv"].decode() == 'a,b\n1,"x,y"\n,"{""_type"":""image""}"\n'
    get(records, run, "*", tmp_path / "raw", raw=True)
    assert sorted(names(tmp_path / "raw")) == ["i-1-0.npy", "i-1-1.npy", "t-1.json"]


def test_what_is_kept_elsewhere_is_said(run: Path, tmp_path: Path) -> None:
    """A reference has no file here: its address is named."""
    record = ArtifactRecord(time=T0, name="data", files=[ArtifactFile(path="x", uri="s3://bucket/x")])
    with pytest.raises(NotFound, match="data/x isn't kept with the run: it is s3://bucket/x"):
        get([record], run, "data", tmp_path / "out")


def test_equal_names_take_a_number(run: Path, tmp_path: Path) -> None:
    """Two records that would have one file's name both get one."""
    get([media(name="a", step=1), media(name="a", step=1, file="media/ab/two.bin")], run, "a", tmp_path, every=True)
    assert (tmp_path / "a-1.wav").read_bytes() == b"one"
    assert (tmp_path / "a-1-2.wav").read_bytes() == b"second"


def test_file_of_holes_is_not_copied(run: Path, tmp_path: Path) -> None:
    """A file that claims terabytes and holds nothing fills no disk."""
    with open(run / "media/ab/huge", "wb") as file:
        os.truncate(file.fileno(), 1 << 40)
    with pytest.raises(NotFound, match="claims"):
        get([artifact(file="media/ab/huge")], run, "model", tmp_path / "out")


def test_full_disk_leaves_what_was_there(run: Path, tmp_path: Path) -> None:
    """One error, the old file, and no part of a new one."""
    out = tmp_path / "out"
    (out / "model").mkdir(parents=True)
    (out / "model/best.pt").write_bytes(b"mine")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    choices = choose(logged_items([artifact()], run), "model")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        with pytest.raises(UsageError, match="can't be written"):
            fetch(choices, run, out, force=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names(out) == {"model/best.pt": b"mine"}


def test_kept_sorts_as_it_was_logged(run: Path) -> None:
    """The order of the records stays."""
    found = logged_items([artifact("b"), artifact("a")], run)
    assert [one.name for one in found] == ["b", "a"]
    assert isinstance(found[0], LoggedItem)
