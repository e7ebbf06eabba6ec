//! `portcullis completion` and `portcullis man`.

use crate::run::Portcullis;

const COMMANDS: [&str; 14] = [
    "serve",
    "init",
    "check",
    "authorize",
    "admit",
    "test",
    "who-can",
    "what-can",
    "suggest",
    "scan",
    "replay",
    "convert",
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
    assert_eq!(listed, COMMANDS.len() + 1, "{run:?}");
    assert_eq!(
        std::fs::read_dir(portcullis.path("pages")).unwrap().count(),
        listed
    );
}

#[test]
fn the_list_of_commands_is_that_of_the_program() {
    let help = Portcullis::new().run("--help").stdout;
    let commands = help
        .split("Commands:\n")
        .nth(1)
        .unwrap()
        .split("\n\n")
        .next()
        .unwrap();
    let names: Vec<&str> = commands
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(names[..names.len() - 1], COMMANDS);
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
