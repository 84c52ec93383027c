//! A placement policy in a shared library: loaded by `dlopen`, called on a thread of its own, and supervised.
//!
//! Lean on purpose: a C function table and no runtime. Calls wait for the library's thread for a bounded time; while it
//! does not return, and after some failures, `fast-first` decides, and the reason is shown. A library that crashes
//! takes the daemon with it, like any code in its process: this interface is not for untrusted code.
#![allow(unsafe_code, reason = "functions of a shared library, found at run time")]

mod abi;
mod kept;

pub(crate) use kept::load;
pub use kept::{PLUGIN_FILE, keep};

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cenote_model::{DeviceId, Error, ErrorKind};
use cenote_policy::{
    Decision, DeviceView, FastFirst, Incoming, Limits, Plan, Policy, RangeView, Reason, Refusal, check_decision,
    check_plan,
};

/// Upper bound of the moves in one plan.
const MOVES_MAX: usize = 4096;
/// The policy is no longer asked after this many failures.
const FAILURES_MAX: u32 = 8;
/// Time limit of a decision.
pub const PATIENCE: Duration = Duration::from_millis(20);

enum Ask {
    Place(Vec<abi::Device>, abi::IncomingV1, CString),
    Plan(Vec<abi::Device>, Vec<abi::Range>),
}
enum Answer {
    Place(i32, abi::DecisionV1),
    Plan(i64, Vec<abi::Move>),
}

// SAFETY: its only pointer is the label's, which is null until the library's thread sets it.
unsafe impl Send for Ask {}

/// The connection to the library's thread.
struct Line {
    ask: SyncSender<(u64, Ask)>,
    answer: Receiver<(u64, Answer)>,
    number: u64,
    /// Number of the question that the library has not answered yet.
    out: Option<u64>,
}

/// A policy from a shared library.
pub struct Plugin {
    name: String,
    about: String,
    patience: Duration,
    line: Mutex<Line>,
    failed: Mutex<(u32, Option<Arc<str>>)>,
}

impl Plugin {
    /// Loads a library. It stays loaded for the life of the process.
    pub fn load(path: &Path, patience: Duration) -> Result<Self, Error> {
        let wrong = |cause: String| {
            Error::new(ErrorKind::InvalidInput, format!("policy plugin {}", path.display()))
                .because(cause)
                .try_next("build it as examples/policy-plugin/cenote_policy.h says")
        };
        let file = CString::new(path.as_os_str().as_bytes()).map_err(|_| wrong("a path with a NUL".into()))?;
        // SAFETY: the path ends in NUL. The library's constructors run: loading it is trusting it.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(wrong(dl_error()));
        }
        // SAFETY: the handle is open and the name ends in NUL.
        let symbol = unsafe { libc::dlsym(handle, c"cenote_policy_v1".as_ptr()) };
        let entry = abi::entry(symbol).ok_or_else(|| wrong("it has no function cenote_policy_v1".into()))?;
        let table = entry();
        if table.is_null() {
            return Err(wrong("cenote_policy_v1 gives nothing".into()));
        }
        // SAFETY: not null; every version of the interface begins with these two fields, which are read before the
        // rest.
        let (version, size) = unsafe { ((*table).abi, (*table).size) };
        if version != abi::ABI || (size as usize) < size_of::<abi::Table>() {
            return Err(wrong(format!(
                "it has version {version} of the interface, in {size} bytes; this is version {}",
                abi::ABI
            )));
        }
        // SAFETY: it has this version and size, and lives as long as the library, which is never unloaded.
        let table: &'static abi::Table = unsafe { &*table };
        let (Some(place), Some(plan)) = (table.place, table.plan) else {
            return Err(wrong("it lacks `place` or `plan`".into()));
        };
        let text = |text: *const std::ffi::c_char| {
            if text.is_null() {
                return String::new();
            }
            // SAFETY: not null, ends in NUL by the interface, and lives as long as the library.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        let (name, about) = (text(table.name), text(table.about));
        if name.is_empty() || cenote_policy::by_name(&name).is_some() {
            return Err(wrong(format!("its name `{name}` is none, or one of Cenote's own")));
        }
        let line = start(place, plan).map_err(|error| Error::io("the thread of a policy plugin", &error))?;
        Ok(Self { name, about, patience, line: Mutex::new(line), failed: Mutex::new((0, None)) })
    }
    /// The last failure.
    pub fn failure(&self) -> Option<Arc<str>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Asks the library; an error says why there is no valid answer.
    fn ask(&self, ask: Ask) -> Result<Answer, Arc<str>> {
        let (failures, last) = self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if failures >= FAILURES_MAX {
            let last = last.unwrap_or_default();
            return Err(format!("is not asked any more: it {last}").into());
        }
        // Do not queue behind another caller that waits for the library.
        let Ok(mut line) = self.line.try_lock() else { return Err("is busy".into()) };
        while let Ok((number, _)) = line.answer.try_recv() {
            if line.out == Some(number) {
                line.out = None; // too late, but it has returned
            }
        }
        if line.out.is_some() {
            return Err("has not come back from an earlier question".into());
        }
        line.number += 1;
        let number = line.number;
        if line.ask.try_send((number, ask)).is_err() {
            return Err(self.fail("has ended".to_owned()));
        }
        match line.answer.recv_timeout(self.patience) {
            Ok((_, answer)) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => {
                line.out = Some(number);
                Err(self.fail(format!("took more than {} ms", self.patience.as_millis())))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.fail("has ended".to_owned())),
        }
    }
    fn fail(&self, what: String) -> Arc<str> {
        let what: Arc<str> = what.into();
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        tracing::warn!(policy = self.name, "a policy plugin {what}; fast-first decides instead");
        *failed = (failed.0.saturating_add(1), Some(Arc::clone(&what)));
        what
    }
    fn instead(&self, because: Arc<str>, then: Reason) -> Reason {
        Reason::Fallback { policy: self.name.as_str().into(), because, then: Box::new(then) }
    }
    fn decide(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Arc<str>> {
        let label = CString::new(incoming.label.replace('\0', "")).unwrap_or_default();
        let ask = Ask::Place(devices.iter().map(abi::device).collect(), abi::incoming(incoming), label);
        let Answer::Place(code, answer) = self.ask(ask)? else { return Err(self.fail("mixed up its answers".into())) };
        if code != 0 {
            return Err(format!("declined with {code}").into());
        }
        let nonsense = |what: String| self.fail(format!("answered nonsense: {what}"));
        let device =
            u16::try_from(answer.device).map_err(|_| nonsense(format!("there is no device {}", answer.device)))?;
        let device = DeviceId(device);
        let reason = Reason::Text(format!("policy plugin `{}` says so", self.name).into());
        let decision = if answer.wait == 0 {
            Decision::Place { device, bytes: answer.bytes, reason, past_watermarks: false }
        } else {
            Decision::Wait { device, expected_ns: answer.expected_ns, reason }
        };
        check_decision(&decision, devices, incoming).map_err(nonsense)?;
        Ok(decision)
    }
    fn devise(&self, devices: &[DeviceView], ranges: &[RangeView<'_>], limits: &Limits<'_>) -> Result<Plan, Arc<str>> {
        let sample = ranges.iter().map(|range| abi::range(range, limits)).collect();
        let ask = Ask::Plan(devices.iter().map(abi::device).collect(), sample);
        let Answer::Plan(count, moves) = self.ask(ask)? else { return Err(self.fail("mixed up its answers".into())) };
        let nonsense = |what: String| self.fail(format!("answered nonsense: {what}"));
        if count < 0 {
            return Err(format!("declined with {count}").into());
        }
        let Some(moves) = usize::try_from(count).ok().and_then(|count| moves.get(..count)) else {
            return Err(nonsense(format!("{count} moves, of at most {MOVES_MAX}")));
        };
        let reason = Reason::Text(format!("policy plugin `{}` says so", self.name).into());
        let moves = moves.iter().map(|of| abi::planned(of, &reason)).collect::<Result<_, _>>().map_err(nonsense)?;
        let plan = Plan { moves, reason };
        check_plan(&plan, devices, ranges).map_err(nonsense)?;
        Ok(plan)
    }
}

fn dl_error() -> String {
    // SAFETY: `dlerror` returns null or a string that ends in NUL and stays until the next call on this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "it cannot be loaded".into();
    }
    // SAFETY: see above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Starts the thread that calls the library's functions.
fn start(place: abi::PlaceFn, plan: abi::PlanFn) -> std::io::Result<Line> {
    let (ask, questions) = sync_channel::<(u64, Ask)>(1);
    let (answers, answer) = sync_channel(1);
    std::thread::Builder::new().name("cenote-plugin".into()).spawn(move || {
        for (number, question) in questions {
            let done = match question {
                Ask::Place(devices, mut incoming, label) => {
                    incoming.label = label.as_ptr();
                    let mut decision = abi::DecisionV1::default();
                    let code = place(devices.as_ptr(), devices.len(), &raw const incoming, &raw mut decision);
                    Answer::Place(code, decision)
                }
                Ask::Plan(devices, ranges) => {
                    let mut moves = vec![abi::Move::default(); MOVES_MAX];
                    let (into, most) = (moves.as_mut_ptr(), moves.len());
                    let count = plan(devices.as_ptr(), devices.len(), ranges.as_ptr(), ranges.len(), into, most);
                    Answer::Plan(count, moves)
                }
            };
            if answers.send((number, done)).is_err() {
                return;
            }
        }
    })?;
    Ok(Line { ask, answer, number: 0, out: None })
}

impl Policy for Plugin {
    fn name(&self) -> &str {
        &self.name
    }
    fn about(&self) -> &str {
        &self.about
    }
    fn failure(&self) -> Option<Arc<str>> {
        Plugin::failure(self)
    }
    fn place(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Refusal> {
        let because = match self.decide(devices, incoming) {
            Ok(decision) => return Ok(decision),
            Err(because) => because,
        };
        let mut decision = FastFirst.place(devices, incoming)?;
        let (Decision::Place { reason, .. } | Decision::Wait { reason, .. }) = &mut decision;
        *reason = self.instead(because, std::mem::replace(reason, Reason::Nothing));
        Ok(decision)
    }
    fn plan(&self, devices: &[DeviceView], ranges: &[RangeView<'_>], limits: &Limits<'_>) -> Plan {
        self.devise(devices, ranges, limits).unwrap_or_else(|because| {
            let mut plan = FastFirst.plan(devices, ranges, limits);
            plan.reason = self.instead(because, plan.reason);
            plan
        })
    }
}
