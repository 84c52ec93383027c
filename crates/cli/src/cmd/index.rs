//! `index ls|mk|rm|get|put|del|next`: records of ordered indices.

use std::ffi::{OsStr, OsString};
use std::io::Read;

use cenote::{Error, ErrorKind, Index, IndexId, KeyCode, NextFrom, Records, Store};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{Access, Context};
use crate::failure::Done;
use crate::out::{escaped, hex};
use crate::target::{self, Target};

/// Ids requested at once.
const PAGE: u32 = 4096;

/// Index commands. Keys and values are the bytes of the argument.
#[derive(Subcommand, Debug)]
pub enum IndexCommand {
    /// List the indices of a container
    Ls {
        /// CONTAINER
        container: OsString,
    },
    /// Create an index; prints its name
    Mk {
        /// CONTAINER (with a random index id) or CONTAINER/INDEX
        target: OsString,
    },
    /// Delete an index with its records
    Rm {
        /// CONTAINER/INDEX
        index: OsString,
    },
    /// Show values by key; exit code 1 if a key does not exist
    Get {
        /// CONTAINER/INDEX
        index: OsString,
        /// The keys
        #[arg(required = true)]
        keys: Vec<OsString>,
        #[command(flatten)]
        form: KeyForm,
        /// Write the bytes of the values unchanged, without a line end
        #[arg(long, conflicts_with = "json")]
        raw: bool,
    },
    /// Set a record
    Put {
        /// CONTAINER/INDEX
        index: OsString,
        /// The key
        key: OsString,
        /// The value; - for standard input
        value: OsString,
        #[command(flatten)]
        form: KeyForm,
        /// Fail if the key exists
        #[arg(long)]
        new: bool,
    },
    /// Delete records; exit code 1 if a key does not exist
    Del {
        /// CONTAINER/INDEX
        index: OsString,
        /// The keys
        #[arg(required = true)]
        keys: Vec<OsString>,
        #[command(flatten)]
        form: KeyForm,
    },
    /// List records in key order
    Next {
        /// CONTAINER/INDEX
        index: OsString,
        /// Only keys with this prefix
        #[arg(long)]
        prefix: Option<OsString>,
        /// Start at this key, or the next greater one
        #[arg(long, conflicts_with = "after")]
        from: Option<OsString>,
        /// Start after this key
        #[arg(long)]
        after: Option<OsString>,
        /// Maximum number of records
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u32,
        #[command(flatten)]
        form: KeyForm,
    },
}

/// Notation of keys and values.
#[derive(Args, Debug, Clone, Copy)]
pub struct KeyForm {
    /// Keys and values are hexadecimal digits
    #[arg(long)]
    pub hex: bool,
}

pub fn index(context: &mut Context<'_>, command: &IndexCommand) -> Done {
    match command {
        IndexCommand::Ls { container } => list(context, container),
        IndexCommand::Mk { target } => make(context, target),
        IndexCommand::Rm { index } => remove(context, index),
        IndexCommand::Get { index, keys, form, raw } => get(context, index, keys, *form, *raw),
        IndexCommand::Put { index, key, value, form, new } => put(context, index, key, value, *form, *new),
        IndexCommand::Del { index, keys, form } => del(context, index, keys, *form),
        IndexCommand::Next { index, prefix, from, after, limit, form } => {
            let from = match (from, after) {
                (Some(key), _) => NextFrom::At(target::bytes(key, form.hex)?),
                (_, Some(key)) => NextFrom::After(target::bytes(key, form.hex)?),
                (None, None) => NextFrom::Start,
            };
            let prefix = prefix.as_deref().map(|key| target::bytes(key, form.hex)).transpose()?.unwrap_or_default();
            let store = context.open(Access::Read)?;
            let records = target::index(&store, index)?.next_with_prefix(&prefix, from, *limit)?;
            show(context, &records, *form)
        }
    }
}

fn list(context: &mut Context<'_>, container: &OsStr) -> Done {
    let store = context.open(Access::Read)?;
    let container = target::container(&store, container)?;
    let mut all = Vec::new();
    loop {
        let page = container.indices(all.last().copied(), PAGE)?;
        if page.is_empty() {
            break;
        }
        all.extend(page);
    }
    if context.out.json {
        return context.out.document(&all.iter().map(|id| json!({ "index": id.to_string() })).collect());
    }
    all.iter().try_for_each(|id| context.out.line(id.to_string()))
}

fn make(context: &mut Context<'_>, name: &OsStr) -> Done {
    let store = context.open(Access::Write)?;
    let (label, id) = match target::either::<IndexId>(&store, name)? {
        Target::Container(label) => (label, None),
        Target::Inside(label, id) => (label, Some(id)),
    };
    let made = store.container(label)?.create_index(id)?.key().index;
    if context.out.json {
        return context.out.document(&json!({ "container": label, "index": made.to_string() }));
    }
    context.out.line(format!("{label}/{made}"))
}

fn remove(context: &Context<'_>, name: &OsStr) -> Done {
    let store = context.open(Access::Write)?;
    let index = target::index(&store, name)?;
    let id = index.key().index;
    let (container, _) = name.to_str().and_then(|name| name.rsplit_once('/')).unwrap_or_default();
    Ok(store.container(container)?.delete_index(id)?)
}

fn open(store: &Store, name: &OsStr, keys: &[OsString], form: KeyForm) -> cenote::Result<(Index, Vec<Vec<u8>>)> {
    let keys = keys.iter().map(|key| target::bytes(key, form.hex)).collect::<cenote::Result<_>>()?;
    Ok((target::index(store, name)?, keys))
}

fn get(context: &mut Context<'_>, name: &OsStr, keys: &[OsString], form: KeyForm, raw: bool) -> Done {
    let store = context.open(Access::Read)?;
    let (index, keys) = open(&store, name, keys, form)?;
    let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let values = index.get(&borrowed)?;
    if let Some(at) = values.iter().position(Option::is_none) {
        return Err(missing(name, &keys[at]));
    }
    if raw {
        return values.iter().flatten().try_for_each(|value| context.out.bytes(value));
    }
    let records: Records = keys.into_iter().zip(values.into_iter().flatten()).collect();
    show(context, &records, form)
}

fn missing(index: &OsStr, key: &[u8]) -> crate::failure::Failure {
    Error::new(ErrorKind::NotFound, format!("key `{}` of index {}", escaped(key), index.display()))
        .try_next(format!("`cenote index next {}` lists the records", index.display()))
        .into()
}

fn put(context: &Context<'_>, name: &OsStr, key: &OsStr, value: &OsStr, form: KeyForm, new: bool) -> Done {
    let key = target::bytes(key, form.hex)?;
    let value = if value == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map_err(|error| Error::io("standard input", &error))?;
        bytes
    } else {
        target::bytes(value, form.hex)?
    };
    let store = context.open(Access::Write)?;
    let index = target::index(&store, name)?;
    let record = [(key.as_slice(), value.as_slice())];
    let codes = if new { index.put_new(&record)? } else { index.put(&record)? };
    let subject = || format!("key `{}` of index {}", escaped(&key), name.display());
    match codes.first() {
        None | Some(KeyCode::Ok) => Ok(()),
        Some(KeyCode::NotFound) => Err(Error::new(ErrorKind::NotFound, format!("index {}", name.display()))
            .try_next("make it with `cenote index mk`")
            .into()),
        Some(KeyCode::Exists) => {
            Err(Error::new(ErrorKind::Exists, subject()).try_next("omit --new to replace its value").into())
        }
        Some(KeyCode::Invalid | KeyCode::Limit) => Err(Error::new(ErrorKind::LimitExceeded, subject())
            .because(format!(
                "a key may have {} bytes and a value {}; these have {} and {}, or the container's quota is used up",
                cenote::model::KEY_BYTES_MAX,
                cenote::model::VALUE_BYTES_MAX,
                key.len(),
                value.len()
            ))
            .into()),
    }
}

fn del(context: &Context<'_>, name: &OsStr, keys: &[OsString], form: KeyForm) -> Done {
    let store = context.open(Access::Write)?;
    let (index, keys) = open(&store, name, keys, form)?;
    let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    // Look up all keys first: a wrong key must not delete the others.
    if let Some(at) = index.get(&borrowed)?.iter().position(Option::is_none) {
        return Err(missing(name, &keys[at]));
    }
    index.del(&borrowed)?;
    Ok(())
}

fn show(context: &mut Context<'_>, records: &Records, form: KeyForm) -> Done {
    if context.out.json {
        return context.out.document(&records.iter().map(|(key, value)| document(key, value)).collect());
    }
    let text = |bytes: &[u8]| if form.hex { hex(bytes) } else { escaped(bytes) };
    let rows: Vec<Vec<String>> = records.iter().map(|(key, value)| vec![text(key), text(value)]).collect();
    context.out.table(&["key", "value"], &rows)
}

/// Converts a record for programs: always in hexadecimal, and as text if it is text.
fn document(key: &[u8], value: &[u8]) -> Value {
    json!({
        "key": std::str::from_utf8(key).ok(),
        "key_hex": hex(key),
        "value": std::str::from_utf8(value).ok(),
        "value_hex": hex(value),
    })
}
