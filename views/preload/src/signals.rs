//! Delays signals that arrive during a call of this library until it is done: a handler may make calls that need the
//! locks held here.
//!
//! Handlers of the program are called by one of ours, which sends what has to wait to this thread again, behind the call. Without such a
//! call it is one jump more.

use std::cell::Cell;

use crate::calls::{Answer, Result, put, value};
use crate::{inside, kernel, probe};

/// Number of signals.
const SIGNALS: usize = 64;
/// The signal by which the C library changes the user in all threads: harmless, and the sender waits for it.
const SETXID: i32 = 33;
/// Upper bound of the delayed signals in one thread, all different: a delayed signal is blocked.
const WAITING: usize = SIGNALS;

/// The kernel's structure.
#[repr(C)]
#[derive(Clone, Copy)]
struct Action {
    handler: u64,
    flags: u64,
    restorer: u64,
    mask: u64,
}

const NONE: Action = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };

/// The program's actions, for signals whose handler in the kernel is this library's.
static mut ACTIONS: [Action; SIGNALS + 1] = [NONE; SIGNALS + 1];

thread_local! {
    /// Set of delayed signals.
    static HELD: Cell<u64> = const { Cell::new(0) };
    static INFO: Cell<[Option<libc::siginfo_t>; WAITING]> = const { Cell::new([None; WAITING]) };
}

fn is_own(handler: u64) -> bool {
    handler == on_signal as *const () as u64
}

/// `rt_sigaction`.
pub fn action(number: i32, new: u64, old: u64, size: u64) -> Answer {
    if size != 8 || !(1..=SIGNALS as i32).contains(&number) {
        return Answer::Kernel;
    }
    let set = || -> Result {
        // SAFETY: words of ours; programs that set one signal in two threads at the same time get one of the two
        // actions.
        let known = unsafe { (&raw const ACTIONS).cast::<Action>().add(number as usize).read() };
        let mut before = NONE;
        let given: Option<Action> = if new == 0 { None } else { Some(value(new)?) };
        let mut changed = given;
        if let Some(action) = &mut changed
            && action.handler > 1
        {
            // SAFETY: as above. It must be set before the kernel may call the handler.
            unsafe { (&raw mut ACTIONS).cast::<Action>().add(number as usize).write(*action) };
            action.handler = on_signal as *const () as u64;
            action.flags |= libc::SA_SIGINFO as u64;
        }
        let at = changed.as_ref().map_or(0, |action| std::ptr::from_ref(action) as u64);
        let done = kernel::simple_or(libc::SYS_rt_sigaction, &[number as u64, at, (&raw mut before) as u64, size])?;
        if old != 0 {
            if is_own(before.handler) {
                (before.handler, before.flags) = (known.handler, known.flags);
            }
            put(old, before)?;
        }
        Ok(done)
    };
    set().into()
}

/// Returns true for a fault of the thread itself: it cannot continue before that is handled.
fn is_fault(number: i32, info: &libc::siginfo_t) -> bool {
    matches!(number, libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP | libc::SIGSYS)
        && info.si_code > 0
}

extern "C" fn on_signal(number: i32, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel passes all three; the handler is the program's own.
    unsafe {
        if is_fault(number, &*info) && goes_on(&mut *context) {
            return;
        }
        if inside::is_inside() && number != SETXID && !is_fault(number, &*info) {
            let bit = 1_u64 << (number - 1);
            let mut all = INFO.get();
            all[number as usize - 1] = Some(*info);
            INFO.set(all);
            HELD.set(HELD.get() | bit);
            // Blocked from here on, so that each signal is delayed at most once.
            let mask = (&raw mut (*context).uc_sigmask).cast::<u64>();
            *mask |= bit;
            return;
        }
        let action = (&raw const ACTIONS).cast::<Action>().add(number as usize).read();
        if action.handler > 1 {
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t) =
                std::mem::transmute(action.handler);
            handler(number, info, context);
        } else if action.handler == 0 {
            end_by(number, &*info);
        }
    }
}

/// Makes a failed probe of the program's memory return its error.
fn goes_on(context: &mut libc::ucontext_t) -> bool {
    let instruction = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    let behind = probe::behind(*instruction as u64);
    if let Some(behind) = behind {
        *instruction = behind as i64;
    }
    behind.is_some()
}

/// Ends the program by a fault that only this library handles, at the place of the fault, as without this library.
#[cold]
fn end_by(number: i32, info: &libc::siginfo_t) {
    let at = std::ptr::from_ref(&NONE) as u64;
    kernel::simple(libc::SYS_rt_sigaction, &[number as u64, at, 0, 8]);
    if !is_fault(number, info) {
        let (process, thread) = (kernel::pid() as u64, kernel::simple(libc::SYS_gettid, &[]) as u64);
        let info = std::ptr::from_ref(info) as u64;
        kernel::simple(libc::SYS_rt_tgsigqueueinfo, &[process, thread, number as u64, info]);
    }
}

/// Handles faults from the start, since probes of the program's memory may cause them.
pub fn begin() {
    for number in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: before any thread of the program; zeros are valid.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(number, std::ptr::null(), &raw mut before) != 0 || before.sa_sigaction != libc::SIG_DFL {
                continue;
            }
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = on_signal as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigaction(number, &raw const ours, std::ptr::null_mut());
        }
    }
}

/// Delivers delayed signals, since no operation of this library is in progress any more.
#[inline]
pub fn let_in() {
    if HELD.get() != 0 {
        send_again();
    }
}

#[cold]
fn send_again() {
    let held = HELD.replace(0);
    let all = INFO.replace([None; WAITING]);
    let (process, thread) = (kernel::pid() as u64, kernel::simple(libc::SYS_gettid, &[]) as u64);
    for (index, info) in all.iter().enumerate() {
        if let Some(info) = info {
            let info = std::ptr::from_ref(info) as u64;
            kernel::simple(libc::SYS_rt_tgsigqueueinfo, &[process, thread, index as u64 + 1, info]);
        }
    }
    let held = (&raw const held) as u64;
    kernel::simple(libc::SYS_rt_sigprocmask, &[libc::SIG_UNBLOCK as u64, held, 0, 8]);
}
