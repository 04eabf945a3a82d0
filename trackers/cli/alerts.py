"""``trackers alerts``: the alerts of a run, and a test of the places that alerts go to."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trackers.cli import completion
from trackers.cli.common import (
    SOURCE_HELP,
    AsJson,
    ListedByDefault,
    RunsDir,
    SourceArgument,
    open_runs,
    print_table,
    printable,
    resolve_conditions,
    show_time,
)
from trackers.cli.roots import runs_root

if TYPE_CHECKING:
    from trackers.analysis.alert_list import RunAlert


app = typer.Typer(
    name="alerts", cls=ListedByDefault,
    help="Alerts of a run: ls; rules of a project: rules; when one would have spoken: try; of places: test.",
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


@app.command("ls")
def ls(run: SourceArgument = "latest", directory: RunsDir = None, as_json: AsJson = False) -> None:
    """List a run's alerts, and what became of each at each place. "ls" may be left out.

    Of a run that another tracker has (mlflow:…, wandb:…) those that this tracker has, without what became of them.

    Example: trackers alerts latest
    """
    from trackers.analysis.tables import TextTable

    alerts = _alerts(run, directory)
    if as_json:
        print(json.dumps([alert.to_dict() for alert in alerts], indent=2))
    elif not alerts:
        print("trackers: the run has no alerts", file=sys.stderr)
    else:
        rows = [
            [
                show_time(alert.time),
                alert.step,
                alert.level,
                alert.title,
                alert.text,
                "; ".join(f"{destination} {words}" for destination, words in alert.sent.items()),
            ]
            for alert in alerts
        ]
        print_table(TextTable(["time", "step", "level", "alert", "text", "sent"], rows, texts=6))


def _alerts(run: str, directory: Path | None) -> list[RunAlert]:
    from trackers.analysis.alert_list import alerts_of, of_records
    from trackers.errors import UsageError
    from trackers.journal.naming import find_run
    from trackers.readers import registry
    from trackers.readers.run_data import RunData

    root = runs_root(directory)
    references = resolve_conditions([run], directory)
    if len(references) == 1 and registry.parse(references[0]).scheme != "run":
        reader, runs = open_runs(run, directory, one=True)
        return of_records(RunData(reader, runs[0]).records())
    matches = [find_run(name.removeprefix("run:"), root) for name in references]
    if len(matches) > 1:
        raise UsageError(f"{run!r} names {len(matches)} runs: name one, as in {matches[0].path}")
    return alerts_of(matches[0])


@app.command("try")
def try_rule(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="Rules, as in TRACKER_ALERTS.")],
    runs: Annotated[list[str], typer.Argument(metavar="SOURCE…", help=SOURCE_HELP, autocompletion=completion.runs)],
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Show when rules would have spoken in runs that are over: nothing is sent, and nothing is written.

    Example: trackers alerts try "mean(loss[50]) > 2 * mean(loss[500])" latest
    """
    from trackers.analysis import alert_replay
    from trackers.analysis.tables import TextTable
    from trackers.errors import examples

    alert_replay.check(rule)
    rows, entries = [], []
    silent = []
    for source in resolve_conditions(runs, directory):
        reader, found = open_runs(source, directory)
        for run in found:
            alerts = alert_replay.replay(rule, reader, run)
            name = run.name or run.id or run.source
            rows += [[name, show_time(one.time), one.step, one.level, one.rule, one.text] for one in alerts]
            told = [{"time": one.time, "step": one.step, "rule": one.rule, "text": one.text} for one in alerts]
            entries.append({"run": run.source, "alerts": told})
            silent += [name] * (not alerts)
    if as_json:
        print(json.dumps(entries, indent=2))
        return
    if rows:
        print_table(TextTable(["run", "time", "step", "level", "rule", "text"], rows, texts=6))
    if silent:
        print(f"trackers: no alert in {printable(examples(silent, 5))}", file=sys.stderr)


@app.command("rules")
def project_rules(
    project: Annotated[str, typer.Argument(metavar="PROJECT", autocompletion=completion.projects)],
    add: Annotated[str, typer.Option(metavar="RULES", help="Rules that hold from now on, as in TRACKER_ALERTS.")] = "",
    rm: Annotated[str, typer.Option(metavar="RULES", help="Rules that don't hold any more.")] = "",
    directory: RunsDir = None,
) -> None:
    """List the rules that hold for all runs of a project that begin from now on; --add and --rm change them.

    They lie in alerts.txt in the project's directory, which may be written by hand, too.

    Example: trackers alerts rules digits --add "nan(train_loss) -> stop"
    """
    from trackers.alerts import project_rules
    from trackers.errors import NotFound

    root = runs_root(directory, change="change the rules of a project's alerts" if add or rm else "")
    folder = root / project
    if ".." in Path(project).parts or not folder.is_dir() or folder.resolve().parent != root.resolve():
        raise NotFound(f"{root} has no project {project!r}: trackers ls --json lists what is there")
    found = project_rules.read(folder)
    texts = project_rules.change(folder, add, rm) if add or rm else found.texts
    for text in texts:
        print(printable(text, 1000))
    for problem in found.problems:
        print(printable(f"trackers: {problem}", 1000), file=sys.stderr)
    if not texts:
        print(f"trackers: project {printable(project)} has no rules: --add sets one", file=sys.stderr)


@app.command("test")
def send_test(
    to: Annotated[str, typer.Option(help="Places, as in TRACKER_ALERT_TO; default those of the configuration.")] = "",
) -> None:
    """Send a test alert to each place once, and say what happened. Exit code 1 if one of them didn't take it.

    Example: trackers alerts test
    """
    from trackers import configuration
    from trackers.alerts import sending
    from trackers.alerts.destinations import mail_server, parse
    from trackers.alerts.payloads import AlertMessage
    from trackers.errors import UsageError
    from trackers.journal.run_directory import new_id
    from trackers.support import machines

    options = configuration.resolve({"TRACKER_ALERT_TO": to or None})
    destinations = parse(str(options["TRACKER_ALERT_TO"]))
    if not destinations:
        raise UsageError("no place is named: set TRACKER_ALERT_TO, or --to; docs/alerts.md lists what it takes")
    server = mail_server(str(options["TRACKER_ALERT_SMTP"]))
    message = AlertMessage(
        id=f"test-{new_id()}", title="test", text="`trackers alerts test` sent this.", time=time.time(), run="test",
        run_id="test", project="trackers", host=machines.host(),
    )  # fmt: skip
    failed = 0
    for destination in destinations:
        answer = sending.send(destination, message, server)
        words = {sending.AGAIN: "not sent", sending.UNKNOWN: "perhaps sent"}.get(answer.state, answer.state)
        print(printable(f"{destination.label}: {words}" + (f": {answer.reason}" if answer.reason else ""), 1000))
        failed += answer.state != sending.SENT
    if failed:
        raise typer.Exit(1)
