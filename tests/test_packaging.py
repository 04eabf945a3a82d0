"""What brings the package to people: its page on an index, the conda recipe, the images, the release's workflow."""

from __future__ import annotations

import email
import fnmatch
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests import ROOT
from tests.test_project import load, script
from trackers.cli.app import app

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CONTAINER = ROOT / "packaging/container"
site = script("docs_site")


def description() -> str:
    """README.md as an index shows it, at version 1.2.3."""
    text = (ROOT / "README.md").read_text("utf-8")
    found = script("index_readme").absolute(text, "https://forge/ours", "https://site", "1.2.3")
    assert isinstance(found, str)
    return found


def test_links_on_an_index_are_addresses() -> None:
    """Each link and picture of README.md leads to the site or to the repository, where the file is."""
    targets = list(site.links(description()))
    assert len(targets) > 40
    assert [target for target in targets if not re.match(r"https?://", target)] == []
    places = {f"https://forge/ours/{kind}/v1.2.3/": "" for kind in ("blob", "raw")} | {"https://site/1.2.3/": "docs/"}
    for target in targets:
        address = target.partition("#")[0]
        prefix = next((place for place in places if address.startswith(place)), None)
        if prefix:
            name = address.removeprefix(prefix)
            assert (ROOT / places[prefix] / re.sub(r"\.html$", ".md", name)).is_file(), target
    pictures = re.findall(r"!\[[^\]]*\]\((.*?)\)", description())
    assert pictures
    assert all(picture.startswith("https://forge/ours/raw/") for picture in pictures)


@pytest.mark.parametrize("readme", sorted((ROOT / "plugins").glob("*/README.md")), ids=lambda path: path.parent.name)
def test_plug_ins_pages_have_addresses_alone(readme: Path) -> None:
    """They are shown by an index as they are; what they name in the repository is there."""
    for target in site.links(readme.read_text("utf-8")):
        assert re.match(r"https?://", target), target
        path = target.partition("#")[0].removeprefix(f"{PROJECT['urls']['Repository']}/blob/main/")
        assert path.startswith("http") or (ROOT / path).is_file(), target


def test_index_shows_nothing_that_only_tests_read() -> None:
    """Neither the tags of code blocks nor comments."""
    assert "<!--" not in description()
    assert re.findall(r"^```(.*)$", description(), re.M) == [
        language for block in site.FENCE.finditer(description()) for language in (block["info"], "")
    ]
    assert {block["info"].split(" title=")[0] for block in site.FENCE.finditer(description())} == {
        "bash", "python", "text",
    }  # fmt: skip


@pytest.mark.slow
def test_wheel_and_sdist_have_that_description(tmp_path: Path) -> None:
    """What an index is sent has the addresses of pyproject.toml, also if the wheel is made of the sdist."""
    build = "from hatchling.build import build_sdist, build_wheel; import sys; "
    subprocess.run([sys.executable, "-c", f"{build}build_sdist({str(tmp_path)!r})"], check=True, cwd=ROOT)
    (sdist,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(sdist, tmp_path / "unpacked")
    (source,) = (tmp_path / "unpacked").iterdir()
    subprocess.run([sys.executable, "-c", f"{build}build_wheel({str(tmp_path)!r})"], check=True, cwd=source)
    (wheel,) = tmp_path.glob("*.whl")
    (name,) = (name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(zipfile.ZipFile(wheel).read(name))
    assert metadata["Description-Content-Type"] == "text/markdown"
    urls = dict(line.split(", ", 1) for line in metadata.get_all("Project-URL", []))
    assert urls == PROJECT["urls"]
    text = str(metadata.get_payload(decode=True), "utf-8")
    assert f"]({urls['Repository']}/raw/v{metadata['Version']}/docs/pictures/" in text
    assert f"]({urls['Documentation']}{metadata['Version']}/logging.html)" in text


def test_addresses_agree() -> None:
    """The site's configuration, the recipe and pyproject.toml name the same places; the Pythons are those of CI."""
    urls = PROJECT["urls"]
    assert load("mkdocs.yml")["site_url"] == urls["Documentation"]
    about = load("packaging/conda/recipe.yaml")["about"]
    assert (about["repository"], about["documentation"]) == (urls["Repository"], urls["Documentation"])
    assert urls["Changelog"].startswith(urls["Repository"])
    assert urls["Issues"].startswith(urls["Repository"])
    pythons = load(".github/workflows/ci.yml")["jobs"]["tests"]["strategy"]["matrix"]["python"]
    classified = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert classified == pythons


def test_recipe_needs_what_the_package_needs() -> None:
    """The conda package has the same dependencies, commands and oldest Python."""
    recipe = load("packaging/conda/recipe.yaml")

    python, *others = recipe["requirements"]["run"]
    assert {line.replace(" ", "") for line in others} == set(PROJECT["dependencies"])
    assert python == "python >=${{ python_min }}"
    assert PROJECT["requires-python"] == f">={recipe['context']['python_min']}"
    assert recipe["build"]["python"]["entry_points"] == [f"{name} = {at}" for name, at in PROJECT["scripts"].items()]
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["summary"] == PROJECT["description"]


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (CONTAINER / "Dockerfile").read_text("utf-8"), flags=re.M).replace("\\\n", " ")
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line.strip()]


def in_context(path: str) -> bool:
    """Whether a file of the checkout is sent to the image's builder: the last line that fits counts."""
    kept = True
    for line in (CONTAINER / "Dockerfile.dockerignore").read_text("utf-8").split():
        pattern = line.lstrip("!")
        parts = [path, *map(str, Path(path).parents)]
        if any(fnmatch.fnmatch(part, pattern.removeprefix("**/")) or part == pattern for part in parts) or (
            pattern.startswith("**/") and pattern[3:] in Path(path).parts
        ):
            kept = line.startswith("!")
    return kept


def test_images_have_what_the_package_takes() -> None:
    """Extras and files that the Dockerfile names are there, no stage runs as root, and none keeps a cache."""
    (extras,) = (words.partition("=")[2] for name, words in instructions() if name == "ARG" and "EXTRAS=" in words)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    for name, words in instructions():
        if name == "COPY" and not words.startswith("--from"):
            assert (ROOT / words.split()[0]).exists()
            assert words.split()[0] == "." or in_context(words.split()[0])
        if name == "RUN":
            assert "pip install" not in words or "--no-cache-dir" in words
    user = ""
    for name, words in instructions():
        user = words if name == "USER" else user
        assert name != "CMD" or user == "1000:1000"


@pytest.mark.slow
def test_builder_gets_all_that_the_wheel_takes(tmp_path: Path) -> None:
    """The wheel of the files that .dockerignore lets through is the checkout's, and nothing else is sent."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for path in filter(in_context, listed):
        (tmp_path / "context" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / "context" / path)
    assert {path.name for path in (tmp_path / "context").iterdir()} == {
        "trackers", "trackers_relay.py", "defconfigs", "docs", "scripts", "pyproject.toml", "README.md", "LICENSE",
    }  # fmt: skip
    names = []
    for source in (ROOT, tmp_path / "context"):
        out = tmp_path / f"wheel-{len(names)}"
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
        subprocess.run([*pip, "--wheel-dir", str(out), str(source)], check=True, cwd=tmp_path)
        names.append(sorted(zipfile.ZipFile(next(out.glob("*.whl"))).namelist()))
    assert names[0] == names[1]


def test_services_run_commands_that_there_are() -> None:
    """The compose file builds stages of the Dockerfile; their commands' options are those of the program; the page is
    reached from this machine alone."""
    stages = {words.split()[-1] for name, words in instructions() if name == "FROM"}
    services = load("packaging/container/compose.yaml")["services"]
    assert set(services) == {"ui", "sync"}
    for service in services.values():
        assert service["build"]["target"] in stages
        assert (CONTAINER / service["build"]["context"]).resolve() == ROOT
        assert (ROOT / service["build"]["dockerfile"]).is_file()
        assert service["cap_drop"] == ["ALL"]
    assert services["ui"]["ports"] == ["127.0.0.1:7007:7007"]
    assert services["ui"]["volumes"][0].endswith(":/runs:ro")
    for name, words in instructions():
        if name == "CMD":
            command, *options = re.findall(r'"([^"]*)"', words)
            shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
            assert [option for option in options if option.startswith("--") and option not in shown] == []


def test_release_has_no_password() -> None:
    """What is published is built by one job, checked, attested, and sent with the workflow's own identity; only the job
    that needs a right has it."""
    workflow = load(".github/workflows/release.yml")
    jobs = workflow["jobs"]
    assert workflow["permissions"] == {}
    text = (ROOT / ".github/workflows/release.yml").read_text("utf-8")
    assert "secrets." not in text
    assert {name for name, job in jobs.items() if "id-token" in job["permissions"]} == {"attest", "publish", "images"}
    assert jobs["build"]["permissions"] == {"contents": "read"}
    assert jobs["publish"]["needs"] == "attest"
    assert jobs["publish"]["environment"]
    steps = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    targets = set(re.findall(r"make ([a-z-]+)", "\n".join(steps)))
    assert targets == {"dist-check", "sbom", "docs-version"}
    assert targets <= set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.M))
    assert [job["needs"] for name, job in jobs.items() if name in ("page", "docs", "images")] == ["publish"] * 3
