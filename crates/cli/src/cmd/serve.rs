//! `serve` and `stop`: start and end of the daemon. Apart from the names of files in a store's directory, only this module names the daemon.

use std::time::Duration;

use cenote::{Error, ErrorKind, Store};
use cenote_server::daemon::{self, DaemonOptions};
use tracing_subscriber::filter::LevelFilter;

use super::log::{self, LOG_VARIABLE};
use super::{Context, files, web};
use crate::args::ServeArgs;
use crate::failure::Done;

pub fn serve(context: &mut Context<'_>, args: &ServeArgs) -> Done {
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => context.dir()?,
    };
    let policy_plugin = match &args.policy_plugin {
        Some(word) if word.as_os_str() == "off" => {
            cenote_server::keep_plugin(&dir, None)?;
            None
        }
        Some(path) => {
            // Load it before the setting is kept: the next process to open the store must not find a plugin that does not load.
            cenote_server::Plugin::load(path, cenote_server::PLUGIN_PATIENCE)?;
            if dir.is_dir() {
                cenote_server::keep_plugin(&dir, Some(path))?;
            }
            Some(path.clone())
        }
        None => None,
    };
    let mut background_args: Vec<std::ffi::OsString> =
        args.http.map(|http| web::argument(http).into()).into_iter().collect();
    background_args.extend(policy_plugin.iter().flat_map(|path| ["--policy-plugin".into(), path.clone().into()]));
    let options = DaemonOptions {
        idle_exit: args.idle_exit.map(Duration::from_secs),
        background: args.background,
        create: args.create,
        observer: web::observer(&dir, args.http),
        policy_plugin,
        background_args,
        world: None,
    };
    if let Ok(wanted) = std::env::var(LOG_VARIABLE)
        && wanted.parse::<LevelFilter>().is_err()
    {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{LOG_VARIABLE}={wanted}"))
            .because("it is not one of off, error, warn, info, debug, trace")
            .into());
    }
    // In the background that is `daemon.log` in the store's directory. `openraft` tells each late heartbeat as an error; what
    // matters of it is in the errors of the register.
    log::begin("openraft");
    files::free_in_background(&dir);
    daemon::run(&dir, &options)?;
    match web::address_of_daemon(&dir).filter(|_| args.background && args.http.is_some()) {
        Some(url) => context.out.line(url),
        None => Ok(()),
    }
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
