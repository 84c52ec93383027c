//! Every target of `cenote_testkit::fuzz` as a libFuzzer program: which one, its name says.
#![no_main]

use std::sync::LazyLock;

use cenote_testkit::fuzz::{Target, target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| target(env!("CARGO_BIN_NAME")).expect("a target of that name"));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
