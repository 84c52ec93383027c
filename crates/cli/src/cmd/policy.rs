//! `policy`: set, check and show your own rules; `rules`: what their life cycle does; `policies`: list of policies.

use std::io::Read;
use std::path::Path;

use cenote::model::size::{count, human};
use cenote::{Error, PolicyState};
use clap::{Args, Subcommand};
use serde_json::json;

use super::{Access, Context};
use crate::failure::Done;

/// Policy commands.
#[derive(Subcommand, Debug)]
pub enum PolicyCommand {
    /// Apply the rules of a file from now on; refused, with line numbers, if they make no sense for the store's tiers
    Set {
        /// The file (TOML: docs/policies.md); - for standard input
        file: std::path::PathBuf,
    },
    /// Show the current rules, what is wrong with them, the containers that use them, and policies from plugins
    Show,
    /// Check a file against the store's tiers without any change
    Check {
        /// The file; - for standard input
        file: std::path::PathBuf,
    },
    /// Remove the rules: containers with the policy `user` behave as with `fast-first`
    Clear,
}

pub fn policy(context: &mut Context<'_>, command: &PolicyCommand) -> Done {
    match command {
        PolicyCommand::Set { file } => {
            let text = read(file)?;
            let store = context.open(Access::Write)?;
            Ok(store.set_policy(Some(&text), false)?)
        }
        PolicyCommand::Check { file } => {
            let text = read(file)?;
            context.open(Access::Read)?.set_policy(Some(&text), true)?;
            if context.out.json {
                return context.out.document(&json!({ "file": file.display().to_string(), "good": true }));
            }
            context.out.line(format!("{}: nothing is wrong with it", file.display()))
        }
        PolicyCommand::Clear => Ok(context.open(Access::Write)?.set_policy(None, false)?),
        PolicyCommand::Show => {
            let state = context.open(Access::Read)?.policy()?;
            if context.out.json {
                return context.out.document(&document(&state));
            }
            show(context, &state)
        }
    }
}

fn read(file: &Path) -> cenote::Result<String> {
    let failed = |error: &std::io::Error| Error::io(file.display().to_string(), error);
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(|error| failed(&error))?;
        return Ok(text);
    }
    std::fs::read_to_string(file).map_err(|error| failed(&error))
}

fn show(context: &mut Context<'_>, state: &PolicyState) -> Done {
    let out = &mut *context.out;
    if state.text.is_empty() {
        out.line("no rules are set (`cenote policy set FILE`)")?;
    } else {
        out.line(state.text.trim_end())?;
        out.line("")?;
        let who = if state.followers.is_empty() { "no container".to_owned() } else { state.followers.join(", ") };
        out.line(format!("followed by: {who} (policy `user`); the life cycle is followed in all containers"))?;
    }
    for fault in &state.faults {
        out.line(format!("wrong: {fault}"))?;
    }
    if !state.refused.is_empty() {
        out.line(format!("the last one that was to be set was refused: {}", state.refused))?;
    }
    for plugin in &state.plugins {
        let failure = if plugin.failure.is_empty() { "" } else { "; it " };
        out.line(format!("plugin `{}`: {}{failure}{}", plugin.name, plugin.about, plugin.failure))?;
    }
    Ok(())
}

fn document(state: &PolicyState) -> serde_json::Value {
    let plugins: Vec<_> = (state.plugins.iter())
        .map(|one| json!({ "name": one.name, "about": one.about, "failure": one.failure }))
        .collect();
    json!({
        "text": state.text, "faults": state.faults, "refused": state.refused, "followers": state.followers,
        "plugins": plugins, "rules": rules_document(state), "deletes_held": state.deletes_held,
    })
}

fn rules_document(state: &PolicyState) -> Vec<serde_json::Value> {
    let rule = |one: &cenote::RuleState| {
        json!({
            "name": one.name, "line": one.line, "action": one.what, "ranges": one.ranges, "bytes": one.bytes,
            "deleted": one.deleted, "last_error": one.last_error,
        })
    };
    state.rules.iter().map(rule).collect()
}

/// Show what the life-cycle rules have done
#[derive(Args, Debug)]
pub struct RulesArgs {
    /// Show what they would do now, with reasons, without doing it
    #[arg(long)]
    dry_run: bool,
}

pub fn rules(context: &mut Context<'_>, args: &RulesArgs) -> Done {
    let store = context.open(Access::Read)?;
    if args.dry_run {
        let told = store.try_rules()?;
        return super::arrange::report(context, &told, true, "the rules hold for nothing now");
    }
    let state = store.policy()?;
    if context.out.json {
        return context.out.document(&json!({ "rules": rules_document(&state), "deletes_held": state.deletes_held }));
    }
    if state.rules.is_empty() {
        return context
            .out
            .line("there are no life-cycle rules ([[lifecycle]] in the file of `cenote policy set FILE`)");
    }
    let rows: Vec<Vec<String>> = (state.rules.iter())
        .map(|one| {
            vec![
                one.name.clone(),
                one.line.to_string(),
                one.what.clone(),
                count(one.ranges),
                human(one.bytes),
                count(one.deleted),
                if one.last_error.is_empty() { "-".to_owned() } else { one.last_error.clone() },
            ]
        })
        .collect();
    context.out.table(&["rule", ">line", "what", ">ranges", ">bytes", ">deleted", "last error"], &rows)?;
    if !state.deletes_held.is_empty() {
        context.out.line(&state.deletes_held)?;
    }
    Ok(())
}

pub fn policies(context: &mut Context<'_>) -> Done {
    let mut all: Vec<(String, String)> = cenote::policies().collect();
    all.push(("user".to_owned(), "rules of your own, in TOML: `cenote policy set FILE`".to_owned()));
    if context.out.json {
        let list: Vec<_> = all.iter().map(|(name, about)| json!({ "name": name, "about": about })).collect();
        return context.out.document(&json!(list));
    }
    let rows: Vec<Vec<String>> = all.into_iter().map(|(name, about)| vec![name, about]).collect();
    context.out.table(&["policy", "what it does"], &rows)
}
