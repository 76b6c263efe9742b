//! x86-64: the stubs between host and guest.
//!
//! [`enter`] saves the host's callee-saved registers on the host's stack, remembers that stack pointer in the fiber, and calls an
//! artifact's entry thunk on the fiber's stack. The guest leaves in one of these ways, all of which come back to [`enter`]'s caller (or
//! [`resume`]'s) with a [`Status`]:
//!
//! - it returns;
//! - it calls the host ([`array_stub`], [`BUILTINS`]): the stub saves the guest's callee-saved registers on the guest's stack, runs the
//!   host's function on the host's stack right below [`enter`]'s frame, and does what the function's [`Outcome`] says: go back to
//!   the guest, leave with a trap, leave suspended, or continue at an exception's landing pad;
//! - it faults: the signal handler sends it to [`fault_landing`];
//! - a timer stops it: the handler sends it to [`preempt_landing`], which saves every register in the fiber's save area.
//!
//! Host frames below a guest are never unwound, and no Rust frame lies on a guest's stack.

use std::arch::naked_asm;
use std::mem::offset_of;

use std::sync::atomic::{AtomicU64, Ordering};

use mote_artifact::abi::{BUILTIN_COUNT, CONTEXT_BELOW, TrapCode, header};

use crate::builtins;
use crate::deadline;
use crate::fiber::{Fault, Fiber};
use crate::func::{HostRecord, Outcome};
use crate::store::StoreOpaque;
use crate::value::Slot;

/// How a guest came back to the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
#[allow(dead_code, reason = "machine code makes these values")]
pub(crate) enum Status {
    /// The function returned; results are in the slots.
    Returned = 0,
    /// A host function or builtin ended the guest; the store has the outcome.
    Raised = 1,
    /// A host function suspended the guest.
    Suspended = 2,
    /// A signal stopped the guest for good; the fiber has the registers.
    Faulted = 3,
    /// A timer made the guest yield in the midst of its code; every register is in the save area.
    Preempted = 4,
    /// A timer made the guest yield on its way back from a host function, whose results are in place.
    Yielded = 5,
}

const HOST_RSP: usize = offset_of!(Fiber, host_sp);
const GUEST_RSP: usize = offset_of!(Fiber, guest_sp);
const STACK_TOP: usize = offset_of!(Fiber, stack_top);
const PENDING: usize = offset_of!(Fiber, pending);
const RESULT: usize = offset_of!(Fiber, result);
const RESULT_FLOAT: usize = offset_of!(Fiber, result_float);
const LAND: usize = offset_of!(Fiber, registers);

/// Registers of guest code that outlive a call, and where it stands.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub(crate) struct Registers {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    pub(crate) rbx: u64,
    pub(crate) rbp: u64,
    pub(crate) r12: u64,
    pub(crate) r13: u64,
    pub(crate) r14: u64,
    pub(crate) r15: u64,
    /// First argument of a landing pad.
    pub(crate) rax: u64,
    /// Second argument of a landing pad.
    pub(crate) rdx: u64,
}

/// DWARF's numbers for the registers that unwinding follows.
pub(crate) mod dwarf {
    pub(crate) const RBX: u16 = 3;
    pub(crate) const RBP: u16 = 6;
    pub(crate) const SP: u16 = 7;
    pub(crate) const R12: u16 = 12;
    pub(crate) const R13: u16 = 13;
    pub(crate) const R14: u16 = 14;
    pub(crate) const R15: u16 = 15;
    pub(crate) const PC: u16 = 16;
}

impl Registers {
    /// A register by DWARF's number.
    pub(crate) fn get(&self, register: u16) -> Option<u64> {
        Some(match register {
            dwarf::RBX => self.rbx,
            dwarf::RBP => self.rbp,
            dwarf::SP => self.sp,
            dwarf::R12 => self.r12,
            dwarf::R13 => self.r13,
            dwarf::R14 => self.r14,
            dwarf::R15 => self.r15,
            dwarf::PC => self.pc,
            _ => return None,
        })
    }

    /// Sets a register by DWARF's number; others are not followed.
    pub(crate) fn set(&mut self, register: u16, value: u64) {
        match register {
            dwarf::RBX => self.rbx = value,
            dwarf::RBP => self.rbp = value,
            dwarf::SP => self.sp = value,
            dwarf::R12 => self.r12 = value,
            dwarf::R13 => self.r13 = value,
            dwarf::R14 => self.r14 = value,
            dwarf::R15 => self.r15 = value,
            dwarf::PC => self.pc = value,
            _ => {}
        }
    }

    /// The guest's registers right after its call of the host returns: what a stub pushed on the guest's stack.
    ///
    /// # Safety
    /// `guest_sp` was saved by one of the stubs and the guest's stack has not been used since.
    pub(crate) unsafe fn of_host_call(guest_sp: *const u8) -> Self {
        // SAFETY: the stubs push these seven words, in this order from the top.
        let [r15, r14, r13, r12, rbx, rbp, pc] = unsafe { guest_sp.cast::<[u64; 7]>().read() };
        let sp = guest_sp as u64 + 56;
        // A direct call has the guest's return address behind the stub's own.
        let (pc, sp) = match pc == direct_return() {
            // SAFETY: the stub was called with a return address on the stack.
            true => (unsafe { (sp as *const u64).read() }, sp + 8),
            false => (pc, sp),
        };
        Self { pc, sp, rbx, rbp, r12, r13, r14, r15, rax: 0, rdx: 0 }
    }
}

/// Calls `entry(ctx, code, slots)` on the fiber's stack.
///
/// # Safety
/// The fiber's stack is free; entry, context, code and slots belong together; the store's running fiber is this one.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn enter(
    fiber: *mut Fiber,
    entry: *const u8,
    ctx: *mut u8,
    code: *const u8,
    slots: *mut Slot,
) -> Status {
    naked_asm!(
        "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15", "sub rsp, 8",
        "mov [rdi + {HOST_RSP}], rsp",
        "mov rsp, [rdi + {STACK_TOP}]",
        "push rdi", "push rdi",
        "mov rax, rsi", "mov rdi, rdx", "mov rsi, rcx", "mov rdx, r8",
        "xor ebp, ebp",
        "call rax",
        "mov rdi, [rsp]",
        "xor eax, eax",
        "jmp {leave}",
        HOST_RSP = const HOST_RSP, STACK_TOP = const STACK_TOP, leave = sym leave,
    )
}

/// Goes on with a guest that is [`Status::Suspended`] or [`Status::Yielded`].
///
/// # Safety
/// The fiber is in that state, its results are in place, and the store's running fiber is this one.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn resume(fiber: *mut Fiber) -> Status {
    naked_asm!(
        "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15", "sub rsp, 8",
        "mov [rdi + {HOST_RSP}], rsp",
        "mov rsp, [rdi + {GUEST_RSP}]",
        "mov rax, [rdi + {RESULT}]",
        "movq xmm0, [rdi + {RESULT_FLOAT}]",
        "pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp",
        "ret",
        HOST_RSP = const HOST_RSP, GUEST_RSP = const GUEST_RSP,
        RESULT = const RESULT, RESULT_FLOAT = const RESULT_FLOAT,
    )
}

/// Leaves the guest of the fiber in rdi with the status in eax: back to the caller of [`enter`] or [`resume`].
#[unsafe(naked)]
unsafe extern "C" fn leave() {
    naked_asm!(
        "mov rsp, [rdi + {HOST_RSP}]",
        "add rsp, 8",
        "pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp",
        "ret",
        HOST_RSP = const HOST_RSP,
    )
}

/// Where the signal handler sends a guest that faulted, with the fiber in rdi.
#[unsafe(naked)]
unsafe extern "C" fn fault_landing() {
    naked_asm!("mov eax, {FAULTED}", "jmp {leave}", FAULTED = const Status::Faulted as u64, leave = sym leave)
}

/// After a host call through slots or a builtin: fiber in rbx, [`Outcome`] in eax, a builtin's result in rdx.
#[unsafe(naked)]
unsafe extern "C" fn host_returned() {
    naked_asm!(
        "test eax, eax",
        "jnz 2f",
        "mov rax, rdx",
        "cmp dword ptr [rbx + {PENDING}], 0",
        "jne {look}",
        "mov rsp, [rbx + {GUEST_RSP}]",
        "pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp",
        "ret",
        "2:",
        "mov rdi, rbx",
        "jmp {end}",
        GUEST_RSP = const GUEST_RSP,
        PENDING = const PENDING,
        end = sym end_host_call,
        look = sym look_before_guest,
    )
}

/// Looks why the fiber in rbx should not go back to its guest. The result of the host call is in rax or xmm0.
#[unsafe(naked)]
unsafe extern "C" fn look_before_guest() {
    naked_asm!(
        // Only one of the two is the result: the other's bytes are saved over and mean nothing.
        "sub rsp, 16",
        "mov [rsp], rax",
        "movq [rsp + 8], xmm0",
        "mov rdi, rbx",
        "call {on_pending}",
        "mov rdi, rbx",
        "cmp eax, {YIELDED}",
        "je 3f",
        "test eax, eax",
        "jnz {end}",
        "mov rax, [rsp]",
        "movq xmm0, [rsp + 8]",
        "mov rsp, [rbx + {GUEST_RSP}]",
        "pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp",
        "ret",
        "3:",
        "mov rcx, [rsp]",
        "mov [rdi + {RESULT}], rcx",
        "mov rcx, [rsp + 8]",
        "mov [rdi + {RESULT_FLOAT}], rcx",
        "jmp {leave}",
        GUEST_RSP = const GUEST_RSP,
        RESULT = const RESULT,
        RESULT_FLOAT = const RESULT_FLOAT,
        YIELDED = const Status::Yielded as u64,
        on_pending = sym deadline::on_pending,
        end = sym end_host_call,
        leave = sym leave,
    )
}

/// Does what the [`Outcome`] in eax, not `Return`, says to the guest of the fiber in rdi.
#[unsafe(naked)]
unsafe extern "C" fn end_host_call() {
    naked_asm!(
        "cmp eax, {LAND_OUTCOME}",
        "jne {leave}", // Raise and Suspend have the numbers of their statuses.
        // An exception's landing pad.
        "mov rax, [rdi + {LAND} + 64]",
        "mov rdx, [rdi + {LAND} + 72]",
        "mov rbx, [rdi + {LAND} + 16]",
        "mov rbp, [rdi + {LAND} + 24]",
        "mov r12, [rdi + {LAND} + 32]",
        "mov r13, [rdi + {LAND} + 40]",
        "mov r14, [rdi + {LAND} + 48]",
        "mov r15, [rdi + {LAND} + 56]",
        "mov rsp, [rdi + {LAND} + 8]",
        "jmp qword ptr [rdi + {LAND}]",
        LAND = const LAND,
        LAND_OUTCOME = const Outcome::Land as u64,
        leave = sym leave,
    )
}

/// Code of a host function whose arguments and result all fit in registers: a guest's call arrives with the record in rdi, and C's
/// convention is `tailcc`'s as far as registers go, so that everything stays where it is.
///
/// One thing differs: in `tailcc` the callee pops the stack arguments, which take 8 bytes of padding when there are none. The inner
/// call keeps the stubs' way back to the guest the same for all.
#[unsafe(naked)]
unsafe extern "C" fn direct_call_stub() {
    naked_asm!("call {switch}", "ret 8", switch = sym direct_call_switch)
}

/// Where [`direct_call_switch`] returns to: behind the five bytes of the call.
fn direct_return() -> u64 {
    direct_call_stub as *const () as u64 + 5
}

/// The rest of [`direct_call_stub`].
#[unsafe(naked)]
unsafe extern "C" fn direct_call_switch() {
    naked_asm!(
        "mov rax, [rdi + {STORE}]",
        "mov rax, [rax + {FIBER}]",
        "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15",
        "mov [rax + {GUEST_RSP}], rsp",
        "mov rbx, rax",
        "mov rsp, [rax + {HOST_RSP}]",
        "call [rdi + {DIRECT}]",
        "cmp dword ptr [rbx + {PENDING}], 0",
        "jne {look}",
        "mov rsp, [rbx + {GUEST_RSP}]",
        "pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp",
        "ret",
        STORE = const offset_of!(HostRecord, store),
        FIBER = const offset_of!(StoreOpaque, fiber),
        DIRECT = const offset_of!(HostRecord, direct),
        GUEST_RSP = const GUEST_RSP,
        HOST_RSP = const HOST_RSP,
        PENDING = const PENDING,
        look = sym look_before_guest,
    )
}

/// General registers that carry arguments.
pub(crate) const INTEGER_ARGUMENTS: usize = 6;
/// Vector registers that carry arguments.
pub(crate) const FLOAT_ARGUMENTS: usize = 8;

/// The code of host functions that are called directly.
pub(crate) fn direct_stub() -> *const u8 {
    direct_call_stub as *const u8
}

/// `abi::host_func::ARRAY_STUB`: `ccc void (host_func, slots)` on the guest's stack.
#[unsafe(naked)]
unsafe extern "C" fn array_call_stub() {
    naked_asm!(
        "mov rax, [rdi + {STORE}]",
        "mov rax, [rax + {FIBER}]",
        "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15",
        "mov [rax + {GUEST_RSP}], rsp",
        "mov rbx, rax",
        "mov rsp, [rax + {HOST_RSP}]",
        "call [rdi + {CALL}]",
        "jmp {host_returned}",
        STORE = const offset_of!(HostRecord, store),
        FIBER = const offset_of!(StoreOpaque, fiber),
        CALL = const offset_of!(HostRecord, call),
        GUEST_RSP = const GUEST_RSP,
        HOST_RSP = const HOST_RSP,
        host_returned = sym host_returned,
    )
}

/// The word for `abi::host_func::ARRAY_STUB`.
pub(crate) fn array_stub() -> *const u8 {
    array_call_stub as *const u8
}

/// What a builtin returns: rax and rdx.
#[repr(C)]
pub(crate) struct BuiltinResult {
    pub(crate) outcome: Outcome,
    pub(crate) value: u64,
}

macro_rules! builtin_stubs {
    ($($name:ident)*) => {
        mod stubs {
            use super::*;
            $(
                /// Switches to the host's stack and calls the builtin; the guest's arguments stay in their registers.
                #[unsafe(naked)]
                pub(super) unsafe extern "C" fn $name() {
                    naked_asm!(
                        "mov rax, [rdi - {CTX_STORE}]",
                        "mov rax, [rax + {FIBER}]",
                        "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15",
                        "mov [rax + {GUEST_RSP}], rsp",
                        "mov rbx, rax",
                        "mov rsp, [rax + {HOST_RSP}]",
                        "call {builtin}",
                        "jmp {host_returned}",
                        CTX_STORE = const CONTEXT_BELOW - header::STORE,
                        FIBER = const offset_of!(StoreOpaque, fiber),
                        GUEST_RSP = const GUEST_RSP,
                        HOST_RSP = const HOST_RSP,
                        builtin = sym builtins::$name,
                        host_returned = sym host_returned,
                    )
                }
            )*
        }
        /// Code addresses by [`mote_artifact::abi::Builtin`].
        static BUILTINS: [unsafe extern "C" fn(); BUILTIN_COUNT] = [$(stubs::$name),*];
    };
}

builtin_stubs! {
    memory_grow memory_init data_drop
    table_grow table_init elem_drop table_fill table_copy
    atomic_wait32 atomic_wait64 atomic_notify
    exception_new throw exception_free
}

/// The word for `abi::header::BUILTINS`.
pub(crate) fn builtin_table() -> *const u8 {
    BUILTINS.as_ptr().cast()
}

/// Copies bytes in machine code, which other threads may change at the same time. How many were not copied: more than 0 when a page of
/// either side could not be had.
///
/// # Safety
/// `len` bytes at `from` and `to` are mapped and do not overlap.
pub(crate) unsafe fn copy_bytes(to: *mut u8, from: *const u8, len: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { copy_upwards(to, from, len) }
}

/// `rep movsb`; what is left when the fault handler ends it.
#[unsafe(naked)]
unsafe extern "C" fn copy_upwards(to: *mut u8, from: *const u8, len: usize) -> usize {
    naked_asm!("mov rcx, rdx", "rep movsb", "mov rax, rcx", "ret")
}

/// Bytes of [`copy_upwards`] before its copying instruction, and of that instruction.
const COPY_AT: usize = 3;
const COPY_BYTES: u64 = 2;

/// The registers of code that a signal interrupted, in the handler.
pub(crate) struct Interrupted {
    context: *mut libc::ucontext_t,
}

impl Interrupted {
    /// # Safety
    /// `context` is the kernel's, and the value is used only in the handler.
    pub(crate) unsafe fn new(context: *mut libc::c_void) -> Self {
        Self { context: context.cast() }
    }

    fn get(&self, register: libc::c_int) -> u64 {
        // SAFETY: the kernel's context has all registers.
        unsafe { (&raw const (*self.context).uc_mcontext.gregs).cast::<u64>().add(register as usize).read() }
    }

    fn set(&mut self, register: libc::c_int, value: u64) {
        // SAFETY: as above.
        unsafe {
            (&raw mut (*self.context).uc_mcontext.gregs).cast::<u64>().add(register as usize).write(value)
        }
    }

    /// The program counter.
    pub(crate) fn pc(&self) -> usize {
        self.get(libc::REG_RIP) as usize
    }

    /// The stack pointer.
    pub(crate) fn sp(&self) -> usize {
        self.get(libc::REG_RSP) as usize
    }

    /// Ends [`copy_bytes`] where it stands, if that is what was interrupted.
    pub(crate) fn end_copy(&mut self) -> bool {
        let at_copy = self.pc() == copy_upwards as *const () as usize + COPY_AT;
        if at_copy {
            self.set(libc::REG_RIP, self.pc() as u64 + COPY_BYTES);
        }
        at_copy
    }

    fn registers(&self) -> Registers {
        Registers {
            pc: self.get(libc::REG_RIP),
            sp: self.get(libc::REG_RSP),
            rbx: self.get(libc::REG_RBX),
            rbp: self.get(libc::REG_RBP),
            r12: self.get(libc::REG_R12),
            r13: self.get(libc::REG_R13),
            r14: self.get(libc::REG_R14),
            r15: self.get(libc::REG_R15),
            rax: 0,
            rdx: 0,
        }
    }

    /// Makes the interrupted guest leave its fiber for good when the handler returns.
    pub(crate) fn leave(&mut self, fiber: &mut Fiber, fault: Fault) {
        fiber.registers = self.registers();
        fiber.fault.set(fault);
        self.set(libc::REG_RDI, std::ptr::from_mut(fiber) as u64);
        self.set(libc::REG_RIP, fault_landing as *const () as u64);
        const DIRECTION: u64 = 1 << 10;
        self.set(libc::REG_EFL, self.get(libc::REG_EFL) & !DIRECTION);
    }
}

/// The trap code that the instruction at `pc` carries: `ud1 eax, [eax + code]`, as `llvm.ubsantrap` is encoded.
///
/// # Safety
/// `pc` is in a module's text.
pub(crate) unsafe fn trap_code(pc: usize) -> Option<TrapCode> {
    let (text, len) = (pc as *const u8, 5);
    // SAFETY: an illegal instruction was fetched from here; the bytes behind it are at worst those of the next function or of the page
    // padding behind the text.
    let bytes = unsafe { std::slice::from_raw_parts(text, len) };
    match bytes {
        [0x67, 0x0f, 0xb9, 0x40, code] => TrapCode::from_byte(*code),
        _ => None,
    }
}

/// When the instruction at `pc` lowers the stack pointer by a constant: its length, and that constant.
///
/// # Safety
/// `pc` is in a module's text.
pub(crate) unsafe fn stack_reservation(pc: usize) -> Option<(u64, u64)> {
    // SAFETY: as in `trap_code`; a text ends with a function that is longer than this, or with the padding of its page.
    let bytes = unsafe { std::slice::from_raw_parts(pc as *const u8, 7) };
    match *bytes {
        // sub rsp, imm8; sub rsp, imm32; lea rsp, [rsp - disp8]
        [0x48, 0x83, 0xec, bytes @ 0..0x80, ..] => Some((4, bytes.into())),
        [0x48, 0x81, 0xec, a, b, c, d] => Some((7, u32::from_le_bytes([a, b, c, d]).into())),
        [0x48, 0x8d, 0x64, 0x24, bytes @ 0x80..=0xff, ..] => Some((5, u64::from(bytes.wrapping_neg()))),
        _ => None,
    }
}

/// Bytes that XSAVE needs for every register state that the system has enabled; 0 before [`prepare_preemption`].
static XSAVE_BYTES: AtomicU64 = AtomicU64::new(0);

/// Finds out how much a preempted guest's registers take. Whether there is room for them in `bytes`.
pub(crate) fn prepare_preemption(bytes: usize) -> bool {
    const OSXSAVE: u32 = 1 << 27;
    let mut needed = XSAVE_BYTES.load(Ordering::Relaxed);
    if needed == 0 && std::arch::x86_64::__cpuid(1).ecx & OSXSAVE != 0 {
        needed = u64::from(std::arch::x86_64::__cpuid_count(0xd, 0).ebx).next_multiple_of(64);
        XSAVE_BYTES.store(needed, Ordering::Relaxed);
    }
    // General registers, what `iretq` reads, and alignment take less than 512.
    needed != 0 && needed as usize + 512 <= bytes
}

impl Interrupted {
    /// Makes the interrupted guest yield when the handler returns: it goes to [`preempt_landing`] with the stack pointer in the
    /// fiber's save area, below the words that `iretq` will read.
    pub(crate) fn preempt(&mut self, fiber: &mut Fiber) {
        fiber.registers = self.registers();
        let top = fiber.save_top();
        let segments = self.get(libc::REG_CSGSFS);
        let (cs, ss) = (segments & 0xffff, segments >> 48);
        let frame = [
            std::ptr::from_mut(fiber) as u64,
            self.get(libc::REG_RIP),
            cs,
            self.get(libc::REG_EFL),
            self.get(libc::REG_RSP),
            if ss == 0 { 0x2b } else { ss },
        ];
        let at = top - size_of_val(&frame);
        // SAFETY: the save area is mapped and free.
        unsafe { (at as *mut [u64; 6]).write(frame) };
        self.set(libc::REG_RSP, at as u64);
        self.set(libc::REG_RIP, preempt_landing as *const () as u64);
    }
}

/// Where the signal handler sends a guest that shall yield; rsp is in the fiber's save area, at the fiber's address.
#[unsafe(naked)]
unsafe extern "C" fn preempt_landing() {
    naked_asm!(
        "push rax", "push rcx", "push rdx", "push rbx", "push rbp", "push rsi", "push rdi",
        "push r8", "push r9", "push r10", "push r11", "push r12", "push r13", "push r14", "push r15",
        "mov rdi, [rsp + 120]",
        "mov [rdi + {GUEST_RSP}], rsp",
        "mov rcx, [rip + {XSAVE_BYTES}]",
        "sub rsp, rcx",
        "and rsp, -64",
        // The header's reserved words must be zero.
        "xor eax, eax",
        "mov [rsp + 512], rax", "mov [rsp + 520], rax", "mov [rsp + 528], rax", "mov [rsp + 536], rax",
        "mov [rsp + 544], rax", "mov [rsp + 552], rax", "mov [rsp + 560], rax", "mov [rsp + 568], rax",
        "mov eax, -1",
        "mov edx, -1",
        "xsave64 [rsp]",
        "cld",
        "mov eax, {PREEMPTED}",
        "jmp {leave}",
        GUEST_RSP = const GUEST_RSP,
        XSAVE_BYTES = sym XSAVE_BYTES,
        PREEMPTED = const Status::Preempted as u64,
        leave = sym leave,
    )
}

/// Goes on with a guest that is [`Status::Preempted`].
///
/// # Safety
/// The fiber is in that state and the store's running fiber is this one.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn resume_preempted(fiber: *mut Fiber) -> Status {
    naked_asm!(
        "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15", "sub rsp, 8",
        "mov [rdi + {HOST_RSP}], rsp",
        "mov rsp, [rdi + {GUEST_RSP}]",
        "mov rcx, rsp",
        "sub rcx, [rip + {XSAVE_BYTES}]",
        "and rcx, -64",
        "mov eax, -1",
        "mov edx, -1",
        "xrstor64 [rcx]",
        "pop r15", "pop r14", "pop r13", "pop r12", "pop r11", "pop r10", "pop r9", "pop r8",
        "pop rdi", "pop rsi", "pop rbp", "pop rbx", "pop rdx", "pop rcx", "pop rax",
        "add rsp, 8",
        "iretq",
        HOST_RSP = const HOST_RSP,
        GUEST_RSP = const GUEST_RSP,
        XSAVE_BYTES = sym XSAVE_BYTES,
    )
}

impl Registers {
    /// These registers with a landing pad's arguments.
    pub(crate) fn with_exception(self, exception: u64) -> Self {
        Self { rax: exception, rdx: 1, ..self }
    }
}
