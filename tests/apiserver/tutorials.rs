//! The chapters on grants, limits and access for a time, typed as they are written: each file is written, each
//! command is run, and says what the page shows.
//!
//! A file is a block of YAML below a line that ends in its name and a colon; below `Add to …:` it is appended. Of what
//! a command is to say, `…` stands for anything in a line, and as a line of its own for all that follows.

use crate::binaries;
use crate::cluster::{Cluster, User};
use crate::cluster_source::servers;
use crate::control_plane::servers::SetUp;
use crate::harness::eventually;
use crate::harness::folder::Folder;
use crate::harness::process::Process;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const GATEWAY: User = User {
    name: "portcullis",
    groups: &[],
};

/// In the order in which a reader comes to them: the first connects gateway and cluster.
const CHAPTERS: [&str; 3] = ["object-conditions", "limits", "access-requests"];

/// Where the pages have the gateway's own port.
const PORT_OF_PAGES: &str = "127.0.0.1:9090";

/// A reader at a shell.
struct Reader {
    cluster: Cluster,
    set_up: SetUp,
    gateway: Process,
    /// Where kubectl, its plugin and portcullis are.
    programs: PathBuf,
    kubeconfig: PathBuf,
}

pub(crate) fn what_the_chapters_on_access_show_is_what_a_reader_sees() {
    let Some(binaries) = binaries::find() else { return };
    let folder = Folder::new("tutorials");
    let set_up = SetUp::init(&folder.path().join("set-up"), &[]);
    let programs = folder.path().join("bin");
    fs::create_dir_all(&programs).unwrap();
    let portcullis = Path::new(env!("CARGO_BIN_EXE_portcullis"));
    for (program, name) in [
        (binaries.kubectl.as_path(), "kubectl"),
        (portcullis, "portcullis"),
        (portcullis, "kubectl-portcullis"),
    ] {
        symlink(program, programs.join(name)).unwrap();
    }
    let gateway = set_up.serve();
    let cluster = Cluster::start(&binaries, folder, &[GATEWAY], &set_up.api_server_flags());
    for file in [
        "crd/authorizationpolicies.yaml",
        "crd/admissionexceptions.yaml",
        "crd/authorizationinvariants.yaml",
        "crd/accessrequests.yaml",
        "cluster/gateway.yaml",
        "cluster/admission.yaml",
    ] {
        servers::apply(&cluster, &servers::shipped(file));
    }
    let webhooks = set_up.path("webhooks.yaml");
    servers::kubectl(&cluster, &["apply", "--validate=false", "-f", &webhooks]);
    let of_gateway = set_up.path("kubeconfigs/default.kubeconfig");
    fs::copy(cluster.kubeconfig(GATEWAY.name), of_gateway).unwrap();
    let kubeconfig = cluster.folder().join("reader.kubeconfig");
    fs::copy(cluster.kubeconfig("admin"), &kubeconfig).unwrap();
    let reader = Reader {
        cluster,
        set_up,
        gateway,
        programs,
        kubeconfig,
    };
    for chapter in CHAPTERS {
        reader.types(chapter);
    }
}

impl Reader {
    fn types(&self, chapter: &str) {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/tutorial/{chapter}.md"));
        let page = fs::read_to_string(page).unwrap();
        let parts: Vec<&str> = page.split("```").collect();
        let mut commands = 0;
        for pair in parts.chunks_exact(2) {
            let [before, block] = pair else { unreachable!() };
            if let Some(text) = block.strip_prefix("yaml\n") {
                self.writes(before, text);
            } else if let Some(typed) = block.strip_prefix("console\n$ ") {
                for command in typed.split("\n$ ") {
                    self.runs(chapter, command);
                    commands += 1;
                }
            }
        }
        assert!(commands > 5, "{chapter} has {commands} commands");
    }

    /// A block of YAML below a text that names a file; others are only shown.
    fn writes(&self, before: &str, text: &str) {
        let line = before.trim_end().lines().last().unwrap_or_default();
        let name = line.strip_suffix("`:").and_then(|line| line.rsplit('`').next());
        let Some(name) = name else { return };
        if line.contains("Add to") {
            return self.set_up.rewrite(name, |own| own + text);
        }
        // At once, as an editor does.
        let path = PathBuf::from(self.set_up.path(name));
        let new = path.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, path).unwrap();
    }

    /// A command, until it says what it is to say: what was written takes effect a little later.
    fn runs(&self, chapter: &str, command: &str) {
        let command = command.replace("\\\n", " ");
        let (line, expected) = command.split_once('\n').unwrap_or((&command, ""));
        let mut said = String::new();
        let is_as_shown = eventually(|| {
            said = self.say(line);
            is_shown(&said, expected)
        });
        let logs = || self.gateway.tail() + &self.cluster.tails();
        assert!(
            is_as_shown,
            "{chapter}: {line}\n{said}\nnot\n{expected}\n{}",
            logs()
        );
    }

    fn say(&self, line: &str) -> String {
        let line = line.replace(PORT_OF_PAGES, &self.set_up.admin_address().to_string());
        let output = Command::new("sh")
            .args(["-c", &line])
            .env("PATH", format!("{}:/usr/bin:/bin", self.programs.display()))
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.cluster.folder())
            .current_dir(self.set_up.path(""))
            .output()
            .unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }
}

fn is_shown(said: &str, expected: &str) -> bool {
    let (mut said, mut expected) = (said.trim_end().lines(), expected.trim_end().lines());
    loop {
        match (said.next(), expected.next()) {
            (None, None) | (_, Some("…")) => return true,
            (Some(said), Some(expected)) if is_line(said, expected) => {}
            _ => return false,
        }
    }
}

fn is_line(said: &str, expected: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = parts.next().and_then(|first| said.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        let found = match parts.peek() {
            Some(_) => rest.find(part),
            None => rest.ends_with(part).then(|| rest.len() - part.len()),
        };
        let Some(at) = found else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}
