//! `ls` and `stat`: lists and attributes.

use std::ffi::OsStr;

use cenote::{Answered, Container, ContainerId, ContainerInfo, Object, ObjectId, ObjectStat};
use serde_json::{Value, json};

use super::{Access, Context, answered};
use crate::args::LsArgs;
use crate::failure::Done;
use crate::mode;
use crate::out::escaped;
use crate::target::{self, Target};
use cenote::model::size::{count, human};

/// Ids requested at once.
const PAGE: u32 = 4096;

pub fn ls(context: &mut Context<'_>, args: &LsArgs) -> Done {
    let store = context.open(Access::Read)?;
    let Some(name) = &args.container else {
        let Answered { mut found, silent } = store.containers_answered("")?;
        found.truncate(args.limit.map_or(usize::MAX, |limit| limit as usize));
        let lost = store.lost_containers("")?;
        let is_silent = |id: ContainerId| silent.iter().any(|(home, _)| *home == id.home());
        let mut away = if silent.is_empty() { Vec::new() } else { store.labels("")? };
        away.retain(|(_, id)| is_silent(*id));
        if context.out.json {
            let lost = lost.iter().map(|(label, id)| json!({ "label": label, "id": id.0, "lost": true }));
            let away = away.iter().map(|(label, id)| json!({ "label": label, "id": id.0, "away": true }));
            context.out.document(&found.iter().map(container_document).chain(lost).chain(away).collect())?;
            return answered::all(silent);
        }
        containers(context, &found)?;
        lost_containers(context, &lost)?;
        away_containers(context, &away)?;
        return answered::all(silent);
    };
    let container = target::container(&store, name)?;
    let after = args.after.as_deref().map(str::parse::<ObjectId>).transpose()?;
    if context.out.json || args.long {
        let mut rows = Vec::new();
        each_object(&container, after, args.limit, |object| {
            rows.push((object.key().object, if args.long { Some(object.stat()?) } else { None }));
            Ok(())
        })?;
        return objects(context, &rows);
    }
    // Plain lists may have millions of lines: write them as they come.
    let out = &mut *context.out;
    each_object(&container, after, args.limit, |object| out.line(object.key().object.to_string()))
}

/// Calls `each` for every object, one page of ids at a time.
fn each_object(
    container: &Container,
    mut after: Option<ObjectId>,
    limit: Option<u64>,
    mut each: impl FnMut(Object) -> Done,
) -> Done {
    let mut left = limit.unwrap_or(u64::MAX);
    while left > 0 {
        let ids = container.objects(after, left.min(u64::from(PAGE)) as u32)?;
        let Some(last) = ids.last() else { break };
        after = Some(*last);
        left -= ids.len() as u64;
        for id in ids {
            each(container.object(id))?;
        }
    }
    Ok(())
}

fn containers(context: &mut Context<'_>, found: &[ContainerInfo]) -> Done {
    if context.out.json {
        return context.out.document(&found.iter().map(container_document).collect());
    }
    let rows: Vec<Vec<String>> = found
        .iter()
        .map(|info| {
            vec![
                escaped(info.label.as_bytes()),
                count(info.objects),
                count(info.indices),
                count(info.records),
                human(info.stored_bytes),
                info.spec.durability.word().to_owned(),
                human(1 << info.spec.block_shift),
                if info.spec.quota_bytes == 0 { "-".to_owned() } else { human(info.spec.quota_bytes) },
                mode::words(info.spec.mode),
                format!("{}:{}", id_words(info.spec.owner_uid), id_words(info.spec.owner_gid)),
            ]
        })
        .collect();
    let titles = [
        "container",
        ">objects",
        ">indices",
        ">records",
        ">stored",
        "durability",
        ">block",
        ">quota",
        "mode",
        ">owner",
    ];
    context.out.table(&titles, &rows)
}

/// Containers whose content is gone: their names are still taken.
fn lost_containers(context: &mut Context<'_>, lost: &[(String, ContainerId)]) -> Done {
    if lost.is_empty() {
        return Ok(());
    }
    context.out.line("")?;
    context.out.line(format!("lost with a node that was given up: {}", names(lost)))?;
    context.out.line("  `cenote rm -r NAME` takes a name away, so that it can be used again")
}

/// Containers of homes that do not answer.
fn away_containers(context: &mut Context<'_>, away: &[(String, ContainerId)]) -> Done {
    if away.is_empty() {
        return Ok(());
    }
    context.out.line("")?;
    context.out.line(format!("at nodes that cannot be reached: {}", names(away)))
}

fn names(containers: &[(String, ContainerId)]) -> String {
    let names: Vec<String> = containers.iter().map(|(label, _)| escaped(label.as_bytes())).collect();
    names.join(", ")
}

fn objects(context: &mut Context<'_>, found: &[(ObjectId, Option<ObjectStat>)]) -> Done {
    if context.out.json {
        let list = found.iter().map(|(id, stat)| match stat {
            Some(stat) => object_document(*id, stat),
            None => json!({ "object": id.to_string() }),
        });
        return context.out.document(&list.collect());
    }
    let rows: Vec<Vec<String>> = found
        .iter()
        .map(|(id, stat)| {
            let stat = stat.as_ref();
            let cell = |value: Option<String>| value.unwrap_or_default();
            vec![
                id.to_string(),
                cell(stat.map(|stat| human(stat.size))),
                cell(stat.map(|stat| human(stat.mapped_bytes))),
                cell(stat.map(|stat| count(stat.extents))),
                cell(stat.map(|stat| human(1 << stat.block_shift))),
                cell(stat.map(|stat| count(stat.epoch))),
                cell(stat.map(|stat| if stat.pinned_bytes == 0 { "-".to_owned() } else { human(stat.pinned_bytes) })),
            ]
        })
        .collect();
    context.out.table(&["object", ">size", ">stored", ">extents", ">block", ">epoch", ">pinned"], &rows)
}

pub fn stat(context: &mut Context<'_>, name: &OsStr) -> Done {
    let store = context.open(Access::Read)?;
    match target::either::<ObjectId>(&store, name)? {
        Target::Container(label) => {
            let info = store.container(label)?.info()?;
            if context.out.json {
                return context.out.document(&container_document(&info));
            }
            containers(context, &[info])
        }
        Target::Inside(label, id) => {
            let stat = store.container(label)?.object(id).stat()?;
            if context.out.json {
                return context.out.document(&object_document(id, &stat));
            }
            objects(context, &[(id, Some(stat))])
        }
    }
}

fn id_words(id: Option<u32>) -> String {
    id.map_or_else(|| "-".to_owned(), |id| id.to_string())
}

fn container_document(info: &ContainerInfo) -> Value {
    json!({
        "label": info.label,
        "id": info.id.0,
        "objects": info.objects,
        "indices": info.indices,
        "records": info.records,
        "stored_bytes": info.stored_bytes,
        "durability": info.spec.durability.word(),
        "block_size": 1_u64 << info.spec.block_shift,
        "quota_bytes": info.spec.quota_bytes,
        "policy": if info.spec.policy.is_empty() { "fast-first" } else { &info.spec.policy },
        "weight": info.spec.weight,
        "owner_uid": info.spec.owner_uid,
        "owner_gid": info.spec.owner_gid,
        "mode": format!("{:04o}", info.spec.mode),
    })
}

/// Converts an object for programs.
pub fn object_document(id: ObjectId, stat: &ObjectStat) -> Value {
    json!({
        "object": id.to_string(),
        "size": stat.size,
        "mapped_bytes": stat.mapped_bytes,
        "taken_bytes": stat.taken_bytes,
        "extents": stat.extents,
        "block_size": 1_u64 << stat.block_shift,
        "epoch": stat.epoch,
        "pinned_bytes": stat.pinned_bytes,
    })
}
