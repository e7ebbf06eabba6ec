//! Counts the instructions and allocations of fixed inputs and compares them with
//! `benches/instructions.txt`: `just instructions`, or `just instructions --record` to
//! write the file.
//!
//! ```text
//! main ─▶ valgrind ─▶ this program, `run` ─▶ a dump of the instructions of each case
//!   ▲                      └─ its output: a case and its allocations a line
//!   └── compares both with the file: more than 3 % more instructions, or one allocation, fails
//! ```
//!
//! Time varies with the machine and its load; these numbers do not. What could change them
//! without a change of the code is kept out: the program has an allocator of its own
//! (that of the C library differs by its version), no address of memory is random, and no
//! instruction outside a case is counted. What remains are the random seeds of hash tables,
//! by which two runs differ by up to 1.5 %: the median of five runs counts.

mod allocator;
mod cases;
mod record;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use allocator::CountingAllocator;
use record::{CaseCount, CountRecord};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// Makes this program the one that is counted.
const RUN: &str = "run";

/// Has the file written instead of compared.
const RECORD: &str = "--record";

/// How often everything is counted. Odd, so that there is a median.
const RUNS: usize = 5;

/// The functions at whose ends valgrind writes what it has counted: before a case, which
/// is of no interest, and after it.
const BEFORE: &str = "*begin_of_case*";
const AFTER: &str = "*counted_case*";

fn main() -> ExitCode {
    let argument = std::env::args().nth(1).unwrap_or_default();
    match argument.as_str() {
        RUN => {
            run();
            ExitCode::SUCCESS
        }
        "" | RECORD => match report(argument == RECORD) {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => {
                eprintln!("{message}");
                ExitCode::FAILURE
            }
        },
        other => {
            eprintln!("unknown option `{other}`: there is `{RECORD}`, and nothing to compare");
            ExitCode::FAILURE
        }
    }
}

/// Runs each case twice: what is made once is there when it is counted.
fn run() {
    for (name, mut case) in cases::all() {
        case();
        let before = ALLOCATOR.count();
        begin_of_case();
        counted_case(&mut *case);
        println!("{} {name}", ALLOCATOR.count() - before);
    }
}

/// Ends what was counted before.
#[inline(never)]
fn begin_of_case() {
    std::hint::black_box(());
}

/// What is counted of the program: from here on, until it returns.
#[inline(never)]
fn counted_case(case: &mut dyn FnMut()) {
    case();
}

fn report(is_to_be_recorded: bool) -> Result<(), String> {
    let runs: Vec<CountRecord> = (0..RUNS).map(|_| count()).collect::<Result<_, _>>()?;
    let counted = CountRecord::median(&runs);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../instructions.txt");
    let fault = |error: std::io::Error| format!("{}: {error}", file.display());
    if is_to_be_recorded {
        return std::fs::write(&file, counted.to_string()).map_err(fault);
    }
    let recorded = CountRecord::parse(&std::fs::read_to_string(&file).map_err(fault)?)?;
    let faults = counted.compare(&recorded);
    if faults.is_empty() {
        println!("{counted}");
        return Ok(());
    }
    Err(format!(
        "{}\n\nIf that is meant, write benches/instructions.txt with `just instructions {RECORD}` and say why in \
         the commit.",
        faults.join("\n")
    ))
}

/// Has valgrind run the cases once.
fn count() -> Result<CountRecord, String> {
    let folder = tempdir()?;
    let counted = count_in(&folder);
    let _left_over = std::fs::remove_dir_all(&folder);
    counted
}

fn count_in(folder: &Path) -> Result<CountRecord, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let dumps = folder.join("dump");
    let mut valgrind = Command::new("setarch");
    valgrind
        .args(["--addr-no-randomize", "valgrind", "--tool=callgrind"])
        .arg(format!("--dump-after={BEFORE}"))
        .arg(format!("--dump-after={AFTER}"))
        .arg(format!("--callgrind-out-file={}", dumps.display()))
        .arg(program)
        .arg(RUN);
    let output = valgrind
        .output()
        .map_err(|error| format!("setarch (util-linux) and valgrind are needed: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "valgrind failed: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    let counts = lines.lines().enumerate().map(|(place, line)| {
        let (allocations, name) = line.split_once(' ').ok_or("a line without a case")?;
        let dump = std::fs::read_to_string(folder.join(format!("dump.{}", 2 * place + 2)));
        let dump = dump.map_err(|error| format!("the dump of `{name}`: {error}"))?;
        Ok(CaseCount {
            name: name.to_owned(),
            instructions: record::total(&dump).ok_or_else(|| format!("the dump of `{name}` has no total"))?,
            allocations: allocations
                .parse()
                .map_err(|_| format!("allocations of `{name}`"))?,
        })
    });
    counts.collect::<Result<_, String>>().map(CountRecord)
}

fn tempdir() -> Result<PathBuf, String> {
    let folder = std::env::temp_dir().join(format!("portcullis-instructions-{}", std::process::id()));
    std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}
