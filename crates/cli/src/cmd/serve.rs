//! `serve` and `stop`: the daemon's beginning and end. The only file of this room that names the daemon.

use std::time::Duration;

use cenote::{Error, ErrorKind, Store};
use cenote_server::daemon::{self, DaemonOptions};

use tracing_subscriber::filter::LevelFilter;

use super::{Context, web};
use crate::args::ServeArgs;
use crate::failure::Done;

/// How much the daemon says: off, error, warn, info (the preset), debug, trace.
const LOG_VARIABLE: &str = "CENOTE_LOG";

pub fn serve(context: &mut Context<'_>, args: &ServeArgs) -> Done {
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => context.dir()?,
    };
    let options = DaemonOptions {
        idle_exit: args.idle_exit.map(Duration::from_secs),
        background: args.background,
        create: args.create,
        observer: web::observer(&dir, args.http),
        background_args: args.http.map(|http| web::argument(http).into()).into_iter().collect(),
    };
    if let Ok(wanted) = std::env::var(LOG_VARIABLE)
        && wanted.parse::<LevelFilter>().is_err()
    {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{LOG_VARIABLE}={wanted}"))
            .because("it is not one of off, error, warn, info, debug, trace")
            .into());
    }
    log();
    daemon::run(&dir, &options)?;
    match web::address_of_daemon(&dir).filter(|_| args.background && args.http.is_some()) {
        Some(url) => context.out.line(url),
        None => Ok(()),
    }
}

/// Says on standard error what the daemon notices; in the background that is `daemon.log` in the store's directory.
fn log() {
    let wanted = std::env::var(LOG_VARIABLE).ok().and_then(|text| text.parse().ok());
    tracing_subscriber::fmt()
        .with_max_level(wanted.unwrap_or(LevelFilter::INFO))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
}

pub fn stop(context: &mut Context<'_>) -> Done {
    let dir = context.dir()?;
    let served = Store::stop_daemon(&dir)?;
    if context.out.json {
        return context.out.document(&serde_json::json!({ "dir": dir.display().to_string(), "stopped": served }));
    }
    let said = if served { "stopped" } else { "no daemon serves it" };
    context.out.line(format!("{}: {said}", dir.display()))
}
