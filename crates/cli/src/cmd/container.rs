//! `mk`, `set`, `chmod`, `chown`, `rename`, `rm`.

use std::ffi::{OsStr, OsString};

use cenote::model::size;
use cenote::{ArrangeTarget, ContainerSpec, Error, ErrorKind, ObjectId};
use clap::Args;

use super::layout::{self, LayoutOptions};
use super::{Access, Context};
use crate::config;
use crate::durability::DurabilityArg;
use crate::failure::Done;
use crate::mode::{self, ModeChange};
use crate::target::{self, Target};

/// Arguments of `mk`.
#[derive(Args, Debug)]
pub struct MkArgs {
    /// Label: any text
    pub label: OsString,
    /// When updates are acknowledged
    #[arg(short, long, value_enum, default_value_t = DurabilityArg::Async)]
    pub durability: DurabilityArg,
    /// Block size of its objects: a power of two from 64 to 16MiB
    #[arg(short, long, default_value = "4KiB", value_parser = config::parse_block_size, value_name = "SIZE")]
    pub block_size: u8,
    /// Maximum bytes it may take; 0 for no limit
    #[arg(long, default_value = "0", value_parser = size::parse, value_name = "SIZE")]
    pub quota: u64,
    /// Placement policy [default: fast-first]
    #[arg(long, default_value = "", hide_default_value = true)]
    pub policy: String,
    /// Its part of a tier whose room is scarce, beside other containers: 1 to 1000
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=WEIGHT_MAX), value_name = "N")]
    pub weight: u16,
    /// Who may read and write it [default: 0755]
    #[arg(long, value_parser = mode::parse, value_name = "MODE")]
    pub rights: Option<ModeChange>,
    #[command(flatten)]
    pub layout: LayoutOptions,
    /// Succeed if it exists already
    #[arg(long)]
    pub if_missing: bool,
}

/// Largest weight.
const WEIGHT_MAX: i64 = cenote::model::CONTAINER_WEIGHT_MAX as i64;

/// Arguments of `set`.
#[derive(Args, Debug)]
pub struct SetArgs {
    /// CONTAINER
    pub container: OsString,
    /// When updates are acknowledged
    #[arg(short, long, value_enum)]
    pub durability: Option<DurabilityArg>,
    /// Maximum bytes it may take; 0 for no limit
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    pub quota: Option<u64>,
    /// Placement policy
    #[arg(long)]
    pub policy: Option<String>,
    /// Its part of a tier whose room is scarce, beside other containers: 1 to 1000. Only the owner of the store raises it
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=WEIGHT_MAX), value_name = "N")]
    pub weight: Option<u16>,
    /// Numeric id of the user who owns it
    #[arg(long, value_name = "UID")]
    pub owner: Option<u32>,
    /// Numeric id of its group
    #[arg(long, value_name = "GID")]
    pub group: Option<u32>,
    /// Who may read and write it, as for `chmod`
    #[arg(long, value_parser = mode::parse, value_name = "MODE")]
    pub rights: Option<ModeChange>,
    #[command(flatten)]
    pub layout: LayoutOptions,
}

pub fn make(context: &mut Context<'_>, args: &MkArgs) -> Done {
    let store = context.open(Access::Write)?;
    let label = target::label(&args.label)?;
    let spec = ContainerSpec {
        block_shift: args.block_size,
        durability: args.durability.into(),
        quota_bytes: args.quota,
        policy: args.policy.clone(),
        weight: args.weight,
        mode: args.rights.as_ref().map_or(cenote::CONTAINER_MODE, |rights| rights.apply(cenote::CONTAINER_MODE)),
        ..ContainerSpec::default()
    };
    let wish = args.layout.wish()?;
    let (made, is_new) = match store.create_container(label, &spec) {
        Err(error) if args.if_missing && error.kind() == ErrorKind::Exists => (store.container(label)?, false),
        made => (made?, true),
    };
    if let Some(wish) = wish
        && let Err(error) = layout::keep(context, &store, &ArrangeTarget::Container(made.id()), &wish, false)
    {
        if is_new {
            store.delete_container(label)?; // as if it had not been asked for
        }
        return Err(error);
    }
    if context.out.json {
        return context.out.document(&serde_json::json!({ "label": label, "id": made.id().0 }));
    }
    Ok(())
}

pub fn set(context: &mut Context<'_>, args: &SetArgs) -> Done {
    let store = context.open(Access::Write)?;
    let container = target::container(&store, &args.container)?;
    let wish = args.layout.wish()?;
    let mut spec = container.info()?.spec;
    if let Some(durability) = args.durability {
        spec.durability = durability.into();
    }
    if let Some(quota) = args.quota {
        spec.quota_bytes = quota;
    }
    if let Some(policy) = &args.policy {
        spec.policy.clone_from(policy);
    }
    spec.weight = args.weight.unwrap_or(spec.weight);
    spec.owner_uid = args.owner.or(spec.owner_uid);
    spec.owner_gid = args.group.or(spec.owner_gid);
    if let Some(rights) = &args.rights {
        spec.mode = rights.apply(spec.mode);
    }
    container.set(&spec)?;
    if let Some(wish) = wish {
        layout::keep(context, &store, &ArrangeTarget::Container(container.id()), &wish, false)?;
    }
    Ok(())
}

pub fn chmod(context: &mut Context<'_>, mode: &ModeChange, containers: &[OsString]) -> Done {
    change(context, containers, |spec| spec.mode = mode.apply(spec.mode))
}

pub fn chown(context: &mut Context<'_>, (uid, gid): (Option<u32>, Option<u32>), containers: &[OsString]) -> Done {
    change(context, containers, |spec| {
        spec.owner_uid = uid.or(spec.owner_uid);
        spec.owner_gid = gid.or(spec.owner_gid);
    })
}

/// Looks up all containers before it changes the first.
fn change(context: &mut Context<'_>, containers: &[OsString], change: impl Fn(&mut ContainerSpec)) -> Done {
    let store = context.open(Access::Write)?;
    let found: Vec<_> = containers.iter().map(|label| target::container(&store, label)).collect::<Result<_, _>>()?;
    for container in found {
        let mut spec = container.info()?.spec;
        change(&mut spec);
        container.set(&spec)?;
    }
    Ok(())
}

pub fn rename(context: &mut Context<'_>, from: &OsStr, to: &OsStr) -> Done {
    let store = context.open(Access::Write)?;
    Ok(store.rename_container(target::label(from)?, target::label(to)?)?)
}

/// Looks up all targets before it deletes the first, so that a wrong name changes nothing.
pub fn remove(context: &mut Context<'_>, targets: &[OsString], recursive: bool) -> Done {
    let store = context.open(Access::Write)?;
    let mut doomed = Vec::with_capacity(targets.len());
    for name in targets {
        let found = target::either::<ObjectId>(&store, name)?;
        match found {
            Target::Container(label) => {
                match store.container(label) {
                    Err(_) if target::is_lost(&store, label) => {}
                    found => drop(found?),
                }
                if !recursive {
                    return Err(Error::new(ErrorKind::InvalidInput, format!("container `{label}`"))
                        .because("it would be deleted with everything in it")
                        .try_next("add -r to delete it with everything in it")
                        .into());
                }
            }
            Target::Inside(label, id) => {
                store.container(label)?.object(id).stat()?;
            }
        }
        doomed.push(found);
    }
    for target in doomed {
        match target {
            Target::Container(label) => store.delete_container(label)?,
            Target::Inside(label, id) => store.container(label)?.delete_object(id)?,
        }
    }
    Ok(())
}
