//! `destroy` and `clean`: deletion of a store, and of the remains of stores deleted by hand.

use std::io::{IsTerminal, Write};

use cenote::model::size;
use cenote::{Error, ErrorKind, Store};
use serde_json::json;

use super::{Context, files};
use crate::args::DestroyArgs;
use crate::failure::{Done, Failure};

pub fn destroy(context: &mut Context<'_>, args: &DestroyArgs) -> Done {
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => context.dir()?,
    };
    if !args.yes {
        confirm(&format!("Delete the store in {} with everything in it?", dir.display()))?;
    }
    let destroyed = Store::destroy(&dir, args.force)?;
    if context.out.json {
        return context.out.document(&json!({
            "store": destroyed.store.to_string(),
            "dir": dir.display().to_string(),
            "failures": destroyed.failures.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "left": destroyed.foreign.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        }));
    }
    context.out.line(format!("store {} in {} is no more", destroyed.store, dir.display()))?;
    for failure in &destroyed.failures {
        context.out.line(format!("  left: {failure}"))?;
    }
    for path in &destroyed.foreign {
        context.out.line(format!("  left, since it is not the store's: {}", path.display()))?;
    }
    Ok(())
}

pub fn clean(context: &mut Context<'_>, yes: bool, files_alone: bool, also_waiting: bool) -> Done {
    let looked = files::clean(context, also_waiting);
    if files_alone || also_waiting {
        return looked;
    }
    if let Err(Failure::Error(error)) = looked {
        eprintln!("HDF5 files of the store were not looked at: {error}");
    }
    let orphans = Store::orphans()?;
    if context.out.json {
        let list = orphans.iter().map(|orphan| {
            json!({
                "store": orphan.store.to_string(),
                "was_in": orphan.home.display().to_string(),
                "memory": orphan.path.display().to_string(),
                "bytes": orphan.bytes,
            })
        });
        context.out.document(&list.collect())?;
    } else {
        for orphan in &orphans {
            let (path, bytes) = (orphan.path.display(), size::human(orphan.bytes));
            context.out.line(format!("{path}: {bytes} of a store that was in {}", orphan.home.display()))?;
        }
    }
    if orphans.is_empty() {
        return if context.out.json { Ok(()) } else { context.out.line("nothing to clean") };
    }
    if !yes {
        context.out.flush()?;
        confirm("Give this memory back? (A store that was moved must be opened in its new place first.)")?;
    }
    Ok(Store::sweep(&orphans)?)
}

/// Asks for confirmation. Without a terminal the answer is no.
pub fn confirm(question: &str) -> cenote::Result<()> {
    let refuse = |cause: &str, next: &str| {
        Err(Error::new(ErrorKind::InvalidInput, "confirmation").because(cause).try_next(next))
    };
    if !std::io::stdin().is_terminal() {
        return refuse("there is nobody to ask", "say --yes if it is meant");
    }
    eprint!("{question} [yes/no] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    if answer.trim() == "yes" { Ok(()) } else { refuse("the answer was not `yes`", "nothing was changed") }
}
