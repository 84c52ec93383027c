//! The log of commands that serve, on standard error.

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Level of the log: off, error, warn, info (the default), debug, trace.
pub const LOG_VARIABLE: &str = "CENOTE_LOG";

/// Begins to log. The messages of a talkative library need `debug`.
pub fn begin(library: &str) {
    let wanted = std::env::var(LOG_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(LevelFilter::INFO);
    let of_library = if wanted >= LevelFilter::DEBUG { wanted } else { LevelFilter::OFF };
    let targets = Targets::new().with_default(wanted).with_target(library, of_library);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    tracing_subscriber::registry().with(targets).with(lines).init();
}
