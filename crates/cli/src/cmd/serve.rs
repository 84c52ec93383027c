//! `serve` and `stop`: the daemon's beginning and end. The only file of this room that names the daemon.

use std::time::Duration;

use cenote::Store;
use cenote_server::daemon::{self, DaemonOptions};

use super::Context;
use crate::args::ServeArgs;
use crate::failure::Done;

pub fn serve(context: &mut Context<'_>, args: &ServeArgs) -> Done {
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => context.dir()?,
    };
    let options = DaemonOptions {
        idle_exit: args.idle_exit.map(Duration::from_secs),
        background: args.background,
        create: args.create,
    };
    Ok(daemon::run(&dir, &options)?)
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
