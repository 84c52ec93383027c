//! The entry point of the C library's system calls: registers in, registers out.
//!
//! A patched site jumps to a stub of a few instructions (`sites`), which puts the return address into r11 and jumps
//! here. rcx and r11 are free, since the kernel changes them too; all other registers must be preserved. A call that
//! does not concern this library returns within some ten instructions and is made there, on the program's own stack: so
//! `vfork` and the like need no care.

use std::arch::global_asm;

/// Upper bound of the system call numbers that are distinguished.
pub const NUMBERS: usize = 512;

/// The handling of calls of each number.
pub static mut CENOTE_WAYS: [u8; NUMBERS] = [KERNEL; NUMBERS];
/// The kernel carries it out.
pub const KERNEL: u8 = 0;
/// This library handles it if the descriptor in the first argument is one of the store's.
pub const DESCRIPTOR: u8 = 1;
/// It must be examined.
pub const LOOK: u8 = 2;

/// Registers of a system call.
#[repr(C)]
pub struct Registers {
    /// Arguments of the call.
    pub args: [u64; 6],
    /// Number of the call, and later its result.
    pub rax: u64,
    back: u64,
    stack: u64,
}

global_asm!(
    ".text",
    ".p2align 6",
    ".globl cenote_entry",
    ".hidden cenote_entry",
    ".type cenote_entry,@function",
    "cenote_entry:",
    "cmp rax, 512",
    "jae 9f",
    "lea rcx, [rip + {ways}]",
    "movzx ecx, byte ptr [rcx + rax]",
    "test ecx, ecx",
    "jz 9f",
    "cmp ecx, 1",
    "jne 2f",
    "cmp dword ptr [rip + {overlays}], 0",
    "jne 2f",
    "mov ecx, edi",
    "cmp ecx, {fds}",
    "jae 9f",
    "shl rcx, 3",
    "add rcx, qword ptr [rip + {table}]",
    "cmp qword ptr [rcx], 0",
    "je 9f",
    "2:",
    // Skip the red zone.
    "mov rcx, rsp",
    "lea rsp, [rsp - 128 - 384]",
    "and rsp, -64",
    "mov [rsp], rdi",
    "mov [rsp + 8], rsi",
    "mov [rsp + 16], rdx",
    "mov [rsp + 24], r10",
    "mov [rsp + 32], r8",
    "mov [rsp + 40], r9",
    "mov [rsp + 48], rax",
    "mov [rsp + 56], r11",
    "mov [rsp + 64], rcx",
    "movaps [rsp + 128], xmm0",
    "movaps [rsp + 144], xmm1",
    "movaps [rsp + 160], xmm2",
    "movaps [rsp + 176], xmm3",
    "movaps [rsp + 192], xmm4",
    "movaps [rsp + 208], xmm5",
    "movaps [rsp + 224], xmm6",
    "movaps [rsp + 240], xmm7",
    "movaps [rsp + 256], xmm8",
    "movaps [rsp + 272], xmm9",
    "movaps [rsp + 288], xmm10",
    "movaps [rsp + 304], xmm11",
    "movaps [rsp + 320], xmm12",
    "movaps [rsp + 336], xmm13",
    "movaps [rsp + 352], xmm14",
    "movaps [rsp + 368], xmm15",
    "mov rdi, rsp",
    "cld",
    "call {dispatch}",
    "mov ecx, eax",
    "movaps xmm0, [rsp + 128]",
    "movaps xmm1, [rsp + 144]",
    "movaps xmm2, [rsp + 160]",
    "movaps xmm3, [rsp + 176]",
    "movaps xmm4, [rsp + 192]",
    "movaps xmm5, [rsp + 208]",
    "movaps xmm6, [rsp + 224]",
    "movaps xmm7, [rsp + 240]",
    "movaps xmm8, [rsp + 256]",
    "movaps xmm9, [rsp + 272]",
    "movaps xmm10, [rsp + 288]",
    "movaps xmm11, [rsp + 304]",
    "movaps xmm12, [rsp + 320]",
    "movaps xmm13, [rsp + 336]",
    "movaps xmm14, [rsp + 352]",
    "movaps xmm15, [rsp + 368]",
    "mov rdi, [rsp]",
    "mov rsi, [rsp + 8]",
    "mov rdx, [rsp + 16]",
    "mov r10, [rsp + 24]",
    "mov r8, [rsp + 32]",
    "mov r9, [rsp + 40]",
    "mov rax, [rsp + 48]",
    "mov r11, [rsp + 56]",
    "mov rsp, [rsp + 64]",
    "test ecx, ecx",
    "jz 9f",
    // Done: skip the `syscall` instruction.
    "lea r11, [r11 + 2]",
    "9:",
    "jmp r11",
    ".size cenote_entry, . - cenote_entry",
    ways = sym CENOTE_WAYS,
    overlays = sym crate::table::CENOTE_OVERLAYS,
    table = sym crate::table::CENOTE_TABLE,
    fds = const crate::table::FDS,
    dispatch = sym crate::dispatch::dispatch,
);

unsafe extern "C" {
    fn cenote_entry();
}

/// The address that stubs jump to.
pub fn address() -> u64 {
    cenote_entry as *const () as u64
}
