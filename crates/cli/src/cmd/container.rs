//! `mk`, `set`, `chmod`, `chown`, `rename`, `rm`.

use std::ffi::{OsStr, OsString};

use cenote::{ContainerSpec, Error, ErrorKind, ObjectId};

use super::{Access, Context};
use crate::args::{MkArgs, SetArgs};
use crate::failure::Done;
use crate::mode::ModeChange;
use crate::target::{self, Target};

pub fn make(context: &mut Context<'_>, args: &MkArgs) -> Done {
    let store = context.open(Access::Write)?;
    let label = target::label(&args.label)?;
    let spec = ContainerSpec {
        block_shift: args.block_size,
        durability: args.durability.into(),
        quota_bytes: args.quota,
        policy: args.policy.clone(),
        mode: args.rights.as_ref().map_or(cenote::CONTAINER_MODE, |rights| rights.apply(cenote::CONTAINER_MODE)),
        ..ContainerSpec::default()
    };
    let made = match store.create_container(label, &spec) {
        Err(error) if args.if_missing && error.kind() == ErrorKind::Exists => store.container(label)?,
        made => made?,
    };
    if context.out.json {
        return context.out.document(&serde_json::json!({ "label": label, "id": made.id().0 }));
    }
    Ok(())
}

pub fn set(context: &mut Context<'_>, args: &SetArgs) -> Done {
    let store = context.open(Access::Write)?;
    let container = target::container(&store, &args.container)?;
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
    spec.owner_uid = args.owner.or(spec.owner_uid);
    spec.owner_gid = args.group.or(spec.owner_gid);
    if let Some(rights) = &args.rights {
        spec.mode = rights.apply(spec.mode);
    }
    Ok(container.set(&spec)?)
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
                store.container(label)?;
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
