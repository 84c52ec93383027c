//! `layout`, and the options `--layout` and `--domain`: copies, stripes and parity for containers, objects and ranges.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use cenote::model::size::human;
use cenote::{ArrangeTarget, Arrangement, ContainerId, Domain, ErrorKind, HomeId, LayoutTier, LayoutWish, Store};
use clap::error::ErrorKind::MissingRequiredArgument;
use clap::{Args, CommandFactory, ValueEnum};
use serde_json::json;

use super::arrange::{self, MoveArgs};
use super::directory::Directory;
use super::{Access, Context, cluster};
use crate::args::Cli;
use crate::failure::{Done, Failure};

/// The attribute of a directory by which programs set its layout, also through a mount.
const XATTR: &str = "user.cenote.layout";

/// Help on layouts.
pub const LAYOUT_HELP: &str = "\
  mirror=2      two copies on two places          4+2       four parts of data and two of parity: any two may be lost
  stripe=4      four parts, none of which may be  plain     no layout any more
                lost: for speed                   4+2,unit=256KiB

Without TARGET: the tiers that have a layout. Bytes are kept in a layout by such a tier (kind=raid; `cenote tier add`): those of
TARGET move there, and stay. In a cluster one is made on the nodes if there is none.

  cenote mk runs --layout 4+2                               a container whose bytes survive the loss of two nodes or disks
  cenote layout runs/2a mirror=2 --range 0-1GiB             only the first part of an object
  cenote layout runs plain                                  its bytes may lie anywhere again
  cenote layout -d runs/results 4+2                         the files that are made there from now on
  cenote layout -d -r runs/results 4+2 --move               all that is there, too

Through a mount or preload: setfattr -n user.cenote.layout -v 4+2 DIRECTORY, getfattr, setfattr -x.";

/// What is lost together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DomainArg {
    /// Each part is on a node of its own
    Node,
    /// Each part is on a disk of its own
    Device,
}

/// The layout of a container.
#[derive(Args, Debug)]
pub struct LayoutOptions {
    /// Keep its bytes as mirror=2, 4+2, stripe=4; plain: no more (`cenote layout --help`)
    #[arg(long)]
    pub layout: Option<LayoutWish>,
    /// What may be lost with one part of the layout [default: either]
    #[arg(long, value_enum, requires = "layout", value_name = "DOMAIN")]
    pub domain: Option<DomainArg>,
}

impl LayoutOptions {
    /// The layout that is asked for.
    pub fn wish(&self) -> cenote::Result<Option<LayoutWish>> {
        self.layout.map(|layout| in_domain(layout, self.domain)).transpose()
    }
}

/// What is to be kept in a layout.
#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub struct LayoutArgs {
    /// CONTAINER/OBJECT, or CONTAINER; with -d: CONTAINER/DIRECTORY, or a directory of a mounted store
    pub target: Option<OsString>,
    /// mirror=2, 4+2, stripe=4, plain
    pub layout: Option<LayoutWish>,
    /// Only this part of an object: FROM-TO, as in 1GiB-2GiB
    #[arg(long, value_name = "FROM-TO", requires = "target")]
    pub range: Option<String>,
    /// What may be lost with one part of the layout [default: either]
    #[arg(long, value_enum, requires = "layout", value_name = "DOMAIN")]
    pub domain: Option<DomainArg>,
    /// Do nothing: print what would be moved, at what cost, and why
    #[arg(long, requires = "layout", conflicts_with = "directory")]
    pub dry_run: bool,
    /// For the files that are made in a directory from now on, and in directories that are made in it [without LAYOUT: show it]
    #[arg(short, long, requires = "target", conflicts_with = "range")]
    pub directory: bool,
    /// Also for the directories that are below
    #[arg(short, long, requires_all = ["directory", "layout"])]
    pub recursive: bool,
    /// Also for the files that are there: they move
    #[arg(long = "move", requires_all = ["directory", "layout"])]
    pub moves: bool,
}

fn in_domain(layout: LayoutWish, domain: Option<DomainArg>) -> cenote::Result<LayoutWish> {
    match domain {
        Some(DomainArg::Node) => layout.in_domain(Domain::Node),
        Some(DomainArg::Device) => layout.in_domain(Domain::Device),
        None => Ok(layout),
    }
}

pub fn layout(context: &mut Context<'_>, args: &LayoutArgs) -> Done {
    let Some(target) = &args.target else { return list(context) };
    let wish = args.layout.map(|layout| in_domain(layout, args.domain)).transpose()?;
    if args.directory {
        return of_directory(context, target, wish.as_ref(), args);
    }
    let Some(wish) = wish else {
        let why = "a layout is missing, as in `4+2`; `cenote layout -d CONTAINER/DIRECTORY` shows that of a directory";
        Cli::command().error(MissingRequiredArgument, why).exit();
    };
    let store = context.open(if args.dry_run { Access::Read } else { Access::Write })?;
    let (target, range) = (Some(target.clone()), args.range.clone());
    let target = arrange::target_of(&store, &MoveArgs { target, range, query: None, dry_run: args.dry_run })?;
    let done = keep(context, &store, &target, &wish, args.dry_run)?;
    arrange::finish(context, &done, args.dry_run)
}

/// Keeps something in a layout. In a cluster a tier with it is made if there is none.
pub(super) fn keep(
    context: &mut Context<'_>,
    store: &Store,
    target: &ArrangeTarget,
    wish: &LayoutWish,
    dry_run: bool,
) -> Result<Arrangement, Failure> {
    if let Some(home) = target.container().map(ContainerId::home)
        && !dry_run
    {
        have_tier(context, store, home, wish)?;
    }
    Ok(store.set_layout(target, wish, dry_run)?)
}

/// Makes a tier with a layout in a cluster whose home has none; elsewhere that is an error.
fn have_tier(context: &mut Context<'_>, store: &Store, home: HomeId, wish: &LayoutWish) -> Done {
    if wish.is_plain() {
        return Ok(());
    }
    let Err(none) = store.tier_with(home, wish) else { return Ok(()) };
    if none.kind() != ErrorKind::NotFound {
        return Err(none.into());
    }
    let Some(tier) = cluster::make_tier_with(&context.dir()?, store, home, wish)? else { return Err(none.into()) };
    if context.out.json {
        return Ok(());
    }
    let places = tier.paths().len();
    context.out.line(format!("tier {}: made on {places} nodes, {}", tier.name, human(tier.capacity_bytes)))
}

/// Shows or sets the layout of the files that are made in a directory.
fn of_directory(context: &mut Context<'_>, path: &OsStr, wish: Option<&LayoutWish>, args: &LayoutArgs) -> Done {
    let access = if wish.is_some() { Access::Write } else { Access::Read };
    let directory = Directory::find(context, path, access, "layout")?;
    let (mut files, mut bytes) = (0_u64, 0);
    if let Some(wish) = wish {
        if let Some(store) = directory.store() {
            let label = path.as_bytes().split(|byte| *byte == b'/').find(|name| !name.is_empty()).unwrap_or_default();
            let home = store.container(&String::from_utf8_lossy(label))?.home();
            have_tier(context, &store.clone(), home, wish)?;
        }
        directory.set(XATTR, &wish.to_string(), args.recursive)?;
        if args.moves {
            directory.each_file(args.recursive, &mut |object| {
                let target = ArrangeTarget::Object(object.key());
                let done = object.container().store().set_layout(&target, wish, false)?;
                (files, bytes) = (files + 1, bytes + done.pinned_bytes);
                Ok(())
            })?;
        }
    }
    let layout = directory.get(XATTR)?;
    if context.out.json {
        let path = path.to_string_lossy();
        let moved = json!({ "files": files, "bytes": bytes });
        return context.out.document(&json!({ "path": path, "layout": layout, "there": moved }));
    }
    if args.moves {
        return context.out.line(format!("{files} files that were there, {}", human(bytes)));
    }
    if wish.is_none() { context.out.line(layout.as_deref().unwrap_or("plain")) } else { Ok(()) }
}

/// Shows the tiers that have a layout, those of all homes.
fn list(context: &mut Context<'_>) -> Done {
    let store = context.open(Access::Read)?;
    let mut all: Vec<(String, LayoutTier)> = Vec::new();
    let homes = store.homes();
    for home in if homes.is_empty() { vec![HomeId(0)] } else { homes } {
        let name = if home == HomeId(0) { String::new() } else { home.to_string() };
        all.extend(store.layout_tiers(home)?.into_iter().map(|tier| (name.clone(), tier)));
    }
    if context.out.json {
        let tiers: Vec<_> = (all.iter())
            .map(|(home, tier)| {
                json!({
                    "home": home, "tier": tier.name, "layout": tier.layout.to_string(), "places": tier.places,
                    "survives": tier.layout.losses_max(), "free_bytes": tier.free_bytes, "note": tier.note,
                })
            })
            .collect();
        return context.out.document(&json!({ "tiers": tiers }));
    }
    if all.is_empty() {
        return context.out.line("no tier has a layout: `cenote layout --help` says how to get one");
    }
    let rows: Vec<Vec<String>> = (all.iter())
        .map(|(home, tier)| {
            let (layout, losses) = (tier.layout, tier.layout.losses_max());
            let scheme = layout.in_domain(Domain::Node).to_string();
            let survives = format!("{losses} {}", layout.domain().words(losses));
            let places = format!("{} {}", tier.places, layout.domain().words(tier.places));
            vec![home.clone(), tier.name.clone(), scheme, places, survives, human(tier.free_bytes), tier.note.clone()]
        })
        .collect();
    context.out.table(&["home", "tier", "layout", "places", "survives", ">free", "note"], &rows)
}
