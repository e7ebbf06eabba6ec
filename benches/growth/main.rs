//! What grows with the size of a set, and what does not: `just growth`.
//!
//! One row for each size: the time of a decision, of the start from files, and of a change to one object in a
//! small file next to the others; memory; and the processor time of proofs over all requests: an invariant of the
//! set and of one write, and what five changed bindings grant. Each row is measured in a process of its own, so
//! that its memory is that of this size alone. Changes take the same way as in the gateway: the file is written,
//! the watch notices it, and the time ends when the set is in force.
//!
//! Arguments, after `--`: `bindings`, `policies`, `namespaces`, `clusters`, `watched` (clusters) or
//! `watched-bindings` for these rows alone, and a number for one size alone.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a measurement that cannot be made ends at once"
)]

#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what tests share ends where a test would"
)]
#[path = "../../tests/harness/mod.rs"]
mod harness;
mod process;
mod setup;
mod watched;

use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant, SystemTime};

use portcullis::state::{self, NoManifestSource, ReloadAttempt, ReloadState, Reloader, Snapshot};
use portcullis_policy::authorization::proof::{
    InvariantProof, InvariantStatus, UnknownRoles, WorkLimit, difference,
};
use portcullis_policy::authorization::{
    AuthorizationInvariant, AuthorizationPolicy, Binding, Effect, Enforcement, FailurePolicy, Mode,
    ObjectWrite, PolicySet, ResourceRule, RoleKind, RoleRef, Subject,
};
use portcullis_policy::model::{Attributes, Deadline, ResourceAttributes, Target, Time, User, Validity};

use setup::{Setup, Size, Sort};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Makes this program measure one row.
const ROW: &str = "--row";

/// The heads of both tables.
const OF_FILES: &str = "| | decision (ns) | start (s) | start, CPU (s) | change in force (s) | change, CPU (ms) | resident (MB) | peak ÷ resident | invariant, CPU (ms) | write, CPU (ms) | difference, CPU (ms) | difference (MB) |";
const OF_WATCHED: &str = "| | start (s) | start, CPU (s) | change in force (s) | change, CPU (ms) | 20 changes/s (% of a core) | idle (% of a core) | resident (MB) | peak ÷ resident |";

/// How often an object is changed.
const CHANGES: u32 = 10;

/// How long freed memory is given to return to the system.
const IDLE: Duration = Duration::from_secs(4);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|one| one != "--bench").collect();
    if arguments.first().map(String::as_str) == Some(ROW) {
        let size = size(arguments.get(1), arguments.get(2)).expect("a sort and a number");
        return if size.sort.is_watched() {
            watched::row(&size)
        } else {
            row(&size)
        };
    }
    if arguments.first().map(String::as_str) == Some(watched::SERVE) {
        return watched::serve(arguments.get(1..).unwrap_or_default());
    }
    let (watched, of_files): (Vec<&Size>, Vec<&Size>) = Size::ALL
        .iter()
        .filter(|one| one.is_meant(&arguments))
        .partition(|one| one.sort.is_watched());
    for (head, rows) in [(OF_FILES, of_files), (OF_WATCHED, watched)] {
        if !rows.is_empty() {
            println!("{head}\n{}", "|---".repeat(head.matches('|').count() - 1) + "|");
            rows.into_iter().for_each(measure);
        }
    }
}

/// Measures one row in a process of its own.
fn measure(one: &Size) {
    let mut row = Command::new(std::env::current_exe().expect("this program"));
    row.arg(ROW).arg(one.sort.name()).arg(one.count.to_string());
    let status = row.status().expect("a process");
    assert!(
        status.success(),
        "{} {} could not be measured",
        one.count,
        one.sort.name()
    );
}

fn size(sort: Option<&String>, count: Option<&String>) -> Option<Size> {
    let sort = Sort::parse(sort?)?;
    Some(Size {
        sort,
        count: count?.parse().ok()?,
    })
}

fn row(size: &Size) {
    let setup = Setup::new(size);
    let (start, start_cpu, snapshot) = measured(|| load(&setup));
    let set = snapshot.policies.for_cluster(&setup.cluster());
    let (decision, proofs) = (decision(set), proofs(set));
    let state = ReloadState::new(snapshot, Arc::new(NoManifestSource));
    let (ended, reloads) = channel();
    let observer = Box::new(move |attempt: ReloadAttempt<'_>| {
        let is_reloaded = matches!(attempt, ReloadAttempt::Reloaded(_));
        let _ = ended.send(is_reloaded);
    });
    let reloader = Reloader::start(
        Arc::clone(&state),
        setup.configuration(),
        state::RELOAD_TIMEOUT,
        observer,
    );
    let reloader = reloader.expect("a thread");
    std::thread::sleep(IDLE);
    let (resident, peak) = process::memory();
    let (mut in_force, mut cpu) = (Duration::ZERO, Duration::ZERO);
    for round in 0..CHANGES {
        let (taken, used, is_reloaded) = measured(|| {
            setup.change(round);
            reloads.recv_timeout(state::RELOAD_TIMEOUT).expect("a reload")
        });
        assert!(is_reloaded, "the change was refused");
        in_force += taken;
        cpu += used;
    }
    drop(reloader);
    println!(
        "| {} {} | {decision:.0} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} | {:.2} | {} |",
        size.count,
        size.sort.name(),
        start.as_secs_f64(),
        start_cpu.as_secs_f64(),
        (in_force / CHANGES).as_secs_f64(),
        1e3 * (cpu / CHANGES).as_secs_f64(),
        resident,
        peak / resident,
        proofs.map(|proof| format!("{proof:.2}")).join(" | "),
    );
}

fn load(setup: &Setup) -> Snapshot {
    let (snapshot, faults) = state::load(&setup.configuration(), &NoManifestSource, None, SystemTime::now());
    snapshot.unwrap_or_else(|| panic!("{faults}"))
}

/// How long `work` took, the processor time of this process meanwhile, and the result.
fn measured<T>(work: impl FnOnce() -> T) -> (Duration, Duration, T) {
    let (cpu, start) = (process::cpu(), Instant::now());
    let done = work();
    (start.elapsed(), process::cpu().saturating_sub(cpu), done)
}

/// Nanoseconds of a decision that a RoleBinding allows: the median of many rounds.
fn decision(set: &PolicySet) -> f64 {
    const ROUNDS: usize = 201;
    const DECISIONS: u32 = 1_000;
    let target = ResourceAttributes {
        verb: "get".into(),
        version: "v1".into(),
        resource: "pods".into(),
        namespace: "team-7".into(),
        ..ResourceAttributes::default()
    };
    let request = Attributes {
        user: User {
            name: "user-7".into(),
            groups: vec!["team-7".into(), "system:authenticated".into()],
            ..User::default()
        },
        target: Target::Resource(Box::new(target)),
    };
    let round = || {
        for _ in 0..DECISIONS {
            std::hint::black_box(set.authorize(std::hint::black_box(&request), Time::UNIX_EPOCH));
        }
    };
    median::<ROUNDS>(round) * 1e9 / f64::from(DECISIONS)
}

/// Seconds of a round: the median of many.
fn median<const ROUNDS: usize>(mut round: impl FnMut()) -> f64 {
    median_of::<ROUNDS>(|| {
        let start = Instant::now();
        round();
        start.elapsed()
    })
}

/// The same in processor time.
fn processor_time<const ROUNDS: usize>(mut round: impl FnMut()) -> f64 {
    median_of::<ROUNDS>(|| {
        let start = process::cpu_of_thread();
        round();
        process::cpu_of_thread() - start
    })
}

fn median_of<const ROUNDS: usize>(mut measure: impl FnMut() -> Duration) -> f64 {
    let mut rounds = [Duration::ZERO; ROUNDS];
    for taken in &mut rounds {
        *taken = measure();
    }
    let (_, median, _) = rounds.select_nth_unstable(ROUNDS / 2);
    median.as_secs_f64()
}

/// The processor time, in milliseconds, to prove an invariant of the set and of one written binding, and to
/// compare the set with one that has five more bindings; and the megabytes by which the comparison raises the
/// resident memory.
fn proofs(set: &PolicySet) -> [f64; 4] {
    const ROUNDS: usize = 11;
    let limit = WorkLimit {
        parts: usize::MAX,
        deadline: Deadline::NEVER,
    };
    let invariant = invariant();
    let changed = (0..5).fold(set.clone(), |set, number| written(&set, number));
    let status = |proof: Result<InvariantProof<'_>, _>| {
        let proof = proof.expect("no limit");
        proof.status(&invariant, UnknownRoles::GrantNothing)
    };
    let invariant_of_set = processor_time::<ROUNDS>(|| {
        let proof = InvariantProof::of_set(set, Time::UNIX_EPOCH, limit);
        assert!(matches!(status(proof), InvariantStatus::Holds), "of all bindings");
    });
    let write = processor_time::<ROUNDS>(|| {
        let after = written(set, 0);
        let proof = InvariantProof::of_change(set, &after, Time::UNIX_EPOCH, limit);
        assert!(
            matches!(status(proof), InvariantStatus::Broken(_)),
            "by the write"
        );
    });
    let (before, _) = process::memory();
    let compared = processor_time::<ROUNDS>(|| {
        let changes = difference(set, &changed, Time::UNIX_EPOCH, limit).expect("no limit");
        assert!(changes.len() >= 5, "five bindings");
    });
    let (after, _) = process::memory();
    [
        1e3 * invariant_of_set,
        1e3 * write,
        1e3 * compared,
        (after - before).max(0.0),
    ]
}

/// The set with one more binding.
fn written(set: &PolicySet, number: usize) -> PolicySet {
    let binding = Binding {
        namespace: format!("team-{number}"),
        name: format!("new-{number}"),
        role: RoleRef {
            kind: RoleKind::ClusterRole,
            name: "edit".to_owned(),
        },
        subjects: vec![Subject::group(format!("contractors-{number}"))],
        until: None,
    };
    let write = ObjectWrite::Binding(Arc::new(binding));
    set.after_write(&write).expect("a binding that changes something")
}

/// Only the teams, and the user who is bound as well, may read Pods: all bindings have to be compared.
fn invariant() -> AuthorizationInvariant {
    let texts = |text: &str| vec![text.to_owned()];
    let pods = ResourceRule {
        verbs: texts("get").into(),
        api_groups: texts("").into(),
        resources: vec!["pods".into()],
        ..ResourceRule::default()
    };
    AuthorizationInvariant {
        forbidden: AuthorizationPolicy {
            name: "pods".to_owned(),
            effect: Effect::Deny,
            mode: Mode::Enforce,
            subjects: vec![Subject::group("*")],
            exclude_subjects: vec![Subject::group("team-*"), Subject::user("user-*")],
            resource_rules: vec![pods],
            non_resource_rules: Vec::new(),
            conditions: Vec::new(),
            object_conditions: Vec::new(),
            liftable: false,
            failure_policy: FailurePolicy::Deny,
            reason: String::new(),
            validity: Validity::default(),
        },
        enforcement: Enforcement::Refuse,
    }
}
