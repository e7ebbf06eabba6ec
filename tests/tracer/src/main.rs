//! `portcullis-tracer PROCESS THREAD`: runs a thread of another process step by step until it has sent something and
//! waits again, and lists the cache lines that it has written, each with the address of the first instruction that
//! did so, in hexadecimal digits.
//!
//! It writes an empty line once the thread is stopped. Before each step (ptrace) the memory that the instruction is
//! about to write is noted. What the system writes for the thread is not: it goes where the thread asked for it.

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register, UsedMemory,
};
use nix::libc::{
    SYS_epoll_pwait, SYS_epoll_wait, SYS_sendmsg, SYS_sendto, SYS_write, SYS_writev, user_regs_struct,
};
use nix::sys::ptrace;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

/// What travels between two cores at once.
const CACHE_LINE_BYTES: u64 = 64;

/// The longest instruction.
const MAX_INSTRUCTION_BYTES: usize = 15;

/// Each cache line that was written, with the instruction that did so first.
type WrittenLines = BTreeMap<u64, u64>;

/// An instruction as far as it matters here.
struct DecodedInstruction {
    is_call_of_system: bool,
    writes: Vec<UsedMemory>,
}

/// A thread that runs step by step.
struct SteppedThread {
    thread: Pid,
    memory: File,
    decoded: HashMap<u64, Rc<DecodedInstruction>>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = env::args().skip(1).map(|number| number.parse());
    let (Some(process), Some(thread)) = (numbers.next(), numbers.next()) else {
        return Err("the numbers of a process and of a thread of it are needed".into());
    };
    let mut stepped = SteppedThread::stop(process?, Pid::from_raw(thread?))?;
    println!();
    for (line, instruction) in stepped.run_until_sent()? {
        println!("{line:x} {instruction:x}");
    }
    Ok(())
}

// === impl SteppedThread ===

impl SteppedThread {
    fn stop(process: i32, thread: Pid) -> Result<Self, Box<dyn Error>> {
        ptrace::seize(thread, ptrace::Options::empty())?;
        ptrace::interrupt(thread)?;
        waitpid(thread, None)?;
        Ok(Self {
            thread,
            memory: File::open(format!("/proc/{process}/mem"))?,
            decoded: HashMap::new(),
        })
    }

    /// Lets the thread run until it waits after it has sent something, and then by itself.
    fn run_until_sent(&mut self) -> Result<WrittenLines, Box<dyn Error>> {
        let mut written = WrittenLines::new();
        let mut has_sent = false;
        loop {
            let registers = ptrace::getregs(self.thread)?;
            let instruction = self.decode(registers.rip)?;
            if instruction.is_call_of_system {
                let call = registers.rax.cast_signed();
                if has_sent && [SYS_epoll_wait, SYS_epoll_pwait].contains(&call) {
                    break;
                }
                let is_write = [SYS_write, SYS_writev, SYS_sendto, SYS_sendmsg].contains(&call);
                // A thread wakes another one by writing at most a number.
                let wakes = [SYS_write, SYS_sendto].contains(&call) && registers.rdx <= size_of::<u64>() as u64;
                has_sent |= is_write && !wakes;
            }
            for memory in &instruction.writes {
                let address = memory.virtual_address(0, |register, _, _| value(&registers, register));
                let address = address.ok_or("an instruction writes to several places")?;
                // What saves all registers has no size; it writes to the stack.
                let last = address + (memory.memory_size().size() as u64).max(1) - 1;
                for line in address / CACHE_LINE_BYTES..=last / CACHE_LINE_BYTES {
                    written.entry(line * CACHE_LINE_BYTES).or_insert(registers.rip);
                }
            }
            ptrace::step(self.thread, None)?;
            waitpid(self.thread, None)?;
        }
        ptrace::detach(self.thread, None)?;
        Ok(written)
    }

    fn decode(&mut self, address: u64) -> Result<Rc<DecodedInstruction>, Box<dyn Error>> {
        if let Some(decoded) = self.decoded.get(&address) {
            return Ok(Rc::clone(decoded));
        }
        let mut bytes = [0; MAX_INSTRUCTION_BYTES];
        // A mapping may end before the longest instruction would.
        let length = self.memory.read_at(&mut bytes, address)?;
        let mut decoder = Decoder::with_ip(64, &bytes[..length], address, DecoderOptions::NONE);
        let decoded = Rc::new(DecodedInstruction::of(&decoder.decode()));
        self.decoded.insert(address, Rc::clone(&decoded));
        Ok(decoded)
    }
}

// === impl DecodedInstruction ===

impl DecodedInstruction {
    fn of(instruction: &Instruction) -> Self {
        let mut factory = InstructionInfoFactory::new();
        let used = factory.info(instruction).used_memory();
        let is_write = |memory: &&UsedMemory| {
            use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
            matches!(memory.access(), Write | ReadWrite | CondWrite | ReadCondWrite)
        };
        Self {
            is_call_of_system: instruction.mnemonic() == Mnemonic::Syscall,
            writes: used.iter().filter(is_write).copied().collect(),
        }
    }
}

/// What a register of addresses holds, or the base of a segment.
fn value(registers: &user_regs_struct, register: Register) -> Option<u64> {
    Some(match register {
        Register::RAX => registers.rax,
        Register::RBX => registers.rbx,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::RBP => registers.rbp,
        Register::RSP => registers.rsp,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        Register::FS => registers.fs_base,
        Register::GS => registers.gs_base,
        Register::CS | Register::DS | Register::ES | Register::SS => 0,
        _ => return None,
    })
}
