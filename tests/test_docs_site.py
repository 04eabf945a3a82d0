"""The documentation as a site: each page is in its navigation, and what links name is there. `make docs` builds it."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import pydoc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import trackers
from tests import ROOT
from tests.test_project import load, script

site = script("docs_site")
PAGES = sorted([*site.PAGES.values(), *(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("**/*.md"))])


def text_of(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def named(nav: Any) -> Iterator[str]:
    """The pages of a navigation, in order."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from named(part)


def broken(page: str, text: str) -> list[str]:
    """Links of a page whose file or heading isn't there."""
    found = []
    for link in site.links(text):
        path, anchor = site.target(page, link)
        if not path:
            continue
        here = path == page
        if not (here or (ROOT / path).exists()) or (
            anchor and anchor not in site.anchors(text if here else text_of(path))
        ):
            found.append(link)
    return found


def test_every_page_is_in_the_navigation() -> None:
    """A reader of the site finds each page once."""
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("**/*.md")]
    assert sorted(named(load("mkdocs.yml")["nav"])) == sorted([*pages, *site.PAGES])


def test_readme_leads_to_every_page() -> None:
    """Who reads the checkout finds each page from README.md."""
    led = {site.target("README.md", link)[0] for link in site.links(text_of("README.md"))}
    assert {page for page in PAGES if page.startswith("docs/")} <= led


def arguments(name: str, value: Any) -> Iterator[str]:
    """Arguments of a callable, and of a class's methods, that stand in the middle of another argument's line."""
    text = inspect.getdoc(value) or ""
    described = text.partition("Args:\n")[2].partition("\n\n")[0]
    with contextlib.suppress(TypeError, ValueError):
        names = "|".join(map(re.escape, inspect.signature(value).parameters))
        yield from (f"{name}: {found}" for found in re.findall(rf"[.;] ({names}): ", described) if names)
    for key in dir(value) if inspect.isclass(value) else ():
        member = inspect.getattr_static(value, key)
        if not key.startswith("_") and inspect.isfunction(member) and member.__module__.startswith("trackers."):
            yield from arguments(f"{name}.{key}", member)


def test_reference_shows_each_argument_on_a_line_of_its_own() -> None:
    """Who looks for an argument in docs/api.md finds it at the beginning of a line."""
    shown = re.findall(r"^::: ([\w.]+)", text_of("docs/api.md"), re.M)
    assert len(shown) > 40
    hidden = [line for name in shown if ".frameworks." not in name for line in arguments(name, pydoc.locate(name))]
    assert hidden == []


def test_reference_has_every_public_name() -> None:
    """What ``trackers`` exports, and what pages say of a run, is in docs/api.md; W&B's older names are elsewhere."""
    text = text_of("docs/api.md")
    shown = set(re.findall(r"^::: trackers\.([\w.]+)", text, re.M))
    assert {name for name in trackers.__all__ if not name.startswith("__")} <= shown
    members = re.search(r"^::: trackers\.Run\n.*?members: \[(.*?)\]", text, re.M | re.S)
    assert members is not None
    listed = set(re.findall(r"\w+", members[1]))
    assert {name for name in listed if not hasattr(trackers.Run, name)} == set()
    pages = [page for page in PAGES if page not in ("docs/wandb-scripts.md", "docs/coming-from.md")]
    said = {name for page in pages for name in re.findall(r"\brun\.([a-z]\w+)\b", text_of(page))}
    assert {name for name in said if hasattr(trackers.Run, name)} <= listed


def test_readme_is_a_promise_and_an_index() -> None:
    """One promise, ten lines of code, the page's picture; what it costs, how it is installed; an index of ten rows.

    What is longer stands on a page of its own.
    """
    text = text_of("README.md")
    parts = ["**Log a training run once.", "```python file=first.py", "ui-charts.png", "side-by-side.png", "## Install",
             "## Documentation"]  # fmt: skip
    assert sorted(parts, key=text.index) == parts
    assert len(text.split("```python file=first.py\n")[1].split("```")[0].splitlines()) <= 10
    assert len(re.findall(r"^\| ", text, re.M)) == 1 + 10
    largest = max(path.stat().st_size for path in (ROOT / "docs/pictures").iterdir())
    assert largest < 150_000
    assert len(text.splitlines()) <= 100
    assert len(re.findall(r"^!\[", text, re.M)) == 2, "what it costs beside others, and what it looks like"


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """Each link of a page names a file that is there, and a heading of it."""
    assert broken(page, text_of(page)) == []


@pytest.mark.parametrize("folder", ["trackers", "scripts", "examples", "benchmarks", "tests"])
def test_code_names_pages_that_exist(folder: str) -> None:
    """A message or a comment that names a page, with a heading or without, is right."""
    wrong = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for page, anchor in re.findall(r"\b(docs/[a-z-]+\.md)(?:#([a-z0-9-]+))?", path.read_text("utf-8")):
            if not (ROOT / page).exists() or (anchor and anchor not in site.anchors(text_of(page))):
                wrong.append(f"{path.relative_to(ROOT)}: {page}#{anchor}")
    assert [line for line in wrong if not line.startswith(("tests/test_project.py", "tests/test_docs_site.py"))] == []


def test_broken_link_would_be_seen() -> None:
    """The search above finds a missing file, a missing heading, and no address; code is no link."""
    text = "# A b\n[1](gone.md) [2](#a-b) [3](#c) [4](ui.md#views) [5](ui.md#x) [6](https://h/x) `[7](gone.md)`\n"
    assert broken("docs/new.md", text) == ["gone.md", "#c", "ui.md#x"]


def test_anchors_are_those_of_github() -> None:
    """Punctuation goes, blanks become hyphens, a heading that comes again has a number, code has none."""
    text = "# One call of `run.log`: `a/b.py`\n## Größe\n## Größe\n```bash run\n# no heading\n```\n### [Link](x.md)!\n"
    assert site.anchors(text) == {"one-call-of-runlog-abpy", "größe", "größe-1", "link"}


PAGE = """A [page](../README.md), [ui.md](ui.md#views), [hardware.md](hardware.md), [the kit](../tests/__init__.py),
[ours](ui.md#views), [there](https://h/x).

```python file=a.py
print("[x](../y.md)")
```
1. so:
   ```bash run frameworks
   python a.py
   ```
<!-- prints
…
-->
```text output
[x](../y.md)
```
"""

ON_SITE = """A [page](index.md), [Views](ui.md#views), [Hardware metrics](hardware.md), the kit,
[ours](ui.md#views), [there](https://h/x).

```python title="a.py"
print("[x](../y.md)")
```
1. so:
   ```bash
   python a.py
   ```
```text
[x](../y.md)
```
"""


def test_page_of_the_site_has_no_marks_of_the_tests() -> None:
    """Tags and comments are left out, links lead to the site's pages and have their titles, code stays as it is."""
    assert site.plain(site.placed(PAGE, "docs/new.md")) == ON_SITE


def test_first_page_of_the_site_is_the_readme() -> None:
    """Its links and pictures are below docs in the checkout, beside it on the site."""
    given = "![p](docs/pictures/x.png) [c](CONTRIBUTING.md) [u](docs/ui.md#views) `[k](docs/k.md)`"
    placed = site.placed(given, "README.md")
    assert placed.startswith("![p](pictures/x.png) [c](contributing.md) [u](ui.md#views) ")


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn/x.js">',
        "<img alt=x src=//h/x.png>",
        '<link href="https://fonts/x" rel="stylesheet">',
        "<style>@import 'https://h/x.css'</style>",
    ],
)
def test_request_to_elsewhere_is_found(html: str) -> None:
    """`make docs` fails for a page that would ask another server; a link that a reader follows is none."""
    assert len(site.requests(f'<a href="https://h/x">x</a><img src="pictures/a.png"><link rel=canonical>{html}')) == 1


@pytest.mark.parametrize("page", PAGES)
def test_page_is_laid_out_for_both_readers(page: str) -> None:
    """Lists and tables begin after a blank line, without which the site has them in the paragraph before."""
    wrong, before = [], ""
    for line in site.FENCE.sub("\n", text_of(page)).splitlines():
        begins = re.match(r"(?:[-*]|1\.) |\|", line)
        if begins and before.strip() and not re.match(r" |[-*] |\d+\. |\||#", before):
            wrong.append(line)
        before = line
    assert wrong == []


def templates(path: Path) -> Iterator[str]:
    """The texts in a module's code, with a line break for each value that is filled in."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "\n" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_messages_of_the_page_are_the_packages() -> None:
    """Who searches docs/troubleshooting.md for a message finds it as it is printed; … stands for what varies."""
    tables = re.findall(r"^\| message \|.*\n((?:\|.*\n)+)", text_of("docs/troubleshooting.md"), re.M)
    messages = re.findall(r"^\| `([^`]+)` \|", "".join(tables), re.M)
    assert len(messages) > 15
    modules = {path: path.read_text("utf-8") for path in (ROOT / "trackers").rglob("*.py")}
    unknown = []
    for message in messages:
        pattern = ".*".join(re.escape(piece.strip()) for piece in message.split("…") if piece.strip())
        words = re.findall(r"\w{5,}", message)
        likely = (path for path, text in modules.items() if all(word in text for word in words))
        if not any(re.search(pattern, text, re.S) for path in likely for text in templates(path)):
            unknown.append(message)
    assert unknown == []


def test_site_is_built_strictly_without_requests() -> None:
    """A warning ends the build, and neither fonts nor a generator's address are asked for."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    assert config["strict"]
    assert config["theme"]["font"] is False
    assert Path(config["site_dir"]).parts[0] == "build"
    assert "make docs" in [step.get("run") for step in load(".github/workflows/ci.yml")["jobs"]["docs"]["steps"]]


def promises() -> Iterator[tuple[str, str]]:
    """The blocks of docs/security.md that promise something, each with the comment behind it; a sentence that ends with
    ":" or leads into a list belongs to what follows."""
    blocks = [block for block in text_of("docs/security.md").split("\n\n") if block.strip()]
    section, led = "", ""
    for block, after in zip(blocks, [*blocks[1:], ""], strict=True):
        if block.startswith("#"):
            section = block
        elif not block.startswith("<!--") and section not in ("## Limits", "## How it is tested"):
            if after.startswith(("- ", "```", "| ")) and not block.startswith("| "):
                led += block
            elif not block.startswith("To report"):
                yield led + block, after
                led = ""


@pytest.mark.parametrize(("block", "after"), list(promises()), ids=lambda text: re.sub(r"\W+", "-", text[:40]))
def test_promise_of_security_has_its_tests(block: str, after: str) -> None:
    """Behind each block stand the tests that hold it, and they are there."""
    assert after.startswith("<!-- tests/"), f"no tests are named behind {block[:80]!r}"
    for name in after.removeprefix("<!--").removesuffix("-->").split():
        file, _, function = name.partition("::")
        assert f"\ndef {function}(" in text_of(file), name


ROWS = {
    "files below a run": "test_planted_thing_is_not_used test_folders_of_a_killed_run_that_are_links_lead_nowhere "
    "test_stream_that_is_no_file_holds_no_resumed_run_up test_folder_of_a_copy_that_is_a_link_leads_nowhere "
    "test_nul_bytes_in_many_places_are_waited_for_once test_nul_bytes_of_a_file_that_nobody_writes_to_are_damage "
    "test_file_of_nothing_is_neither_packed_nor_compared "
    "test_run_of_holes_is_resumed_edited_and_copied test_file_that_is_far_longer_than_any_that_was_logged_is_rejected "
    "test_file_that_is_none_is_refused test_folder_that_is_a_link_is_not_listed_written_or_emptied "
    "test_folder_that_is_a_link_leads_nowhere test_file_that_is_none_is_not_read "
    "test_files_behind_a_link_that_came_later_are_not_the_runs test_file_whose_name_is_a_pattern_is_read_alone "
    "test_rows_that_repeat_end_in_one_line test_files_are_held_together_within_a_bound "
    "test_page_that_unpacks_to_far_more_is_not_unpacked "
    "test_run_that_becomes_a_link_after_it_was_found_is_not_summed_up",
    "new files": "test_new_files_are_exclusive_and_plain test_other_name_of_ones_own_file_is_not_written_to "
    "test_what_another_account_put_in_its_place_is_not_written_to "
    "test_folder_that_another_account_put_there_is_not_filled test_wheels_are_put_through_no_link_of_another_account "
    "test_backup_leads_into_no_repository_and_no_settings test_backup_fills_one_directory "
    "test_backup_is_not_put_back_through_a_link test_restored_file_runs_as_nobody_else "
    "test_file_of_a_backup_runs_as_nobody_else test_links_that_somebody_else_put_there_lead_nowhere "
    "test_packed_file_swapped_for_a_link_leaves_its_target_alone",
    "files that a vendor's client opens": "test_file_that_is_not_the_runs_is_rejected",
    "what lies beside files of other formats": "test_settings_beside_a_table_are_no_link "
    "test_long_manifest_is_read_where_the_client_puts_it test_run_is_a_run_whatever_its_directory_is_called "
    "test_offline_file_of_wandb_leads_nowhere test_file_of_an_artifact_is_the_one_that_was_hashed "
    "test_table_that_is_a_link_is_read",
    "an MLflow server's location of artifacts": "test_artifact_store_that_nobody_named_is_refused "
    "test_database_sends_nobody_to_files_of_others test_run_of_a_database_is_called_as_no_directory",
    "a SQLite database that somebody else made": "test_files_beside_a_planted_database_lead_nowhere "
    "test_planted_files_beside_a_database_lead_nowhere test_planted_folders_of_files_lead_nowhere "
    "test_rows_of_a_database_that_share_their_pages_are_damage test_long_values_of_trackio_are_left_out "
    "test_rows_of_trackio_that_share_their_pages_end test_long_values_of_mlflow_end_in_one_line",
    "an answer of an MLflow server": "test_answers_have_an_end test_mlflow_lists_end test_pages_have_an_end",
    "an answer of W&B's server": "test_answers_have_an_end",
    "the [host agent]": "test_another_users_socket_and_directory_are_refused "
    "test_another_user_who_asks_is_not_answered test_agent_has_named_variables_only "
    "test_request_in_parts_is_waited_for_by_nobody "
    "test_second_run_is_a_fork_of_what_the_first_one_left",
    "[connections between nodes]": "test_nobody_on_the_network_reads_what_is_sent test_who_stands_between_is_refused "
    "test_fingerprint_that_is_not_the_jobs_is_refused test_older_tls_is_not_spoken test_both_sides_must_want_the_same "
    "test_channel_that_cannot_be_encrypted_is_said_and_not_opened",
    "who knows the job's secret": "test_names_that_lead_elsewhere_are_not_taken test_secret_is_its_owners_to_read",
    "connections without a proof": "test_strangers_who_wait_are_few_and_go",
    "[`trackers ui`]": "test_loopback_is_the_default test_only_get_is_answered",
    "what changes a run there": "test_other_sites_change_nothing test_read_only_page_changes_nothing "
    "test_what_can_not_be_read_is_refused",
    "its token": "test_tokens_differ test_browsers_command_line_has_no_token "
    "test_silent_strangers_do_not_lock_the_owner_out",
    "requests that it refuses": "test_request_with_content_is_refused test_other_host_is_refused "
    "test_page_of_another_site_is_refused",
    "its content": "test_every_answer_has_the_policy test_files_of_media_are_shown_or_saved_never_run",
    "a page that is written as a file": "test_texts_of_a_run_are_no_markup_of_the_page "
    "test_page_asks_nobody_and_runs_its_own_script_alone",
    "a sweep's file": "test_value_is_no_variable test_file_with_the_parameters_is_replaced_by_nobody "
    "test_point_that_somebody_else_planted_lies_where_the_search_draws "
    "test_files_of_others_that_make_no_sense_count_as_nothing test_processes_that_somebody_else_names_get_no_signal",
    "[`trackers mcp`]": "test_nothing_but_what_was_named_is_read test_what_a_hostile_run_says_is_data "
    "test_no_link_leads_out_of_a_named_source test_hands_are_only_what_was_allowed "
    "test_http_needs_the_token_and_this_machine "
    "test_tokens_have_256_random_bits test_sql_that_never_ends_is_ended",
    "[the catalogue of a store": "test_damaged_catalogue_costs_requests_alone",
    "`trackers setup --from DIR`": "test_folder_of_wheels_runs_and_writes_nothing_as_it_is_installed "
    "test_wheel_that_requires_an_address_is_refused test_folder_of_wheels_with_what_leads_elsewhere_is_refused",
    "a redirect by a server": "test_redirect_of_a_store_carries_no_key test_redirect_takes_no_keys_elsewhere "
    "test_redirect_of_a_trackio_server_carries_no_login test_redirect_of_a_wandb_server_carries_no_key "
    "test_redirect_of_an_mlflow_server_carries_no_login test_other_address_is_not_followed",
    "the run's directory and all in it": "test_files_of_a_run_are_for_whom_it_is_shared_with "
    "test_files_of_ranks_are_as_private_as_the_run",
    "in it, text of files": "test_uncommitted_patch_is_its_owners_alone test_refused_records_are_their_owners_alone "
    "test_runs_of_a_sweep_share_their_code",
    "in it, `console/*`": "test_raw_text_is_for_its_owner_alone",
    "`.sweeps/NAME`": "test_folder_is_for_whom_runs_are_shared_with",
    "what deliveries write elsewhere": "test_files_of_a_run_are_for_whom_it_is_shared_with",
    "stores that several users write to": "test_stores_of_several_users_follow_the_umask",
    "the project's folder": "test_files_of_a_run_are_for_whom_it_is_shared_with",
    "caches of runs that were read": "test_caches_are_their_owners",
    "sockets, keys, the list": "test_list_of_trusted_directories test_browsers_command_line_has_no_token",
}
"""The tests of the rows of the tables of servers and of readers, by a row's beginning."""


@pytest.mark.parametrize("first", ["files below a run", "the run's directory and all in it"])
def test_each_row_of_security_has_its_tests(first: str) -> None:
    """Every row of the tables of servers and of readers has tests of its own, which stand behind the table."""
    block, after = next(pair for pair in promises() if f"| {first}" in pair[0])
    for row in [line.removeprefix("| ") for line in block.splitlines() if line.startswith("| ")][1:]:
        tests = [names for begin, names in ROWS.items() if row.startswith(begin)]
        assert tests or row.startswith("what a command writes where you say so"), row[:60]  # what any program does
        assert all(f"::{name}" in after for names in tests for name in names.split()), row[:60]


SENTENCES = {
    "`trackers` reads data": "test_what_the_second_account_plants_is_not_followed",
    "Such data never makes `trackers`": "test_nothing_that_is_read_is_executed",
    "run a program,": "test_nothing_that_is_read_is_executed",
    "write or delete outside": "test_what_the_second_account_plants_is_not_followed "
    "test_deletion_that_somebody_else_says_was_begun_isnt_ended test_folder_that_is_swapped_is_not_emptied "
    "test_folder_of_a_run_that_is_a_link_has_nothing_renamed test_note_of_somebody_else_moves_nothing_out "
    "test_note_of_somebody_else_moves_nothing_in test_note_names_files_of_trackers_that_have_some "
    "test_compressed_log_swapped_for_a_link_changes_no_permissions test_note_of_another_account_removes_nothing "
    "test_folder_of_logs_that_becomes_a_link_leads_nowhere test_project_that_is_swapped_has_no_other_run_deleted",
    "read a file that doesn't": "test_planted_thing_is_not_used",
    "send a credential": "test_credentials_stay_with_the_readers_addresses",
    "A run's `run.json` has its options": "test_own_options_count_as_they_were_written",
    "Those that name programs": "test_own_options_count_as_they_were_written test_other_options_come_from_the_reader",
    "A run is yours if": "test_seal_is_worth_nothing_elsewhere",
    "you, or root, own": "test_other_options_come_from_the_reader",
    "`run.json` has your seal": "test_seal_is_worth_nothing_elsewhere "
    "test_directories_of_keys_are_made_for_their_owner",
    "Unpacking an archive": "test_seal_is_worth_nothing_elsewhere",
    "For other runs they come": "test_other_options_come_from_the_reader",
    "`trackers sync --trust` uses": "test_mlflow_delivery_of_anothers_run_asks_the_readers_server_alone",
    "Your own runs need it": "test_run_is_delivered_where_no_key_can_be_kept",
    "Texts of runs are printed": "test_what_is_printed_of_a_run_has_no_terminal_escapes "
    "test_texts_of_a_directorys_files_are_printed_without_escapes",
    "In CSV files": "test_csv_of_commands_has_no_formula test_no_spreadsheet_calculates_and_all_reads_back",
    "Deliveries work in": "test_delivery_runs_where_no_settings_lie",
    "YAML (sweeps": "test_aliases_that_stand_for_too_much_are_refused test_what_is_no_plain_yaml_is_one_line",
    "A record whose time": "test_numbers_of_a_record_are_bounded_where_it_is_read test_one_odd_record_hides_no_other",
    "The git repository": "test_repository_runs_no_program_of_its_own",
    "The uncommitted patch is taken": "test_repository_runs_no_program_of_its_own "
    "test_what_a_partial_clone_lacks_is_not_fetched "
    "test_patch_holds_no_files_of_another_directory",
    "A `.git` that is a link": "test_repository_of_another_directory_is_not_read "
    "test_repositories_elsewhere_that_name_the_directory_count test_submodule_that_leads_elsewhere_is_not_read "
    "test_repository_that_git_can_not_read_is_not_looked_for_above",
    "Objects may lie": "test_commits_objects_may_lie_elsewhere",
    "Filters of your own": "test_filter_of_the_users_own_configuration_counts "
    "test_users_filter_does_not_run_where_the_repository_names_its_programs",
    "`trackers rerun` makes": "test_filters_of_the_repository_and_of_the_user_do_not_run "
    "test_hooks_of_the_repository_do_not_run",
    "What merely lies": "test_own_tree_is_data_until_it_is_named",
    "Names count that": "test_file_of_the_directory_names_nothing_elsewhere",
    "`.config` and defconfigs": "test_file_of_the_directory_names_nothing_elsewhere "
    "test_directorys_own_file_names_no_program",
    "Such an option is left out": "test_file_of_the_directory_names_nothing_elsewhere",
    "A link, and what is no": "test_config_that_is_no_plain_file_of_some_size_is_refused "
    "test_list_of_defconfigs_shows_nothing_of_other_files",
    "A `Kconfig` that sources": "test_tree_of_the_directory_reaches_nothing",
    "If it does more": "test_own_tree_is_data_until_it_is_named",
    "Defaults or conditions in": "test_chain_of_thousands_is_one_clear_error",
    "`trackers trust .` lets": "test_list_of_trusted_directories "
    "test_commands_evaluate_the_tree_of_a_trusted_directory",
    "Directories below": "test_list_of_trusted_directories",
    "`trackers trust --list`": "test_list_of_trusted_directories",
    "The list counts only": "test_list_of_trusted_directories",
    "A bare name": "test_file_of_the_directory_by_a_bare_name_is_data",
    "A relative path in": "test_defconfig_by_name_and_path",
    "A file that you name": "test_defconfig_by_name_and_path",
    "The commands `trackers` and": "test_program_takes_no_module_from_the_directory",
    "`python -m trackers` is": "test_program_takes_no_module_from_the_directory",
    "So is an empty or relative": "test_empty_part_of_pythonpath_installs_nothing",
    "Plug-ins are programs": "test_variable_limits_what_counts",
    "What looks like one": "test_what_lies_in_the_current_directory_is_not_installed "
    "test_empty_part_of_pythonpath_installs_nothing",
    "`trackers doctor` lists": "test_doctor_says_whose_code_runs test_record_of_a_run_names_its_plugins "
    "test_variable_limits_what_counts",
    "Secrets are masked": "test_texts_of_other_libraries_and_messages_have_no_keys "
    "test_secrets_reach_no_file_and_no_terminal test_run_keeps_no_secret_of_any_kind "
    "test_secrets_beside_the_configuration_are_not_recorded test_secrets_in_an_exception_are_not_recorded "
    "test_command_line_shows_no_secret test_secrets_around_what_is_logged_are_not_recorded",
    "What is kept as it is": "test_secrets_around_what_is_logged_are_not_recorded test_copy_says_what_its_source_says",
    "They are recognised by": "test_each_kind_of_secret_is_masked_in_every_text",
    "name: under": "test_text_under_a_secrets_name_is_masked test_key_of_a_secret_hides_every_text_under_it "
    "test_text_under_a_weak_name_is_masked_where_it_looks_like_a_secret",
    "form: keys": "test_keys_are_known_by_their_form test_forms_are_a_table_that_is_used_whole",
    "context, where": "test_secrets_of_the_corpus_are_masked",
    "place: in the rest": "test_what_looks_made_behind_a_secrets_name_is_masked",
    "What refers to a secret": "test_harmless_values_of_the_corpus_are_kept",
    "So do other numbers": "test_command_line_shows_no_secret test_harmless_values_of_the_corpus_are_kept "
    "test_tokens_of_a_model_are_no_secrets",
    "`make secrets` prints": "test_command_prints_both_figures",
    "A test holds": "test_secrets_of_the_corpus_are_masked test_harmless_values_of_the_corpus_are_kept",
    "No mask recognises": "test_files_of_a_run_are_for_whom_it_is_shared_with",
    "New runs are": "test_files_of_a_run_are_for_whom_it_is_shared_with",
    "With `TRACKER_SHARE": "test_files_of_a_run_are_for_whom_it_is_shared_with",
    "Whoever continues": "test_who_continues_a_run_leaves_its_permissions test_runs_of_another_account_are_private",
    "In `run.json` and": "test_run_records_what_ran test_secrets_reach_no_file_and_no_terminal",
    "Who can write to a project's folder": "test_run_in_sticky_folders_is_replaced_by_nobody_else",
    "In `relay.log` and": "test_secrets_reach_no_file_and_no_terminal",
}
"""The tests of each sentence outside of the tables, by a sentence's beginning."""
MEASURED = ("Texts that the rules", "Masking a text")
"""Sentences that say what was measured."""


def sentences(block: str) -> Iterator[str]:
    """The sentences and list items of a block, without its tables and examples."""
    lines = [line for line in block.splitlines() if not line.startswith("| ")]
    text = re.sub(r"\s+", " ", re.sub(r"```.*?```", "", "\n".join(lines), flags=re.S))
    found = re.split(r"(?<=[.;]) (?=[A-Z`])|(?<=[a-z`:]) ?- (?=[a-z`])|(?<=[.;,]) - (?=[A-Za-z`])|^- | (?=- `)", text)
    yield from (sentence.removeprefix("- ").strip() for sentence in found if sentence.strip(" -|"))


def test_each_sentence_of_security_has_its_tests() -> None:
    """Every sentence has tests of its own, which stand behind its block, or says what was measured; and none is left
    over."""
    used = set()
    for block, after in promises():
        for sentence in sentences(block):
            begins = [begin for begin in SENTENCES if sentence.startswith(begin)]
            used.update(begins)
            assert begins or sentence.startswith(MEASURED), sentence
            for name in " ".join(SENTENCES[begin] for begin in begins).split():
                assert f"::{name}" in after, (sentence[:60], name)
    assert used == set(SENTENCES)


FIGURES = {
    "waited for once, for 10 seconds": ("journal.checksums.NUL_PATIENCE_S", 10.0),
    "at most 200 levels deep": ("records.DEPTH", 200),
    "stand for at most 100,000 values": ("formats.yaml_text.EXPANDED", 100_000),
    "at most 256 MiB": ("readers.mlflow.bounded_http.ANSWER_BYTES", 256 << 20),
    "and 180 seconds": ("readers.mlflow.bounded_http.ANSWER_S", 180.0),
    "after a hundred empty pages": ("readers.mlflow.reader.EMPTY_PAGES", 100),
    "or at 200,000 runs": ("readers.mlflow.reader.MOST_RUNS", 200_000),
    "at most 60 seconds": ("readers.wandb.fetch.CLIENT_TIMEOUT_S", 60),
    "64 at once": ("relay.nodes.landing.MOST_STRANGERS", 64),
    "10 seconds each; the oldest": ("relay.nodes.landing.STRANGER_S", 10.0),
    "of 64 connections": ("ui.server.CONNECTIONS", 64),
    "each after 10 seconds": ("ui.server.HEAD_S", 10.0),
    "a POST of JSON up to 4 MiB": ("ui.server.DEED_BYTES", 4 << 20),
    "At most 64 MiB of a file": ("ui.media.FILE_BYTES", 64 << 20),
    "500 rows and": ("ui.tables.MOST_ROWS", 500),
    "20,000 cells": ("ui.tables.MOST_CELLS", 20_000),
    "256 KiB of a log": ("ui.answers.LOG_BYTES", 256 << 10),
    "regular file of at most 1 MiB": ("configuration.trusted.MOST_BYTES", 1 << 20),
    "at most 200 files": ("configuration.search_path.MOST_FILES", 200),
    "files and 256 KiB": ("configuration.search_path.MOST_BYTES", 256 << 10),
    "50 definitions of one option": ("configuration.search_path.MOST_DEFINITIONS", 50),
    "up to 1 MB)": ("provenance.repository.PATCH_BYTES", 1_000_000),
}
"""Bounds as docs/security.md has them, with the constant of each; that they bound is for the sentences' own tests."""


@pytest.mark.parametrize("words", FIGURES)
def test_bounds_of_security_are_the_codes(words: str) -> None:
    """The page names the bound that holds: tests of what it bounds often set it to something small."""
    name, figure = FIGURES[words]
    module, _, constant = name.rpartition(".")
    assert words in " ".join((ROOT / "docs/security.md").read_text("utf-8").split())
    assert getattr(importlib.import_module(f"trackers.{module}"), constant) == figure
