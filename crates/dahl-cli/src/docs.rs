//! docs/settings.md and the tables of docs/cli.md, generated from the declarations of flags:
//! `UPDATE_DOCS=1 cargo test -p dahl-cli --bin dahl docs` writes them.

use crate::Cli;
use crate::args::with_flags;
use crate::files::{read, write};
use clap::{Arg, Command, CommandFactory};
use dahl::run::RunConfig;
use dahl::run::config::{Class, SETTINGS};
use std::path::Path;

/// The commands with their names, `bench kernels` among them.
fn commands<'a>(of: &'a Command, path: &str, all: &mut Vec<(String, &'a Command)>) {
    for command in of.get_subcommands().filter(|command| command.get_name() != "help") {
        let path = format!("{path} {}", command.get_name()).trim().to_owned();
        commands(command, &path, all);
        all.push((path, command));
    }
}

fn arguments(command: &Command) -> impl Iterator<Item = &Arg> {
    let own = |arg: &&Arg| !["help", "version", "config"].contains(&arg.get_id().as_str());
    command.get_arguments().filter(own)
}

/// Whether an argument is a setting of a run, and not only has the same name.
fn is_setting(arg: &Arg) -> bool {
    let id = arg.get_long().unwrap_or_default();
    let Some(setting) = RunConfig::setting(id) else { return false };
    arg.get_help().is_some_and(|help| help.to_string() == with_flags(setting.help.trim()))
}

/// A flag or argument as it is written.
fn written(arg: &Arg) -> String {
    let values: Vec<String> =
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let names = arg.get_value_names().unwrap_or_default();
    let name = names.first().map_or(String::new(), ToString::to_string);
    let least = arg.get_num_args().map(|count| count.min_values());
    let many = arg.get_num_args().is_some_and(|count| count.max_values() > 1);
    match arg.get_long() {
        Some(long) if !arg.get_action().takes_values() => format!("--{long}"),
        Some(long) if !values.is_empty() => format!("--{long} {}", values.join("|")),
        Some(long) if arg.is_require_equals_set() => format!("--{long}[={name}]"),
        Some(long) if least == Some(0) => format!("--{long} [{name}]"),
        Some(long) => format!("--{long} {name}"),
        None if many => format!("{name}…"),
        None if arg.is_required_set() => name,
        None => format!("[{name}]"),
    }
}

/// The row of a flag in a table.
fn row(arg: &Arg, class: Option<Class>) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let (help, stated) = help.split_once(" [default: ").unwrap_or((&help, ""));
    let own: Vec<_> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let has_own = arg.get_action().takes_values() && stated.is_empty();
    let default = if has_own { own.join(",") } else { stated.trim_end_matches(']').to_owned() };
    let class = class.map_or(String::new(), |class| {
        let name = match class {
            Class::Identity => "identity",
            Class::Placement => "placement",
            Class::Session => "session",
        };
        format!(" {name} |")
    });
    let cell = |text: &str| text.replace('|', "\\|");
    format!("| `{}` | {} | {} |{class}\n", cell(&written(arg)), cell(help), cell(&default))
}

/// The text between two marks of docs/cli.md: the table of a command.
fn table(command: &Command) -> String {
    let own: Vec<&Arg> = arguments(command).filter(|arg| !is_setting(arg)).collect();
    let settings: Vec<String> = arguments(command)
        .filter(|arg| is_setting(arg))
        .map(|arg| format!("`--{}`", arg.get_id()))
        .collect();
    let rows: String = own.iter().map(|arg| row(arg, None)).collect();
    let mut text = match rows.is_empty() {
        true => String::new(),
        false => format!("| flag | is | default |\n|---|---|---|\n{rows}"),
    };
    if !settings.is_empty() {
        let names = if settings.len() == SETTINGS.len() { "all" } else { &settings.join(", ") };
        text += &format!("\nSettings of a run ([settings.md](settings.md)): {names}.\n");
    }
    text
}

/// The list of all commands.
fn list(all: &[(String, &Command)]) -> String {
    let line = |(path, command): &(String, &Command)| {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let positional: Vec<String> =
            arguments(command).filter(|arg| arg.is_positional()).map(written).collect();
        let usage = [std::slice::from_ref(path), &positional[..]].concat().join(" ");
        format!("| `{usage}` | {about} |\n")
    };
    let rows: String = all.iter().map(line).collect();
    format!("| command | does |\n|---|---|\n{rows}")
}

/// A text with regenerated tables between its marks, and the commands without marks.
fn filled(text: &str, root: &Command) -> (String, Vec<String>) {
    let mut all = Vec::new();
    commands(root, "", &mut all);
    all.sort_by(|a, b| a.0.cmp(&b.0));
    let mut missing: Vec<String> = all
        .iter()
        .filter(|(_, command)| arguments(command).next().is_some())
        .map(|(path, _)| path.clone())
        .collect();
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, marked)) = rest.split_once("<!-- flags of ") {
        let (path, after) = marked.split_once(" -->").expect("a mark's end");
        let (_, behind) = after.split_once("<!-- end -->").expect("a table's end");
        let table = match all.iter().find(|(other, _)| other == path) {
            Some((_, command)) => table(command),
            None => list(&all),
        };
        filled += &format!("{before}<!-- flags of {path} -->\n{table}<!-- end -->");
        missing.retain(|other| other != path);
        rest = behind;
    }
    (filled + rest, missing)
}

/// docs/settings.md.
fn settings(train: &Command) -> String {
    let mut text = "# Settings of a run\n\n\
        A *run* is one training of a model, kept in a run directory. An *invocation* is one execution of the\n\
        command `dahl train`: it starts a run or resumes one, so a run may take several invocations.\n\n\
        The library declares every setting once (`crates/dahl/src/run/config/settings.rs`). The flags of `dahl\n\
        train`, the keys of `--config`, the environment variables and this page are generated from these\n\
        declarations; `UPDATE_DOCS=1 cargo test -p dahl-cli --bin dahl docs` writes the page. The environment\n\
        variable of `--max-time`, for example, is `DAHL_MAX_TIME`. In Rust, set the field of the same name, or call\n\
        `RunConfig::set(\"lr\", &[\"0.1\"])`.\n\n\
        Each setting has a class, which determines how `--resume` treats the setting:\n\n\
        - *identity*: the setting affects losses and weights. A resumed run keeps its value; another value is an\n  \
          error.\n\
        - *placement*: the setting affects where, how and how long the run is executed. It does not change the\n  \
          losses and weights of an epoch. A resumed run keeps its value unless another value is given.\n\
        - *session*: the setting applies to one invocation. A resumed run does not keep its value.\n"
        .to_owned();
    let mut headings: Vec<&str> = Vec::new();
    for setting in SETTINGS {
        if !headings.contains(&setting.shown.heading) {
            headings.push(setting.shown.heading);
        }
    }
    for heading in headings {
        text += &format!("\n## {heading}\n\n| flag | is | default | class |\n|---|---|---|---|\n");
        for setting in SETTINGS.iter().filter(|setting| setting.shown.heading == heading) {
            let arg = arguments(train).find(|arg| arg.get_id() == setting.name);
            text += &row(arg.expect("a flag per setting"), Some(setting.class));
        }
    }
    text
}

#[test]
fn flags_are_documented() {
    let mut root = Cli::command();
    root.build();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let found = |name: &str| read(&docs.join(name)).unwrap_or_default();
    let (cli, missing) = filled(&found("cli.md"), &root);
    assert!(missing.is_empty(), "docs/cli.md has no `<!-- flags of … -->` for {missing:?}");
    let train = root.find_subcommand("train").expect("a command");
    for (name, text) in [("cli.md", cli), ("settings.md", settings(train))] {
        if std::env::var_os("UPDATE_DOCS").is_some() {
            write(&docs.join(name), &text).expect("the page");
        }
        assert!(found(name) == text, "docs/{name} is stale: UPDATE_DOCS=1 writes it");
    }
}
