//! `portcullis completion` and `portcullis man`.

use crate::run::Portcullis;

const COMMANDS: [&str; 23] = [
    "serve",
    "init",
    "register",
    "check",
    "authorize",
    "admit",
    "test",
    "who-can",
    "what-can",
    "escalations",
    "suggest",
    "scan",
    "replay",
    "convert",
    "pack",
    "bundle",
    "diff",
    "request",
    "approve",
    "deny",
    "withdraw",
    "completion",
    "man",
];

#[test]
fn each_command_has_a_man_page_that_names_its_flags() {
    let portcullis = Portcullis::new();
    let run = portcullis.run("man pages");
    assert_eq!(run.code, 0, "{run:?}");
    let read = |page: &str| std::fs::read_to_string(portcullis.path(page)).unwrap();
    let main = read("pages/portcullis.1");
    for command in COMMANDS {
        let page = format!("pages/portcullis-{command}.1");
        assert!(run.stdout.contains(&page), "{run:?}");
        let page = read(&page);
        assert!(page.starts_with(".ie") && page.contains(".SH SYNOPSIS"), "{page}");
        assert!(main.contains(&command.replace('-', "\\-")), "{command}");
    }
    assert!(read("pages/portcullis-who-can.1").contains("\\-\\-all\\-namespaces"));
    let listed = run.stdout.lines().count();
    let of_bundle = ["build", "push", "pull", "verify"];
    for command in of_bundle {
        assert!(
            run.stdout
                .contains(&format!("pages/portcullis-bundle-{command}.1")),
            "{run:?}"
        );
    }
    assert_eq!(listed, COMMANDS.len() + of_bundle.len() + 1, "{run:?}");
    assert_eq!(
        std::fs::read_dir(portcullis.path("pages")).unwrap().count(),
        listed
    );
}

/// The groups of commands, each with the lines of its commands.
fn groups(help: &str) -> Vec<(&str, Vec<&str>)> {
    let blocks = help.split("\n\n").filter_map(|block| block.split_once(":\n"));
    let commands = blocks.filter(|(group, _)| *group != "Options");
    commands
        .map(|(group, lines)| (group, lines.lines().collect()))
        .collect()
}

#[test]
fn the_help_has_every_command_in_its_group_and_says_what_none_does() {
    let help = Portcullis::new().run("--help").stdout;
    let groups = groups(&help);
    let names: Vec<&str> = groups.iter().map(|(group, _)| *group).collect();
    assert_eq!(
        names,
        [
            "Serve",
            "Policies",
            "Questions",
            "Change",
            "Temporary access",
            "Shell"
        ],
        "{help}"
    );
    let lines = groups.iter().flat_map(|(_, lines)| lines);
    let mut commands: Vec<&str> = lines.filter_map(|line| line.split_whitespace().next()).collect();
    commands.sort_unstable();
    let mut expected: Vec<&str> = COMMANDS.into_iter().chain(["help"]).collect();
    expected.sort_unstable();
    assert_eq!(commands, expected);
    assert!(
        help.contains("Without a command, serves the development set-up in `.portcullis/`"),
        "{help}"
    );
}

#[test]
fn each_command_lists_its_own_formats_alone() {
    let portcullis = Portcullis::new();
    let commands = COMMANDS
        .into_iter()
        .filter(|command| !["completion", "bundle"].contains(command));
    for command in commands.chain(["bundle build", "bundle push", "bundle pull", "bundle verify"]) {
        let help = portcullis.run(&format!("{command} --help")).stdout;
        let (_, formats) = help
            .split_once("-o, --output")
            .unwrap_or_else(|| panic!("{help}"));
        let (formats, _) = formats.split_once("[default: ").unwrap();
        let listed: Vec<&str> = formats
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- ")?.split(':').next())
            .collect();
        let expected: &[&str] = match command {
            "check" => &["text", "json", "sarif"],
            "scan" => &["text", "table", "json", "junit", "sarif", "openreports"],
            "replay" => &["text", "json", "junit"],
            "what-can" => &["text", "wide", "json"],
            "diff" => &["text", "json", "markdown", "sarif"],
            "escalations" => &["text", "json", "dot", "mermaid"],
            _ => &["text", "json"],
        };
        assert_eq!(listed, expected, "{command}");
        for format in ["sarif", "junit", "openreports", "wide", "dot", "markdown"] {
            if !expected.contains(&format) {
                let run = portcullis.run(&format!("{command} -o {format}"));
                assert_eq!(run.code, 2, "{run:?}");
                assert!(run.stderr.contains("invalid value"), "{run:?}");
            }
        }
    }
}

#[test]
fn shells_complete_commands_and_flags() {
    let portcullis = Portcullis::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = portcullis.run(&format!("completion {shell}"));
        assert_eq!(run.code, 0, "{run:?}");
        for word in COMMANDS.into_iter().chain(["all-namespaces"]) {
            assert!(run.stdout.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(portcullis.run("completion tcsh").code, 2);
}

/// What the shell runs on Tab, without a terminal.
#[test]
fn bash_offers_what_begins_so() {
    let portcullis = Portcullis::new();
    portcullis.write("complete.bash", &portcullis.run("completion bash").stdout);
    let script = "source complete.bash; COMP_WORDS=(portcullis wh); COMP_CWORD=1; \
                  _portcullis portcullis wh portcullis; echo \"${COMPREPLY[*]}\"";
    let output = std::process::Command::new("bash")
        .args(["-c", script])
        .current_dir(portcullis.path(""))
        .output()
        .unwrap();
    let offered = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        offered.trim(),
        "who-can what-can",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_former_name_of_a_flag_is_refused_with_its_new_name() {
    let portcullis = Portcullis::new();
    for (arguments, old, new) in [
        ("replay --against=old.yaml recordings", "--against", "--baseline"),
        (
            "replay --allow-flips a recordings",
            "--allow-flips",
            "--allow-changes",
        ),
        (
            "admit -f pod.yaml --sub-resource status",
            "--sub-resource",
            "--subresource",
        ),
    ] {
        let run = portcullis.run(arguments);
        let tip = format!("`{old}` was renamed to `{new}`");
        assert_eq!((run.code, run.stderr.matches("tip:").count()), (2, 1), "{run:?}");
        assert!(run.stderr.contains(&tip), "{run:?}");
    }
}
