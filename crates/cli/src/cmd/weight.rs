//! `weight`: the parts of scarce tiers that users have.

use cenote::{Error, HomeId, Weights};
use clap::Args;
use serde_json::json;

use super::{Access, Context};
use crate::failure::Done;
use crate::users::{name_of, uid_of};

/// Help on weights.
pub const WEIGHT_HELP: &str = "\
Users whose programs take space on a tier share it by their weights while its room is scarce; what a user has, the containers
that it writes to share by theirs (`cenote set CONTAINER --weight N`). Users without a weight of their own have 1.

  cenote weight                  the users with a weight of their own
  cenote weight alice 4          four times the room of a user with weight 1
  cenote weight alice 1          as all others again

In a cluster it counts at all homes. One that is away takes it over when it is back.";

/// Largest weight.
const WEIGHT_MAX: i64 = cenote::model::USER_WEIGHT_MAX as i64;

/// Show or set the parts that users have of tiers whose room is scarce. Only the owner of the store and root set them
#[derive(Args, Debug)]
#[command(after_help = WEIGHT_HELP)]
pub struct WeightArgs {
    /// A user, by name or number [default: list all that have a weight of their own]
    pub user: Option<String>,
    /// 1 to 1000 [default: show it]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=WEIGHT_MAX), value_name = "N")]
    pub weight: Option<u16>,
}

/// Shows or sets weights of users.
pub fn weight(context: &mut Context<'_>, args: &WeightArgs) -> Done {
    let uid = args.user.as_deref().map(uid_of).transpose()?;
    let told = match (uid, args.weight) {
        (Some(uid), Some(weight)) => context.open(Access::Write)?.set_user_weight(uid, weight)?,
        _ => context.open(Access::Read)?.user_weights()?,
    };
    if context.out.json {
        return context.out.document(&document(&told, uid));
    }
    match (uid, args.weight) {
        (Some(uid), None) => context.out.line(told.weights.of(uid).to_string())?,
        (None, _) => list(context, &told)?,
        _ => {}
    }
    if !told.behind.is_empty() {
        context
            .out
            .line(format!("not at {} yet, which will follow within seconds", homes(told.behind.iter().copied())))?;
    }
    if !told.silent.is_empty() {
        let away = homes(told.silent.iter().map(|(home, _)| *home));
        context.out.line(format!("not at {away} while that is away; it follows when it is back"))?;
    }
    Ok(())
}

fn list(context: &mut Context<'_>, told: &Weights) -> Done {
    if told.weights.users.is_empty() {
        return context.out.line("all users have weight 1 (`cenote weight USER N`)");
    }
    let row = |user: &cenote::UserWeight| vec![name_of(user.uid), user.uid.to_string(), user.weight.to_string()];
    let rows: Vec<_> = told.weights.users.iter().map(row).collect();
    context.out.table(&["user", ">uid", ">weight"], &rows)?;
    context.out.line("all others have weight 1")
}

fn homes(homes: impl Iterator<Item = HomeId>) -> String {
    let homes: Vec<String> = homes.map(|home| format!("home {home}")).collect();
    homes.join(", ")
}

fn document(told: &Weights, uid: Option<u32>) -> serde_json::Value {
    let user = |uid: u32| json!({ "user": name_of(uid), "uid": uid, "weight": told.weights.of(uid) });
    let users: Vec<_> = match uid {
        Some(uid) => vec![user(uid)],
        None => told.weights.users.iter().map(|it| user(it.uid)).collect(),
    };
    let away = |(home, why): &(HomeId, Error)| json!({ "home": home.to_string(), "why": why.to_string() });
    json!({
        "users": users,
        "behind": told.behind.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "away": told.silent.iter().map(away).collect::<Vec<_>>(),
    })
}
