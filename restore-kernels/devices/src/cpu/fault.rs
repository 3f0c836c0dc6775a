#![allow(unsafe_code, reason = "signal handlers and a trampoline around generated code")]
//! Generated code that faults: an illegal address must fail the launch, not end the server.
//!
//! Region functions are called through a trampoline that notes its stack pointer. When a signal arrives inside, the
//! handler changes the interrupted context so that the thread goes on in the trampoline's error path; the region's
//! frames are simply dropped, which is sound because generated code owns nothing and calls nothing that does. Rejected:
//! `sigsetjmp`, which Rust cannot call (it returns twice). Signals anywhere else go to whoever handled them before.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

use hetckpt_abi::cpu_block::{CpuBlock, CpuRegion};

/// A fault of generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Signal number.
    pub signal: i32,
    /// Address of the access, if it was one.
    pub address: u64,
}

impl Fault {
    /// The CUresult that the program is to see.
    pub fn cuda_result(&self) -> u32 {
        match self.signal {
            libc::SIGSEGV => 700,
            libc::SIGBUS => 716,
            libc::SIGILL => 715,
            _ => 719,
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.signal {
            libc::SIGSEGV => write!(f, "illegal access to address {:#x}", self.address),
            libc::SIGBUS => write!(f, "misaligned or impossible access to address {:#x}", self.address),
            libc::SIGILL => write!(f, "illegal instruction"),
            signal => write!(f, "signal {signal}"),
        }
    }
}

/// Where a thread goes on after a fault.
#[repr(C)]
struct Recovery {
    /// Stack pointer inside the trampoline; null outside of it.
    stack: *mut u8,
    signal: i32,
    address: u64,
}

thread_local! {
    static RECOVERY: Cell<*mut Recovery> = const { Cell::new(ptr::null_mut()) };
}

const SIGNALS: [i32; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
static PREVIOUS: OnceLock<[libc::sigaction; 4]> = OnceLock::new();

// rdi: function, rsi: block, edx: first, ecx: end, r8: recovery. Returns 0, or 1 after a fault. The word pushed last
// keeps the modes of both floating-point units, which a fault may have left changed.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".text",
    ".p2align 4",
    ".globl hetckpt_cpu_call_region",
    ".hidden hetckpt_cpu_call_region",
    ".type hetckpt_cpu_call_region, @function",
    "hetckpt_cpu_call_region:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 24",
    "mov [rsp + 16], r8",
    "stmxcsr [rsp]",
    "fnstcw [rsp + 4]",
    "mov [r8], rsp",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov esi, edx",
    "mov edx, ecx",
    "call rax",
    "xor eax, eax",
    "2:",
    "mov r8, [rsp + 16]",
    "mov qword ptr [r8], 0",
    "add rsp, 24",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    ".globl hetckpt_cpu_region_faulted",
    ".hidden hetckpt_cpu_region_faulted",
    "hetckpt_cpu_region_faulted:",
    "cld",
    "fninit",
    "ldmxcsr [rsp]",
    "fldcw [rsp + 4]",
    "mov eax, 1",
    "jmp 2b",
    ".size hetckpt_cpu_call_region, . - hetckpt_cpu_call_region",
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    fn hetckpt_cpu_call_region(
        region: CpuRegion,
        block: *const CpuBlock,
        first: u32,
        end: u32,
        recovery: *mut Recovery,
    ) -> u32;
    fn hetckpt_cpu_region_faulted();
}

/// Calls a region function.
///
/// # Safety
/// As [`CpuRegion`]; except that addresses the kernel computes may be wrong, which is a [`Fault`] if nothing is mapped
/// there.
#[cfg(target_arch = "x86_64")]
pub unsafe fn call_region(region: CpuRegion, block: *const CpuBlock, first: u32, end: u32) -> Result<(), Fault> {
    let mut recovery = Recovery {
        stack: ptr::null_mut(),
        signal: 0,
        address: 0,
    };
    let recovery = &raw mut recovery;
    RECOVERY.set(recovery);
    // SAFETY: the caller's promise; `recovery` outlives the call.
    let faulted = unsafe { hetckpt_cpu_call_region(region, block, first, end, recovery) };
    RECOVERY.set(ptr::null_mut());
    if faulted == 0 {
        return Ok(());
    }
    // SAFETY: a local of this function; the handler that wrote it has returned.
    let recovery = unsafe { recovery.read() };
    Err(Fault {
        signal: recovery.signal,
        address: recovery.address,
    })
}

/// Calls a region function. On this processor there is no trampoline yet: a fault ends the server, which the
/// application sees as a failed device.
///
/// # Safety
/// As [`CpuRegion`].
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn call_region(region: CpuRegion, block: *const CpuBlock, first: u32, end: u32) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { region(block, first, end) };
    Ok(())
}

/// Installs the handlers, once for the process.
pub fn install_handlers() -> std::io::Result<()> {
    let mut failed = None;
    PREVIOUS.get_or_init(|| {
        std::array::from_fn(|i| {
            let mut previous = MaybeUninit::<libc::sigaction>::zeroed();
            let mut action = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: zeroed is a valid `sigaction`.
            let action = unsafe { action.assume_init_mut() };
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            // SAFETY: both are valid; `handle` has the signature that `SA_SIGINFO` asks for.
            if unsafe { libc::sigaction(SIGNALS[i], action, previous.as_mut_ptr()) } != 0 {
                failed = Some(std::io::Error::last_os_error());
            }
            // SAFETY: zeroed, then perhaps written by the call: valid either way.
            unsafe { previous.assume_init() }
        })
    });
    failed.map_or(Ok(()), Err)
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    #[cfg(target_arch = "x86_64")]
    {
        let recovery = RECOVERY.get();
        if !recovery.is_null() {
            // SAFETY: set by `call_region`, whose frame lives while the pointer is not null.
            let recovery = unsafe { &mut *recovery };
            if !recovery.stack.is_null() {
                recovery.signal = signal;
                // SAFETY: the kernel passes a valid `siginfo_t`.
                let info = unsafe { &*info };
                // SAFETY: for these signals it has an address.
                recovery.address = unsafe { info.si_addr() } as u64;
                // SAFETY: the kernel passes a valid `ucontext_t` with `SA_SIGINFO`.
                let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
                let registers = &mut context.uc_mcontext.gregs;
                registers[libc::REG_RSP as usize] = recovery.stack as i64;
                registers[libc::REG_RIP as usize] = hetckpt_cpu_region_faulted as *const () as i64;
                return;
            }
        }
    }
    pass_on(signal, info, context);
}

/// Not generated code's: as if this module were not there.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = SIGNALS
        .iter()
        .position(|&s| s == signal)
        .and_then(|i| Some(PREVIOUS.get()?[i]));
    let handler = previous.map_or(libc::SIG_DFL, |p| p.sa_sigaction);
    match (previous, handler) {
        (Some(previous), handler) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => {
            if previous.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: the previous handler, with the signature its flags name.
                let function = unsafe {
                    std::mem::transmute::<usize, extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void)>(handler)
                };
                function(signal, info, context);
            } else {
                // SAFETY: as above.
                let function = unsafe { std::mem::transmute::<usize, extern "C" fn(i32)>(handler) };
                function(signal);
            }
        }
        _ => {
            // The instruction is executed again and ends the process as it would have.
            // SAFETY: resets a signal to its default.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}
